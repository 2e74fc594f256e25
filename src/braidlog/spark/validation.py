"""Whether a fork may become its parent: what a pipeline makes of it is looked at first.

    validator = SparkValidator(inventory, [every_row("stock >= 0")], spark=spark, url=braid.url)
    verdict = validator(fork)
    if verdict:
        fork.promote(expected_own=verdict.own)

A validator never changes a fork, whatever it finds and however it fails. A verdict counts for the records that the fork
had of its own when it began: `expected_own` sees to it that no others are promoted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

from pyspark.sql import DataFrame, SparkSession

from braidlog import limits
from braidlog.client.log import Log
from braidlog.errors import InvalidArgument
from braidlog.spark.expectations import Expectation, Failure, Outputs
from braidlog.spark.forks import Produced, run_on_fork
from braidlog.spark.pipelines import Mode, Pipeline, checked_mode
from braidlog.spark.time_travel import severed


@dataclass(frozen=True)
class Verdict:
    """Whether a fork passed, and if not, why. True in an `if` when it did."""

    fork: str
    own: int  # records of its own that were looked at: pass them to promote(expected_own=)
    passed: bool
    failures: tuple[Failure, ...] = ()

    @property
    def reasons(self) -> list[str]:
        """Why it did not pass. With this and `samples` it counts among what `braidlog.agents` takes for a verdict."""
        return [f"{failure.expectation}: {failure.reason}" for failure in self.failures]

    @property
    def samples(self) -> list[str]:
        """Rows that speak against it."""
        return [str(row) for failure in self.failures for row in failure.rows]

    def __bool__(self) -> bool:
        return self.passed

    def __str__(self) -> str:
        head = f"{self.fork} {'passed' if self.passed else 'did not pass'} with {self.own} records of its own"
        return "\n".join([head, *map(str, self.failures)])


class SparkValidator:
    """Runs a pipeline on a fork and holds its rows against expectations. Call it with the fork."""

    def __init__(
        self,
        pipeline: Pipeline,
        expectations: Sequence[Expectation],
        *,
        spark: SparkSession,
        url: str,
        mode: Mode = "append",
        starting: str = "earliest",
        read_options: Mapping[str, str] | None = None,
        timeout: float = limits.SPARK_RUN_S,
    ) -> None:
        if not expectations:
            raise InvalidArgument("a validator without expectations would let everything pass: give at least one")
        self._pipeline = pipeline
        self._expectations = tuple(expectations)
        self._spark = spark
        self._url = url
        self._mode = checked_mode(mode)
        self._starting = starting
        self._read_options = read_options
        self._timeout = timeout

    def __call__(self, fork: Log) -> Verdict:
        """Look at a fork. An error of the pipeline, of an expectation or of Spark is a failure, with its reason."""
        own = 0
        try:
            info = fork.info()
            own = info.own
            with ExitStack() as ended:
                produced = self._run(fork, ended)
                if produced.end < info.tail:
                    raise InvalidArgument(
                        f"{produced.end} of {info.tail} positions could be read: a hold above the fork hides the rest"
                    )
                outputs = Outputs(produced.rows.cache(), cache(lambda: self._parent(fork, ended)))
                ended.callback(outputs.rows.unpersist)
                failures = tuple(found for one in self._expectations if (found := _examined(one, outputs)) is not None)
        except Exception as error:
            failures = (Failure("the pipeline runs on the fork", _reason(error)),)
        return Verdict(fork.name, own, not failures, failures)

    def _run(self, log: Log, ended: ExitStack) -> Produced:
        produced = run_on_fork(
            self._pipeline,
            log,
            spark=self._spark,
            url=self._url,
            mode=self._mode,
            starting=self._starting,
            read_options=self._read_options,
            timeout=self._timeout,
        )
        ended.callback(produced.discard)
        return produced

    def _parent(self, fork: Log, ended: ExitStack) -> DataFrame:
        """What the pipeline makes of all that was there when the fork was made. It is the fork itself that is severed
        there: below its fork point it is its parent, which may be held."""
        before = ended.enter_context(severed(fork, fork.info().fork_point, "parent of a fork that is validated"))
        return self._run(before, ended).rows


def _examined(expectation: Expectation, outputs: Outputs) -> Failure | None:
    try:
        return expectation.examine(outputs)
    except Exception as error:
        return Failure(expectation.claim, f"it could not be examined: {_reason(error)}")


def _reason(error: Exception) -> str:
    """An error in a line: what it is, and what it says first. Spark appends the stacks of several processes."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {said[0] if said else 'nothing was said'}"[: limits.SPARK_REASON_CHARS_MAX]

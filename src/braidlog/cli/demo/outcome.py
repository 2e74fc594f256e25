"""What the demo measured and found, as plain values: `braid --json demo` prints it."""

from __future__ import annotations

from msgspec import Struct

from braidlog.cli.demo.trade import Mispriced


class Latency(Struct, frozen=True, kw_only=True):
    """Of production, in a stretch of time. Reading is from the call that appends an order to the consumer that has it;
    orders that a hold kept back are not among these, but in `Attempt.waited_s`."""

    orders: int
    per_s: float
    append_p50_us: float
    append_p99_us: float
    read_p50_us: float
    read_p99_us: float


class Attempt(Struct, frozen=True, kw_only=True):
    """A promotable fork of the restocker, and what became of it."""

    fork: str
    state: str  # of its proposal
    positions: list[int]  # where its records stood, and if it was promoted stand
    reasons: list[str]  # of validators that were against it
    held_s: float  # from the fork to the decision
    waited_s: float  # from the fork to the next record that the consumer got


class SparkCheck(Struct, frozen=True, kw_only=True):
    """What a Spark job said, of the bad records on a plain fork, and of the good ones before they were promoted."""

    start_s: float
    against: list[str]
    passed: bool
    seconds: float  # that it took for the good ones


class Outcome(Struct, frozen=True, kw_only=True):
    """All of it."""

    seed: int
    log: str
    seconds: float
    alone: Latency
    beside_agents: Latency
    forks: int
    fork_p50_us: float
    engine: str  # that the analyst asked: "DuckDB" or "Arrow"
    mispriced: list[Mispriced]  # that it found
    tested: dict[str, str]  # what was injected, and what the consumer makes of it
    caught: Attempt
    promoted: Attempt
    spark: SparkCheck | None
    no_spark: str  # why not
    waiting: str  # the proposal that waits for a person
    read_orders: int
    read_restocks: int

"""What the rows of a pipeline must fulfil, each a small value with a name. `SparkValidator` asks them all.

An expectation looks at the rows that a run on a fork produced, and, if it wants, at what the same pipeline makes of the
parent. It answers None, or why not, with a few of the rows that speak against it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from braidlog import limits
from braidlog.errors import InvalidArgument
from braidlog.spark.pipelines import as_schema

# What a user's function may answer: True or None is fine, False or a text is not, nor is a DataFrame that has rows.
Opinion: TypeAlias = bool | str | DataFrame | None


@dataclass(frozen=True)
class Failure:
    """One expectation that was not met. `rows` are a few of those that speak against it."""

    expectation: str
    reason: str
    rows: tuple[Row, ...] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.expectation}: {self.reason}", *(f"    {row}" for row in self.rows)])


@dataclass(frozen=True)
class Outputs:
    """What is looked at. The parent's rows are made only if somebody asks."""

    rows: DataFrame
    parent: Callable[[], DataFrame]


@dataclass(frozen=True)
class Expectation:
    """A claim about rows, in words, and how it is examined."""

    claim: str
    examine: Callable[[Outputs], Failure | None] = field(repr=False)


def row_count(*, exactly: int | None = None, at_least: int | None = None, at_most: int | None = None) -> Expectation:
    """So many rows."""
    low, high = (exactly, exactly) if exactly is not None else (at_least, at_most)
    if low is None and high is None:
        raise InvalidArgument("row_count needs exactly=, at_least= or at_most=")
    bounds = f"{'' if low is None else low}..{'' if high is None else high}"
    claim = f"the number of rows is {exactly}" if exactly is not None else f"the number of rows is in {bounds}"

    def examine(outputs: Outputs) -> Failure | None:
        count = outputs.rows.count()
        fits = (low is None or count >= low) and (high is None or count <= high)
        return None if fits else Failure(claim, f"there are {count}")

    return Expectation(claim, examine)


def has_schema(schema: StructType | str, *, exactly: bool = False) -> Expectation:
    """These columns with these types, among others, or `exactly` these in this order. Nullability is not looked at."""
    columns = [(column.name, column.dataType.simpleString()) for column in as_schema(schema)]
    claim = f"the columns {'are' if exactly else 'include'} {', '.join(map(' '.join, columns))}"

    def examine(outputs: Outputs) -> Failure | None:
        there = [(column.name, column.dataType.simpleString()) for column in outputs.rows.schema]
        fits = there == columns if exactly else set(columns) <= set(there)
        return None if fits else Failure(claim, f"they are {', '.join(map(' '.join, there))}")

    return Expectation(claim, examine)


def every_row(predicate: str, claim: str | None = None) -> Expectation:
    """No row fails a predicate in SQL. One that it says nothing about (null) fails it."""
    named = claim or f"every row fulfils {predicate}"

    def examine(outputs: Outputs) -> Failure | None:
        failing = outputs.rows.filter(~f.coalesce(f.expr(predicate), f.lit(False)))
        return _none_of(named, failing, "rows fail")

    return Expectation(named, examine)


def equals(expected: DataFrame, claim: str = "the rows are the expected ones") -> Expectation:
    """The same rows, as often, in any order."""

    def examine(outputs: Outputs) -> Failure | None:
        names = outputs.rows.columns
        if sorted(names) != sorted(expected.columns):
            return Failure(claim, f"the columns are {', '.join(names)}, not {', '.join(expected.columns)}")
        wanted = expected.select(*names)
        return _none_of(claim, outputs.rows.exceptAll(wanted), "rows too many") or _none_of(
            claim, wanted.exceptAll(outputs.rows), "rows are missing"
        )

    return Expectation(claim, examine)


def satisfies(claim: str, ask: Callable[[DataFrame], Opinion]) -> Expectation:
    """Whatever a function of the rows says: that it is so (True, None), that it is not (False, or why not), or which
    rows speak against it (a DataFrame)."""
    return Expectation(claim, lambda outputs: _judged(claim, ask(outputs.rows)))


def compared_with_parent(claim: str, ask: Callable[[DataFrame, DataFrame], Opinion]) -> Expectation:
    """The same of a function of the fork's rows and of the parent's: what must not change by what the fork adds."""
    return Expectation(claim, lambda outputs: _judged(claim, ask(outputs.rows, outputs.parent())))


def _judged(claim: str, opinion: Opinion) -> Failure | None:
    if isinstance(opinion, DataFrame):
        return _none_of(claim, opinion, "rows speak against it")
    if isinstance(opinion, str):
        return Failure(claim, opinion)
    if opinion is None or opinion is True:
        return None
    if opinion is False:
        return Failure(claim, "it is not so")
    raise InvalidArgument(f"{claim}: a check answers True, False, None, a text or a DataFrame, not {opinion!r}")


def _none_of(claim: str, rows: DataFrame, problem: str) -> Failure | None:
    """There are none of these rows. Some are shown, all are counted."""
    shown = rows.take(limits.SPARK_SAMPLE_ROWS)
    if not shown:
        return None
    count = len(shown) if len(shown) < limits.SPARK_SAMPLE_ROWS else rows.count()
    return Failure(claim, f"{count} {problem}", tuple(shown))

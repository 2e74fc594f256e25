"""A log as it was: a table as of a position or of a moment is a severed fork, which nothing appended later can change.

Making one takes no time and copies nothing. It lives for `ttl` seconds, or until it is let go of: `table_as_of` does
that when its block ends, `forget_tables` for those that `as_of` left. What a fork can read is kept though its log is
trimmed.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from braidlog import limits
from braidlog.client.log import Log
from braidlog.errors import Gone, InvalidArgument, NotFound
from braidlog.spark.options import parse
from braidlog.spark.pipelines import FORMAT
from braidlog.spark.planning import PURPOSE
from braidlog.spark.reaching import Reach
from braidlog.spark.sessions import settled

AS_OF: Final = "table-as-of"
IN_USE: Final = "table-in-use"


def as_of(
    spark: SparkSession,
    url: str,
    log: str,
    position: int | None = None,
    time: datetime | None = None,
    *,
    ttl: float = limits.SPARK_TABLE_TTL_S,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The first `position` records of a log; those before the first of `time` or later; or, without either, all now.

    The fork behind it is squashed `ttl` seconds from now: read the table before, or give it longer.
    """
    with _reach(url, log, options).braid() as reached:
        source = reached.braid.log(log)
        fork = _sever(source, _position(source, position, time), ttl, AS_OF)
    return _table(spark, url, fork.name, options)


@contextlib.contextmanager
def table_as_of(
    spark: SparkSession,
    url: str,
    log: str,
    position: int | None = None,
    time: datetime | None = None,
    *,
    ttl: float = limits.SPARK_TABLE_TTL_S,
    options: Mapping[str, str] | None = None,
) -> Iterator[DataFrame]:
    """The same for as long as a `with` block lasts, and at most `ttl` seconds."""
    with _reach(url, log, options).braid() as reached:
        source = reached.braid.log(log)
        name = _sever(source, _position(source, position, time), ttl, IN_USE).name
    try:
        yield _table(spark, url, name, options)
    finally:
        with _reach(url, log, options).braid() as reached, contextlib.suppress(Gone, NotFound):
            reached.braid.log(name).squash()


def forget_tables(url: str, log: str | None = None, *, options: Mapping[str, str] | None = None) -> int:
    """Let go of the tables that `as_of` made, of one log or of all; answers how many there were."""
    forgotten = 0
    with _reach(url, log or AS_OF, options).braid() as reached:
        for fork in list(reached.braid.logs()):
            with contextlib.suppress(Gone):
                info = fork.info()
                if info.labels.get(PURPOSE) == AS_OF and log in (None, info.parent):
                    fork.squash()
                    forgotten += 1
    return forgotten


@contextlib.contextmanager
def severed(log: Log, at: int | None, purpose: str) -> Iterator[Log]:
    """A severed fork for as long as a `with` block lasts."""
    fork = _sever(log, at, limits.SPARK_TABLE_TTL_S, purpose)
    try:
        yield fork
    finally:
        with contextlib.suppress(Gone):
            fork.squash()


def _sever(log: Log, at: int | None, ttl: float, purpose: str) -> Log:
    where = "now" if at is None else str(at)
    name = f"{log.name[:200]}.as-of-{where}.{uuid.uuid4().hex[:8]}"
    return log.sfork(name, at=at, ttl=ttl, labels={PURPOSE: purpose})


def _position(log: Log, position: int | None, time: datetime | None) -> int | None:
    if position is not None and time is not None:
        raise InvalidArgument("a table is as of a position or as of a time: give one of the two")
    return position if time is None else log.position_at(time)


def _reach(url: str, log: str, options: Mapping[str, str] | None) -> Reach:
    given = {**(options or {}), "url": url, "log": log}
    return Reach(settled(parse(given, os.environ).place))


def _table(spark: SparkSession, url: str, fork: str, options: Mapping[str, str] | None) -> DataFrame:
    return spark.read.format(FORMAT).options(**{**(options or {}), "url": url, "log": fork}).load()

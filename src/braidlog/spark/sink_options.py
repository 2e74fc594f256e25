"""PURE: what a user of the sink asks for, from the options of Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from braidlog import limits
from braidlog.errors import InvalidArgument
from braidlog.forest.names import check_name
from braidlog.spark.options import Given, OnForkEnd, Place, place

_KNOWN: Final = (
    "url",
    "path",
    "log",
    "createLog",
    "txnAppId",
    "txnVersion",
    "uploadTtl",
    "blockBytes",
    "blockedTimeout",
    "commitTimeout",
    "onForkEnd",
    "tokenFile",
    "tlsCa",
    "timeout",
    "checkpointLocation",  # Spark's own, which it does not keep to itself
)
_TXN: Final = "spark-txn:"


@dataclass(frozen=True)
class SinkOptions:
    """Where records go, and how patient a write is. Pickles: tasks get it as it is."""

    place: Place
    log: str
    create_log: bool
    txn: tuple[str, int] | None  # a writer and its sequence
    upload_ttl_s: float
    block_bytes: int
    blocked_timeout_s: float
    commit_timeout_s: float
    on_fork_end: OnForkEnd


def parse(options: Mapping[str, str], environment: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """InvalidArgument says which option is wrong, and what would be right."""
    given = Given(options, _KNOWN)
    txn = _txn(given.text("txnAppId"), given.text("txnVersion"))
    if txn is not None and streaming:
        raise InvalidArgument(
            "txnAppId and txnVersion are for batch writes, as in foreachBatch: a streaming query has an id and numbers "
            "its batches itself, so leave them out"
        )
    return SinkOptions(
        place=place(given, environment),
        log=_log(given.text("log")),
        create_log=given.flag("createLog", default=False),
        txn=txn,
        upload_ttl_s=_ttl(given.seconds("uploadTtl")),
        block_bytes=_block_bytes(given.count("blockBytes")),
        blocked_timeout_s=given.seconds("blockedTimeout") or limits.SPARK_BLOCKED_TIMEOUT_S,
        commit_timeout_s=given.seconds("commitTimeout") or limits.SPARK_COMMIT_TIMEOUT_S,
        on_fork_end="continue" if given.choice("onForkEnd", "fail", "continue") == "continue" else "fail",
    )


def _log(name: str | None) -> str:
    if name is None:
        raise InvalidArgument('say which log to write: option("log", "orders"), a log or a fork')
    if "," in name:
        raise InvalidArgument(f"option log: {name!r} names several logs, and a write goes to one: write once for each")
    check_name(name)
    return name


def _ttl(seconds: float | None) -> float:
    if seconds is not None and seconds > limits.UPLOAD_TTL_MAX_S:
        raise InvalidArgument(f"option uploadTtl is at most {limits.UPLOAD_TTL_MAX_S:g} seconds, not {seconds:g}")
    return seconds or limits.UPLOAD_TTL_S


def _block_bytes(count: int | None) -> int:
    if count is not None and count > limits.UPLOAD_BLOCK_BYTES_MAX:
        raise InvalidArgument(f"option blockBytes is at most {limits.UPLOAD_BLOCK_BYTES_MAX}, not {count}")
    return count or limits.UPLOAD_BLOCK_BYTES


def _txn(app: str | None, version: str | None) -> tuple[str, int] | None:
    if app is None and version is None:
        return None
    if app is None or version is None:
        raise InvalidArgument(
            "options txnAppId and txnVersion go together: who writes, and the number of the write; give both"
        )
    room = limits.WRITER_CHARS_MAX - len(_TXN)
    if len(app) > room:
        raise InvalidArgument(f"option txnAppId has at most {room} characters, not {len(app)}")
    if not re.fullmatch(r"[0-9]{1,18}", version):
        raise InvalidArgument(f"option txnVersion is a whole number from 0 on, higher with each write, not {version!r}")
    return _TXN + app, int(version)

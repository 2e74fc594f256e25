"""What a user of the source asks for, from the options of Spark: names in any case, values as text.

PURE. Names are those of Spark's Kafka source wherever it has the same thing. An option that is not known is refused, as
a slip of the pen would be ignored otherwise: the error names the nearest one.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

from braidlog.errors import InvalidArgument
from braidlog.forest.names import check_name

URL_VARIABLE: Final = "BRAIDLOG_URL"
EARLIEST: Final = -2  # as in the JSON of Kafka's options
LATEST: Final = -1

_KNOWN: Final = (
    "url",
    "path",
    "log",
    "subscribe",
    "logPattern",
    "subscribePattern",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "includeHeaders",
    "onForkEnd",
    "valueSchema",
    "valueFormat",
    "tokenFile",
    "tlsCa",
    "timeout",
)
_SECRETS: Final = ("token", "password", "secret")

OnForkEnd: TypeAlias = Literal["fail", "continue"]
ValueFormat: TypeAlias = Literal["json", "arrow"]


@dataclass(frozen=True)
class Place:
    """How a process reaches the braid. There is no secret in it: those are in files, or in the environment."""

    url: str
    token_file: str | None = None
    tls_ca: str | None = None
    timeout_s: float | None = None


@dataclass(frozen=True)
class Selection:
    """Which logs."""

    names: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    pattern: str | None = None  # a regular expression for the whole name

    @property
    def fixed(self) -> bool:
        """Whether it names all its logs, so that no other can join them."""
        return not self.globs and self.pattern is None

    def matches(self, name: str) -> bool:
        if self.pattern is not None:
            return re.fullmatch(self.pattern, name) is not None
        return name in self.names or any(fnmatch.fnmatchcase(name, glob) for glob in self.globs)

    def __str__(self) -> str:
        return (
            f"logPattern {self.pattern!r}" if self.pattern is not None else f"log {','.join(self.names + self.globs)!r}"
        )


@dataclass(frozen=True)
class Edge:
    """One end of a range: the same for all logs, or of each; or a moment."""

    all: int | None = None  # EARLIEST or LATEST
    each: Mapping[str, int] = field(default_factory=dict)
    moment: datetime | None = None

    def of(self, log: str, default: int) -> int:
        """A position, EARLIEST or LATEST."""
        return self.all if self.all is not None else self.each.get(log, default)


@dataclass(frozen=True)
class SourceOptions:
    """All that a source was asked for."""

    place: Place
    selection: Selection
    starting: Edge | None  # None: what is usual
    ending: Edge | None
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    fail_on_data_loss: bool
    include_headers: bool
    on_fork_end: OnForkEnd
    value_schema: str | None  # as DDL
    value_format: ValueFormat

    @property
    def format_of_values(self) -> ValueFormat | None:
        """How values are taken apart; None if they stay as they are."""
        return None if self.value_schema is None else self.value_format


def parse(options: Mapping[str, str], environment: Mapping[str, str]) -> SourceOptions:
    """InvalidArgument says which option is wrong, and what would be right."""
    given = Given(options, _KNOWN)
    value_schema = given.text("valueSchema")
    if value_schema is None and given.text("valueFormat") is not None:
        raise InvalidArgument(
            'valueFormat says how valueSchema is read: give that too, like "item string, amount long"'
        )
    return SourceOptions(
        place=place(given, environment),
        selection=_selection(given),
        starting=_edge(given, "startingOffsets", "startingTimestamp"),
        ending=_edge(given, "endingOffsets", "endingTimestamp"),
        min_partitions=given.count("minPartitions"),
        max_records_per_partition=given.count("maxRecordsPerPartition"),
        max_offsets_per_trigger=given.count("maxOffsetsPerTrigger"),
        max_bytes_per_trigger=given.count("maxBytesPerTrigger"),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
        include_headers=given.flag("includeHeaders", default=False),
        on_fork_end="continue" if given.choice("onForkEnd", "fail", "continue") == "continue" else "fail",
        value_schema=value_schema,
        value_format="arrow" if given.choice("valueFormat", "json", "arrow") == "arrow" else "json",
    )


class Given:
    """Options by their proper names, whatever case they were written in. One that is not known is refused."""

    def __init__(self, options: Mapping[str, str], known: Iterable[str]) -> None:
        proper = {name.lower(): name for name in known}
        self._values: dict[str, str] = {}
        for key, value in options.items():
            name = proper.get(key.lower())
            if name is None:
                raise _unknown(key, proper)
            self._values[name] = value

    def text(self, name: str) -> str | None:
        """None if it is not given, or empty."""
        value = self._values.get(name)
        return value.strip() or None if value is not None else None

    def either(self, name: str, alias: str) -> str | None:
        """An option that has two names."""
        one, other = self.text(name), self.text(alias)
        if one is not None and other is not None and one != other:
            raise InvalidArgument(f"options {name} and {alias} are the same thing, but say different ones: give one")
        return one if one is not None else other

    def count(self, name: str) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", value) or int(value) < 1:
            raise InvalidArgument(f"option {name} is a whole number from 1 on, not {value!r}")
        return int(value)

    def seconds(self, name: str) -> float | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value) or float(value) <= 0:
            raise InvalidArgument(f"option {name} is a number of seconds above 0, not {value!r}")
        return float(value)

    def flag(self, name: str, *, default: bool) -> bool:
        value = (self.text(name) or str(default)).lower()
        if value not in ("true", "false"):
            raise InvalidArgument(f"option {name} is true or false, not {value!r}")
        return value == "true"

    def choice(self, name: str, *allowed: str) -> str:
        """The first is what is meant when nothing is given."""
        value = (self.text(name) or allowed[0]).lower()
        if value not in allowed:
            raise InvalidArgument(f"option {name} is {' or '.join(allowed)}, not {value!r}")
        return value


def place(given: Given, environment: Mapping[str, str]) -> Place:
    """Where the braid is: the option `url`, the path of `load(path)`, or BRAIDLOG_URL."""
    url = given.either("url", "path") or environment.get(URL_VARIABLE, "").strip()
    if not url:
        raise InvalidArgument(
            'say where the logs are: option("url", "braid://host:port" or a directory), load("..."), or the variable '
            f"{URL_VARIABLE}"
        )
    if url.startswith("memory:"):
        raise InvalidArgument(
            "memory:// belongs to the one process that opened it, and Spark works in several: use a directory or a "
            "service"
        )
    if "://" not in url and not url.startswith(("/", "~")):
        raise InvalidArgument(
            f"{url!r} is not an absolute path: the processes of Spark work in directories of their own"
        )
    return Place(url, given.text("tokenFile"), given.text("tlsCa"), given.seconds("timeout"))


def _unknown(key: str, proper: Mapping[str, str]) -> InvalidArgument:
    if any(word in key.lower() for word in _SECRETS):
        return InvalidArgument(
            f"there is no option {key!r}: options are shown in plans, and a secret must not be; name a file with "
            "tokenFile, or set BRAIDLOG_TOKEN for the driver and the executors"
        )
    near = difflib.get_close_matches(key.lower(), proper, n=1, cutoff=0.6)
    hint = f"did you mean {proper[near[0]]}?" if near else f"there are {', '.join(proper.values())}"
    return InvalidArgument(f"there is no option {key!r}: {hint}")


def _selection(given: Given) -> Selection:
    names, pattern = given.either("log", "subscribe"), given.either("logPattern", "subscribePattern")
    if (names is None) == (pattern is None):
        raise InvalidArgument(
            'say which logs: option("log", "orders"), several as "orders,payments" or "orders-*", or '
            'option("logPattern", a regular expression); one of the two'
        )
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise InvalidArgument(
                f"option logPattern is a regular expression, and {pattern!r} is none: {error}"
            ) from None
        return Selection(pattern=pattern)
    assert names is not None
    wanted = dict.fromkeys(name.strip() for name in names.split(",") if name.strip())
    globs = tuple(name for name in wanted if re.search(r"[*?\[]", name))
    plain = tuple(name for name in wanted if name not in globs)
    if not wanted:
        raise InvalidArgument(f"option log names no log: {names!r}")
    for name in plain:
        check_name(name)
    return Selection(plain, globs)


def _edge(given: Given, offsets_name: str, timestamp_name: str) -> Edge | None:
    offsets, timestamp = given.text(offsets_name), given.text(timestamp_name)
    if offsets is not None and timestamp is not None:
        raise InvalidArgument(f"give {offsets_name} or {timestamp_name}, not both")
    if timestamp is not None:
        return Edge(moment=_moment(timestamp_name, timestamp))
    if offsets is None:
        return None
    word = offsets.lower()
    if word in ("earliest", "latest"):
        return Edge(all=EARLIEST if word == "earliest" else LATEST)
    return Edge(each=_positions(offsets_name, offsets))


def _positions(name: str, text: str) -> dict[str, int]:
    shape = f'option {name} is earliest, latest, or JSON like {{"orders": 23, "payments": -2}} (-2 earliest, -1 latest)'
    try:
        found = json.loads(text)
    except ValueError:
        raise InvalidArgument(f"{shape}, not {text[:100]!r}") from None
    if not isinstance(found, dict):
        raise InvalidArgument(f"{shape}, not {text[:100]!r}")
    for log, position in found.items():
        if isinstance(position, bool) or not isinstance(position, int) or position < EARLIEST:
            raise InvalidArgument(f"{shape}; {log!r} has {position!r}")
    return found


def _moment(name: str, text: str) -> datetime:
    """Milliseconds since 1970, as Kafka has them, or ISO 8601; without a zone it is UTC."""
    try:
        if re.fullmatch(r"-?[0-9]{1,15}", text):
            return datetime.fromtimestamp(int(text) / 1000, UTC)
        found = datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        raise InvalidArgument(
            f"option {name} is milliseconds since 1970, or like 2026-01-31T12:00:00Z, not {text[:100]!r}"
        ) from None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found

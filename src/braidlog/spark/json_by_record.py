"""PURE: JSON objects taken apart one after the other, where Arrow refused some of them.

Arrow takes all of a batch or nothing, so what is done here may only differ from it where it refuses: then a field of
another type is null and the other fields are kept, as Spark's `from_json` has it. It is Spark, too, that says what is
another type: a number is good enough for a string, and a fraction too long for a decimal or a timestamp is cut.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, Final

import pyarrow as pa

_Read = Callable[[Any], Any]  # a value as JSON has it, as one that Arrow takes; one of _NOT_SUCH if it is none
_NOT_SUCH: Final = (ValueError, ArithmeticError)
_NAMED: Final = {
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), math.inf),
    **dict.fromkeys(("-Infinity", "-INF"), -math.inf),
    "NaN": math.nan,
}
_DECIMAL: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,6})?")
_DATE: Final = re.compile(r"\s*([0-9]{4})(?:-([0-9]{1,2})(?:-([0-9]{1,2})(?:[T ].*)?)?)?\s*", re.DOTALL)
_MOMENT: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)?"
    r"(Z|[-+][0-9]{2}(?::?[0-9]{2})?)?)?"
)
_FIRST_DAY: Final = date(1970, 1, 1)
_FIRST_MOMENT: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_SECONDS_END: Final = 2**63 // 1_000_000
_ONLY_ARROW_READS: Final = re.compile(r"[\[:,]\s*-?(?:Inf|NaN)\b")


def taken_apart(values: pa.Array, kind: pa.StructType, alone: Callable[[str], Any]) -> pa.Array:
    """A column of binary values as one of `kind`; what is no JSON object is null.

    `alone` has Arrow read one value, and answers None if it cannot: some that are read by it Python does not read.
    """
    read = _struct(kind)
    exact: dict[str, Any] = {"parse_float": Decimal} if _has_decimals(kind) else {}
    rows: list[dict[str, Any] | None] = []
    for value in values.to_pylist():
        try:
            text = "" if value is None else value.decode().replace("\r", " ").replace("\n", " ")  # as Arrow is given it
        except UnicodeDecodeError:
            text = ""
        try:
            row = read(json.loads(text, **exact))
        except json.JSONDecodeError:
            row = alone(text) if _ONLY_ARROW_READS.search(text) else None
        except (RecursionError, ValueError):  # it is nested deeply, has a number of thousands of digits, or no object
            row = alone(text) if text.lstrip().startswith("{") else None
        rows.append(row)
    return pa.array(rows, kind)


def from_base64(text: str) -> bytes:
    """As Spark reads it: with padding, and lines may be broken. ValueError if it is none."""
    return base64.b64decode("".join(text.split()), validate=True)


# --- what a value is in JSON, and what it becomes ------------------------------------------------------------------


def _read_of(kind: pa.DataType) -> _Read:
    if pa.types.is_struct(kind):
        return _struct(kind)
    if pa.types.is_list(kind):
        return _list(kind)
    if pa.types.is_integer(kind):
        return _integer(kind)
    if pa.types.is_decimal(kind):
        return _decimal(kind)
    if pa.types.is_timestamp(kind):
        return _moment if kind.tz is not None else _moment_without_zone
    if pa.types.is_floating(kind):
        return _float
    if pa.types.is_boolean(kind):
        return _boolean
    if pa.types.is_date(kind):
        return _date
    return _bytes if pa.types.is_binary(kind) else _text


def _has_decimals(kind: pa.DataType) -> bool:
    parts = (kind.field(at).type for at in range(kind.num_fields))
    return pa.types.is_decimal(kind) or any(_has_decimals(part) for part in parts)


def _struct(kind: pa.StructType) -> _Read:
    fields = [(field.name, _read_of(field.type)) for field in kind]

    def read(found: Any) -> dict[str, Any]:
        if type(found) is not dict:
            raise ValueError
        row = {}
        for name, of in fields:
            value = found.get(name)
            if value is not None:
                try:
                    value = of(value)
                except _NOT_SUCH:
                    value = None
            row[name] = value
        return row

    return read


def _list(kind: pa.ListType) -> _Read:
    of = _read_of(kind.value_type)

    def read(found: Any) -> list[Any]:
        if type(found) is not list:
            raise ValueError
        return [None if value is None else of(value) for value in found]

    return read


def _integer(kind: pa.DataType) -> _Read:
    end = 1 << (kind.bit_width - 1)

    def read(found: Any) -> int:
        if type(found) is not int or not -end <= found < end:
            raise ValueError
        return found

    return read


def _decimal(kind: pa.Decimal128Type) -> _Read:
    last, context = Decimal(1).scaleb(-kind.scale), Context(prec=kind.precision, rounding=ROUND_HALF_UP)

    def read(found: Any) -> Decimal:
        if (type(found) is str and _DECIMAL.fullmatch(found)) or type(found) is int:
            found = Decimal(found)
        if not isinstance(found, Decimal):
            raise ValueError
        return found.quantize(last, context=context)  # refused if it has more digits than the precision says

    return read


def _float(found: Any) -> float:
    if type(found) is str:
        if found not in _NAMED:
            raise ValueError
        return _NAMED[found]
    if type(found) is bool or not isinstance(found, int | float | Decimal):
        raise ValueError
    try:
        return float(found)
    except OverflowError:
        return math.inf if found > 0 else -math.inf


def _boolean(found: Any) -> bool:
    if type(found) is not bool:
        raise ValueError
    return found


def _text(found: Any) -> str:
    text: str = (
        found if type(found) is str else json.dumps(found, ensure_ascii=False, separators=(",", ":"), default=float)
    )
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _bytes(found: Any) -> bytes:
    if type(found) is not str:
        raise ValueError
    return from_base64(found)


def _date(found: Any) -> int:
    shown = _DATE.fullmatch(found) if type(found) is str else None
    if shown is None:
        raise ValueError
    if shown[1] == "0000":  # which Python has no dates for
        return int(pa.scalar(found).cast(pa.date32()).value)
    return (date(int(shown[1]), int(shown[2] or 1), int(shown[3] or 1)) - _FIRST_DAY).days


def _moment(found: Any) -> int:
    if type(found) is int and abs(found) < _SECONDS_END:
        return found * 1_000_000
    shown = _MOMENT.fullmatch(found) if type(found) is str else None
    if shown is None:
        raise ValueError
    if found.startswith("0000"):
        kind = pa.timestamp("us") if shown[1] is None else pa.timestamp("us", "UTC")
        return int(pa.scalar(found).cast(kind).value)
    moment = datetime.fromisoformat(found)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return (moment - _FIRST_MOMENT) // _MICROSECOND


def _moment_without_zone(found: Any) -> int:
    if type(found) is not str or (shown := _MOMENT.fullmatch(found)) is None or shown[1] is not None:
        raise ValueError
    return _moment(found)

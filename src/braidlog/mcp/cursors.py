"""How a long answer is gone on with: a text that an agent passes on and need not understand.

It names the log by its number, so that another log under the same name is never taken for the one that was read.
"""

from __future__ import annotations

import base64
import binascii

import msgspec
from msgspec import Struct

from braidlog import Log
from braidlog.errors import InvalidArgument


class Cursor(Struct, frozen=True, array_like=True):
    """Where to go on, and where to stop."""

    tool: str
    log: int
    at: int
    stop: int


def write(tool: str, log: Log | None, at: int, stop: int) -> str:
    """The text for an agent."""
    cursor = Cursor(tool, -1 if log is None else log.id, at, stop)
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode().rstrip("=")


def read(text: str, tool: str, log: Log | None) -> Cursor:
    """What an agent passed on; InvalidArgument if it is not from the same tool and log."""
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        cursor = msgspec.msgpack.decode(data, type=Cursor)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidArgument(
            "this is no cursor: pass on the one of the answer before, or none to begin anew"
        ) from None
    if cursor.tool != tool or cursor.at < 0 or cursor.stop < 0:
        raise InvalidArgument(f"this cursor is from {cursor.tool[:40]!r} and not from {tool!r}: begin without one")
    if log is not None and cursor.log != log.id:
        raise InvalidArgument(f"{log.name!r} is another log by now than the one read before: begin without a cursor")
    return cursor

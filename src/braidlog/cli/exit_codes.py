"""What `braid` ends with. These numbers are part of the interface: scripts rely on them, so they never change."""

from __future__ import annotations

from typing import Final

from braidlog import errors
from braidlog.errors import BraidError

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
NOT_FOUND: Final = 3
ALREADY_EXISTS: Final = 4
BLOCKED: Final = 5
CONDITION_FAILED: Final = 6
LOCKED: Final = 7
CORRUPT: Final = 8
UNAVAILABLE: Final = 9
OUT_OF_RANGE: Final = 10
NOT_PERMITTED: Final = 11
INTERRUPTED: Final = 130

MEANINGS: Final = {
    OK: "done",
    FAILED: "another error: bad input, a log that is gone, a fork that cannot be promoted, a refusal",
    USAGE: "the command line is wrong",
    NOT_FOUND: "no such log or directory",
    ALREADY_EXISTS: "the name is taken",
    BLOCKED: "a hold stands in the way",
    CONDITION_FAILED: "a condition does not hold, a validator failed, or the fork was not promoted",
    LOCKED: "another process writes there",
    CORRUPT: "stored bytes are not what was written",
    UNAVAILABLE: "storage or a port refuses, nobody answers, a time ran out, or the outcome is unknown",
    OUT_OF_RANGE: "no such position: not there yet, or trimmed away",
    NOT_PERMITTED: "the service, or the policy, does not let this client do it",
    INTERRUPTED: "interrupted from the keyboard",
}

_CODES: Final[dict[type[BraidError], int]] = {
    errors.InvalidArgument: USAGE,
    errors.NotFound: NOT_FOUND,
    errors.AlreadyExists: ALREADY_EXISTS,
    errors.Blocked: BLOCKED,
    errors.ConditionFailed: CONDITION_FAILED,
    errors.Locked: LOCKED,
    errors.Corrupt: CORRUPT,
    errors.Unavailable: UNAVAILABLE,
    errors.Timeout: UNAVAILABLE,
    errors.OutcomeUnknown: UNAVAILABLE,
    errors.NotPermitted: NOT_PERMITTED,
    errors.OutOfRange: OUT_OF_RANGE,
    errors.Trimmed: OUT_OF_RANGE,
}


def code_of(error: BraidError) -> int:
    """The status for an error of the library."""
    return _CODES.get(type(error), FAILED)

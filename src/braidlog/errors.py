"""Every error a caller can meet, and what to do about it.

    BraidError
    ├── InvalidArgument (ValueError)   the call itself is wrong: mend the argument
    ├── NotFound (LookupError)         no such log or request: check the name, or create it
    ├── AlreadyExists                  the name is taken: choose another, or open that log
    ├── Gone                           the log was squashed, promoted, expired or dropped: open another
    ├── NotPromotable                  this log can never be promoted: fork with promotable=True
    ├── OutOfRange (IndexError)        no such position yet: read below tail(), or wait
    ├── Trimmed                        the position was trimmed away: start at info().start
    ├── ConditionFailed                a condition of the call does not hold: look again, then decide
    ├── Blocked                        a hold stands in the way: wait for its decision, or pass wait=
    ├── Timeout (TimeoutError)         it did not happen in time: try again, or wait longer
    ├── Locked                         another process writes here, unshared: stop it, or open read_only=True
    ├── Unavailable                    storage or a service takes no work: mend it, then reopen or try again
    ├── NotPermitted (PermissionError) the token does not allow it, or there is none: use another
    ├── OutcomeUnknown                 it may or may not have happened: ask resolve(request_id)
    └── Corrupt                        stored bytes are not what was written: run `braid doctor`

An operation that raises anything but OutcomeUnknown changed nothing.
"""

from __future__ import annotations


class BraidError(Exception):
    """The root of all errors of braidlog."""


class InvalidArgument(BraidError, ValueError):
    """The call itself is wrong; the message names the argument, its value and what is allowed."""


class NotFound(BraidError, LookupError):
    """There is no log of that name, or no known outcome for that request id.

    `into` names the log that goes on as the one that was looked for, if that was a fork and was promoted. `end` says
    how the last log of that name ended, as long as that is known.
    """

    def __init__(self, message: str, *, into: str = "", end: str = "") -> None:
        super().__init__(message)
        self.into = into
        self.end = end


class AlreadyExists(BraidError):
    """The name belongs to a living log."""


class Gone(BraidError):
    """The log that this handle is bound to lives no more. `end` says how it ended, when that is known."""

    def __init__(self, message: str, *, end: str = "") -> None:
        super().__init__(message)
        self.end = end


class NotPromotable(BraidError):
    """Only a cFork created with promotable=True can be promoted."""


class OutOfRange(BraidError, IndexError):
    """The position lies above the true tail."""


class Trimmed(BraidError):
    """The position lies below the log's start. `start` is the first position still there."""

    def __init__(self, message: str, *, start: int = 0) -> None:
        super().__init__(message)
        self.start = start


class ConditionFailed(BraidError):
    """A condition that the caller set, or that the call implies, does not hold. Nothing was changed.

    `sequence` is where the writer of an append is, if it was refused because that one is further already.
    """

    def __init__(self, message: str, *, sequence: int | None = None) -> None:
        super().__init__(message)
        self.sequence = sequence


class Blocked(BraidError):
    """A promotable fork is undecided and hides what was asked for. `by` names the log that is held."""

    def __init__(self, message: str, *, by: str = "") -> None:
        super().__init__(message)
        self.by = by


class Timeout(BraidError, TimeoutError):
    """The deadline passed before it happened. Nothing was changed."""


class Locked(BraidError):
    """Another process has the directory open for writing, and does not share it, or does not answer.

    `pid` is its process id, if it could be read; `shared` says whether it meant to let others in.
    """

    def __init__(self, message: str, *, pid: int | None = None, shared: bool = False) -> None:
        super().__init__(message)
        self.pid = pid
        self.shared = shared


class Unavailable(BraidError):
    """Storage cannot take work now; what was acknowledged before stays readable."""


class NotPermitted(BraidError, PermissionError):
    """The service does not let this client do it: it has no token, one that is not valid, or one without that scope."""


class OutcomeUnknown(BraidError):
    """The call may or may not have taken effect. `request_id` goes to `Braid.resolve` after reopening."""

    def __init__(self, message: str, *, request_id: str = "") -> None:
        super().__init__(message)
        self.request_id = request_id


class Corrupt(BraidError):
    """Stored bytes failed a check. The message names the file, the place in it and the log positions."""

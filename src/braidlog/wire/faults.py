"""Errors across the wire: what a server raises is raised again where the call was made."""

from __future__ import annotations

from typing import Final

from braidlog import errors
from braidlog.errors import BraidError, OutcomeUnknown, Unavailable
from braidlog.wire.messages import Fault

_KINDS: Final = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, BraidError)
}
_DETAILS: Final = {
    "NotFound": ("into", "end"),
    "Gone": ("end",),
    "Trimmed": ("start",),
    "ConditionFailed": ("sequence",),
    "Blocked": ("by",),
    "Locked": ("pid",),
    "OutcomeUnknown": ("request_id",),
}


def fault_of(error: BraidError) -> Fault:
    kind = type(error).__name__
    return Fault(kind, str(error), {detail: getattr(error, detail) for detail in _DETAILS.get(kind, ())})


def error_of(fault: Fault) -> BraidError:
    """The error that the fault was made of. One that this version does not know is Unavailable."""
    kind = _KINDS.get(fault.kind)
    if kind is None:
        return Unavailable(f"{fault.kind}: {fault.message}")
    known = _DETAILS.get(fault.kind, ())
    try:
        return kind(fault.message, **{name: detail for name, detail in fault.details.items() if name in known})
    except TypeError:
        return kind(fault.message)


def named(error: BraidError, request: bytes) -> BraidError:
    """An unknown outcome is to be asked for by the id of what was asked, so it is told whose it is, unless it knows."""
    if isinstance(error, OutcomeUnknown) and not error.request_id and request:
        return OutcomeUnknown(str(error), request_id=request.hex())
    return error

"""What a validator is, how one is found by its name, and how it is run over a fork, in this very process.

A validator is one of these:

    def check(fork: braidlog.Log, context: Context) -> Verdict | bool | None      # None passes, an exception fails

    class Check:                                 # for what needs state: made with the parameters, as keywords
        def begin(self, context: Context) -> None: ...
        def record(self, record: braidlog.Record, own: bool) -> None: ...
        def end(self) -> Verdict | bool | None: ...

The second sees every record of the fork in the fork's order from `context.start` on: history, what the parent got
since, and the agent's own between them, as a consumer in production would after the promotion. `begin` and `end` may
be left out. The first may leave out `context`, so any callable that takes a fork will do.

Whatever a validator returns that has `passed` and `reasons` is taken for a verdict.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from msgspec import Struct

from braidlog import Log, Record, limits
from braidlog.agents.verdict import Verdict, bounded, failed
from braidlog.errors import InvalidArgument

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class Context(Struct, frozen=True, kw_only=True):
    """What a validator is told of the fork before it begins."""

    log: str
    parent: str | None
    fork_point: int  # positions below it are the parent's, and shared
    start: int  # where records are handed out from
    stop: int  # the fork's end when this began
    own: int  # records that the agent wrote
    parameters: dict[str, Any] = {}


def split(spec: str) -> tuple[str, str]:
    """(module or file, name in it) of `module:name` or `path/file.py:name`."""
    place, colon, name = spec.rpartition(":")
    if not colon or not place or not all(part.isidentifier() for part in name.split(".")):
        raise InvalidArgument(f"{spec[:200]!r} is no validator: write module:name or path/file.py:name")
    return place, name


def absolute(spec: str) -> str:
    """The same for processes that run elsewhere: a file by its whole path, which has to be there."""
    place, name = split(spec)
    if not place.endswith(".py"):
        return spec
    path = Path(os.path.abspath(os.path.expanduser(place)))
    if not path.is_file():
        raise InvalidArgument(f"there is no file {path}, which {spec!r} names")
    return f"{path}:{name}"


def load(spec: str) -> object:
    """What stands there; InvalidArgument if there is no such thing."""
    place, name = split(spec)
    found: object = _file(Path(place)) if place.endswith(".py") else importlib.import_module(place)
    for part in name.split("."):
        if not hasattr(found, part):
            raise InvalidArgument(f"{place} has no {name}: check the name of the validator")
        found = getattr(found, part)
    return found


def _file(path: Path) -> object:
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None or not path.is_file():
        raise InvalidArgument(f"there is no file {path}: check the path of the validator")
    module = importlib.util.module_from_spec(found)
    sys.modules.setdefault(path.stem, module)  # for what looks its own module up, such as dataclasses
    sys.path.insert(0, str(path.parent))
    found.loader.exec_module(module)
    return module


def examine(fork: Log, validator: object, parameters: dict[str, Any], start: int | None = None) -> Verdict:
    """Run a validator over a fork as it is now. What the validator raises comes out of this."""
    info = fork.info()
    if info.fork_point is None:
        raise InvalidArgument(f"{fork.name!r} is a root: only what is on a fork can be validated")
    first = info.start if start is None else max(start, info.start)
    context = Context(
        log=info.name,
        parent=info.parent,
        fork_point=info.fork_point,
        start=first,
        stop=info.readable_tail,
        own=info.own,
        parameters=parameters,
    )
    if inspect.isclass(validator):
        validator = validator(**parameters)
    if callable(getattr(validator, "record", None)):
        return as_verdict(_fed(validator, fork, context))
    if not callable(validator):
        raise InvalidArgument(f"{validator!r:.80} is no validator: it can neither be called nor be fed records")
    return as_verdict(validator(fork, context) if _takes_context(validator) else validator(fork))


def _takes_context(validator: Any) -> bool:
    try:
        inspect.signature(validator).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # something built in, which does not tell
        return True
    return True


def _fed(validator: Any, fork: Log, context: Context) -> object:
    if hasattr(validator, "begin"):
        validator.begin(context)
    for record, own in records(fork, context.start, context.fork_point):
        validator.record(record, own)
    return validator.end() if hasattr(validator, "end") else None


def records(fork: Log, start: int, fork_point: int) -> Iterator[tuple[Record, bool]]:
    """Every readable record of a fork from a position on, and whether it is the fork's own.

    What stands behind the fork point is fetched at once.
    """
    at = start
    while at < fork_point:
        found = fork.read(at, fork_point, max_bytes=limits.SUBSCRIBE_FETCH_BYTES)
        if not found:
            break
        for record in found:
            yield record, False
        at = found[-1].position + 1
    for entry in fork.diff():
        if entry.record.position >= start:
            yield entry.record, entry.own


def as_verdict(said: object) -> Verdict:
    """What a validator returned, as a verdict."""
    if said is None or said is True:
        return Verdict(passed=True)
    if said is False:
        return failed("it returned False")
    passed, reasons = getattr(said, "passed", None), getattr(said, "reasons", None)
    if not isinstance(passed, bool) or reasons is None:
        return failed(f"it returned {said!r:.200}: a validator returns a Verdict, True, False or None")
    positions = [int(one) for one in getattr(said, "positions", ())]
    samples = [str(one) for one in getattr(said, "samples", ())]
    return bounded(Verdict(passed, [str(reason) for reason in reasons], positions, samples))

"""Before a publication is bound somebody who can see the store vouches for its objects: they are there, and as large
as they are said to be. So no record is ever bound to bytes that do not exist.

A publication that nobody can vouch for is sent on without its objects. So the forest refuses it, unless it was carried
out before: then it is answered what it was answered then, though its objects may be gone by now.
"""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

import msgspec

from braidlog.errors import BraidError, InvalidArgument, Unavailable
from braidlog.facts import UploadedObject
from braidlog.forest import commands as c
from braidlog.objects.store import Store, checked_name

T = TypeVar("T")


def vouch(store: Store, command: c.Publish, aside: Executor | None) -> tuple[c.Publish, BraidError | None]:
    """(the command as it may be bound, why its objects are not in it). Takes time: `aside` looks side by side."""
    look = partial(_refusal, store)
    refusal: BraidError | None
    try:
        found = map(look, command.objects) if aside is None else aside.map(look, command.objects)
        refusal = next((refusal for refusal in found if refusal is not None), None)
    except Exception as error:
        refusal = Unavailable(f"whether the objects are in the store cannot be told now: {error!r}; try again")
    return (command, None) if refusal is None else (msgspec.structs.replace(command, objects=[]), refusal)


def answer_of(answer: T | BraidError, refusal: BraidError | None) -> T | BraidError:
    """What to tell of a publication that was sent on: why it was not whole, if that is what it was refused for."""
    return refusal if refusal is not None and isinstance(answer, InvalidArgument) else answer


def _refusal(store: Store, uploaded: UploadedObject) -> BraidError | None:
    try:
        size = store.size(checked_name(uploaded.object))
    except InvalidArgument as error:
        return error
    except FileNotFoundError:
        return InvalidArgument(
            f"object {uploaded.object} is not in the store: publish what ObjectWriter.close() told, before its upload "
            "is over"
        )
    except OSError as error:
        return Unavailable(f"whether object {uploaded.object} is in the store cannot be told now: {error}; try again")
    if size != uploaded.size:
        return InvalidArgument(
            f"object {uploaded.object} has {size:,} bytes in the store, and {uploaded.size:,} are said of it: publish "
            "what ObjectWriter.close() told"
        )
    return None

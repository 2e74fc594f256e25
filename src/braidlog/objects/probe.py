"""Whether a store does what braidlog needs of one, proven on the store itself.

Some servers take a condition and ignore it, and then two writers would both believe that a name is theirs. Nothing in
an answer tells: it has to be tried. What is tried leaves nothing behind; keys of it begin with `<prefix>/.probe-`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from braidlog import limits
from braidlog.errors import InvalidArgument, Unavailable
from braidlog.objects.blobs import Blobs

_BYTES = bytes(range(256)) * 16


class Check(Struct, frozen=True, kw_only=True):
    """One thing that a store has to do."""

    what: str
    passed: bool
    problem: str = ""  # if it does not
    unreachable: bool = False  # it could not be tried


def probe(blobs: Blobs, prefix: str = "", contenders: int = limits.PROBE_CONTENDERS) -> Iterator[Check]:
    """Each check as it is done. When the store cannot be worked with at all, the rest is left out."""
    under = f"{prefix}/" if prefix else ""
    trial = _Trial(blobs, f"{under}.probe-{os.urandom(8).hex()}/", contenders)
    checks: list[tuple[str, Callable[[], str]]] = [
        ("what was created can be read at once", trial.reads_its_write),
        ("ranges are read exactly", trial.reads_ranges),
        ("a key that is taken is not created again", trial.refuses_a_taken_key),
        ("of several who create a key at once, one succeeds", trial.has_one_winner),
        ("what is there is listed", trial.lists),
        ("what is deleted is gone, and deleting it again does no harm", trial.deletes),
    ]
    try:
        for what, check in checks:
            try:
                problem = check()
            except OSError as error:
                yield Check(what=what, passed=False, problem=error.strerror or str(error), unreachable=True)
                return
            yield Check(what=what, passed=not problem, problem=problem)
    finally:
        trial.clean_up()


def require_sound(blobs: Blobs, prefix: str, where: str) -> None:
    """Return if all checks pass. InvalidArgument if the store fails one, Unavailable if it cannot be asked."""
    for check in probe(blobs, prefix, limits.PROBE_START_CONTENDERS):
        if check.unreachable:
            raise Unavailable(f"{where} cannot be worked with: {check.problem}")
        if not check.passed:
            raise InvalidArgument(
                f"{where} is not safe to keep logs in: {check.what!r} does not hold: {check.problem}; "
                f"`braid doctor {where}` shows all that it does and does not, use another store"
            )


class _Trial:
    """Each check answers what is wrong, or nothing."""

    def __init__(self, blobs: Blobs, under: str, contenders: int) -> None:
        self._blobs = blobs
        self._contenders = contenders
        self._under = under
        self._key = under + "one"
        self._made = {self._key}

    def reads_its_write(self) -> str:
        self._blobs.create(self._key, _BYTES)
        if self._blobs.size(self._key) != len(_BYTES):
            return f"{len(_BYTES)} bytes were created, and it says that there are {self._blobs.size(self._key)}"
        if self._blobs.read(self._key, 0, len(_BYTES)) != _BYTES:
            return "other bytes are read than were created"
        return ""

    def reads_ranges(self) -> str:
        size = len(_BYTES)
        for offset, length in ((0, 1), (0, 100), (1001, 333), (size - 1, 1), (size - 10, 100), (size, 10)):
            found = self._blobs.read(self._key, offset, length)
            if found != _BYTES[offset : offset + length]:
                return f"{length} bytes from {offset} on of {size} were asked for, and {len(found)} others came"
        return ""

    def refuses_a_taken_key(self) -> str:
        try:
            self._blobs.create(self._key, b"another")
        except FileExistsError:
            if self._blobs.read(self._key, 0, len(_BYTES)) == _BYTES:
                return ""
            return "it refuses, and yet what was there is replaced"
        return "it ignores conditions (If-None-Match), and what was there is replaced"

    def has_one_winner(self) -> str:
        with ThreadPoolExecutor(self._contenders) as pool:
            for number in range(limits.PROBE_ROUNDS):
                key = f"{self._under}race-{number}"
                self._made.add(key)
                gate = threading.Barrier(self._contenders)

                def contend(me: int, key: str = key, gate: threading.Barrier = gate) -> bytes | None:
                    mine = b"contender %d" % me
                    gate.wait()
                    try:
                        self._blobs.create(key, mine)
                    except FileExistsError:
                        return None
                    return mine

                won = [mine for mine in pool.map(contend, range(self._contenders)) if mine is not None]
                if len(won) != 1:
                    return f"{len(won)} of {self._contenders} believe that they did"
                if self._blobs.read(key, 0, 100) != won[0]:
                    return "the bytes of one that was refused are there"
        return ""

    def lists(self) -> str:
        found = self._blobs.list(self._under)
        return "" if set(found) == self._made else f"{len(self._made)} were created, and {len(found)} are listed"

    def deletes(self) -> str:
        for key in sorted(self._made):
            self._blobs.delete(key)
            self._blobs.delete(key)
        try:
            self._blobs.size(self._key)
        except FileNotFoundError:
            return "" if not self._blobs.list(self._under) else "what was deleted is still listed"
        return "what was deleted is still there"

    def clean_up(self) -> None:
        try:
            for key in self._blobs.list(self._under):
                self._blobs.delete(key)
        except OSError:  # whoever asked was told already what is the matter
            pass

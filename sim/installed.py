"""What production modules find instead of the machine's own threads, clock and chance while a simulation runs."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

from braidlog.broker import crossing, local, node, pools, remote, rivals
from braidlog.embedded import committer, follower, replica, storing, upkeep, writer
from braidlog.errors import Corrupt
from braidlog.metadata.etcd import driving, following, leadership, log, snapshots, watching
from sim.threads import Pool, threading_names
from sim.world import World


def _world() -> World:
    assert World.current is not None, "no world runs"
    return World.current


class _Findings:
    """A logger. What only a mistake in the program can bring about ends the run, though production goes on."""

    def log(self, level: int, message: str, *facts: object, **_: object) -> None:
        error = next((fact for fact in facts if isinstance(fact, Exception)), None)
        if level >= logging.ERROR or isinstance(error, Corrupt):
            _world().fail(error or AssertionError(message % facts))

    def exception(self, message: str, *facts: object) -> None:
        _world().fail(sys.exception() or AssertionError(message % facts))

    def info(self, *_: object) -> None:
        """Nobody reads it."""

    def warning(self, message: str, *facts: object) -> None:
        self.log(logging.WARNING, message, *facts)


_TIME = SimpleNamespace(monotonic=lambda: _world().now)
_SECRETS = SimpleNamespace(
    token_bytes=lambda count: _world().rng.randbytes(count), token_hex=lambda count: _world().rng.randbytes(count).hex()
)
_UUID = SimpleNamespace(uuid4=lambda: SimpleNamespace(hex=_world().rng.randbytes(16).hex()))

_INSTEAD: dict[str, tuple[Any, list[ModuleType]]] = {
    "threading": (
        threading_names,
        [
            committer,
            storing,
            upkeep,
            writer,
            replica,
            follower,
            local,
            node,
            pools,
            rivals,
            leadership,
            following,
            watching,
        ],
    ),
    "ThreadPoolExecutor": (Pool, [storing, replica, pools, remote]),
    "time": (_TIME, [driving, following, leadership, watching]),
    "secrets": (_SECRETS, [leadership, log]),
    "uuid": (_UUID, [snapshots]),
    "_log": (_Findings(), [node, watching, crossing]),
}


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """For as long as this lasts."""
    places = [(module, name, value) for name, (value, modules) in _INSTEAD.items() for module in modules]
    before = [(module, name, getattr(module, name)) for module, name, _ in places]
    try:
        for module, name, value in places:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)

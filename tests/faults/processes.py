"""Other processes, forked from this warm one so that they start at once, and killed as a machine kills."""

from __future__ import annotations

import multiprocessing
import signal
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import TracebackType

DEADLINE_S = 60.0  # nothing here takes so long: a test that waits longer has found a hang

_FORK = multiprocessing.get_context("fork")


class Child:
    """A process that does `work`, which is given the connection to its parent. It is killed when the parent is done."""

    def __init__(self, work: Callable[[Connection], None]) -> None:
        self._ours, theirs = _FORK.Pipe()
        self._process = _FORK.Process(target=_begin, args=(work, self._ours, theirs), daemon=True)
        with warnings.catch_warnings():  # newer Pythons warn of forking beside threads: ours are none of braidlog's
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def say(self, message: object) -> None:
        self._ours.send(message)

    def hear(self) -> object:
        """What it says next. EOFError once it has ended, AssertionError if it failed or says nothing."""
        if not self._ours.poll(DEADLINE_S):
            raise AssertionError(f"process {self.pid} said nothing for {DEADLINE_S} s")
        try:
            message: object = self._ours.recv()
        except ConnectionError as error:
            raise EOFError from error
        if isinstance(message, Failure):
            raise AssertionError(f"process {self.pid} failed:\n{message.text}")
        return message

    def ask(self, message: object) -> object:
        self.say(message)
        return self.hear()

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        """Its exit code; -9 if it was killed."""
        self._process.join(DEADLINE_S)
        assert self._process.exitcode is not None, f"process {self.pid} does not end"
        return self._process.exitcode

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._process.kill()
        self._process.join(DEADLINE_S)
        self._ours.close()


KILLED = -signal.SIGKILL


class Failure:
    def __init__(self, text: str) -> None:
        self.text = text


def _begin(work: Callable[[Connection], None], ours: Connection, theirs: Connection) -> None:
    ours.close()
    try:
        work(theirs)
    except BaseException:
        theirs.send(Failure(traceback.format_exc()))
        raise

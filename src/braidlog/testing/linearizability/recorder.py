"""A recorder of calls, for any number of threads of one process.

`call` is a context: it notes the moment when it is entered and the moment of the answer. A call that is left by an
error is refused if the error says that nothing changed, and unknown if it is `OutcomeUnknown`, any error that is not of
braidlog, or one of `unsure`. A call that is left without an answer is unknown. Whoever knows better says so, by
`refused()` or `unknown()`. Errors go on to the caller.

With a path, each call is written when it begins and when it ends, so that nothing is lost when the process is killed.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, TypeAlias

from braidlog.errors import BraidError, InvalidArgument, OutcomeUnknown
from braidlog.testing.linearizability.history import (
    CREATIONS,
    VERBS,
    LogId,
    Operation,
    Outcome,
    Value,
    begin_line,
    end_line,
)


class _Record(Protocol):
    @property
    def position(self) -> int: ...
    @property
    def value(self) -> bytes: ...


Shown: TypeAlias = tuple[int, Value | bytes] | _Record
Answer: TypeAlias = int | bool | LogId | Iterable[Shown] | None


class Recorder:
    """Records what clients do. `unsure` are errors after which it is not known whether a call took effect.

    A connection that is lost midway may surface as `Timeout` or `Unavailable`: pass them as `unsure` if your client
    raises them after a request was sent.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        unsure: Sequence[type[BaseException]] = (),
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.unsure = tuple(unsure)
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: dict[int, Operation] = {}
        self._file: IO[str] | None = open(path, "w", encoding="utf-8") if path is not None else None  # noqa: SIM115

    def call(
        self,
        client: str,
        verb: str,
        log: LogId,
        values: Value | bytes | Iterable[Value | bytes] | int | None = None,
        stop: int | None = None,
        *,
        promotable: bool = False,
        at: int | None = None,
        child: LogId | None = None,
    ) -> Call:
        """`append` takes the values, `read` the start and the stop.

        `child` is the id of a fork, if it is known before.
        """
        if verb not in VERBS:
            raise InvalidArgument(f"verb must be one of {', '.join(sorted(VERBS))}, not {verb!r}")
        start = 0
        appended: tuple[Value, ...] = ()
        if verb == "read":
            if values is not None and not isinstance(values, int):
                raise InvalidArgument(f"the start of a read must be a number, not {values!r}")
            start = values or 0
        elif verb == "append":
            appended = _plain_all(values)
        if verb == "create" and child is None:
            child = log
        operation = Operation(
            client=client,
            verb=verb,
            log=log,
            invoked=0,
            values=appended,
            start=start,
            stop=stop,
            at=at,
            promotable=promotable,
            child=child,
        )
        return Call(self, operation)

    def history(self) -> list[Operation]:
        """What was recorded so far, in the order of invocation. Calls that go on are unknown."""
        with self._lock:
            return sorted(self._calls.values(), key=lambda operation: operation.invoked)

    def close(self) -> None:
        with self._lock:
            if self._file is not None:
                self._file.close()
                self._file = None

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, operation: Operation) -> tuple[int, Operation]:
        with self._lock:
            number = len(self._calls)
            operation = dataclasses.replace(operation, invoked=self._clock())
            self._calls[number] = operation
            if self._file is not None:
                self._file.write(begin_line(number, operation))
                self._file.flush()
        return number, operation

    def _end(self, number: int, operation: Operation) -> None:
        with self._lock:
            self._calls[number] = operation
            if self._file is not None:
                self._file.write(end_line(number, operation))
                self._file.flush()


class Call:
    """One call while it goes on. `answer` takes what the service returned; the moment of the answer is now."""

    def __init__(self, recorder: Recorder, operation: Operation) -> None:
        self._recorder = recorder
        self._operation = operation
        self._number = -1
        self._ended = False

    def __enter__(self) -> Call:
        self._number, self._operation = self._recorder._begin(self._operation)
        return self

    def answer(self, answer: Answer = None, fork_point: int | None = None, *, stop: int | None = None) -> None:
        """A position or None, the records of a read, a tail, the id of a new log (and its fork point), a bool.

        `stop` is where a read was cut by a limit of its own.
        """
        operation = self._operation
        answered = self._recorder._clock()
        changes: dict[str, object] = {}
        match operation.verb:
            case "append" | "tail":
                changes["position"] = answer
            case "read":
                changes["records"] = tuple(_pair(shown) for shown in answer or ())  # type: ignore[union-attr, arg-type]
                if stop is not None:
                    changes["stop"] = stop
            case verb if verb in CREATIONS:
                changes = {"child": operation.child if answer is None else answer, "position": fork_point}
            case "promote":
                changes["promoted"] = bool(answer)
        self._end("ok", answered, changes)

    def refused(self) -> None:
        """It changed nothing."""
        self._end("refused", self._recorder._clock(), {})

    def unknown(self) -> None:
        """It may have taken effect, or may do so later, or not at all."""
        self._end("unknown", self._recorder._clock(), {})

    def _end(self, outcome: Outcome, answered: int, changes: dict[str, object]) -> None:
        if self._ended:
            raise InvalidArgument(f"{self._operation.told()} has been answered already")
        self._ended = True
        self._operation = dataclasses.replace(self._operation, outcome=outcome, answered=answered, **changes)  # type: ignore[arg-type]
        self._recorder._end(self._number, self._operation)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        known = isinstance(error, BraidError) and not isinstance(error, (OutcomeUnknown, *self._recorder.unsure))
        if known:
            self.refused()
        else:
            self.unknown()


def _plain_all(values: object) -> tuple[Value, ...]:
    if isinstance(values, str | int | bytes):
        return (_plain(values),)
    return tuple(_plain(value) for value in values or ())  # type: ignore[attr-defined]


def _plain(value: Value | bytes) -> Value:
    """Bytes become text in a way that keeps different ones different."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


def _pair(shown: Shown) -> tuple[int, Value]:
    if isinstance(shown, tuple):
        return shown[0], _plain(shown[1])
    return shown.position, _plain(shown.value)

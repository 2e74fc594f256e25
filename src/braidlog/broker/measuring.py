"""What a server counts of its connections and their requests, and what it logs of them.

A connection has a `Meter` and tells it when a request arrived and what it was answered; whatever service stands behind
the server, the same is counted. Logged are decisions, with who asked for them, requests that took long, and those
that failed for no mistake of who asked; of everything else only numbers are kept. For the loop's thread alone.
"""

from __future__ import annotations

import logging
from time import perf_counter  # the loop's own time may be that of its last turn
from typing import TYPE_CHECKING, Final, get_args

from braidlog import limits
from braidlog.broker import auditing
from braidlog.broker.auditing import AUDITED
from braidlog.errors import Blocked, BraidError, Corrupt, OutcomeUnknown, Timeout, Unavailable
from braidlog.forest import commands as c
from braidlog.observe import catalog
from braidlog.observe.catalog import RequestMeter, Traffic
from braidlog.observe.logs import Event, request_text
from braidlog.observe.metrics import Registry
from braidlog.observe.process import LoopLag, cpu_seconds, resident_bytes
from braidlog.wire.messages import Answer, Append, Bind, Cancel, Ending, Execute, Note, Parts, Request, Result

if TYPE_CHECKING:
    from braidlog.broker.server import Server
    from braidlog.broker.service import Caller

_log = logging.getLogger("braidlog.requests")


def _tag(message: type) -> str:
    tag: str = message.__struct_config__.tag  # type: ignore[attr-defined]
    return tag.replace("-", "_")


_REQUESTS: Final[dict[type, str]] = {message: _tag(message) for message in get_args(Request)}
_COMMANDS: Final[dict[type, str]] = {command: _tag(command) for command in get_args(c.Command)}
KINDS: Final = tuple(sorted({*_REQUESTS.values(), *_COMMANDS.values()}))
_LASTING: Final = frozenset({"watch", "await"})  # are answered when something happens: how long that takes says nothing
_DECISIONS: Final = (c.Promote, c.Squash, c.Drop, c.Trim)
_OUTCOMES: Final[dict[type[BraidError], str]] = {
    Blocked: catalog.BLOCKED,
    Unavailable: catalog.UNAVAILABLE,
    Timeout: catalog.UNAVAILABLE,
    OutcomeUnknown: catalog.UNKNOWN,
    Corrupt: catalog.CORRUPT,
}


_FAILURES: Final = frozenset({catalog.UNAVAILABLE, catalog.UNKNOWN, catalog.CORRUPT})  # no mistakes of who asked


def kind_of(request: Request) -> str:
    """What a request asks for: a change is known by its command."""
    if isinstance(request, Execute):
        return _COMMANDS[type(request.command)]
    return _REQUESTS[type(request)]


class ServerMeasures:
    """The metrics of one server, with those of its service."""

    def __init__(self, server: Server) -> None:
        self.registry = Registry()
        self.traffic = Traffic(self.registry, KINDS)
        catalog.Connections(
            self.registry,
            connections=lambda: len(server.connections),
            in_flight_bytes=lambda: server.bytes_in_flight,
            subscriptions=lambda: sum(connection.subscriptions for connection in server.connections),
            watches=lambda: sum(connection.watches for connection in server.connections),
        )
        used_before = cpu_seconds()
        self.process = catalog.Process(
            self.registry,
            cpu_seconds=lambda: cpu_seconds() - used_before,
            resident_bytes=resident_bytes,
            uptime_seconds=lambda: server.uptime_s,
        )
        self.process.is_a(server.service.role)
        self.registry.include(server.service.registry)
        self._lag = LoopLag(self.process.lag)
        self._meters: dict[str, RequestMeter] = {}
        self._by_type: dict[type, RequestMeter] = {}
        self._connections = 0
        self._told_since = 0.0
        self._told = 0
        self._untold = 0

    def untold(self) -> int | None:
        """How many failures were not logged since the last that was, if one may be now: they come in floods."""
        now = perf_counter()
        if now - self._told_since >= limits.FAILED_REQUESTS_S:
            self._told_since, self._told = now, 0
        if self._told >= limits.FAILED_REQUESTS_TOLD_MAX:
            self._untold += 1
            return None
        self._told += 1
        untold, self._untold = self._untold, 0
        return untold

    def stop(self) -> None:
        self._lag.stop()

    def next_connection(self) -> int:
        self._connections += 1
        self.traffic.opened.value += 1
        return self._connections

    def of(self, request: Request) -> RequestMeter:
        """What counts requests of this kind."""
        found = self._by_type.get(type(request))
        if found is None:
            kind = kind_of(request)
            found = self._meters.get(kind)
            if found is None:
                found = self._meters[kind] = RequestMeter(self.traffic, kind, timed=kind not in _LASTING)
            if not isinstance(request, Execute):
                self._by_type[type(request)] = found
        return found


class Meter:
    """What one connection counts. `number` names the connection in logs; `received` and `sent` are bytes."""

    __slots__ = ("_server", "_traffic", "_under_way", "measures", "number", "received", "sent")

    def __init__(self, server: Server) -> None:
        self._server = server
        self.measures = server.measures
        self.number = self.measures.next_connection()
        self._traffic = self.measures.traffic
        self.received = self._traffic.received
        self.sent = self._traffic.sent
        self._under_way: dict[int, tuple[Request, float]] = {}

    def began(self, number: int, request: Request) -> None:
        """A request arrived."""
        self._under_way[number] = request, perf_counter()

    def heeded(self, number: int, note: Note) -> None:
        """Of what was cancelled there will be no answer."""
        if isinstance(note, Cancel):
            self._under_way.pop(number, None)

    def answered(self, number: int, answer: Answer | BraidError, caller: Caller) -> None:
        """It has an answer."""
        found = self._under_way.pop(number, None)
        if found is None:
            return
        request, began = found
        meter = self.measures.of(request)
        if isinstance(answer, BraidError):
            outcome = _OUTCOMES.get(type(answer), catalog.REFUSED)
            meter.failed(outcome)
            if outcome in _FAILURES and (untold := self.measures.untold()) is not None:
                self._tell_failed(number, request, answer, caller, untold)
        else:
            meter.ok.value += 1
            if type(answer) is Parts:
                self.delivered(answer)
        if meter.durations is not None:
            took = perf_counter() - began
            meter.durations.observe(took)
            if took > limits.SLOW_REQUEST_S:
                self._tell_slow(number, request, took, answer, caller)
        if type(request) is Execute and isinstance(request.command, AUDITED):
            self._audit(number, request.command, answer, caller)
            if isinstance(request.command, _DECISIONS):
                self._tell_decision(number, request.command, answer, caller)

    def delivered(self, answer: Parts | Ending) -> None:
        """Records go to the peer."""
        if isinstance(answer, Parts):
            rows = size = 0
            for part in answer.parts:
                rows += part.rows
                size += part.length
            self._traffic.read_records.value += rows
            self._traffic.read_bytes.value += size

    def dropped(self, reason: str, caller: Caller) -> None:
        """The connection is closed for what came over it."""
        self._traffic.dropped.value += 1
        _log.warning(Event("connection_dropped", connection=self.number, client=caller.name, reason=reason))

    def _tell_failed(self, number: int, request: Request, error: BraidError, caller: Caller, untold: int) -> None:
        _log.warning(
            Event(
                "failed_request",
                kind=kind_of(request),
                outcome=type(error).__name__,
                error=str(error),
                request=request_text(_id_of(request), self.number, number),
                client=caller.name,
                client_id=caller.client.hex(),
                untold=untold or None,
            )
        )

    def _tell_slow(
        self, number: int, request: Request, took: float, answer: Answer | BraidError, caller: Caller
    ) -> None:
        self._traffic.slow.value += 1
        _log.warning(
            Event(
                "slow_request",
                kind=kind_of(request),
                seconds=round(took, 6),
                outcome=type(answer).__name__ if isinstance(answer, BraidError) else catalog.OK,
                request=request_text(_id_of(request), self.number, number),
                requests=_ids_in(request),
                client=caller.name,
                client_id=caller.client.hex(),
            )
        )

    def _audit(self, number: int, command: c.Command, answer: Answer | BraidError, caller: Caller) -> None:
        log: int | None = getattr(command, "log", None)
        name = "" if log is None else self._server.service.name_of(log)
        asked = request_text(getattr(command, "request", b""), self.number, number)
        result = _decision(answer, answer.result if isinstance(answer, Result) else None)
        auditing.tell(_COMMANDS[type(command)], command, name, result, asked, caller)

    def _tell_decision(self, number: int, command: c.Command, answer: Answer | BraidError, caller: Caller) -> None:
        assert isinstance(command, _DECISIONS)
        result = answer.result if isinstance(answer, Result) else None
        ended = result.ended if isinstance(result, c.Promotion) else result.logs if isinstance(result, c.Ended) else []
        _log.info(
            Event(
                _COMMANDS[type(command)],
                log=command.log,
                name=self._server.service.name_of(command.log),
                outcome=_decision(answer, result),
                ended=len(ended) or None,
                before=command.before if isinstance(command, c.Trim) else None,
                request=request_text(command.request, self.number, number),
                client=caller.name,
                client_id=caller.client.hex(),
            )
        )


def _decision(answer: Answer | BraidError, result: c.Result | None) -> str:
    if isinstance(answer, BraidError):
        return f"{type(answer).__name__}: {answer}"
    return "not promoted" if isinstance(result, c.Promotion) and not result.promoted else catalog.OK


def _id_of(request: Request) -> bytes:
    if isinstance(request, Append | Execute):
        found: bytes = getattr(request.command, "request", b"")
        return found
    return b""


def _ids_in(request: Request) -> str:
    """Those of a broker's clients that it asks for together; a few of them."""
    if not isinstance(request, Bind):
        return ""
    inner = (command.command if isinstance(command, c.Again) else command for command in request.commands)
    found: list[str] = [asked.hex() for command in inner if (asked := getattr(command, "request", b""))]
    shown = found[: limits.BOUND_REQUESTS_TOLD_MAX]
    more = len(found) - len(shown)
    return " ".join([*shown, *([f"and {more} more"] if more else [])])

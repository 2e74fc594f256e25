"""What stands between a connection and the service: requests of those who may not do everything are checked here.

They are checked, and let through, in the order in which they came: one that needs to know more of its log than is at
hand has the others wait. What passes is made safe: a new log belongs to whoever made it, whatever the client says; a
promotion names the parent that was checked; a list shows what may be read. Whatever is not known is refused.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from braidlog.broker import conversation as conv
from braidlog.broker import policy
from braidlog.broker.policy import Scopes
from braidlog.broker.service import Caller, Service
from braidlog.errors import BraidError, ConditionFailed, Gone, InvalidArgument, NotFound, NotPermitted, Unavailable
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.wire import messages as m
from braidlog.wire.frames import NOTHING

Verdict = Callable[[m.Request | BraidError], None]
Known = Callable[[m.Kin | BraidError], None]


class Gate:
    """Of one connection. `through` carries out a request that may be, `refuse` answers one that may not."""

    def __init__(
        self,
        service: Service,
        through: Callable[[conv.Do], None],
        refuse: Callable[[int, BraidError], None],
    ) -> None:
        self._service = service
        self._through = through
        self._refuse = refuse
        self._waiting: deque[conv.Do] = deque()
        self._checking = False  # one of them
        self._going = False

    def enter(self, caller: Caller, effect: conv.Do) -> None:
        """Check it, and carry it out if it may be, after those before it."""
        self._waiting.append(effect)
        self._go(caller)

    def close(self) -> list[conv.Do]:
        """Nobody waits any more. Answers what was not begun."""
        left = list(self._waiting)
        self._waiting.clear()
        return left

    def _go(self, caller: Caller) -> None:
        if self._going:  # this is one that was decided at once: the loop below goes on
            return
        self._going = True
        try:
            while self._waiting and not self._checking:
                effect = self._waiting.popleft()
                self._checking = True
                self._check(caller, effect, partial(self._decided, caller, effect))
        finally:
            self._going = False

    def _check(self, caller: Caller, effect: conv.Do, then: Verdict) -> None:
        try:
            check(self._service, caller, effect.request, then)
        except BraidError as error:
            then(error)
        except Exception as error:  # whatever went wrong: what was not checked is not done
            then(Unavailable(f"the server failed at this: {error!r}"))

    def _decided(self, caller: Caller, effect: conv.Do, verdict: m.Request | BraidError) -> None:
        if not self._checking:
            return
        self._checking = False
        if isinstance(verdict, BraidError):
            self._refuse(effect.number, verdict)
        else:
            self._through(effect._replace(request=verdict))
        self._go(caller)


def check(service: Service, caller: Caller, request: m.Request, then: Verdict) -> None:
    """Tell `then` the request as it may be carried out, or why it may not."""
    scopes = caller.scopes
    assert scopes is not None
    kind: type[Any] = type(request)
    if kind in policy.FREE:
        then(request)
    elif kind in policy.LOOKS:
        log: int = request.log  # type: ignore[union-attr]
        service.kin(log, partial(_looked, scopes, policy.LOOKS[kind], request, then))
    elif kind in policy.OF_ALL:
        _told(scopes.refusal_for_all(policy.OF_ALL[kind]), request, then)
    elif isinstance(request, m.ListLogs):
        then(m.ListLogs(scopes.principal, scopes.texts))
    elif isinstance(request, m.Find):
        _find(service, caller, scopes, request, then)
    elif isinstance(request, m.Append):
        command = request.command
        service.kin(command.log, partial(_looked, scopes, policy.APPEND, request, then))
    elif isinstance(request, m.Execute):
        _change(service, scopes, request, then)
    elif kind in policy.BROKERS:
        then(NotPermitted(f"{scopes.principal!r} is no broker: that needs the scope broker, of the metadata"))
    else:
        then(NotPermitted(f"nobody may ask for {kind.__name__} with a token"))


def _told(refusal: str, request: m.Request, then: Verdict) -> None:
    then(NotPermitted(refusal) if refusal else request)


def log_of(kin: m.Kin) -> policy.Log:
    return policy.Log(kin.name, kin.root_name, kin.owner, kin.fork)


def _looked(scopes: Scopes, verb: str, request: m.Request, then: Verdict, kin: m.Kin | BraidError) -> None:
    _when_known(kin, request, then, lambda log: _told(scopes.refusal(verb, log), request, then))


def _when_known(
    kin: m.Kin | BraidError, request: m.Request, then: Verdict, decide: Callable[[policy.Log], None]
) -> None:
    """A log that ended is nobody's any more and stays as it is: whoever asks may be told so, or, of a change that was
    sent again, what became of it. One that is not there yet may be another's when it is."""
    if isinstance(kin, Gone):
        then(request)
    elif isinstance(kin, BraidError):
        then(kin)
    else:
        decide(log_of(kin))


def _find(service: Service, caller: Caller, scopes: Scopes, request: m.Find, then: Verdict) -> None:
    """Whether a log of that name is there is told to those who may see it alone."""
    hidden = NotPermitted(f"no scope of {scopes.principal!r} covers a log named {request.name!r}")

    def known(kin: m.Kin | BraidError) -> None:
        seen = isinstance(kin, m.Kin) and scopes.allows(policy.SEE, log_of(kin))
        then(request if seen else kin if isinstance(kin, Unavailable) else hidden)

    def found(answer: m.Answer | BraidError, _: object) -> None:
        if isinstance(answer, m.Number):
            service.kin(answer.value, known)
        elif isinstance(answer, NotFound):
            then(answer if scopes.names(request.name) else hidden)
        else:
            then(answer if isinstance(answer, BraidError) else Unavailable("there is no answer"))

    service.handle(caller, request, NOTHING, found)


def _change(service: Service, scopes: Scopes, request: m.Execute, then: Verdict) -> None:
    command = request.command
    if isinstance(command, policy.TOKENS):
        _told(scopes.refusal_for_all("change tokens"), request, then)
    elif isinstance(command, c.Create):
        owned = msgspec.structs.replace(command, owner=scopes.principal)
        refusal = scopes.create_refusal(command.name)
        _told(refusal, msgspec.structs.replace(request, command=owned), then)
    elif isinstance(command, c.CFork | c.SFork):
        fork = msgspec.structs.replace(command, owner=scopes.principal)
        changed = msgspec.structs.replace(request, command=fork)
        service.kin(
            command.log,
            lambda kin: _when_known(
                kin, changed, then, lambda parent: _told(scopes.fork_refusal(fork, parent), changed, then)
            ),
        )
    elif isinstance(command, c.Squash):
        service.kin(
            command.log,
            lambda kin: _when_known(
                kin, request, then, lambda log: _told(scopes.squash_refusal(command, log), request, then)
            ),
        )
    elif isinstance(command, c.Promote):
        service.kin(command.log, partial(_promote, service, scopes, request, command, then), fresh=True)
    elif type(command) in policy.COMMANDS:
        verb = policy.COMMANDS[type(command)]
        log: int = command.log  # type: ignore[union-attr]
        service.kin(log, partial(_looked, scopes, verb, request, then))
    else:
        then(InvalidArgument(f"{type(command).__name__} is nothing that a client may ask for"))


def _promote(
    service: Service, scopes: Scopes, request: m.Execute, command: c.Promote, then: Verdict, kin: m.Kin | BraidError
) -> None:
    """It is the parent that changes, so it is the parent that counts; and the one that was looked at."""
    if not isinstance(kin, m.Kin):
        _when_known(kin, request, then, lambda _: None)
        return
    if kin.parent == NONE:  # it cannot be promoted: who may see it is told why
        _told(scopes.refusal(policy.SEE, log_of(kin)), request, then)
        return
    into = msgspec.structs.replace(command, into=kin.parent)
    changed = msgspec.structs.replace(request, command=into)
    service.kin(
        kin.parent, partial(_looked, scopes, policy.PROMOTE, changed, partial(_as_asked, command, kin.parent, then))
    )


def _as_asked(command: c.Promote, parent: int, then: Verdict, verdict: m.Request | BraidError) -> None:
    """Who may promote it is told that it has another parent by now than was meant."""
    if not isinstance(verdict, BraidError) and command.into not in (NONE, parent):
        verdict = ConditionFailed("the fork would be promoted into another log by now than was asked for: look again")
    then(verdict)


def discreet(scopes: Scopes, answer: m.Answer | BraidError) -> m.Answer | BraidError:
    """An answer without names that are not to be known: those of logs that ended stand in no list."""
    if isinstance(answer, Gone):
        return Gone(f"the log lives no more{f': it was {answer.end}' if answer.end else ''}", end=answer.end)
    if isinstance(answer, m.Ending):
        name = answer.name if scopes.names(answer.name) else ""
        into_name = answer.into_name if scopes.names(answer.into_name) else ""
        return msgspec.structs.replace(answer, name=name, into_name=into_name)
    return answer

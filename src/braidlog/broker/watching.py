"""What a broker's clients watch, asked of the metadata: who watches the same log shares one request. For the loop's
thread alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count

from braidlog.broker.link import MetadataLink
from braidlog.broker.service import Reply
from braidlog.errors import BraidError
from braidlog.wire import messages as m
from braidlog.wire.calls import Call

_FOREVER_S = 1e9


class _Shared:
    """One request, and who waits for its answer."""

    __slots__ = ("call", "replies", "since")

    def __init__(self, since: int) -> None:
        self.since = since
        self.call: Call | None = None
        self.replies: dict[int, Reply] = {}


class Watches:
    def __init__(self, link: MetadataLink) -> None:
        self._link = link
        self._shared: dict[int, _Shared] = {}
        self._numbers = count()

    def watch(self, log: int, since: int, reply: Reply) -> Callable[[], None]:
        """Reply once something about the log may have changed since then; returns how to stop waiting."""
        shared = self._shared.get(log)
        if shared is None or since < shared.since:  # else what is not answered yet will be at the next change
            fresh = _Shared(since)
            fresh.call = self._link.call(m.Watch(log, since), partial(self._answered, log, fresh), timeout=_FOREVER_S)
            if shared is None:
                self._shared[log] = fresh
            shared = fresh
        number = next(self._numbers)
        shared.replies[number] = reply
        return partial(self._stop, log, shared, number)

    def _answered(self, log: int, shared: _Shared, _: Call, answer: m.Answer | BraidError, __: memoryview) -> None:
        if self._shared.get(log) is shared:
            del self._shared[log]
        replies, shared.replies = shared.replies, {}
        for reply in replies.values():
            reply(answer, None)

    def _stop(self, log: int, shared: _Shared, number: int) -> None:
        """The last one who waits takes the request along."""
        if shared.replies.pop(number, None) is None or shared.replies:
            return
        if self._shared.get(log) is shared:
            del self._shared[log]
        assert shared.call is not None
        self._link.note(shared.call, m.Cancel())
        self._link.forget(shared.call)

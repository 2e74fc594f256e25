"""A watch on keys that goes on when members fail: opened again at another one, behind what was told last.

Every change of the watched keys is told once, in order, from one thread, and is durable by then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TypeAlias

from braidlog import limits
from braidlog.errors import Unavailable
from braidlog.metadata.etcd import codec
from braidlog.metadata.etcd.client import Ambiguous, Compacted, EtcdClient, WatchStream
from braidlog.metadata.etcd.codec import Event

_log = logging.getLogger("braidlog")

OnEvents: TypeAlias = Callable[[tuple[Event, ...]], object]


class Watch:
    """From a revision on. `on_events` and `on_compacted` are called by the watch's own thread.

    `on_compacted` is called when etcd has forgotten what comes next. It answers the revision to go on from, after it
    has looked at the keys itself, or None to let the watch end.
    """

    def __init__(
        self,
        client: EtcdClient,
        key: bytes,
        end: bytes,
        start_revision: int,
        on_events: OnEvents,
        on_compacted: Callable[[], int | None],
        *,
        puts_only: bool = False,
    ) -> None:
        self._client = client
        self._key, self._end = key, end
        self._next = start_revision
        self._on_events, self._on_compacted = on_events, on_compacted
        self._puts_only = puts_only
        self._stream: WatchStream | None = None
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self.failing = ""  # why nothing can be told now; empty while all is well
        self.heard_s = time.monotonic()  # when a member last answered, if only that there is nothing new
        self._thread = threading.Thread(target=self._run, name="braidlog-etcd-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Tell nothing more. Safe to call again, but not from what it calls."""
        with self._guard:
            self._stopping.set()
            if self._stream is not None:
                self._stream.cancel()
        self._thread.join()

    def _run(self) -> None:
        member, wait = self._client.any_member(), 0.0
        while not self._stopping.wait(wait):
            try:
                try:
                    self._follow(member)
                except Compacted:
                    start = self._on_compacted()
                    if start is None:
                        return
                    self._next = start
            except Exception as failure:
                if not isinstance(failure, Unavailable | Ambiguous):
                    _log.exception("what a watch on etcd told was not taken well; it goes on behind that")
                wait = limits.ETCD_RETRY_S if not self.failing else limits.ETCD_BACKOFF_MAX_S
                self.failing = str(failure)
            member += 1

    def _follow(self, member: int) -> None:
        request = codec.encode_watch(self._key, self._end, self._next, puts_only=self._puts_only)
        with self._guard:
            if self._stopping.is_set():
                return
            self._stream = self._client.open_watch(member, request)
        for answer in self._stream:
            if answer.compact_revision:
                raise Compacted(answer.reason)
            if answer.canceled:
                self._client.forget_token(answer.reason)
                raise Ambiguous(answer.reason or "etcd ended the watch")
            self.failing = ""
            self.heard_s = time.monotonic()
            if answer.events:
                self._next = max(self._next, max(event.kv.mod_revision for event in answer.events) + 1)
                self._on_events(answer.events)

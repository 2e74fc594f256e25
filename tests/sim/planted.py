"""Mistakes that somebody could make in braidlog, each for as long as its context lasts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from braidlog import limits
from braidlog.broker import gathering
from braidlog.broker.gathering import Gathering
from braidlog.embedded.committer import Committer, Pending, _encoder, _placed
from braidlog.forest import tails
from braidlog.forest.log import Log
from braidlog.forest.machine import Forest
from braidlog.forest.space import Space
from braidlog.metadata.etcd.codec import Compare
from sim.etcd import Etcd

Plant = Callable[[], AbstractContextManager[None]]


@contextlib.contextmanager
def _instead(place: Any, name: str, wrong: Any) -> Iterator[None]:
    right = getattr(place, name)
    setattr(place, name, wrong)
    try:
        yield
    finally:
        setattr(place, name, right)


@contextlib.contextmanager
def fencing_is_dropped() -> Iterator[None]:
    """Whoever believes that he leads may write to the log."""
    right = Etcd._holds

    def wrong(self: Etcd, compare: Compare) -> bool:
        return compare.revision != 0 or right(self, compare)

    with _instead(Etcd, "_holds", wrong):
        yield


@contextlib.contextmanager
def acknowledged_before_bound() -> Iterator[None]:
    """Answers leave before what they answer is durable."""

    def wrong(self: Committer, taken: list[Pending]) -> None:
        batch = [_placed(pending) for pending in taken]
        for pending, answer in zip(taken, self._apply(batch), strict=True):
            pending.finish(answer)
        self._write(_encoder.encode(batch))

    with _instead(Committer, "_commit", wrong):
        yield


@contextlib.contextmanager
def bound_out_of_order() -> Iterator[None]:
    """A flush that is ready is bound, whoever stands before it."""

    def wrong(self: Gathering) -> Iterator[gathering.Effect]:
        for flush in list(self._flushes):
            if flush.ready and not flush.bound:
                if flush.refusal is None:
                    flush.bound = True
                    yield gathering.Bind(flush)
                else:
                    self._flushes.remove(flush)
                    for item in flush.items:
                        item.done(flush.refusal)

    with _instead(Gathering, "_bind_next", wrong):
        yield


@contextlib.contextmanager
def collected_without_grace() -> Iterator[None]:
    """Objects are deleted as soon as nobody refers to them, though somebody may just be reading them."""
    with _instead(limits, "GRACE_S", 0.0):
        yield


@contextlib.contextmanager
def what_is_uploaded_is_swept() -> Iterator[None]:
    """Objects of an upload that lives are taken for what somebody left."""
    with _instead(Space, "current_epochs", property(lambda self: {self.epoch, *self.admitted})):
        yield


@contextlib.contextmanager
def windows_are_ignored() -> Iterator[None]:
    """What is sent again is taken for new."""
    with _instead(Forest, "recall", lambda self, request: None):  # noqa: ARG005
        yield


@contextlib.contextmanager
def forks_read_beyond_their_bound() -> Iterator[None]:
    """A fork shows all that its parent has, and not only what is settled there while another fork is undecided."""
    right = tails._walk

    def wrong(log: Log) -> tails.Reach:
        found = right(log)
        return found if log.parent is None else found._replace(readable=found.tail)

    with _instead(tails, "_walk", wrong):
        yield


PLANTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        fencing_is_dropped,
        acknowledged_before_bound,
        bound_out_of_order,
        collected_without_grace,
        what_is_uploaded_is_swept,
        windows_are_ignored,
        forks_read_beyond_their_bound,
    )
}

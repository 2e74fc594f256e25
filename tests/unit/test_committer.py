"""Group commit by itself: a command log that the test holds up."""

from __future__ import annotations

import threading

from braidlog.embedded.committer import Committer, Pending
from braidlog.embedded.replica import closed
from braidlog.errors import BraidError, InvalidArgument, Unavailable
from braidlog.forest import commands as c
from braidlog.objects.format import ObjectWriter

_HELD_UP_S = 0.2  # how long a commit gives `stop` the chance to return before it


def test_stop_returns_only_after_the_commit_under_way() -> None:
    happened: list[str] = []

    def write(_: bytes) -> None:
        stopping.start()
        stopping.join(_HELD_UP_S)
        happened.append("written")

    def apply(batch: list[c.Command]) -> list[c.Result | BraidError]:
        return [c.Done() for _ in batch]

    def stop() -> None:
        committer.stop(closed())
        happened.append("stopped")

    committer = Committer(lambda _: (_ for _ in ()).throw(AssertionError), write, apply)
    stopping = threading.Thread(target=stop)
    pending = Pending(c.Collect(0))
    committer.carry_out(pending)
    stopping.join()
    assert happened == ["written", "stopped"]
    assert pending.answer == c.Done()

    late = Pending(c.Collect(0))
    committer.carry_out(late)
    assert isinstance(late.answer, Unavailable)


def test_a_commit_that_is_refused_before_it_is_written_harms_nobody_else() -> None:
    refusals = iter([InvalidArgument("a commit of too many bytes")])

    def write(payload: bytes) -> None:
        del payload
        for refusal in refusals:
            raise refusal

    committer = Committer(unused, write, lambda batch: [c.Done() for _ in batch])
    refused, taken = Pending(c.Forget([])), Pending(c.Forget([]))
    committer.carry_out(refused)
    committer.carry_out(taken)
    assert isinstance(refused.answer, InvalidArgument)
    assert taken.answer == c.Done()
    committer.stop(closed())


def unused(writer: ObjectWriter) -> tuple[c.Register, list[tuple[int, int, int]]]:
    raise AssertionError(f"nothing is stored here, not even {writer}")

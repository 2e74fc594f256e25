"""What a client sends behind a change that is looked into waits for it, and nobody else does."""

from __future__ import annotations

from functools import partial

from braidlog.broker.turns import Turns


def test_changes_of_a_client_go_in_their_order() -> None:
    turns = Turns()
    gone: list[str] = []

    def looked_into(what: str) -> None:
        gone.append(what)
        turns.hold(b"a")

    turns.enter(b"a", partial(looked_into, "a1"))
    for client, what in ((b"a", "a2"), (b"b", "b1")):
        turns.enter(client, partial(gone.append, what))
    turns.enter(b"a", partial(looked_into, "a3"))
    turns.enter(b"a", partial(gone.append, "a4"))
    assert gone == ["a1", "b1"]
    assert turns.held(b"a")
    assert not turns.held(b"b")
    turns.release(b"a")
    assert gone == ["a1", "b1", "a2", "a3"]
    turns.enter(b"a", partial(gone.append, "a5"))
    turns.release(b"a")
    assert gone == ["a1", "b1", "a2", "a3", "a4", "a5"]
    assert not turns.held(b"a")

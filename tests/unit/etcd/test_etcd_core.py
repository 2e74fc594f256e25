"""Elections and appends over lines that lose, delay and repeat: the core's promises hold, and mistakes are found."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.metadata.etcd import core
from braidlog.metadata.etcd.codec import KeyValue, TxnAnswer
from braidlog.metadata.etcd.core import Ended, Fence, Head, Leading, Look, Send, Tenure
from braidlog.metadata.etcd.keys import Cut, Leader, encode_leader, encode_sequence
from tests.unit.etcd.world import KEYS, Violation, World

SEEDS = 150
STEPS = 1_500
ID = bytes(range(16))
OTHER = bytes(16)
SLOT = ID + bytes(8)


def test_nothing_acknowledged_is_lost_and_no_slot_is_bound_twice() -> None:
    acknowledged = terms = unknown = 0
    for seed in range(SEEDS):
        world = World(seed)
        world.run(STEPS)
        acknowledged += len(world.told.committed)
        unknown += len(world.told.unknown)
        terms += world.terms
    assert acknowledged > 20 * SEEDS  # it did work
    assert terms > 5 * SEEDS  # and changed hands
    assert 0 < unknown < acknowledged / 5  # and gave up in doubt now and then


@pytest.mark.parametrize(
    "mistake",
    [{"ignore": KEYS.leader}, {"ignore": KEYS.head}, {"ignore": KEYS.snap}, {"doubt": False}, {"room": False}],
    ids=["no fence", "no head", "no snapshot's revision", "no doubt", "full, so not done"],
)
def test_a_planted_mistake_is_found(mistake: dict[str, Any]) -> None:
    with pytest.raises(Violation):
        run_all(mistake)


def run_all(mistake: dict[str, Any]) -> None:
    for seed in range(SEEDS):
        World(seed, **mistake).run(STEPS)


def test_the_same_seed_is_the_same_story() -> None:
    worlds = [World(7), World(7)]
    for world in worlds:
        world.run(STEPS)
    assert worlds[0].etcd.keys == worlds[1].etcd.keys
    assert worlds[0].told == worlds[1].told


# --- one by one ------------------------------------------------------------------------------------------------------


def leading(sequence: int = 4) -> Leading:
    return Leading(KEYS, Fence(KEYS.leader, 10), Head(sequence, 20))


def failed(leader: int, head: int | None, slot: bytes | None) -> core.Answered:
    """A transaction whose comparisons do not hold; `leader` is the revision at which its key was created."""
    who = encode_leader(Leader(b"x", "host:1"))
    kvs = (
        (KeyValue(KEYS.leader, who, leader, leader),) if leader else (),
        (KeyValue(KEYS.head, encode_sequence(head), 1, 30),) if head is not None else (),
        (KeyValue(KEYS.slot(5), slot + bytes(8), 30, 30),) if slot is not None else (),
    )
    return core.Answered(TxnAnswer(False, 40, kvs))


def test_an_append_whose_answer_was_lost_is_sent_again_and_found() -> None:
    machine = leading()
    [sent] = machine.append(ID, Cut(SLOT, ()))
    assert machine.step(core.Lost()) == (sent,)
    assert machine.step(failed(10, 5, ID)) == (core.Committed(5),)
    assert machine.head == Head(5, 30)


def test_what_was_stored_before_another_one_won_is_acknowledged_and_ends_the_term() -> None:
    machine = leading()
    machine.append(ID, Cut(SLOT, ()))
    machine.step(core.Lost())
    committed, ended = machine.step(failed(35, 6, ID))
    assert committed == core.Committed(5)
    assert isinstance(ended, Ended)
    assert "host:1" in ended.message
    assert machine.append(OTHER, Cut(SLOT, ())) == (Ended(ended.message, unknown=False),)


@pytest.mark.parametrize(
    ("lost", "head", "slot", "unknown"),
    [
        (True, 5, OTHER, False),  # another's frame is in the slot, so ours is not and never was
        (True, 4, None, False),  # the log ends before it
        (True, None, None, False),
        (True, 9, None, True),  # it was there, or another's was: the slot is gone since
        (False, 9, None, False),  # the only try failed
    ],
)
def test_what_a_deposed_leader_knows_of_its_append(
    lost: bool, head: int | None, slot: bytes | None, unknown: bool
) -> None:
    machine = leading()
    machine.append(ID, Cut(SLOT, ()))
    if lost:
        machine.step(core.Lost())
    [ended] = machine.step(failed(0, head, slot))
    assert isinstance(ended, Ended)
    assert ended.unknown is unknown


def test_an_append_that_was_never_sent_leaves_the_leader_as_it_was() -> None:
    machine = leading()
    machine.append(ID, Cut(SLOT, ()))
    machine.step(core.NotSent())
    assert machine.step(core.GaveUp("no time")) == (core.NotWritten("no time"),)
    [again] = machine.append(OTHER, Cut(SLOT, ()))
    assert isinstance(again, Send)


def test_parts_alone_are_nothing_so_giving_up_on_them_is_certain() -> None:
    machine = leading()
    machine.append(ID, Cut(SLOT, (b"one",)))
    machine.step(core.Lost())
    assert machine.step(core.GaveUp("no time")) == (core.NotWritten("no time"),)


def test_a_refusal_after_a_lost_answer_is_not_taken_for_the_outcome() -> None:
    machine = leading()
    machine.append(ID, Cut(SLOT, ()))
    machine.step(core.Lost())
    [again] = machine.step(core.Refused("full"))
    assert isinstance(again, Send)
    [ended] = machine.step(core.GaveUp("no time"))
    assert isinstance(ended, Ended)
    assert ended.unknown


def test_a_full_etcd_is_looked_at_before_anything_is_said() -> None:
    keys = (KEYS.leader, KEYS.head, KEYS.slot(5))
    leader = KeyValue(KEYS.leader, b"x", 10, 10)
    machine = leading()
    machine.append(ID, Cut(SLOT, ()))
    assert machine.step(core.Full("no room")) == (Look(keys),)
    assert machine.step(core.Lost()) == (Look(keys),)
    assert machine.step(core.Seen((leader, None, KeyValue(KEYS.slot(5), SLOT, 30, 30)))) == (core.Committed(5),)
    assert machine.head == Head(5, 30)
    machine.append(OTHER, Cut(OTHER + bytes(8), ()))
    machine.step(core.Full("no room"))
    assert machine.step(core.Seen((leader, None, None))) == (core.NotWritten("no room"),)
    machine.append(ID, Cut(SLOT, ()))
    machine.step(core.Full("no room"))
    [ended] = machine.step(core.GaveUp("no time"))
    assert isinstance(ended, Ended)
    assert ended.unknown


def test_a_tenure_lasts_from_when_it_was_asked_for() -> None:
    tenure = Tenure(3.0, 100.0)
    assert tenure.renewal_in(100.5) == pytest.approx(0.5)
    tenure.renewed(101.0, 3.0)
    assert tenure.left_s(103.0) == pytest.approx(1.0)
    assert tenure.left_s(104.5) < 0

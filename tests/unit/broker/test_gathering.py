"""A broker's flushes: what one leaves with, that they are bound in order, and what becomes of those that fail."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import pytest

from braidlog import limits
from braidlog.broker.gathering import Bind, Effect, Flush, Gathering, Item, Place, Store
from braidlog.broker.objects import lay_out, places
from braidlog.errors import BraidError, ConditionFailed, InvalidArgument, OutcomeUnknown, Unavailable
from braidlog.forest import commands as c
from braidlog.objects.batch import Batch, encode, records, to_arrow
from braidlog.objects.format import BlockPlace, read_block

LARGE = limits.INLINE_BYTES_MAX


class Told:
    """What the senders of items were told, in the order in which they were."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, c.Result | BraidError]] = []

    def item(self, number: int, size: int = 100, log: int = 1, *, since: int = -1) -> Item:
        payload = encode(Batch([b"%d" % number]))
        command = c.Append(log, 1, size, 0, 0, payload, request=number.to_bytes(16, "big"))
        return Item(command, size, lambda answer: self.answers.append((number, answer)), since=since)


def numbers(flush: Flush) -> list[int]:
    return [int.from_bytes(item.command.request, "big") for item in flush.items]  # type: ignore[union-attr]


def done(flush: Flush) -> list[c.Result | BraidError]:
    skip = [] if flush.registration is None else [c.Done()]
    return [*skip, *(c.Appended(1, number, 1) for number in numbers(flush))]


def only(effects: Iterable[Effect]) -> Effect:
    [effect] = effects
    return effect


def test_what_came_in_one_turn_leaves_together_and_inline_when_it_is_small() -> None:
    gathering, told = Gathering(), Told()
    for number in (1, 2, 3):
        gathering.add(told.item(number))
    effect = only(gathering.go())
    assert isinstance(effect, Bind)
    assert numbers(effect.flush) == [1, 2, 3]
    assert [type(command) for command in effect.flush.commands()] == [c.Append] * 3
    assert list(gathering.answered(effect.flush, done(effect.flush))) == []
    assert [number for number, _ in told.answers] == [1, 2, 3]
    assert gathering.idle
    assert gathering.bytes == 0


def test_a_large_publication_needs_no_object_and_none_is_made() -> None:
    gathering, told = Gathering(), Told()
    gathering.add(Item(c.Publish(1, [], [1], 0, request=bytes(16)), LARGE + 1, lambda _: None))
    gathering.add(told.item(1))
    effect = only(gathering.go())
    assert isinstance(effect, Bind)
    assert [type(command) for command in effect.flush.commands()] == [c.Publish, c.Append]


def test_while_enough_is_under_way_what_comes_gathers() -> None:
    gathering, told = Gathering(under_way_max=2), Told()
    for number in (1, 2):
        gathering.add(told.item(number))
        first = list(gathering.go())
    for number in (3, 4, 5):
        gathering.add(told.item(number))
        assert list(gathering.go()) == []
    del first
    one = gathering._flushes[0]
    effects = list(gathering.answered(one, done(one)))
    assert [numbers(effect.flush) for effect in effects] == [[2]]
    two = gathering._flushes[0]
    [effect] = gathering.answered(two, done(two))
    assert numbers(effect.flush) == [3, 4, 5]


def test_a_large_flush_is_stored_first_and_bound_only_in_its_turn() -> None:
    gathering, told = Gathering(), Told()
    gathering.add(told.item(1, LARGE + 1))
    first = only(gathering.go())
    assert isinstance(first, Store)
    gathering.add(told.item(2))
    assert list(gathering.go()) == []  # it is ready, and waits for the one before it
    registration = c.Register("00000001-00000001.arrow", 1, 10, 0, 0)
    effect = only(gathering.stored(first.flush, registration, [Place(8, 16, 7, 3)], None))
    assert isinstance(effect, Bind)
    register, append = effect.flush.commands()
    assert register == registration
    assert isinstance(append, c.Append)
    assert (append.object, append.offset, append.length, append.crc, append.row, append.payload) == (
        registration.object,
        8,
        16,
        7,
        3,
        b"",
    )
    effect = only(gathering.answered(effect.flush, done(effect.flush)))
    assert numbers(effect.flush) == [2]


def test_what_cannot_be_stored_is_refused_and_the_next_goes_on() -> None:
    gathering, told = Gathering(), Told()
    gathering.add(told.item(1, LARGE + 1))
    first = only(gathering.go())
    gathering.add(told.item(2))
    list(gathering.go())
    refusal = Unavailable("the disk is full")
    effect = only(gathering.stored(first.flush, None, [], refusal))
    assert told.answers == [(1, refusal)]
    assert isinstance(effect, Bind)
    assert numbers(effect.flush) == [2]


def test_an_object_that_is_not_taken_is_nobodys_mistake() -> None:
    """The broker's epoch was over: what is in the object was not appended, but for what was there before."""
    gathering, told = Gathering(), Told()
    for number in (1, 2):
        gathering.add(told.item(number, LARGE))
    effect = only(gathering.go())
    registration = c.Register("00000003-00000001.arrow", 3, 1, 0, 0)
    assert isinstance(only(gathering.stored(effect.flush, registration, [Place(0, 1, 0, 0)] * 2, None)), Bind)
    results = [ConditionFailed("its epoch is over"), c.Appended(1, 7, 1), InvalidArgument("it is not registered")]
    assert list(gathering.answered(effect.flush, results)) == []
    assert told.answers[0] == (1, c.Appended(1, 7, 1))
    assert type(told.answers[1][1]) is Unavailable
    assert "its epoch is over" in str(told.answers[1][1])


def test_no_answer_of_the_metadata_is_told_to_everybody_in_the_flush() -> None:
    gathering, told = Gathering(), Told()
    for number in (1, 2):
        gathering.add(told.item(number))
    effect = only(gathering.go())
    unknown = OutcomeUnknown("no answer")
    assert list(gathering.answered(effect.flush, unknown)) == []
    assert [(number, str(answer)) for number, answer in told.answers] == [(1, "no answer"), (2, "no answer")]


def test_an_answer_of_the_wrong_length_is_no_answer() -> None:
    gathering, told = Gathering(), Told()
    gathering.add(told.item(1))
    effect = only(gathering.go())
    list(gathering.answered(effect.flush, [c.Done(), c.Done()]))
    assert isinstance(told.answers[0][1], Unavailable)


def test_what_is_sent_again_is_bound_as_such() -> None:
    gathering, told = Gathering(), Told()
    gathering.add(told.item(1, since=7))
    effect = only(gathering.go())
    [command] = effect.flush.commands()
    assert isinstance(command, c.Again)
    assert command.since == 7


def test_a_flush_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FLUSH_BYTES_MAX", 250)
    gathering, told = Gathering(), Told()
    for number in range(1, 6):
        gathering.add(told.item(number, 100))
    effects = list(gathering.go())
    assert [numbers(flush) for flush in gathering._flushes] == [[1, 2], [3, 4], [5]]
    assert len(effects) == 1  # bound one after the other


@pytest.mark.parametrize("seed", range(200))
def test_however_store_and_metadata_dawdle_each_is_told_once_and_binding_keeps_the_order(seed: int) -> None:
    rng, told = Random(seed), Told()
    gathering = Gathering(under_way_max=rng.randint(1, 4))
    storing: list[Flush] = []
    binding: list[Flush] = []
    bound: list[int] = []
    refused: set[int] = set()
    sent = 0

    def carry_out(effects: Iterable[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Store):
                storing.append(effect.flush)
            else:
                binding.append(effect.flush)
                assert len(binding) == 1, "two flushes are bound at once"
                bound.extend(numbers(effect.flush))

    while sent < 60 or not gathering.idle:
        choice = rng.random()
        if choice < 0.5 and sent < 60:
            sent += 1
            gathering.add(told.item(sent, rng.choice((10, 1000, LARGE + 1)), rng.randint(1, 3)))
            if rng.random() < 0.5:
                carry_out(gathering.go())
        elif choice < 0.7 and storing:
            flush = storing.pop(rng.randrange(len(storing)))
            if rng.random() < 0.2:
                refused.update(numbers(flush))
                carry_out(gathering.stored(flush, None, [], Unavailable("full")))
            else:
                registration = c.Register("00000001-00000001.arrow", 1, 1, 0, 0)
                carry_out(gathering.stored(flush, registration, [Place(0, 0, 0, 0)] * len(flush.items), None))
        elif binding:
            flush = binding.pop()
            carry_out(gathering.answered(flush, done(flush)))
        else:
            carry_out(gathering.go())
    assert bound == [number for number in range(1, sent + 1) if number not in refused]
    assert sorted(number for number, _ in told.answers) == list(range(1, sent + 1))
    assert {number for number, answer in told.answers if isinstance(answer, BraidError)} == refused


def test_an_object_has_one_block_for_each_log_and_the_blocks_that_clients_built() -> None:
    told = Told()
    items = [told.item(1, log=5), told.item(2, log=6), told.item(3, log=5)]
    built = to_arrow([Batch([b"built", b"by a client"])])
    items.insert(1, Item(c.Append(5, 2, 9, 0, 0), 9, lambda _: None, built))
    items.append(Item(c.Settle(b"x" * 8, 0), 64, lambda _: None))
    writer, homes = lay_out(Flush(1, items))
    made = writer.finish()
    data = b"".join(bytes(part) for part in made.parts)
    found = places(homes, [(block.offset, block.length, block.crc) for block in made.blocks])
    assert len(made.blocks) == 3
    assert found[4] is None
    for place, values in zip(found, [[b"1"], [b"built", b"by a client"], [b"2"], [b"3"]], strict=False):
        assert place is not None
        where = BlockPlace(place.offset, place.length, place.crc)
        block = read_block("x", where, data[place.offset : place.offset + place.length])
        assert [record.value for record in records(block, place.row, len(values), 0)] == values


@pytest.mark.parametrize("whole", [True, False], ids=["of all", "of each"])
def test_an_unknown_outcome_is_told_with_the_id_of_each_change(whole: bool) -> None:
    told, gathering = Told(), Gathering()
    for number in (3, 4):
        gathering.add(told.item(number))
    [bind] = gathering.go()
    unknown = OutcomeUnknown("the metadata did not answer in time; ask resolve() with its request id")
    list(gathering.answered(bind.flush, unknown if whole else [unknown, unknown]))
    found = dict(told.answers)
    for number, answer in found.items():
        assert isinstance(answer, OutcomeUnknown)
        assert (answer.request_id, str(answer)) == (number.to_bytes(16, "big").hex(), str(unknown))
    assert list(found) == [3, 4]

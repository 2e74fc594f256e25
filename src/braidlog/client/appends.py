"""From what a caller passes to an append, and from its answer to what he gets: for those who wait and who await."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from braidlog.client import arguments
from braidlog.client.arguments import Headers, Moment, Value
from braidlog.client.session import Session
from braidlog.embedded.committer import Pending
from braidlog.errors import ConditionFailed, InvalidArgument
from braidlog.facts import Info
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.objects.batch import Batch
from braidlog.record import Record

Ack = Literal["ordered", "durable"]


def submission(
    value: Value | Record | Iterable[Value | Record],
    key: Value | None,
    headers: Headers | None,
    timestamp: Moment,
) -> tuple[Batch, bool]:
    """What was submitted as a batch, and whether it is a single record."""
    if isinstance(value, bytes | bytearray | memoryview | str):
        return arguments.one_record(value, key, headers, timestamp), True
    if key is not None or headers is not None:
        raise InvalidArgument("key and headers go with a value of bytes: put them into the Records")
    if isinstance(value, Record):
        return arguments.many_records([value], timestamp), True
    batch = arguments.many_records(value, timestamp)
    if not batch.count:
        raise InvalidArgument("there is nothing to submit: give at least one record")
    return batch, False


def nothing(info: Info, expected_tail: int | None) -> range:
    """Where an append of no records stands; it writes nothing, but its condition is checked."""
    if arguments.optional("expected_tail", expected_tail) not in (NONE, info.tail):
        raise ConditionFailed(f"log {info.name!r} ends at {info.tail}, not at {expected_tail}: nothing was appended")
    return range(info.readable_tail, info.readable_tail)


def command(
    session: Session, log_id: int, batch: Batch, expected_tail: int | None, writer: str | None, sequence: int | None
) -> c.Append:
    name, number = arguments.writer_and_sequence(writer, sequence)
    return c.Append(
        log_id,
        batch.count,
        arguments.checked_size(batch),
        batch.least_timestamp,
        batch.greatest_timestamp,
        expected_tail=arguments.optional("expected_tail", expected_tail),
        writer=name,
        sequence=number,
        request=session.next_request(),
    )


def queue(session: Session, append: c.Append, batch: Batch, then: Callable[[Pending], None]) -> Pending:
    """Queue an append that room was taken for; the room is given back when it is durable or has failed."""

    def done(pending: Pending) -> None:
        session.outstanding.give_back(append.size)
        then(pending)

    try:
        return session.backend.submit(append, batch, done)
    except BaseException:
        session.outstanding.give_back(append.size)
        raise


def positions(answer: c.Result, ack: Ack) -> range | None:
    """Where the records stand; None if that is withheld, or was not asked for."""
    assert isinstance(answer, c.Appended)
    if answer.withheld or answer.first == NONE or ack == "durable":
        return None
    return range(answer.first, answer.first + answer.count)

"""A log, or a fork of one, as its user holds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import partial
from typing import overload

import pyarrow as pa

from braidlog import limits
from braidlog.client import appends, arguments, publications
from braidlog.client.appends import Ack
from braidlog.client.arguments import Headers, Moment, Value
from braidlog.client.cursor import Start, cursor_at
from braidlog.client.session import Session
from braidlog.client.subscription import Subscription
from braidlog.client.ticket import Receipt, Ticket
from braidlog.client.waiting import Deadline, nothing_yet, patience, patiently
from braidlog.errors import InvalidArgument, OutOfRange
from braidlog.facts import Ancestor, Consumer, Diff, Info, Plan, Upload, UploadedObject
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.objects.batch import Batch
from braidlog.record import Record


class Log:
    """A handle, bound to its log's identity: should the name be reused one day, this does not become that log.

    Safe to use from several threads. Handles cost nothing; make as many as you like.
    """

    __slots__ = ("_id", "_name", "_session")

    def __init__(self, session: Session, log_id: int, name: str) -> None:
        self._session = session
        self._id = log_id
        self._name = name

    @property
    def name(self) -> str:
        """What it was called when this handle was made; a log is never renamed."""
        return self._name

    @property
    def id(self) -> int:
        """Its number in this braid, which is never used again."""
        return self._id

    def __repr__(self) -> str:
        return f"<braidlog.Log {self._name!r} #{self._id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Log) and other._id == self._id and other._session is self._session

    def __hash__(self) -> int:
        return hash((id(self._session), self._id))

    # --- writing -------------------------------------------------------------------------------------------------

    def append(
        self,
        value: Value,
        *,
        key: Value | None = None,
        headers: Headers | None = None,
        timestamp: Moment | None = None,
        ack: Ack = "ordered",
        expected_tail: int | None = None,
        writer: str | None = None,
        sequence: int | None = None,
        wait: float | None = None,
    ) -> int | None:
        """Append one record durably and return its position.

        Returns None when the record was taken but its position is withheld by a hold, or with ack="durable".
        `expected_tail` appends only if the record will stand there (else ConditionFailed). `writer` and `sequence` make
        it idempotent, also across restarts: the same pair again returns the first result. `wait` is how many seconds to
        wait while the log is Blocked.
        """
        batch = arguments.one_record(value, key, headers, self._session.or_now(timestamp))
        positions = self._append(batch, ack, expected_tail, writer, sequence, wait)
        return None if positions is None else positions.start

    def append_many(
        self,
        values: Iterable[Value | Record],
        *,
        timestamp: Moment | None = None,
        ack: Ack = "ordered",
        expected_tail: int | None = None,
        writer: str | None = None,
        sequence: int | None = None,
        wait: float | None = None,
    ) -> range | None:
        """Append several records as one atomic, contiguous batch and return their positions; see `append`."""
        batch = arguments.many_records(values, self._session.or_now(timestamp))
        if not batch.count:
            return appends.nothing(self.info(), expected_tail)
        return self._append(batch, ack, expected_tail, writer, sequence, wait)

    def submit(
        self,
        value: Value | Record | Iterable[Value | Record],
        *,
        key: Value | None = None,
        headers: Headers | None = None,
        timestamp: Moment | None = None,
        expected_tail: int | None = None,
        writer: str | None = None,
        sequence: int | None = None,
        timeout: float | None = None,
    ) -> Ticket:
        """Queue an append and go on; the ticket tells when it is durable and where it stands.

        Takes one value, one Record, or an iterable of them for a batch. Appends submitted from one thread to one log
        keep their order. The bytes not yet durable are bounded: beyond that, `submit` waits up to `timeout` seconds.
        """
        batch, single = appends.submission(value, key, headers, self._session.or_now(timestamp))
        command = appends.command(self._session, self._id, batch, expected_tail, writer, sequence)
        backend = self._session.backend
        deadline = Deadline(arguments.seconds("timeout", timeout))
        if not backend.near(self._id):
            backend.approach(self._id)
        backend.wait_for_room(command, deadline.left)
        self._session.outstanding.take(command.size, deadline.left)
        pending = appends.queue(self._session, command, batch, lambda _: None)
        return Ticket(backend, Receipt(backend, pending, command.request, single=single))

    def upload(self, *, ttl: float | timedelta = limits.UPLOAD_TTL_S) -> Upload:
        """Begin to write objects for this log to the store, past every server: see `braidlog.bulk.ObjectWriter`.

        What comes back can be sent to other processes; several may write with one upload. Nothing of it is seen before
        `publish`, and what is not published within `ttl` seconds is deleted.
        """
        return publications.begin(self._session, self._id, self._name, ttl)

    def publish(
        self,
        objects: Iterable[UploadedObject],
        *,
        uploads: Iterable[Upload] = (),
        expected_tail: int | None = None,
        writer: str | None = None,
        sequence: int | None = None,
        wait: float | None = None,
    ) -> range | None:
        """Append everything in these objects, in this order, as one atomic batch, and return its positions.

        It ends the uploads that the objects are of, and those in `uploads`: whatever else was written with them is
        deleted. For the other arguments, and when None is returned, see `append`.
        """
        return publications.publish(self._session, self._id, objects, uploads, expected_tail, writer, sequence, wait)

    def discard(self, upload: Upload) -> None:
        """End an upload that nobody will publish; what was written with it is deleted. One that ended is fine."""
        publications.discard(self._session, self._id, upload)

    def _append(
        self,
        batch: Batch,
        ack: Ack,
        expected_tail: int | None,
        writer: str | None,
        sequence: int | None,
        wait: float | None,
    ) -> range | None:
        arguments.acknowledgement(ack)
        command = appends.command(self._session, self._id, batch, expected_tail, writer, sequence)
        backend = self._session.backend
        return appends.positions(
            patiently(backend, self._id, lambda: backend.append(command, batch), patience(wait)), ack
        )

    # --- reading -------------------------------------------------------------------------------------------------

    def tail(self) -> int:
        """The first position that cannot be read now."""
        return self._session.backend.tail(self._id)

    def info(self) -> Info:
        """All there is to know about this log at this moment."""
        return self._session.backend.describe(self._id)

    def read(
        self,
        start: int,
        stop: int | None = None,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        wait: float | None = None,
    ) -> list[Record]:
        """What is readable of [start, stop), at most `max_records`, and about `max_bytes` but at least one.

        At `tail()` that is nothing: [] comes back, after `wait` seconds if given and nothing arrived. Where a hold
        hides the record it is Blocked, above the true tail OutOfRange, below the start Trimmed.
        """
        arguments.read(start, stop, max_records, max_bytes)
        backend = self._session.backend
        return patiently(
            backend,
            self._id,
            lambda: backend.read(self._id, start, stop, max_records, max_bytes),
            patience(wait),
            nothing_yet(start, stop),
        )

    def read_arrow(self, start: int = 0, stop: int | None = None) -> pa.Table:
        """The same range as a pyarrow Table with the columns position, timestamp, key, value and headers."""
        arguments.span(start, stop)
        return self._session.backend.read_arrow(self._id, start, stop)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> list[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | list[Record]:
        """`log[i]` is the record at a position, `log[i:j]` a list; as in Python, -1 is the last readable one."""
        if isinstance(index, slice):
            return self._slice(index)
        if isinstance(index, bool) or not isinstance(index, int):
            raise InvalidArgument(f"a position is an int, not {type(index).__name__}")
        at = index if index >= 0 else self.tail() + index
        if at < 0:
            raise OutOfRange(f"log {self._name!r} has no position {index}: it ends at {at - index}")
        found = self.read(at, at + 1)
        if not found:
            raise OutOfRange(f"log {self._name!r} ends at {at}: position {at} is not there yet")
        return found[0]

    def _slice(self, index: slice) -> list[Record]:
        if index.step not in (None, 1):
            raise InvalidArgument(f"a slice of a log has no step, not {index.step}")
        for end in (index.start, index.stop):
            if end is not None and (isinstance(end, bool) or not isinstance(end, int)):
                raise InvalidArgument(f"a position is an int, not {type(end).__name__}")
        info = self.info()
        first = info.start if index.start is None else index.start
        last = info.readable_tail if index.stop is None else index.stop
        low, high, _ = slice(first, last).indices(info.readable_tail)
        return self.read(low, high) if low < high else []

    def position_at(self, time: Moment) -> int:
        """The first position whose timestamp is at or after the moment; `tail()` if there is none yet."""
        return self._session.backend.position_at(self._id, arguments.moment(time))

    def plan(self, start: int = 0, stop: int | None = None) -> Plan:
        """Where the bytes of a range are, for readers that fetch them themselves."""
        arguments.span(start, stop)
        return self._session.backend.plan(self._id, start, stop)

    def subscribe(self, start: Start = 0, *, follow: bool = True, consumer: str | None = None) -> Subscription:
        """Iterate over records from a position, from now on ("tail"), or from a moment.

        It waits for new records, pauses at holds, and ends with a reason in `.end`. Without `follow` it ends where
        nothing more can be read now. 0 stands for the beginning, wherever that is after trims.

        With the name of a `consumer` it begins where that one's last `commit` said, and at `start` only if there was
        none; Trimmed if that position is gone. Several subscriptions of one name each get everything.
        """
        backend = self._session.backend
        name = None if consumer is None else arguments.consumer(consumer)
        cursor = cursor_at(backend, self._id, start, follow=follow, consumer=name)
        return Subscription(backend, cursor, None if name is None else partial(self.commit, name))

    def commit(self, consumer: str, position: int) -> int:
        """Remember durably that a consumer has dealt with everything below `position`, which may lie before the last.

        A fork begins with the consumers of what it was forked from. Returns the position.
        """
        name, at = arguments.consumer(consumer), arguments.position("position", position)
        done = self._execute(c.Commit(self._id, name, at, self._session.now_us(), self._session.next_request()))
        assert isinstance(done, c.Done)
        return done.value

    def consumers(self) -> list[Consumer]:
        """Everybody who committed a position here, or on what this was forked from, by name."""
        return self._session.backend.consumers(self._id)

    def forget_consumer(self, name: str) -> None:
        """Forget how far a consumer got; NotFound if there is no such consumer."""
        self._execute(c.ForgetConsumer(self._id, arguments.consumer(name), self._session.next_request()))

    def trim(self, before: int) -> int:
        """Forget the positions below `before`, for this log; forks keep theirs. Returns the new start."""
        done = self._execute(
            c.Trim(self._id, arguments.position("before", before), request=self._session.next_request())
        )
        assert isinstance(done, c.Done)
        return done.value

    # --- forking -------------------------------------------------------------------------------------------------

    def cfork(
        self,
        name: str | None = None,
        *,
        promotable: bool = False,
        ttl: float | timedelta | None = None,
        lease: float | timedelta | None = limits.LEASE_DEFAULT_S,
        labels: Mapping[str, str] | None = None,
        dedicated: bool = False,
        wait: float | None = None,
    ) -> Log:
        """Fork this log live: the fork shares everything so far and goes on receiving what is appended here.

        What is written on the fork stays there, unless it is `promotable` and promoted. While a promotable fork is
        undecided, this log can be read up to the fork point only; after `lease` seconds without `renew` it is squashed
        (None: never). `ttl` squashes any fork after so many seconds. `dedicated` asks a service for a broker of its
        own; where there is none it is only remembered.
        """
        command = c.CFork(
            self._id,
            "" if name is None else arguments.name(name),
            self._session.now_us(),
            bool(promotable),
            arguments.micros("ttl", ttl),
            arguments.micros("lease", lease) if promotable else NONE,
            arguments.labels(labels),
            self._session.owner,
            self._session.next_request(),
            bool(dedicated),
        )
        return self._opened(patiently(self._session.backend, self._id, lambda: self._execute(command), patience(wait)))

    def sfork(
        self,
        name: str | None = None,
        *,
        at: int | None = None,
        ttl: float | timedelta | None = None,
        labels: Mapping[str, str] | None = None,
        wait: float | None = None,
    ) -> Log:
        """Fork this log severed: the first `at` records, or all there are now, and nothing that comes later."""
        command = c.SFork(
            self._id,
            "" if name is None else arguments.name(name),
            self._session.now_us(),
            arguments.optional("at", at),
            arguments.micros("ttl", ttl),
            arguments.labels(labels),
            self._session.owner,
            self._session.next_request(),
        )
        return self._opened(patiently(self._session.backend, self._id, lambda: self._execute(command), patience(wait)))

    def promote(
        self, *, expected_own: int | None = None, expected_tail: int | None = None, into: Log | None = None
    ) -> bool:
        """Make this fork its parent: from now on the parent's name stands for what the fork held.

        `expected_own` promotes only if the fork has exactly so many records of its own, those that were validated; the
        parent's may still arrive meanwhile. Returns False when a guard fails, and the fork is as it was, or when a
        sibling was promoted first, and the fork is gone. `into` is the parent that it was validated for:
        ConditionFailed if it has another by now, as that one was promoted itself.
        """
        done = self._execute(
            c.Promote(
                self._id,
                arguments.optional("expected_own", expected_own),
                arguments.optional("expected_tail", expected_tail),
                self._session.next_request(),
                NONE if into is None else into.id,
            )
        )
        assert isinstance(done, c.Promotion)
        return done.promoted

    def squash(self, *, cascade_severed: bool = False) -> None:
        """Delete this fork and the live forks below it; with `cascade_severed` severed forks of those as well."""
        self._execute(c.Squash(self._id, bool(cascade_severed), self._session.next_request()))

    def renew(self) -> None:
        """Begin the decision lease, and the time to live, anew."""
        self._execute(c.Renew(self._id, self._session.now_us(), self._session.next_request()))

    def diff(self, *, start: int | None = None, max_records: int | None = None) -> Diff:
        """What this fork has from its fork point on, or from the position `start`, if that is later: its own records,
        and the parent's between them."""
        arguments.bound("max_records", max_records)
        arguments.optional("start", start)
        return self._session.backend.diff(self._id, start, max_records)

    def lineage(self) -> list[Ancestor]:
        """This log, what it was forked from, and so on up to a root."""
        return self._session.backend.lineage(self._id)

    def _execute(self, command: c.Command) -> c.Result:
        return self._session.backend.execute(command)

    def _opened(self, result: c.Result) -> Log:
        assert isinstance(result, c.Opening)
        return Log(self._session, result.log, result.name)

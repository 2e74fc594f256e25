"""Large batches on their way into objects, ahead of the commits that bind them.

What was queued is stored at once if nothing else is being stored. Beside one object a second is begun that is worth its
syncs, so that the disk works while the other is laid out, bound and answered; further ones only once they are full. The
more was here at once lately, the larger has a second one to be: whoever keeps little under way waits for all of it. So
objects are large when there is much to store, and nobody waits when there is little. At most STORERS objects are under
way beside the one of a leader, who stores what he would have to wait for.

Storing binds nothing: an object is registered, and its batches get their positions, by the commit that takes them. One
that is stored and never registered is swept when the directory is opened again.

Promises: a batch shares its object only with batches from the same side of a `divide`. If an object cannot be stored,
exactly the batches in it are refused. Safe to use from several threads.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import inf

from braidlog import limits
from braidlog.errors import Unavailable
from braidlog.forest import commands as c
from braidlog.objects.format import Columns, ObjectWriter

StoreObject = Callable[[ObjectWriter], tuple[c.Register, list[tuple[int, int, int]]]]


class Parcel:
    """Batches that share an object, and what became of it."""

    __slots__ = ("done", "loads", "refusal", "registered", "registration")

    def __init__(self, loads: list[Load]) -> None:
        self.loads = loads
        self.done = False
        self.registration: c.Register | None = None  # once it is stored
        self.refusal: Unavailable | None = None  # if it could not be
        self.registered = False  # by a commit


class Load:
    """A batch too large to ride inline, and where it went."""

    __slots__ = ("columns", "parcel", "place", "size")

    def __init__(self, columns: Columns, size: int) -> None:
        self.columns: Columns | None = columns  # until it is stored
        self.size = size
        self.parcel: Parcel | None = None  # once somebody is at it
        self.place = (0, 0, 0)  # offset, length and checksum in the object, once it is stored

    @property
    def done(self) -> bool:
        return self.parcel is not None and self.parcel.done


class Storing:
    """`store_object(writer)` makes an object durable; it is called by several threads at once."""

    def __init__(self, store_object: StoreObject) -> None:
        self._store_object = store_object
        self._gathered: deque[Load | None] = deque()  # what nobody is at yet; None divides
        self._gathered_bytes = 0
        self._under_way = 0
        self._under_way_bytes = 0
        self._lately_bytes = 0  # gathered and under way at once: the most of late
        self._ended = False
        self.order = threading.RLock()  # to be held by whoever queues something and adds it here
        self._changed = threading.Condition(self.order)
        self._storers = ThreadPoolExecutor(limits.STORERS, thread_name_prefix="braidlog-storer")

    def add(self, load: Load) -> None:
        """Have it stored some time; `begin` says that the time may be now."""
        with self.order:
            if self._ended:
                _turn_away(load)
            else:
                self._gathered.append(load)
                self._gathered_bytes += load.size

    def divide(self) -> None:
        """Let nothing that is added from now on share an object with what was added before."""
        with self.order:
            if self._gathered:
                self._gathered.append(None)

    def begin(self) -> None:
        """Store aside what it is time for."""
        parcels = []
        with self.order:
            while self._gathered_bytes and self._gathered_bytes >= self._worth_bytes():
                parcels.append(self._claim())
        for parcel in parcels:
            try:
                self._storers.submit(self._store, parcel)
            except RuntimeError:  # the interpreter is about to exit, and begins no threads any more
                self._store(parcel)

    def _worth_bytes(self) -> float:
        """So much is to be gathered for one more object to be begun."""
        if self._under_way == 0:
            return 0
        if self._under_way == 1:
            share = max(limits.SECOND_OBJECT_BYTES_MIN, self._lately_bytes // limits.STORERS)
            return min(share, limits.SECOND_OBJECT_BYTES_MAX, limits.OBJECT_BYTES_MAX)
        return limits.OBJECT_BYTES_MAX if self._under_way < limits.STORERS else inf

    def complete(self, load: Load) -> None:
        """Return once it is stored or refused. If nobody is at it yet, it is stored right here."""
        while not load.done:
            with self.order:
                parcel = self._claim() if load.parcel is None else None
                if parcel is None:
                    self._changed.wait_for(lambda: load.done)
            if parcel is not None:
                self._store(parcel)

    def end(self) -> None:
        """Begin nothing any more: what is not under way will never be wanted, and whoever waits for it is told."""
        with self.order:
            self._ended = True
            for load in self._gathered:
                if load is not None:
                    _turn_away(load)
            self._gathered.clear()
            self._gathered_bytes = 0

    def close(self) -> None:
        """End, and wait for what is under way."""
        self.end()
        self._storers.shutdown()

    def disown(self) -> None:
        """In the child of a fork of the process: whoever held the lock, or is storing, is not here."""
        self.order = threading.RLock()
        self._changed = threading.Condition(self.order)
        self.end()

    def _claim(self) -> Parcel:
        """The batches that come next and fit into an object; one larger than the bound goes alone."""
        self._lately_bytes = max(self._gathered_bytes + self._under_way_bytes, self._lately_bytes * 7 // 8)
        loads: list[Load] = []
        size = 0
        while self._gathered:
            load = self._gathered[0]
            if loads and (load is None or size + load.size > limits.OBJECT_BYTES_MAX):
                break
            self._gathered.popleft()
            if load is not None:
                loads.append(load)
                size += load.size
        parcel = Parcel(loads)
        for load in loads:
            load.parcel = parcel
        self._gathered_bytes -= size
        self._under_way += 1
        self._under_way_bytes += size
        return parcel

    def _store(self, parcel: Parcel) -> None:
        try:
            writer = ObjectWriter()
            for load in parcel.loads:
                writer.add(load.columns)
            registration, places = self._store_object(writer)
            for load, place in zip(parcel.loads, places, strict=True):
                load.place = place
            parcel.registration = registration
        except BaseException as error:  # a lack of memory too: the log itself is untouched and goes on
            parcel.refusal = Unavailable(
                f"the batch could not be stored: {error}; free some space or mend the store, then try again"
            )
            if not isinstance(error, Exception):
                raise
        finally:
            for load in parcel.loads:
                load.columns = None
            with self.order:
                self._under_way -= 1
                self._under_way_bytes -= sum(load.size for load in parcel.loads)
                parcel.done = True
                self._changed.notify_all()
            self.begin()


def _turn_away(load: Load) -> None:
    load.columns = None
    load.parcel = Parcel([load])
    load.parcel.refusal = Unavailable("the batch was not stored: the log takes no more, open it again")
    load.parcel.done = True

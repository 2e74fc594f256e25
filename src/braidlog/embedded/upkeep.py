"""What keeps a log in shape behind its users' backs: packing, checkpoints, expiry, retention, collection, compaction.

Each duty is a method that can be called by itself and says whether it did something; `Keeper` calls them when they are
due, from a thread of its own. A duty that fails (a full disk, say) loses nothing and is tried again; the failure is
logged and shown to appends that must wait for it.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import pyarrow as pa

from braidlog import limits
from braidlog.embedded.writer import Writer
from braidlog.errors import BraidError, Gone
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.space import Place
from braidlog.forest.tails import reach
from braidlog.objects.batch import decode, to_arrow
from braidlog.objects.format import BlockPlace, ObjectWriter, read_block
from braidlog.observe import catalog
from braidlog.observe.logs import Event

_log = logging.getLogger("braidlog.upkeep")


class Upkeep:
    """The duties. Only one thread at a time carries them out."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._once = threading.Lock()

    def pack(self) -> bool:
        """Put everything that rides inline into one object, a block for each log, and drop the inline bytes."""
        writer = self._writer
        with self._once:
            with writer.lock:
                by_log: dict[int, list[int]] = defaultdict(list)
                for block, (log, _) in writer.forest.space.inline.items():
                    by_log[log].append(block)
                payloads = {block: writer.payloads[block] for blocks in by_log.values() for block in blocks}
            if not payloads:
                return False
            made = ObjectWriter()
            counts: dict[int, list[int]] = {}
            for log, blocks in by_log.items():
                batches = [decode(payloads[block]) for block in blocks]
                counts[log] = [batch.count for batch in batches]
                made.add(to_arrow(batches))
            registration, places = writer.put_object(made)
            packed = [
                c.PackedBlock(log, *place, blocks, counts[log])
                for (log, blocks), place in zip(by_log.items(), places, strict=True)
            ]
            writer.execute_together([registration, c.Pack(registration.object, packed)])
            return True

    def expire(self) -> bool:
        """Squash forks whose time to live or decision lease has run out."""
        writer = self._writer
        now = writer.clock.now_us()
        with writer.lock:
            overdue = writer.forest.overdue(now)
            names = [writer.forest.logs[log].name for log in overdue]
        writer.execute_together([c.Expire(log, now) for log in overdue], despite=(Gone,))  # it went with another one
        for log, name in zip(overdue, names, strict=True):
            _log.info(Event("expire", log=log, name=name))
        return bool(overdue)

    def end_uploads(self) -> bool:
        """End uploads whose time is over, or whose log is."""
        writer = self._writer
        with writer.lock:
            forest = writer.forest
            overdue = forest.space.uploads.overdue(writer.clock.now_us(), forest.logs)
        writer.execute_together([c.Discard(log, epoch) for log, epoch in overdue])
        for log, epoch in overdue:
            _log.info(Event("upload_over", log=log, epoch=epoch))
        return bool(overdue)

    def sweep(self) -> bool:
        """Delete what ended uploads left in the store. It looks at all that is there, which may take long."""
        self._writer.forsaken = False  # first: what ends meanwhile is for the next time
        try:
            self._writer.sweep_stored()
        except BaseException:
            self._writer.forsaken = True
            raise
        return True

    def retain(self) -> bool:
        """Trim logs that keep only so much, or only so long."""
        writer = self._writer
        now = writer.clock.now_us()
        with writer.lock:
            limited = [
                log.id
                for log in writer.forest.logs.values()
                if (log.retain_age_us != NONE or log.retain_bytes != NONE) and self._exceeds(log.id, now)
            ]
        writer.execute_together([c.Retain(log, now) for log in limited], despite=(Gone,))
        return bool(limited)

    def _exceeds(self, log_id: int, now: int) -> bool:
        """Whether retention would trim something: asked first, so that idle logs write nothing."""
        log = self._writer.forest.logs[log_id]
        first = next(log.view.index.runs(log.start, reach(log).readable), None)
        if first is None:
            return False
        held = log.own_size - log.view.index.own_before(log.start)[1]
        too_old = log.retain_age_us != NONE and first.greatest < now - log.retain_age_us
        return too_old or (log.retain_bytes != NONE and held - first.size >= log.retain_bytes)

    def collect(self) -> bool:
        """Let go of what no living log can read, then delete objects whose grace period is over."""
        writer = self._writer
        with self._once:
            now = writer.clock.now_us()
            littered, writer.littered = writer.littered, False
            if littered:
                try:
                    writer.execute(c.Collect(now))
                except BaseException:
                    writer.littered = True
                    raise
            grace = int(limits.GRACE_S * 1_000_000)
            with writer.lock:
                ripe = [
                    name
                    for name, known in writer.forest.space.objects.items()
                    if known.condemned != NONE and known.condemned + grace <= now
                ]
            for name in ripe:
                writer.store.delete(name)
            if ripe:
                writer.execute(c.Forget(ripe))
            return littered or bool(ripe)

    def compact(self) -> bool:
        """Rewrite small and half-dead objects into a large one. Every log and fork follows by itself."""
        writer = self._writer
        with self._once:
            with writer.lock:
                chosen = self._compactable()
            if not chosen:
                return False
            made = ObjectWriter()
            copied: list[list[tuple[int, int]]] = []  # for each new block: (block, its first row there)
            for group in self._groups(chosen):
                rows, batches, moved = 0, [], []
                for place, blocks in group:
                    data = writer.store.get(place.object, place.offset, place.length)
                    batch = read_block(place.object, BlockPlace(place.offset, place.length, place.crc), data)
                    moved += [(block, rows + row) for block, row in blocks]
                    rows += batch.num_rows
                    batches.append(batch)
                made.add(pa.concat_batches(batches))
                copied.append(moved)
            registration, places = writer.put_object(made)
            moves = [
                c.Move(block, *place, row) for place, moved in zip(places, copied, strict=True) for block, row in moved
            ]
            writer.execute_together([registration, c.Relocate(registration.object, moves)])
            return True

    def _compactable(self) -> dict[tuple[str, int], list[tuple[int, Place]]]:
        """Blocks by where they physically are, of objects that are worth rewriting together; empty if too few are."""
        space = self._writer.forest.space
        physical: dict[str, dict[int, list[tuple[int, Place]]]] = defaultdict(lambda: defaultdict(list))
        for block, place in space.places.items():
            physical[place.object][place.offset].append((block, place))
        sizes: list[tuple[int, str]] = []
        for name, blocks in physical.items():
            live = sum(places[0][1].length for places in blocks.values())
            small = space.objects[name].size < limits.COMPACT_OBJECT_BYTES_MAX
            if small or live * 2 < space.objects[name].size:
                sizes.append((live, name))
        worth: list[str] = []
        taken = 0
        for live, name in sorted(sizes):  # the smallest first: a few middling ones must not use up the bound
            taken += live
            if taken > limits.COMPACT_BYTES_MAX:
                break
            worth.append(name)
        if len(worth) < limits.COMPACT_OBJECTS_MIN:
            return {}
        return {(name, offset): places for name in worth for offset, places in physical[name].items()}

    @staticmethod
    def _groups(
        chosen: dict[tuple[str, int], list[tuple[int, Place]]],
    ) -> list[list[tuple[Place, list[tuple[int, int]]]]]:
        """Physical blocks of one log that will share a new block, in the order in which they were appended."""
        by_log: dict[int, list[tuple[Place, list[tuple[int, int]]]]] = defaultdict(list)
        for places in sorted(chosen.values(), key=lambda places: places[0][0]):
            first = places[0][1]
            by_log[first.log].append((first, [(block, place.row) for block, place in places]))
        groups: list[list[tuple[Place, list[tuple[int, int]]]]] = []
        for blocks in by_log.values():
            size = limits.PACK_BYTES
            for place, members in blocks:
                if size + place.length > limits.PACK_BYTES:
                    groups.append([])
                    size = 0
                groups[-1].append((place, members))
                size += place.length
        return groups


class Keeper:
    """The thread that sees to the duties when they are due."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self.upkeep = Upkeep(writer)
        self._wake = threading.Event()
        self._stopping = False
        self._packed_at = writer.clock.monotonic_s()
        self._idle_since = writer.clock.monotonic_s()
        self._seen = writer.version
        self._swept_at = writer.clock.monotonic_s()
        self._sweeping: threading.Thread | None = None
        writer.on_full = self._wake.set
        self.upkeep.expire()
        self._thread = threading.Thread(target=self._run, name="braidlog-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Finish the duty at hand, pack what rides inline, and stop."""
        self._stopping = True
        self._wake.set()
        self._thread.join(limits.SHUTDOWN_GRACE_S)
        if self._thread.is_alive():  # it waits for a store, which tries nothing again once it is closed
            self._writer.store.close()
            self._thread.join()
        if self._sweeping is not None:
            self._sweeping.join(limits.SHUTDOWN_GRACE_S)
        # A store that does not answer is not waited for once more: what rides inline is in the log, and stays there.
        if self._writer.committer.failure is None and "pack" not in self._writer.failing:
            self._try(self.upkeep.pack)

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(limits.KEEPER_PERIOD_S)
            self._wake.clear()
            if not self._stopping and self._writer.committer.failure is None:
                self._tick()

    def _tick(self) -> None:
        writer, upkeep = self._writer, self.upkeep
        now = writer.clock.monotonic_s()
        self._try(upkeep.expire)
        if not writer.inline_bytes:
            self._packed_at = now
        if writer.inline_bytes >= limits.PACK_BYTES or now - self._packed_at >= limits.PACK_AGE_S:
            self._try(upkeep.pack)
            self._packed_at = writer.clock.monotonic_s()
            self._try(upkeep.expire)  # whoever waits for a decision does not wait for a slow store too
        self._try(upkeep.end_uploads)
        self._sweep_when_due(now)
        self._try(upkeep.retain)
        self._try(upkeep.collect)
        if writer.version != self._seen:
            self._seen, self._idle_since = writer.version, now
        elif now - self._idle_since >= limits.COMPACT_IDLE_S:
            if self._try(upkeep.compact):
                self._seen = writer.version
            else:
                self._idle_since = now
        if writer.checkpoint_due():
            self._try(upkeep.pack)
            self._try(self._checkpoint)

    def _sweep_when_due(self, now: float) -> None:
        """In a thread of its own: nobody whose lease is to end waits until a large store was looked through."""
        if self._sweeping is not None and self._sweeping.is_alive():
            return
        if now - self._swept_at >= (limits.SWEEP_S if self._writer.forsaken else limits.SWEEP_IDLE_S):
            self._swept_at = now
            self._sweeping = threading.Thread(
                target=partial(self._try, self.upkeep.sweep), name="braidlog-sweep", daemon=True
            )
            self._sweeping.start()

    def _checkpoint(self) -> bool:
        self._writer.checkpoint()
        return True

    def _try(self, duty: Callable[[], bool]) -> bool:
        name = duty.__name__.removeprefix("_")
        failing = self._writer.failing
        outcome = catalog.FAILED
        began = self._writer.clock.monotonic_s()
        try:
            done = duty()
            outcome = catalog.DONE if done else catalog.IDLE
        except (BraidError, OSError) as error:
            if failing.get(name) != str(error):  # say it once, not every second
                _log.warning(Event("upkeep_failed", duty=name, error=str(error), then="it will be tried again"))
            failing[name] = str(error)
            return False
        finally:
            self._writer.measures.duties.seen_to(name, outcome, self._writer.clock.monotonic_s() - began)
        failing.pop(name, None)
        return done

"""From the parts of a plan to what each task reads: whole blocks, about the same bytes for each.

PURE, and in one pass: a plan of a long log comes in pages, and is never in memory as a whole. What a task gets is
encoded as soon as it is complete.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from braidlog import limits
from braidlog.facts import PlanPart


class Slice(msgspec.Struct, array_like=True):
    """Neighbouring positions of one log, and where they are. Parts are the fields of PlanPart, in its order."""

    log: str
    log_id: int
    objects: str | None
    parts: list[tuple[int, int, int, str | None, int, int, int, bytes | None]]

    @property
    def plan_parts(self) -> Iterator[PlanPart]:
        for start, stop, row, name, offset, length, crc, data in self.parts:
            yield PlanPart(
                start=start, stop=stop, row=row, object=name, offset=offset, length=length, crc=crc, data=data
            )


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(list[Slice])


def slices_of(partition: bytes) -> list[Slice]:
    """What `Cutter` encoded."""
    return _decoder.decode(partition)


def target_bytes(total_bytes: int, cores: int) -> int:
    """What a task should read: enough to be worth starting one, little enough that all cores have work to the end.

    Tasks come in whole rounds of the cores: five of them take two cores as long as six.
    """
    fair = -(-total_bytes // (cores * limits.SPARK_TASKS_PER_CORE))
    target = min(max(fair, limits.SPARK_PARTITION_BYTES_MIN), limits.SPARK_PARTITION_BYTES_MAX)
    tasks = -(-total_bytes // target)
    return target if tasks <= cores else -(-total_bytes // (-(-tasks // cores) * cores))


class Cutter:
    """Takes parts in order, and gives a partition whenever one is complete."""

    def __init__(self, target: int, rows_max: int | None = None) -> None:
        self._target = target
        self._rows_max = rows_max
        self._slices: list[Slice] = []
        self._homes: set[tuple[str, int]] = set()
        self._size = 0  # of all that was put
        self._goal = target  # where in that the present one ends
        self._rows = 0

    def add(self, log: str, log_id: int, objects: str | None, part: PlanPart) -> Iterator[bytes]:
        """Whatever partitions are complete by this. Blocks are cut only where `rows_max` wants it."""
        weight = self._weight(part)
        if self._rows and self._size + weight // 2 >= self._goal:
            self._goal += self._target  # from the goal on, not from where it ended: so that nothing adds up
            yield self._closed()
            weight = self._weight(part)
        while self._rows_max is not None and self._rows + part.stop - part.start > self._rows_max:
            middle = part.start + self._rows_max - self._rows
            if middle > part.start:
                self._put(log, log_id, objects, msgspec.structs.replace(part, stop=middle), weight)
                part = msgspec.structs.replace(part, start=middle, row=part.row + middle - part.start)
            self._goal = self._size + self._target
            yield self._closed()
            weight = self._weight(part)
        if part.stop > part.start:
            self._put(log, log_id, objects, part, weight)

    def finish(self) -> Iterator[bytes]:
        """What is left."""
        if self._slices:
            yield self._closed()

    def _weight(self, part: PlanPart) -> int:
        """Bytes to be fetched for it: none for a block that is fetched anyway."""
        return 0 if part.object is not None and (part.object, part.offset) in self._homes else part.length

    def _put(self, log: str, log_id: int, objects: str | None, part: PlanPart, weight: int) -> None:
        last = self._slices[-1] if self._slices else None
        if last is None or last.log_id != log_id or last.objects != objects or last.parts[-1][1] != part.start:
            last = Slice(log, log_id, objects, [])
            self._slices.append(last)
        last.parts.append((part.start, part.stop, part.row, part.object, part.offset, part.length, part.crc, part.data))
        if part.object is not None:
            self._homes.add((part.object, part.offset))
        self._size += weight
        self._rows += part.stop - part.start

    def _closed(self) -> bytes:
        encoded = _encoder.encode(self._slices)
        self._slices, self._homes, self._rows = [], set(), 0
        return encoded

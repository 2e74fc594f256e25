"""What a log is made of."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec import Struct

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Record(Struct, frozen=True):
    """One record as it stands in a log. A record to be appended has no position yet: leave it at -1.

    `timestamp` is microseconds since 1970 UTC; 0 in a record to be appended means now.
    """

    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int = 0
    position: int = -1

    @property
    def time(self) -> datetime:
        """The timestamp as an aware datetime in UTC."""
        return _EPOCH + timedelta(microseconds=self.timestamp)

    @property
    def size(self) -> int:
        """Bytes of the value, the key and the headers."""
        size = len(self.value) + len(self.key or b"")
        for name, value in self.headers:
            size += len(name.encode()) + len(value)
        return size


def to_micros(moment: datetime) -> int:
    """Microseconds since 1970 UTC. A naive datetime is taken as local time, as Python does."""
    return (moment.astimezone(UTC) - _EPOCH) // timedelta(microseconds=1)

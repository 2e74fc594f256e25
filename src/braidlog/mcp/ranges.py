"""From what an agent says to positions, and from positions to records, in bounded steps."""

from __future__ import annotations

from braidlog import Info, Log, Record, limits
from braidlog.errors import InvalidArgument, OutOfRange
from braidlog.mcp.showing import micros_of


def span(
    log: Log,
    info: Info,
    start: int | None = None,
    stop: int | None = None,
    since: str | None = None,
    until: str | None = None,
    last: int | None = None,
) -> tuple[int, int]:
    """The positions that are meant, of those that can be read now."""
    low, high = info.start, info.readable_tail
    if start is not None:
        if start > info.tail:
            raise OutOfRange(f"{log.name!r} ends at {info.tail}: there is no position {start} yet")
        low = max(low, start)
    if since is not None:
        low = max(low, log.position_at(micros_of("since", since)))
    if stop is not None:
        high = min(high, stop)
    if until is not None:
        high = min(high, log.position_at(micros_of("until", until)))
    if start is not None and stop is not None and stop < start:
        raise InvalidArgument(f"start = {start} lies behind stop = {stop}: exchange them")
    high = max(low, high)
    if last is not None:
        low = max(low, high - last)
    return low, high


def sample(log: Log, start: int, stop: int, count: int) -> list[Record]:
    """Up to so many records, in a few pieces that are spread evenly over the range; its ends are among them."""
    if stop - start <= count:
        return _some(log, start, stop)
    rounds = min(limits.MCP_SAMPLE_ROUNDS, count)
    each = max(1, count // rounds)
    found: dict[int, Record] = {}
    for number in range(rounds):
        at = start + (stop - start - each) * number // max(1, rounds - 1)
        for record in _some(log, at, min(stop, at + each), rounds):
            found[record.position] = record
    return [found[position] for position in sorted(found)]


def _some(log: Log, start: int, stop: int, rounds: int = 1) -> list[Record]:
    if start >= stop:
        return []
    return log.read(start, stop, max_records=stop - start, max_bytes=limits.DESCRIBE_SAMPLE_BYTES // rounds)

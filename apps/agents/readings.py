"""Readings of a fleet of sensors, in bulk, with anomalies among them: all of it is drawn from a seed.

A reading is `{"device": "pump-3fa2", "seq": 4021, "celsius": 21.37, "volts": 3.61}` with the device as its key. Devices
send in no fixed order. Each has a level and a noise of its own, and all follow the same weather over a day.

What is planted is remembered, for whoever checks what was found. A device has at most one anomaly:

- spike: a few readings in a row are far off, though a sensor may measure them
- stuck: it sends the same reading over and over
- silent: it sends nothing for a while, or never again
- drift: its readings move away from those of the others, until the end
- impossible: readings beyond what its sensor can measure
- duplicates: a record of its comes many times
- garbled: records of its are cut off, and no JSON
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Final, Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

import braidlog
from braidlog.bulk import ObjectWriter

Kind = Literal["spike", "stuck", "silent", "drift", "impossible", "duplicates", "garbled"]

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
CELSIUS_MIN, CELSIUS_MAX = -40.0, 125.0  # what the sensors measure
DAY: Final = timedelta(days=1)
WEATHER: Final = 1.5  # degrees up and down over a day
OWN_MIN: Final = 100
COPIES_WITHIN: Final = 200  # positions
PARTS: Final = ("pump", "fan", "oven", "tank", "valve", "belt")


class TooFew(ValueError):
    """Readings that are too few for their anomalies."""


@dataclass(frozen=True)
class Planted:
    """An anomaly: whose, and from which position to which (both belong to it)."""

    device: str
    kind: Kind
    first: int
    last: int


@dataclass
class Readings:
    """Readings that can be appended, and what is planted among them."""

    table: pa.Table
    planted: list[Planted]
    devices: list[str]

    def append_to(self, log: braidlog.Log) -> None:
        """All of them, as one batch, past whoever serves the log."""
        with ObjectWriter(log.upload()) as writer:
            writer.add(self.table)
        log.publish(writer.close())


@dataclass
class _Draft:
    """Columns while they are edited."""

    names: list[str]
    levels: list[float]
    noises: list[float]
    who: list[int]
    celsius: list[float] = field(default_factory=list)
    copy_of: dict[int, int] = field(default_factory=dict)
    cut: set[int] = field(default_factory=set)

    def own(self, device: int, low: int, high: int) -> list[int]:
        """The positions of a device's own records in a range, copies left out."""
        return [at for at in range(low, high) if self.who[at] == device and at not in self.copy_of]


def draw(
    seed: int,
    count: int,
    until: datetime,
    *,
    devices: int = 200,
    each: tuple[int, int] = (1, 3),
    kinds: Sequence[Kind] = KINDS,
    part: tuple[float, float] = (0.1, 0.9),
    span: timedelta = DAY,
) -> Readings:
    """So many readings, evenly over the time before `until`. Of each kind there are as many anomalies as `each` allows,
    all of them within a `part` of the readings, save for those that last until the end."""
    own = (part[1] - part[0]) * count / devices  # about so many records of each device are in that part
    if own < OWN_MIN:
        least = math.ceil(count * OWN_MIN / own)
        raise TooFew(f"{count:,} readings are too few for {devices} devices: take {least:,} or more")
    rng = Random(seed)
    draft = _devices(rng, count, devices)
    low, high = int(part[0] * count), int(part[1] * count)
    plan: list[Kind] = [kind for kind in kinds for _ in range(rng.randint(*each))]
    chosen = rng.sample(range(devices), len(plan))
    healthy = sorted(set(range(devices)) - set(chosen))
    planted: list[Planted] = []

    def plant(wanted: set[Kind], how: Callable[[int], tuple[int, int]]) -> None:
        for kind, device in zip(plan, chosen, strict=True):
            if kind in wanted:
                first, last = how(device)
                planted.append(Planted(draft.names[device], kind, first, last))

    plant({"duplicates"}, lambda device: _duplicates(rng, draft, device, low, high))
    plant({"silent"}, lambda device: _silence(rng, draft, device, low, high, own, healthy))
    draft.celsius = _celsius(rng, draft)
    plant({"spike"}, lambda device: _spike(rng, draft, device, low, high))
    plant({"stuck"}, lambda device: _stuck(rng, draft, device, low, high, own))
    plant({"drift"}, lambda device: _drift(rng, draft, device, low, high))
    plant({"impossible"}, lambda device: _impossible(rng, draft, device, low, high))
    plant({"garbled"}, lambda device: _garbled(rng, draft, device, low, high))
    return Readings(_table(rng, draft, until, span), sorted(planted, key=lambda one: one.first), draft.names)


def _devices(rng: Random, count: int, devices: int) -> _Draft:
    numbers = rng.sample(range(16**4), devices)
    return _Draft(
        [f"{rng.choice(PARTS)}-{number:04x}" for number in numbers],
        [rng.uniform(15.0, 30.0) for _ in numbers],
        [rng.uniform(0.25, 0.6) for _ in numbers],
        pc.floor(pc.multiply(_uniform(rng, count), float(devices))).cast(pa.int64()).to_pylist(),
    )


def _uniform(rng: Random, count: int) -> pa.Array:
    return pc.random(count, initializer=rng.getrandbits(63))


def _celsius(rng: Random, draft: _Draft) -> list[float]:
    """Level, weather, and noise of a normal curve."""
    count = len(draft.who)
    who = pa.array(draft.who)
    far = pc.sqrt(pc.multiply(-2.0, pc.ln(pc.add(_uniform(rng, count), 1e-12))))
    noise = pc.multiply(far, pc.cos(pc.multiply(2 * math.pi, _uniform(rng, count))))
    weather = pc.multiply(WEATHER, pc.sin(pc.multiply(pa.array(range(count), pa.float64()), 2 * math.pi / count)))
    levels, noises = (pa.array(column).take(who) for column in (draft.levels, draft.noises))
    celsius: list[float] = pc.round(pc.add(pc.add(levels, weather), pc.multiply(noise, noises)), 2).to_pylist()
    return celsius


# --- anomalies -------------------------------------------------------------------------------------------------------


def _silence(
    rng: Random, draft: _Draft, device: int, low: int, high: int, own: float, healthy: list[int]
) -> tuple[int, int]:
    """Others send instead. One in three never comes back."""
    count = len(draft.who)
    length = round(rng.uniform(60, 90) / own * (high - low))
    first = rng.randrange(low, max(low + 1, high - length))
    stop = count if rng.random() < 1 / 3 else min(count, first + length)
    for at in range(first, stop):
        if draft.who[at] == device:
            draft.who[at] = rng.choice(healthy)
    before = next(at for at in range(first - 1, -1, -1) if draft.who[at] == device)
    after = next((at for at in range(stop, count) if draft.who[at] == device), count - 1)
    return before, after


def _duplicates(rng: Random, draft: _Draft, device: int, low: int, high: int) -> tuple[int, int]:
    """Copies in the place of other records, a few positions apart."""
    first = rng.choice(draft.own(device, low, high - COPIES_WITHIN))
    at, taken = first, {*draft.copy_of, *draft.copy_of.values()}
    for _ in range(rng.randint(8, 30)):
        at += rng.randint(1, 5)
        while at in taken:
            at += 1
        draft.who[at] = device
        draft.copy_of[at] = first
    return first, at


def _row(rng: Random, draft: _Draft, device: int, low: int, high: int, length: int) -> list[int]:
    """So many records of a device in a row."""
    own = draft.own(device, low, high)
    begin = rng.randrange(1, len(own) - length)
    return own[begin : begin + length]


def _spike(rng: Random, draft: _Draft, device: int, low: int, high: int) -> tuple[int, int]:
    row = _row(rng, draft, device, low, high, rng.randint(3, 8))
    sign = rng.choice((-1, 1))
    for at in row:
        draft.celsius[at] = round(draft.celsius[at] + sign * rng.uniform(11.0, 18.0), 2)
    return row[0], row[-1]


def _stuck(rng: Random, draft: _Draft, device: int, low: int, high: int, own: float) -> tuple[int, int]:
    row = _row(rng, draft, device, low, high, max(20, round(own * rng.uniform(0.03, 0.06))))
    everything = draft.own(device, 0, len(draft.who))
    around = {draft.celsius[everything[everything.index(row[0]) - 1]]}
    around |= {draft.celsius[at] for at in everything[everything.index(row[-1]) + 1 :][:1]}
    held = draft.celsius[row[0]]
    while held in around:
        held = round(held + 0.01, 2)
    for at in row:
        draft.celsius[at] = held
    return row[0], row[-1]


def _drift(rng: Random, draft: _Draft, device: int, low: int, high: int) -> tuple[int, int]:
    count = len(draft.who)
    begin = rng.randrange(low + (high - low) // 10, (low + high) // 2)
    goal = rng.choice((-1, 1)) * rng.uniform(5.0, 8.0)
    own = draft.own(device, begin, count)
    for at in own:
        draft.celsius[at] = round(draft.celsius[at] + goal * (at - begin) / (count - begin), 2)
    return own[0], own[-1]


def _impossible(rng: Random, draft: _Draft, device: int, low: int, high: int) -> tuple[int, int]:
    row = _row(rng, draft, device, low, high, rng.randint(1, 4))
    for at in row:
        draft.celsius[at] = round(rng.choice((-273.15, -999.0, 850.0, 6553.5)) + rng.uniform(-50.0, 50.0), 2)
    return row[0], row[-1]


def _garbled(rng: Random, draft: _Draft, device: int, low: int, high: int) -> tuple[int, int]:
    row = _row(rng, draft, device, low, high, rng.randint(1, 5))
    draft.cut.update(row)
    return row[0], row[-1]


# --- records ---------------------------------------------------------------------------------------------------------


def _table(rng: Random, draft: _Draft, until: datetime, span: timedelta) -> pa.Table:
    count = len(draft.who)
    sequences, sent = [0] * count, [rng.randrange(10_000) for _ in draft.names]
    for at, device in enumerate(draft.who):
        if (original := draft.copy_of.get(at)) is not None:
            sequences[at], draft.celsius[at] = sequences[original], draft.celsius[original]
        else:
            sequences[at] = sent[device]
            sent[device] += 1
    names = pa.array(draft.names).take(pa.array(draft.who))
    volts = pc.round(pc.add(3.5, pc.multiply(0.3, _uniform(rng, count))), 2)
    if draft.copy_of:
        originals = pa.array([draft.copy_of.get(at, at) for at in range(count)])
        volts = volts.take(originals)
    values = pc.binary_join_element_wise(
        *('{"device":"', names, '","seq":', pa.array(sequences).cast(pa.string())),
        *(',"celsius":', pa.array(draft.celsius).cast(pa.string()), ',"volts":', volts.cast(pa.string()), "}", ""),
    )
    if draft.cut:
        kept = pc.utf8_slice_codeunits(values, 0, rng.randint(12, 24))
        values = pc.if_else(pa.array([at in draft.cut for at in range(count)]), kept, values)
    begin_us = round((until - span).timestamp() * 1_000_000)
    step_us = span.total_seconds() * 1_000_000 / count
    times = pc.add(
        begin_us, pc.multiply(pa.array(range(1, count + 1), pa.float64()), step_us).cast(pa.int64(), safe=False)
    )
    return pa.table({"key": names, "value": values, "timestamp": times})

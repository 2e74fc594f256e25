"""What a root's writer notices of its forks in a service: of those that are there, and of those being made."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Final

import braidlog
from bench import harness
from bench.critical import Companion, Cores
from bench.harness import Figure, Options
from bench.peers import braid as service
from bench.peers.servers import Placement, kept_to

FORKS: Final = (0, 10, 100)
ROOTS: Final = 32
MADE: Final = 100
RECORD_BYTES: Final = 100
BATCH_RECORDS: Final = 100
IN_FLIGHT: Final = 32  # batches
RATE_KIND: Final = "records/s"
TIME_KIND: Final = "p50 of one append"

Samples = dict[tuple[str, str], list[float]]


def measure(options: Options) -> Figure:
    """Records per second and p50 of a root with 0, 10 and 100 cForks, of 32 roots, and while 100 forks are made."""
    batches, singles, rounds = options.pick(2_000, 300), options.pick(400, 100), options.pick(11, 3)
    figure = Figure(
        "forks_under_load",
        "Appends to a root that has forks, the roles apart",
        "cForks of each root",
        "records/s",
        notes=[
            f"records/s: {batches:,} batches of {BATCH_RECORDS} records of {RECORD_BYTES} bytes, {IN_FLIGHT} in "
            f"flight, one producer; p50: {singles} single appends of 4 KB, one after the other",
            f"with {ROOTS} roots these are written in turn",
            f"the forks that are made meanwhile are up to {MADE} cForks, by another process, spread over the same time",
        ],
        durability={"all": "synced before it is acknowledged"},
        log_y=False,
    )
    cores = Cores.chosen(production_together=False)
    samples: Samples = defaultdict(list)
    with _running(options, cores) as (url, braid), Companion(make_forks, url, cores.beside) as maker:
        figure.notes.append(cores.describe())
        roots = {(1, forks): _roots(braid, 1, forks) for forks in FORKS}
        roots |= {(ROOTS, forks): _roots(braid, ROOTS, forks) for forks in (FORKS if not options.quick else FORKS[:2])}
        quiet = braid.create("quiet")
        variants: dict[str, Callable[[], float]] = {
            _named(*key): partial(_turn, samples, _named(*key), logs, batches, singles) for key, logs in roots.items()
        }
        variants["before"] = partial(_turn, samples, "before", [quiet], batches, singles)
        harness.interleave(variants, 1)  # to warm it, and to know how long it takes
        pause = 0.8 * samples["before", "seconds"][0] / MADE  # so that all are made before a quick run is over
        samples.clear()
        variants["meanwhile"] = partial(_meanwhile, samples, maker, pause, quiet, batches, singles)
        harness.interleave(variants, rounds)
    for count in (1, ROOTS):
        line = figure.line("one root" if count == 1 else f"{count} roots")
        for number, forks in roots:
            if number == count:
                line.add(forks, samples[_named(count, forks), RATE_KIND])
    for number, forks in roots:
        if forks:
            _judge(figure, samples, _named(number, forks), _named(number, 0))
    figure.numbers[f"{ROOTS} roots over one, records/s"] = harness.paired(
        samples[_named(ROOTS, 0), RATE_KIND], samples[_named(1, 0), RATE_KIND]
    )
    made = statistics.median(samples["meanwhile", "forks"])
    figure.at_least("forks made in one run, median", made, 0.9 * MADE)
    _judge(figure, samples, "meanwhile", "before", f"while {made:g} forks are made")
    return figure


def _judge(figure: Figure, samples: Samples, name: str, base: str, shown: str = "") -> None:
    rate = harness.paired(samples[name, RATE_KIND], samples[base, RATE_KIND])
    figure.at_least(f"{RATE_KIND}, {shown or name}, over none", rate, 0.9)
    typical = harness.paired(samples[name, TIME_KIND], samples[base, TIME_KIND])
    figure.at_most(f"{TIME_KIND}, {shown or name}, over none", typical, 1.1)
    figure.numbers[f"{TIME_KIND}, {shown or name}, us"] = statistics.median(samples[name, TIME_KIND])


def _named(roots: int, forks: int) -> str:
    return f"{roots} {'root' if roots == 1 else 'roots'} with {forks} cForks"


@contextlib.contextmanager
def _running(options: Options, cores: Cores) -> Iterator[tuple[str, braidlog.Braid]]:
    with (
        harness.folder(options) as folder,
        service.cluster(folder, Placement(cores.roots, cores.beside)) as cluster,
        kept_to(cores.clients),
        braidlog.open(cluster.url) as braid,
    ):
        yield cluster.url, braid


def _roots(braid: braidlog.Braid, count: int, forks: int) -> list[braidlog.Log]:
    made = [braid.create(f"{count}-{forks}-{number}") for number in range(count)]
    for log in made:
        for _ in range(forks):
            log.cfork()
    return made


def _turn(samples: Samples, name: str, logs: Sequence[braidlog.Log], batches: int, singles: int) -> float:
    begun = time.perf_counter()
    rate = _rate(logs, batches)
    typical = _typical(logs, singles)
    samples[name, "seconds"].append(time.perf_counter() - begun)
    samples[name, RATE_KIND].append(rate)
    samples[name, TIME_KIND].append(typical)
    return rate


def _meanwhile(
    samples: Samples, maker: Companion, pause: float, log: braidlog.Log, batches: int, singles: int
) -> float:
    maker.tell((log.name, pause))
    rate = _turn(samples, "meanwhile", [log], batches, singles)
    maker.tell(None)
    samples["meanwhile", "forks"].append(maker.answer())
    return rate


def make_forks(braid: braidlog.Braid, pipe: Connection, told: tuple[str, float]) -> float:
    """Make forks of a log until told, each a while after the last, and squash them then. How many there were."""
    name, pause = told
    log = braid.log(name)
    made: list[braidlog.Log] = []
    begun = time.monotonic()
    while not pipe.poll(max(0.0, begun + len(made) * pause - time.monotonic()) if len(made) < MADE else None):
        made.append(log.cfork())
    pipe.recv()
    for fork in made:
        fork.squash()
    return float(len(made))


def _rate(logs: Sequence[braidlog.Log], batches: int) -> float:
    values = [os.urandom(RECORD_BYTES) for _ in range(BATCH_RECORDS)]
    under_way: deque[braidlog.Ticket] = deque()
    begun = time.perf_counter()
    for number in range(batches):
        if len(under_way) >= IN_FLIGHT:
            under_way.popleft().durable()
        under_way.append(logs[number % len(logs)].submit(values))
    for ticket in under_way:
        ticket.durable()
    return batches * BATCH_RECORDS / (time.perf_counter() - begun)


def _typical(logs: Sequence[braidlog.Log], singles: int) -> float:
    value = os.urandom(4096)
    taken = []
    for number in range(singles):
        begun = time.perf_counter()
        logs[number % len(logs)].append(value)
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1e6


if __name__ == "__main__":
    harness.main(measure)

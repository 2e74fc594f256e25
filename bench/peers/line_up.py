"""Which systems there are, and all of them running at once for one figure."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench import harness
from bench.harness import Figure, Options
from bench.peers import braid, jetstream, kafka, redis_streams
from bench.peers.driver import Driver
from bench.peers.servers import Placement, Unavailable, kept_to

SYSTEMS: Final = "BRAIDLOG_BENCH_SYSTEMS"


@dataclass(frozen=True, slots=True)
class System:
    """A server, and how it is driven."""

    key: str
    name: str
    install: Callable[[], str]  # idempotent; returns the version, or raises Unavailable
    serving: Callable[[Path, frozenset[int]], AbstractContextManager[str]]
    driver: Callable[[str, str], Driver]
    variants: tuple[str, ...] = ("",)  # of the driver
    in_bulk: tuple[str, ...] = ()  # more of them, that differ only in how many records are appended together
    bulk_readers: tuple[str, ...] = ()  # more of them, that differ only in where bulk readers read


ALL: Final = (
    System("braid", braid.NAME, braid.install, braid.serving, braid.BraidService),
    System("kafka", kafka.NAME, kafka.install, kafka.serving, kafka.Kafka, (kafka.FSYNC, "")),
    System(
        "nats",
        jetstream.NAME,
        jetstream.install,
        jetstream.serving,
        jetstream.JetStream,
        in_bulk=(jetstream.BATCHES,),
    ),
    System(
        "redis",
        redis_streams.NAME,
        redis_streams.install,
        redis_streams.serving,
        redis_streams.RedisStreams,
        in_bulk=(redis_streams.CONNECTIONS,),
    ),
    System(
        "braid-apart",
        braid.APART,
        braid.install,
        braid.serving_apart,
        braid.BraidApart,
        bulk_readers=(braid.ON_A_FORK,),
    ),
)


def chosen() -> list[System]:
    """Those that the environment names by their keys, or all."""
    keys = {key for key in os.environ.get(SYSTEMS, "").split(",") if key}
    unknown = keys - {system.key for system in ALL}
    if unknown:
        known = ", ".join(system.key for system in ALL)
        raise Unavailable(f"{SYSTEMS} names {', '.join(sorted(unknown))}: there are {known}")
    return [system for system in ALL if not keys or system.key in keys]


@contextlib.contextmanager
def running(
    options: Options, figure: Figure, *, in_bulk: bool = False, bulk_readers: bool = False
) -> Iterator[dict[str, Driver]]:
    """Drivers by label, each with its server up; the figure gets what they promise, and who is missing and why.

    All servers are up all the time, so that their work can be interleaved; only one is asked at a time. This process
    and its readers stay on the clients' cores meanwhile.
    """
    placement = Placement.chosen()
    figure.notes.append(placement.describe())
    with contextlib.ExitStack() as stack:
        drivers: dict[str, Driver] = {}
        for system in chosen():
            try:
                version = system.install()
                folder = stack.enter_context(harness.folder(options))
                address = stack.enter_context(system.serving(folder, placement.server))
            except Unavailable as why:
                figure.notes.append(f"{system.name} was not measured: {why}")
                continue
            with kept_to(placement.client):  # for the threads that clients start
                variants = system.variants + (system.in_bulk if in_bulk else ())
                variants += system.bulk_readers if bulk_readers else ()
                made = [system.driver(address, variant) for variant in variants]
            for driver in made:
                stack.callback(driver.close)
                drivers[driver.label] = driver
                figure.durability[driver.label] = f"{version}: {driver.durability}"
        stack.enter_context(kept_to(placement.client))
        yield drivers

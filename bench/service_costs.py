"""What a service costs beside what nothing can do without: a round trip over loopback, and a write that is synced."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Final

import braidlog
from bench import harness
from bench.harness import MIB, Figure, Options
from bench.peers import braid as service
from bench.peers.servers import Placement, kept_to, usable_cores
from braidlog import limits

LOOPBACK: Final = "a bare round trip over loopback"
BARE: Final = "a bare append and fdatasync of 4 KB"
ROLES: Final = {"braid serve": 1, "roles apart": 2}  # and how many bare round trips and syncs one call may take
CALLS: Final = ("append of 4 KB", "cfork")
EMBEDDED: Final = "embedded"
PLAIN: Final = "a plain write with one fdatasync at the end"
PLAIN_EACH: Final = "a plain write with fdatasync after each MiB"
SMALL_BYTES: Final = 100
SMALL_BATCH: Final = 100
SMALL_IN_FLIGHT: Final = 64  # batches
LARGE_BYTES: Final = 4096
LARGE_BATCH: Final = 256
LARGE_IN_FLIGHT: Final = limits.SUBMIT_OUTSTANDING_BYTES_MAX // MIB  # batches of 1 MiB: what `submit` keeps under way

Taken = dict[str, list[float]]


def measure(options: Options) -> Figure:
    """Single calls over a bare round trip and sync; batches over the embedded log and over a plain write."""
    placement = Placement.chosen()
    figure = Figure(
        "service_costs",
        "What calls of a service take, over what they are compared with",
        "round",
        "ratio",
        notes=[
            placement.describe() + "; the broker for forks has the clients' cores, the embedded log has all",
            f"servers run {service.loop()}",
            "the bare round trip sends 4 KB to another process on the servers' cores, and gets 64 bytes; the bare "
            "append is to a file that grows; with the roles apart two of each are allowed for",
            f"small batches: {SMALL_BATCH} records of {SMALL_BYTES} bytes, {SMALL_IN_FLIGHT} in flight, one producer; "
            f"large ones: 1 MiB of records of 4 KB, {LARGE_IN_FLIGHT} in flight",
        ],
        durability={
            "braidlog": "each batch is synced before it is acknowledged; batches under way share syncs",
            PLAIN: "nothing is durable before the end",
            PLAIN_EACH: "each MiB is durable before the next one is written",
        },
        log_x=False,
    )
    with _services(options, placement) as braids, _echo(placement.server) as port, kept_to(placement.client):
        _calls(figure, options, braids, port)
        _small_batches(figure, options, braids)
        _large_batches(figure, options, braids)
    return figure


@contextlib.contextmanager
def _services(options: Options, placement: Placement) -> Iterator[dict[str, braidlog.Braid]]:
    """All of them up all the time; only one is asked at a time."""
    starting = (service.serving, service.serving_apart)
    with contextlib.ExitStack() as stack:
        braids = {}
        for name, start in zip(ROLES, starting, strict=True):
            folder = stack.enter_context(harness.folder(options))
            url = stack.enter_context(start(folder, placement.server))
            with kept_to(placement.client):  # for the threads that clients start
                braids[name] = stack.enter_context(braidlog.open(url))
        yield braids


def _beside(figure: Figure, name: str, taken: Taken, over: str, under: Sequence[float]) -> list[float]:
    """A line of the ratios, round by round."""
    ratios = [a / b for a, b in zip(taken[over], under, strict=True)]
    line = figure.line(name)
    for number, ratio in enumerate(ratios, 1):
        line.add(number, [ratio])
    return ratios


# --- single calls -----------------------------------------------------------------------------------------------------


def _calls(figure: Figure, options: Options, braids: dict[str, braidlog.Braid], port: int) -> None:
    count = options.pick(300, 80)
    variants: dict[str, Callable[[], float]] = {
        LOOPBACK: partial(_round_trips, port, count),
        BARE: partial(_bare, options, count),
    }
    for role, braid in braids.items():
        log = braid.create("single-calls")
        variants[f"{role}, {CALLS[0]}"] = partial(_appends, log, count)
        variants[f"{role}, {CALLS[1]}"] = partial(_forks, log, count)
    harness.interleave(variants, 1)  # to warm them
    taken = harness.interleave(variants, options.pick(15, 4))
    for name, medians in taken.items():
        figure.numbers[f"{name}, median of rounds, us"] = statistics.median(medians)
    for role, times in ROLES.items():
        bare = [times * (trip + sync) for trip, sync in zip(taken[LOOPBACK], taken[BARE], strict=True)]
        for call in CALLS:
            each = f"{times} x " if times > 1 else ""
            claim = f"{role}, {call}, over {each}(bare round trip + bare append and fdatasync)"
            ratios = _beside(figure, f"{role}, {call}", taken, f"{role}, {call}", bare)
            figure.at_most(claim, statistics.median(ratios), 2.5)


def _appends(log: braidlog.Log, count: int) -> float:
    value = os.urandom(4096)
    return _median(count, lambda: log.append(value))


def _forks(log: braidlog.Log, count: int) -> float:
    made: list[braidlog.Log] = []
    median = _median(count, lambda: made.append(log.cfork()))
    for fork in made:
        fork.squash()
    return median


def _bare(options: Options, count: int) -> float:
    value = os.urandom(4096)
    with harness.folder(options) as path:
        file = os.open(path / "bare", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

        def append() -> None:
            os.write(file, value)
            os.fdatasync(file)

        try:
            return _median(count, append)
        finally:
            os.close(file)


def _round_trips(port: int, count: int) -> float:
    value = os.urandom(4096)
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def there_and_back() -> None:
            line.sendall(value)
            line.recv(64)

        return _median(count, there_and_back)


def _median(count: int, call: Callable[[], object]) -> float:
    """In microseconds."""
    taken = []
    for _ in range(count):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken) * 1e6


@contextlib.contextmanager
def _echo(cores: frozenset[int]) -> Iterator[int]:
    """Another process that answers each 4 KB with 64 bytes, one connection after the other. Its port."""
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_answer, args=(theirs,), daemon=True)
    with kept_to(cores):
        process.start()
    try:
        yield int(ours.recv())
    finally:
        process.kill()
        process.join()


def _answer(told: Connection) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        told.send(listener.getsockname()[1])
        while True:
            line, _ = listener.accept()
            with line:
                line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                missing = 4096
                while data := line.recv(missing):
                    missing -= len(data)
                    if not missing:
                        line.sendall(bytes(64))
                        missing = 4096


# --- batches ----------------------------------------------------------------------------------------------------------


def _small_batches(figure: Figure, options: Options, braids: dict[str, braidlog.Braid]) -> None:
    values = [os.urandom(SMALL_BYTES) for _ in range(SMALL_BATCH)]
    batches = options.pick(5_000, 500)

    def embedded() -> float:
        with kept_to(usable_cores()), harness.folder(options) as path, braidlog.open(path, serve=False) as braid:
            return _rate(braid, values, batches, SMALL_IN_FLIGHT)

    variants: dict[str, Callable[[], float]] = {EMBEDDED: embedded}
    variants |= {role: partial(_rate, braid, values, batches, SMALL_IN_FLIGHT) for role, braid in braids.items()}
    harness.interleave(variants, 1)  # to warm them
    taken = harness.interleave(variants, options.pick(11, 3))
    for name, rates in taken.items():
        figure.numbers[f"small batches, {name}, records/s"] = statistics.median(rates) * SMALL_BATCH
    for role in ROLES:
        ratios = _beside(figure, f"{role}, small batches, over embedded", taken, role, taken[EMBEDDED])
        _judge(figure, role, f"{role}, small batches, over the embedded log", ratios)


def _large_batches(figure: Figure, options: Options, braids: dict[str, braidlog.Braid]) -> None:
    values = [os.urandom(LARGE_BYTES) for _ in range(LARGE_BATCH)]
    batches = options.pick(256, 32)
    variants: dict[str, Callable[[], float]] = {
        PLAIN: partial(_plain, options, b"".join(values), batches, each=False),
        PLAIN_EACH: partial(_plain, options, b"".join(values), batches, each=True),
    }
    variants |= {role: partial(_rate, braid, values, batches, LARGE_IN_FLIGHT) for role, braid in braids.items()}
    harness.interleave(variants, 1)  # to warm them
    taken = harness.interleave(variants, options.pick(11, 3), before=partial(harness.warm_memory, 3 * batches * MIB))
    for name, rates in taken.items():
        figure.numbers[f"large batches, {name}, MiB/s"] = statistics.median(rates)
    for role in ROLES:
        ratios = _beside(figure, f"{role}, large batches, over a plain write", taken, role, taken[PLAIN])
        _judge(figure, role, f"{role}, large batches, over {PLAIN}", ratios)
        promised = [a / b for a, b in zip(taken[role], taken[PLAIN_EACH], strict=True)]
        _judge(figure, role, f"{role}, large batches, over {PLAIN_EACH}", promised)


def _judge(figure: Figure, role: str, claim: str, ratios: Sequence[float]) -> None:
    """Only the one process has a target: it is compared with one process."""
    if ROLES[role] == 1:
        figure.at_least(claim, statistics.median(ratios), 0.5)
    else:
        figure.numbers[claim] = statistics.median(ratios)


def _rate(braid: braidlog.Braid, values: list[bytes], batches: int, in_flight: int) -> float:
    """Batches per second until all are durable, to a log of their own."""
    log = braid.create("batches")
    under_way: deque[braidlog.Ticket] = deque()
    begun = time.perf_counter()
    for _ in range(batches):
        if len(under_way) >= in_flight:
            under_way.popleft().durable()
        under_way.append(log.submit(values))
    for ticket in under_way:
        ticket.durable()
    took = time.perf_counter() - begun
    found = log.tail()
    assert found == batches * len(values), f"{found} of {batches * len(values)} records are there"
    braid.drop("batches")
    return batches / took


def _plain(options: Options, piece: bytes, pieces: int, *, each: bool) -> float:
    with harness.folder(options) as path:
        file = os.open(path / "plain", os.O_CREAT | os.O_WRONLY)
        try:
            begun = time.perf_counter()
            for _ in range(pieces):
                os.write(file, piece)
                if each:
                    os.fdatasync(file)
            os.fdatasync(file)
            return pieces / (time.perf_counter() - begun)
        finally:
            os.close(file)


if __name__ == "__main__":
    harness.main(measure)

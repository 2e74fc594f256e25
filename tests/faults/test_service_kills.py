"""Real processes, killed and stopped under load: every answer that clients got fits one order of events.

Many clients append, read, look at tails, fork, promote and squash through a cluster, each with its own connection.
Meanwhile its processes are killed with SIGKILL or stopped with SIGSTOP, one after the other. What the clients were told
is recorded and checked for linearizability; then everything acknowledged is looked for in what can be read.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import pytest

import braidlog
from braidlog import errors
from braidlog.testing.cluster import Cluster
from braidlog.testing.linearizability import Recorder, Verdict, check

CALL_TIMEOUT_S = 30.0
PATIENCE_S = 120.0


class Client:
    """One user with one connection. What it does is chosen by its seed; the values it appends are nobody else's."""

    def __init__(self, name: str, seed: int, recorder: Recorder, roots: list[str]) -> None:
        self.name = name
        self._rng = Random(seed)
        self._recorder = recorder
        self._roots = roots
        self._ours = f"-{name.rpartition('-')[2]}-fork-"  # in the names of forks of this history, not of others
        self._count = 0
        self.acknowledged: list[tuple[str, bytes]] = []

    def run(self, url: str, enough: threading.Event) -> None:
        with braidlog.open(url, timeout=CALL_TIMEOUT_S) as braid:
            while not enough.is_set():
                self._step(braid)

    def _step(self, braid: braidlog.Braid) -> None:
        rng = self._rng
        try:
            # What others made and named is found by its name; it may be gone again by the time it is used.
            names = [log.name for log in braid.logs() if log.name in self._roots or self._ours in log.name]
        except errors.Unavailable:
            return
        name = rng.choice(self._roots if rng.random() < 0.6 or not names else names)
        try:
            log = braid.log(name)
        except (errors.NotFound, errors.Unavailable):
            return
        choice = rng.random()
        try:
            if choice < 0.5:
                self._append(log)
            elif choice < 0.7:
                self._read(log)
            elif choice < 0.8:
                with self._recorder.call(self.name, "tail", name) as call:
                    call.answer(log.tail())
            elif choice < 0.82 and len(names) < 5:
                self._fork(log)
            else:
                self._decide(log)
        except errors.BraidError:
            pass  # the recorder knows

    def _append(self, log: braidlog.Log) -> None:
        values = []
        for _ in range(self._rng.choice((1, 1, 1, 3, 20))):
            self._count += 1
            values.append(f"{self.name}-{self._count}".encode())
        with self._recorder.call(self.name, "append", log.name, values) as call:
            positions = log.append_many(values)
            call.answer(positions.start if positions is not None else None)
        self.acknowledged += [(log.name, value) for value in values]

    def _read(self, log: braidlog.Log) -> None:
        with self._recorder.call(self.name, "tail", log.name) as call:
            tail = log.tail()
            call.answer(tail)
        start = max(0, tail - self._rng.randint(1, 40))
        stop = start + self._rng.randint(1, 60)
        with self._recorder.call(self.name, "read", log.name, start, stop) as call:
            call.answer([(record.position, record.value) for record in log.read(start, stop)])

    def _fork(self, log: braidlog.Log) -> None:
        self._count += 1
        name = f"{self.name}-fork-{self._count}"
        promotable = self._rng.random() < 0.5
        with self._recorder.call(self.name, "cfork", log.name, child=name, promotable=promotable) as call:
            fork = log.cfork(name, promotable=promotable, lease=None)
            point = None
            if promotable:  # that of others moves with decisions
                with contextlib.suppress(errors.BraidError):  # it may be gone again
                    point = fork.info().fork_point
            call.answer(fork.name, point)

    def _decide(self, log: braidlog.Log) -> None:
        if log.info().kind == "root":
            return
        if log.info().promotable and self._rng.random() < 0.5:
            with self._recorder.call(self.name, "promote", log.name) as call:
                call.answer(log.promote())
        else:
            with self._recorder.call(self.name, "squash", log.name) as call:
                log.squash()
                call.answer()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.start(tmp_path_factory.mktemp("cluster"), brokers=3) as running:
        yield running


def torment(cluster: Cluster, rng: Random, count: int) -> list[str]:
    """Kill or stop one process after the other. The metadata process comes back at once, a broker after a while:
    meanwhile its clients are somebody else's."""
    never = threading.Event()
    deeds: list[str] = []
    for _ in range(count):
        name = rng.choice(sorted(cluster.processes))
        if rng.random() < 0.6:
            deeds.append(f"kill {name}")
            cluster.kill(name)
            if name != "metadata":
                never.wait(rng.uniform(0.05, 0.5))
            cluster.restart(name)
        else:
            deeds.append(f"stop {name}")
            cluster.stop(name)
            never.wait(rng.uniform(0.05, 0.4))
            cluster.resume(name)
        never.wait(rng.uniform(0.05, 0.3))
    return deeds


def play(cluster: Cluster, seed: int, clients_count: int, count: int, folder: Path) -> Verdict:
    """One history, from its beginning to its verdict. Whatever that is, nothing acknowledged is lost."""
    rng = Random(seed)
    roots = [f"root-{seed}-{number}" for number in range(2)]
    enough = threading.Event()
    with Recorder(folder / "history.jsonl") as recorder, ThreadPoolExecutor(clients_count) as threads:
        with braidlog.open(cluster.url) as braid:
            for root in roots:
                with recorder.call("setup", "create", root) as call:
                    call.answer(braid.create(root).name)
        clients = [
            Client(f"c{number}-{seed}", rng.randrange(1 << 30), recorder, roots) for number in range(clients_count)
        ]
        running = [threads.submit(client.run, cluster.url, enough) for client in clients]
        try:
            deeds = torment(cluster, rng, count)
        finally:
            enough.set()
        for future in running:
            future.result(PATIENCE_S)
        history = recorder.history()
    settled = sum(operation.outcome == "ok" for operation in history)
    assert settled > len(history) // 2, "most calls were refused or unknown: that proves little"
    acknowledged_is_there(cluster.url, clients, roots)
    verdict = check(history)
    assert verdict.linearizable is not False, f"after {deeds}: {verdict}"
    return verdict


def acknowledged_is_there(url: str, clients: list[Client], roots: list[str]) -> None:
    """Once, whatever happened: when all forks are squashed, on the logs that it was appended to."""
    with braidlog.open(url) as braid:
        for log in list(braid.logs()):
            with contextlib.suppress(errors.Gone):  # with the one above it
                if log.info().kind != "root" and any(log.name.startswith(client.name) for client in clients):
                    log.squash()
        for root in roots:
            there = [record.value for record in braid.log(root).read(0)]
            assert len(set(there)) == len(there), "a record is there twice"
            told = {value for client in clients for log, value in client.acknowledged if log == root}
            assert told <= set(there), f"lost: {sorted(told - set(there))[:10]}"


@pytest.mark.parametrize("seed", range(2))
def test_killed_and_stopped_processes_leave_one_order_of_events(seed: int, cluster: Cluster, tmp_path: Path) -> None:
    verdict = play(cluster, seed, 4, 6, tmp_path)
    assert verdict, str(verdict)


def test_more_clients_find_no_contradiction_either(cluster: Cluster, tmp_path: Path) -> None:
    """With many in flight at once an order is not always found; nothing may speak against there being one."""
    play(cluster, 50, 16, 4, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_many_killed_and_stopped_processes(seed: int, cluster: Cluster, tmp_path: Path) -> None:
    play(cluster, seed, 4 + seed % 8, 30, tmp_path)

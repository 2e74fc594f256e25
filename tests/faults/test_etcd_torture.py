"""Writers and members of etcd are killed and stopped at random: all that was acknowledged stays, once, in its place."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from braidlog.testing.etcd import EtcdCluster
from tests.faults.etcd_places import DEADLINE_S, Place, wait_until

WRITERS = 2
PAUSE_S = 3.5  # longer than a lease, so that somebody else takes over


class Standby:
    """A writer's process, what it said, and another one in its place when it has ended."""

    def __init__(self, etcd: EtcdCluster, folder: Path, number: int) -> None:
        self._command = [sys.executable, "-m", "tests.faults.etcd_writer", ",".join(etcd.endpoints), str(folder)]
        self._number = number
        self._lives = 0
        self.acknowledged: list[tuple[int, bytes]] = []  # (position, value)
        self.failures: list[str] = []
        self.start()

    def start(self) -> None:
        self._lives += 1
        name = f"writer-{self._number}-{self._lives}"
        self.child = subprocess.Popen([*self._command, name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._listening = threading.Thread(target=self._listen, args=(self.child, name))
        self._listening.start()

    def _listen(self, child: subprocess.Popen[str], name: str) -> None:
        assert child.stdout is not None
        assert child.stderr is not None
        number = 0
        for line in child.stdout:
            words = line.split()
            if words[0] == "acked" and line.endswith("\n"):
                self.acknowledged.append((int(words[1]), f"{name} {number}".encode()))
                number += 1
            elif words[0] == "ended" and words[2] != "lost":
                self.failures.append(f"{name}: {line}")
        told = child.stderr.read()
        if "Traceback" in told:
            self.failures.append(f"{name}: {told}")

    def tend(self) -> None:
        """See to it that it runs."""
        if self.child.poll() is not None:
            self._listening.join()
            self.start()

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()

    def close(self) -> None:
        self.kill()
        self._listening.join(DEADLINE_S)


def torture(etcd: EtcdCluster, folder: Path, rng: random.Random, faults: int) -> None:
    place = Place(etcd, folder)
    never = threading.Event()
    standbys = [Standby(etcd, folder, number) for number in range(WRITERS)]

    def progress() -> int:
        return sum(len(standby.acknowledged) for standby in standbys)

    def tended(target: int) -> bool:
        for standby in standbys:
            standby.tend()
        return progress() >= target

    try:
        for _ in range(faults):
            target = progress() + 60
            wait_until(lambda target=target: tended(target), 3 * DEADLINE_S)
            kind = rng.choice(("kill writer", "stop writer", "kill member", "stop member"))
            standby = rng.choice(standbys)
            member = etcd.leader() if rng.random() < 0.7 else rng.randrange(len(etcd.endpoints))
            if kind == "kill writer":
                standby.kill()
            elif kind == "stop writer" and standby.child.poll() is None:
                standby.child.send_signal(signal.SIGSTOP)
                never.wait(PAUSE_S)
                standby.child.send_signal(signal.SIGCONT)
            elif kind == "kill member":
                etcd.kill(member)
                never.wait(rng.random())
                etcd.restart(member)
            elif kind == "stop member":
                etcd.stop(member)
                never.wait(rng.random() * PAUSE_S)
                etcd.cont(member)
    finally:
        for standby in standbys:
            standby.close()
    assert [failure for standby in standbys for failure in standby.failures] == []
    acknowledged = dict(pair for standby in standbys for pair in standby.acknowledged)
    assert len(acknowledged) == progress()  # no position was told twice
    with place.writing() as last:
        values = [record.value for record in last.braid.log("orders").read(0)]
    assert len(set(values)) == len(values)
    assert {position: values[position] for position in acknowledged} == acknowledged


def test_a_few_faults(tmp_path: Path) -> None:
    with EtcdCluster(members=3) as etcd:
        torture(etcd, tmp_path / "objects", random.Random(11), 4)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_many_faults(tmp_path: Path, seed: int) -> None:
    began = time.monotonic()
    with EtcdCluster(members=3) as etcd:
        torture(etcd, tmp_path / "objects", random.Random(seed), 30)
    assert time.monotonic() - began < 600

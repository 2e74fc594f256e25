"""A replicated cluster of real processes, tormented: etcd, metadata, brokers and the object store are killed and
stopped again and again while clients work, and what they were told is checked. `python -m tests.faults.torture --help`.

Three members of etcd, three metadata processes, three brokers, SeaweedFS. Every answer is recorded; the history is
checked for linearizability, and everything acknowledged is looked for. How long nothing could be appended after a
leader was killed is measured by a client that appends all the time; it is told apart whether etcd's own leader was
killed at the same moment.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import braidlog
from braidlog import errors
from braidlog.testing.linearizability import Recorder, check
from braidlog.testing.replicated import Replicated
from braidlog.testing.seaweed import Seaweed
from tests.faults.metronome import Metronome
from tests.faults.test_service_kills import CALL_TIMEOUT_S, PATIENCE_S, Client, acknowledged_is_there

ELECTION_S = 0.5  # of etcd, as the tests start it


@dataclass
class Tally:
    deeds: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    outages_s: list[float] = field(default_factory=list)  # after a leader was killed
    outages_with_etcd_s: list[float] = field(default_factory=list)  # the same, with etcd's leader
    verdicts: Counter[str] = field(default_factory=Counter)

    def told(self) -> str:
        return json.dumps(
            {
                "faults": dict(sorted(self.deeds.items())),
                "calls": dict(sorted(self.calls.items())),
                "acknowledged": self.acknowledged,
                "lost": 0,
                "longest outage after a leader's death, s": round(max(self.outages_s, default=0.0), 2),
                "the same with etcd's leader, s": round(max(self.outages_with_etcd_s, default=0.0), 2),
                "histories": dict(self.verdicts),
            },
            indent=1,
        )


class Outage(NamedTuple):
    """For how long nothing was bound, and how late the machine was in that time with what it was asked for."""

    seconds: float
    lateness_s: float


class Torture:
    """One cluster, and any number of histories on it."""

    def __init__(self, folder: Path, store: Seaweed, *, lease_s: float = 2.0) -> None:
        self.store = store
        self.tally = Tally()
        self.cluster = Replicated(
            folder,
            objects=store.url(f"torture-{folder.name}"),
            environment=dict(store.environment),
            lease_s=lease_s,
        )

    def close(self) -> None:
        self.cluster.close()

    # --- what befalls the processes ------------------------------------------------------------------------------

    def torment(self, rng: Random, count: int, *, store_down_s: float) -> list[str]:
        deeds = []
        for number in range(count):
            # Each kind comes before any comes again.
            kinds = (self._kill, self._stop, self._kill_etcd, self._stop_etcd, self._store_down)
            deed = kinds[number % len(kinds)](rng, store_down_s)
            deeds.append(deed)
            self.tally.deeds[deed.rsplit("-", 1)[0]] += 1
            _pause(rng.uniform(0.2, 0.6))
        return deeds

    def _kill(self, rng: Random, _: float) -> str:
        name = rng.choice(self.cluster.names)
        self.cluster.kill(name)
        _pause(rng.uniform(0.05, 0.5))
        self.cluster.start(name)
        return f"kill {name}"

    def _stop(self, rng: Random, _: float) -> str:
        name = rng.choice(self.cluster.names)
        self.cluster.stop(name)
        _pause(rng.uniform(0.1, self.cluster.lease_s * 1.5))
        self.cluster.resume(name)
        return f"stop {name}"

    def _kill_etcd(self, rng: Random, _: float) -> str:
        member = rng.randrange(3)
        self.cluster.etcd.kill(member)
        _pause(rng.uniform(0.05, 0.5))
        self.cluster.etcd.restart(member)
        return f"kill etcd-{member}"

    def _stop_etcd(self, rng: Random, _: float) -> str:
        member = rng.randrange(3)
        self.cluster.etcd.stop(member)
        _pause(rng.uniform(0.1, 1.0))
        self.cluster.etcd.cont(member)
        return f"stop etcd-{member}"

    def _store_down(self, rng: Random, seconds: float) -> str:
        del rng
        self.store.kill()
        _pause(seconds)
        self.store.resume()
        return "store down-"

    def leader_dies(self, *, with_etcd: bool) -> Outage:
        """Kill the leader, and its etcd's leader at the same moment if so; answers for how long nothing was bound."""
        with Metronome() as metronome, braidlog.open(self.cluster.url, timeout=CALL_TIMEOUT_S) as braid:
            log = braid.create(f"heart-{time.monotonic_ns()}")
            beats = [time.monotonic()]
            enough = threading.Event()

            def beat() -> None:
                while not enough.is_set():
                    log.append(b"beat")
                    beats.append(time.monotonic())

            heart = threading.Thread(target=beat)
            heart.start()
            name = self.cluster.leader()
            member = self.cluster.etcd.leader()
            _pause(0.3)
            died = time.monotonic()
            self.cluster.kill(name)
            if with_etcd:
                self.cluster.etcd.kill(member)
            try:
                deadline = died + PATIENCE_S
                while not any(moment > died + 0.05 for moment in beats[-3:]) or beats[-1] - died < 0.05:
                    assert time.monotonic() < deadline, "nothing could be appended any more"
                    _pause(0.01)
            finally:
                enough.set()
                heart.join()
                if with_etcd:
                    self.cluster.etcd.restart(member)
                self.cluster.start(name)
            before, after = max(pairwise(beats), key=lambda pair: pair[1] - pair[0])
            outage = Outage(after - before, metronome.lateness_s(before, after))
        self.tally.deeds["kill leader" + (" and etcd's" if with_etcd else "")] += 1
        (self.tally.outages_with_etcd_s if with_etcd else self.tally.outages_s).append(outage.seconds)
        return outage

    # --- a history -----------------------------------------------------------------------------------------------

    def play(self, seed: int, folder: Path, *, clients: int, deeds: int, store_down_s: float) -> str:
        """One history, from its beginning to its verdict. Raises AssertionError if anything is wrong with it."""
        rng = Random(seed)
        roots = [f"root-{seed}-{number}" for number in range(2)]
        enough = threading.Event()
        with Recorder(folder / f"history-{seed}.jsonl") as recorder, ThreadPoolExecutor(clients) as threads:
            with braidlog.open(self.cluster.url, timeout=CALL_TIMEOUT_S) as braid:
                for root in roots:
                    with recorder.call("setup", "create", root) as call:
                        call.answer(braid.create(root).name)
            crowd = [Client(f"c{n}-{seed}", rng.randrange(1 << 30), recorder, roots) for n in range(clients)]
            running = [threads.submit(client.run, self.cluster.url, enough) for client in crowd]
            try:
                done = self.torment(rng, deeds, store_down_s=store_down_s)
            finally:
                enough.set()
            for future in running:
                future.result(PATIENCE_S)
            history = recorder.history()
        self.tally.calls.update(operation.outcome for operation in history)
        self.tally.acknowledged += sum(len(client.acknowledged) for client in crowd)
        settled = sum(operation.outcome == "ok" for operation in history)
        assert settled > len(history) // 2, "most calls were refused or unknown: that proves little"
        acknowledged_is_there(self.cluster.url, crowd, roots)
        verdict = check(history)
        assert verdict.linearizable is not False, f"after {done}: {verdict}"
        word = "linearizable" if verdict else "no contradiction found"
        self.tally.verdicts[word] += 1
        return word


def _pause(seconds: float) -> None:
    threading.Event().wait(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long")
    parser.add_argument("--seed", type=int, default=1, help="of the first history")
    parser.add_argument("--clients", type=int, default=6)
    arguments = parser.parse_args()
    deadline = time.monotonic() + 60 * arguments.minutes
    with tempfile.TemporaryDirectory() as name, Seaweed.start() as store:
        folder = Path(name)
        torture = Torture(folder / "cluster", store)
        try:
            seed = arguments.seed
            while time.monotonic() < deadline:
                print(
                    f"seed {seed}: {torture.play(seed, folder, clients=arguments.clients, deeds=10, store_down_s=10)}"
                )
                for with_etcd in (False, True):
                    print(f"seed {seed}: outage {torture.leader_dies(with_etcd=with_etcd).seconds:.2f} s")
                seed += 1
        finally:
            with contextlib.suppress(errors.BraidError):
                torture.close()
            print(torture.tally.told())


if __name__ == "__main__":
    main()

"""Play seeds: `python -m sim --seed 7 --trace run.txt`, `python -m sim --seeds 0..500`, or `--minutes 10`."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter
from collections.abc import Iterator

from sim.cluster import EVENTS, play


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this one")
    parser.add_argument("--seeds", help="play all of A..B, B not included")
    parser.add_argument("--minutes", type=float, help="play one after the other for so long, from --seed on")
    parser.add_argument("--events", type=int, default=EVENTS, help="before everything is mended (default: %(default)s)")
    parser.add_argument("--trace", help="write what happens to this file, a line for each event")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    totals: Counter[str] = Counter()
    played = failed = 0
    with contextlib.ExitStack() as stack:
        trace = stack.enter_context(open(chosen.trace, "w", encoding="utf-8")) if chosen.trace else None
        for seed in _seeds(chosen):
            played += 1
            try:
                result = play(seed, chosen.events, trace)
            except Exception as error:
                failed += 1
                print(f"seed {seed}: {type(error).__name__}: {error}", flush=True)
                continue
            totals.update(result.counts)
            totals["events"] += result.events
            if chosen.seed is not None and chosen.minutes is None:
                print(f"seed {seed}: {result.events} events in {result.seconds:.1f} s, digest {result.digest}")
    took = time.monotonic() - began
    print(f"{played} seeds, {failed} failed, {played / took:.2f} seeds per second")
    print(", ".join(f"{name} {count}" for name, count in sorted(totals.items())))
    return 1 if failed else 0


def _seeds(chosen: argparse.Namespace) -> Iterator[int]:
    if chosen.minutes is not None:
        seed = chosen.seed or 0
        until = time.monotonic() + 60 * chosen.minutes
        while time.monotonic() < until:
            yield seed
            seed += 1
    elif chosen.seeds is not None:
        first, _, last = chosen.seeds.partition("..")
        yield from range(int(first), int(last))
    else:
        yield chosen.seed or 0


if __name__ == "__main__":
    sys.exit(main())

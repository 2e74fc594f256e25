"""How a figure is measured, judged and kept.

A figure is a function `measure(options) -> Figure`. Its variants take turns (A, B, B, A, ...), so that a machine that
is slow for a while is slow for all of them, and ratios are taken between neighbours in one run, never across runs. What
is kept is the median and the spread. A missed target is printed and recorded; only `--strict` makes it the exit status.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.metadata
import json
import math
import mmap
import os
import platform
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

RESULTS: Final = Path(__file__).parent / "results"
MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Options:
    """What the caller asked for."""

    quick: bool
    folder: Path  # where directories are made: choose a disk, not a file system in memory

    def pick(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True, slots=True)
class Spread:
    """Repeated measurements of one thing."""

    median: float
    min: float
    p25: float
    p75: float
    max: float
    runs: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        ordered = sorted(values)
        if len(ordered) == 1:
            only = ordered[0]
            return cls(only, only, only, only, only, 1)
        quarters = statistics.quantiles(ordered, n=4, method="inclusive")
        return cls(statistics.median(ordered), ordered[0], quarters[0], quarters[2], ordered[-1], len(ordered))


@dataclass(frozen=True, slots=True)
class Target:
    """A claim about a ratio of two things measured in the same run."""

    claim: str
    measured: float
    bound: float
    at_least: bool

    @property
    def met(self) -> bool:
        return self.measured >= self.bound if self.at_least else self.measured <= self.bound

    def describe(self) -> str:
        sign = ">=" if self.at_least else "<="
        verdict = "pass" if self.met else "MISS"
        return f"{verdict}  {self.claim}: {self.measured:.3g} (wanted {sign} {self.bound:g})"


@dataclass(slots=True)
class Line:
    """One variant of a figure: a value, with its spread, for each x."""

    label: str
    points: list[tuple[float, Spread]] = field(default_factory=list)

    def add(self, x: float, values: Sequence[float]) -> Spread:
        spread = Spread.of(values)
        self.points.append((x, spread))
        return spread


@dataclass(slots=True)
class Figure:
    """All that a figure shows."""

    name: str
    title: str
    x_label: str
    y_label: str
    lines: list[Line] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    durability: dict[str, str] = field(default_factory=dict)  # what each system promises when it acknowledges
    numbers: dict[str, float] = field(default_factory=dict)  # single values beside the lines
    log_x: bool = True
    log_y: bool = True

    def line(self, label: str) -> Line:
        line = Line(label)
        self.lines.append(line)
        return line

    def at_least(self, claim: str, measured: float, bound: float) -> None:
        self.targets.append(Target(claim, measured, bound, at_least=True))

    def at_most(self, claim: str, measured: float, bound: float) -> None:
        self.targets.append(Target(claim, measured, bound, at_least=False))


Measure = Callable[[Options], Figure]


def interleave(
    variants: Mapping[str, Callable[[], float]],
    rounds: int,
    before: Callable[[], None] | None = None,
    *,
    budget_s: float = math.inf,
) -> dict[str, list[float]]:
    """Run every variant once in each round and keep what it returns. Every other round goes backwards.

    No round but the first begins when those before it took `budget_s`.
    """
    taken: dict[str, list[float]] = {name: [] for name in variants}
    until = time.monotonic() + budget_s
    for number in range(rounds):
        if number and time.monotonic() >= until:
            break
        for name in reversed(list(variants)) if number % 2 else variants:
            if before is not None:
                before()
            taken[name].append(variants[name]())
    return taken


def paired(over: Sequence[float], under: Sequence[float]) -> float:
    """The median of the ratios of neighbours: what slowed a whole round down does not count."""
    return statistics.median(a / b for a, b in zip(over, under, strict=True))


def best(over: Sequence[float], under: Sequence[float]) -> float:
    """The ratio of the two minima: for work that only the processor does, where all noise is upwards."""
    return min(over) / min(under)


def seconds(call: Callable[[], object]) -> float:
    """How long a call takes, with no garbage collection in it."""
    gc.collect()
    gc.disable()
    try:
        begun = time.perf_counter()
        call()
        return time.perf_counter() - begun
    finally:
        gc.enable()


def warm_memory(size: int = 1024 * MIB) -> None:
    """Touch memory and give it back, just before a run that will need some.

    Where the kernel hands free pages back to a hypervisor, the first touch of a page costs ten times the second. That
    would be charged to whichever variant happens to run first.
    """
    with mmap.mmap(-1, size) as memory:
        for offset in range(0, size, mmap.PAGESIZE):
            memory[offset] = 1


@contextlib.contextmanager
def folder(options: Options) -> Iterator[Path]:
    """An empty directory on the disk that is measured; removed afterwards."""
    path = Path(tempfile.mkdtemp(prefix="braidlog-bench-", dir=options.folder))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def machine(where: Path) -> dict[str, str | int]:
    """What the figures were taken on."""
    versions = {}
    for package in ("pyarrow", "msgspec", "crc32c", "redis", "hiredis", "confluent-kafka", "nats-py", "pyspark"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return {
        "cpu": _processor(),
        "cores": os.cpu_count() or 0,
        "memory_mib": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // MIB,
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "file_system": _file_system(where),
        **versions,
    }


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _file_system(where: Path) -> str:
    best_mount, kind = "", "unknown"
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, mount, found, *_ = line.split()
            inside = where == Path(mount) or Path(mount) in where.parents
            if inside and len(mount) >= len(best_mount):
                best_mount, kind = mount, found
    return kind


def perform(measure: Measure, options: Options, out: Path | None) -> Figure:
    """Measure, print, and keep the figure as JSON and as a plot."""
    begun = time.perf_counter()
    figure = measure(options)
    took = time.perf_counter() - begun
    _print(figure, took)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        kept = {
            **asdict(figure),
            "targets": [{**asdict(target), "met": target.met} for target in figure.targets],
            "quick": options.quick,
            "seconds": round(took, 1),
            "load": [round(load, 2) for load in os.getloadavg()],
            "machine": machine(options.folder.resolve()),
        }
        (out / f"{figure.name}.json").write_text(json.dumps(kept, indent=1) + "\n")
        _plot(figure, out / f"{figure.name}.png")
    return figure


def _print(figure: Figure, took: float) -> None:
    print(f"\n{figure.name}: {figure.title} ({took:.0f} s)")
    for line in figure.lines:
        print(f"  {line.label}")
        for x, y in line.points:
            print(
                f"    {figure.x_label} {x:>12,g}   {figure.y_label} {y.median:,.6g} "
                f"[min {y.min:,.4g}, p25 {y.p25:,.4g}, p75 {y.p75:,.4g}, max {y.max:,.4g}; {y.runs} runs]"
            )
    for name, value in figure.numbers.items():
        print(f"  {name}: {value:,.4g}")
    for note in figure.notes:
        print(f"  note: {note}")
    for target in figure.targets:
        print(f"  {target.describe()}")


def _plot(figure: Figure, path: Path) -> None:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
    except ImportError:
        print('  no plot: matplotlib is not installed (pip install "braidlog[bench]")')
        return
    canvas = Canvas(figsize=(7, 4.2), layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.subplots()
    for line in figure.lines:
        xs = [x for x, _ in line.points]
        middles = [y.median for _, y in line.points]
        lower = [y.median - y.p25 for _, y in line.points]
        upper = [y.p75 - y.median for _, y in line.points]
        axes.errorbar(xs, middles, yerr=[lower, upper], marker="o", markersize=4, capsize=3, label=line.label)
    if figure.log_x:
        axes.set_xscale("symlog" if any(x == 0 for line in figure.lines for x, _ in line.points) else "log")
    if figure.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.set_xlabel(figure.x_label)
    axes.set_ylabel(figure.y_label)
    axes.set_title(figure.title, fontsize=10)
    axes.grid(True, which="major", alpha=0.3)
    axes.legend(fontsize=8)
    canvas.savefig(path, dpi=110)


def parser(description: str) -> argparse.ArgumentParser:
    """The options that every figure takes."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--quick", action="store_true", help="smaller and less certain; kept only with --out")
    made.add_argument("--strict", action="store_true", help="exit with status 1 if a target is missed")
    made.add_argument("--out", type=Path, help="where the JSON and the plot go (bench/results, but for --quick)")
    made.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="the disk to measure on")
    return made


def main(measure: Measure) -> None:
    """The command of one figure."""
    given = parser(measure.__doc__ or "").parse_args()
    out = given.out or (None if given.quick else RESULTS)
    figure = perform(measure, Options(given.quick, given.dir), out)
    missed = [target for target in figure.targets if not target.met]
    sys.exit(1 if given.strict and missed else 0)

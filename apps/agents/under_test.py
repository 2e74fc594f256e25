"""What a testing agent tests, and how it is run on a fork: whatever becomes of it is a result."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from apps.agents.processors import HANDWRITTEN, Total
from braidlog import Braid, Log
from braidlog.cli.rendering import json_line

TIME_S: Final = 30.0  # that a processor may take
READ_RECORDS: Final = 5_000  # at once
ERROR_CHARS: Final = 300
APPS: Final = Path(__file__).parents[2]


@dataclass(frozen=True)
class Outcome:
    """The windows that it told of, and what became of it."""

    totals: Sequence[Total]
    crashed: str | None = None
    timed_out: str | None = None  # which may be the machine's fault, and not its own

    def told(self, since: int) -> dict[str, Any]:
        """As an agent is told of it: windows that begin at a time or later."""
        rows = [list(total) for total in self.totals if total.begins >= since]
        return {"columns": list(Total._fields), "rows": rows, "crashed": self.crashed, "timed_out": self.timed_out}


Processor: TypeAlias = Callable[[str, int, int], Outcome]
"""Runs over a fork, from a position to before another."""


def process(braid: Braid, processor: str = HANDWRITTEN, time_s: float = TIME_S) -> Processor:
    """One of `apps.agents.processors`, each time in a process of its own that gets a fork as `braid tail` tells it."""

    def run(fork: str, start: int, stop: int) -> Outcome:
        with tempfile.TemporaryFile() as handed:
            _hand_over(braid.log(fork), start, stop, handed)
            command = [sys.executable, "-m", "apps.agents.processors", "--processor", processor]
            try:
                ran = subprocess.run(command, stdin=handed, capture_output=True, timeout=time_s, cwd=APPS, check=False)
            except subprocess.TimeoutExpired:
                return Outcome((), timed_out=f"it did not end within {time_s:g} s")
        totals = [Total(**json.loads(line)) for line in ran.stdout.splitlines()]
        return Outcome(totals, _why(ran) if ran.returncode else None)

    return run


def _hand_over(log: Log, start: int, stop: int, to: IO[bytes]) -> None:
    for at in range(start, stop, READ_RECORDS):
        to.writelines(map(json_line, log.read(at, min(stop, at + READ_RECORDS), max_records=READ_RECORDS)))
    to.seek(0)


def _why(ran: subprocess.CompletedProcess[bytes]) -> str:
    """The last line of a traceback says it."""
    said = ran.stderr.decode(errors="replace").strip().splitlines()
    return said[-1][:ERROR_CHARS] if said else f"it ended with status {ran.returncode}"

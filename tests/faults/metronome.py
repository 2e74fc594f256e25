"""What the machine itself adds to the time that things take: a process that wants little, often, and notes how late it
gets it.

It wakes, works and sleeps in turns, as the processes of a cluster do when one takes over from another. The lateness in
a stretch of time is about what such a chain of steps lost in it to whatever else runs here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

_SLEEP_S = 0.008
_WORK_S = 0.002

_BEATS = f"""
import sys, time
while True:
    began = time.monotonic()
    time.sleep({_SLEEP_S})
    spent = time.process_time()
    while time.process_time() - spent < {_WORK_S}:
        pass
    ended = time.monotonic()
    print(ended, ended - began - {_SLEEP_S + _WORK_S}, flush=True)
"""


class Metronome:
    """Use it as a context manager."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._beats = Path(self._folder.name) / "beats"

    def __enter__(self) -> Metronome:
        with open(self._beats, "wb") as beats:
            self._process = subprocess.Popen([sys.executable, "-c", _BEATS], stdout=beats)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    def lateness_s(self, since: float, until: float) -> float:
        """How late it was in all, between two readings of the monotonic clock."""
        found = 0.0
        for line in self._beats.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                ended, late = map(float, line.split())
                found += late if since <= ended <= until else 0.0
        return found

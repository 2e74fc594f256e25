"""Spark beside the demo, in a process of its own that starts while the story goes on."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import IO, TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from braidlog.cli.demo.pacing import PATIENCE_S
from braidlog.cli.failures import Refused
from braidlog.errors import Timeout

if TYPE_CHECKING:
    from braidlog.agents import Access
    from braidlog.cli.demo.pacing import Pace

START_S: Final = 30.0  # to start and to say something once; it needs a third of that on a machine that is not busy
HELD_S: Final = 15.0  # to say something while production is held
_END_S: Final = 10.0
_LAST_WORDS_LINES: Final = 5
# Workers would import PySpark from a zip, which has no compiled modules: three times as long for each of them.
_UNZIPPED: Final = """import sys
sys.path[:] = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]
"""


class Said(Struct, frozen=True, kw_only=True):
    """One answer of that process."""

    passed: bool
    reasons: list[str] = []
    seconds: float = 0.0


def why_not() -> str:
    """What Spark lacks here; empty if it can run."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'braidlog[spark]' and the demo asks a Spark job too"
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=None if home is None else str(Path(home, "bin"))) is None:
        return "PySpark is installed, but no Java is found: the Spark job is left out"
    return ""


class TooSlow(Exception):
    """It has not answered in time, and the demo can do without."""


class SparkProcess:
    """That process, and what it started. All of it has ended after `close`."""

    def __init__(self, access: Access, scratch: Path, *, required: bool) -> None:
        """One that is not `required` has little time: whoever asks it finds it TooSlow, and goes on without."""
        self.start_s = 0.0
        self._required = required
        self._deadline = 0.0
        self.allow(START_S)
        self._closed = False
        self._answers: SimpleQueue[Said | None] = SimpleQueue()
        self._words: list[str] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "braidlog.cli.demo.spark_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(scratch),
            start_new_session=True,
        )
        self._listeners = [
            threading.Thread(target=self._listen, args=(self._process.stdout,), name="demo-spark"),
            threading.Thread(target=self._overhear, args=(self._process.stderr,), name="demo-spark-words"),
        ]
        for listener in self._listeners:
            listener.start()
        self._tell(msgspec.json.encode({"access": access, "scratch": str(scratch)}))

    def allow(self, seconds: float) -> None:
        """What is answered from now on has to be answered within that time."""
        self._deadline = time.monotonic() + (PATIENCE_S if self._required else seconds)

    def wait_until_ready(self, pace: Pace) -> None:
        """It takes some seconds to start."""
        self.start_s = self._answer(pace).seconds

    def verdict(self, fork: str, pace: Pace) -> Said:
        """What it says of a fork."""
        self._tell(fork.encode())
        return self._answer(pace)

    def close(self) -> None:
        """Kill it. Whoever it started holds its standard error open, so that the end of that is the end of all."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for listener in self._listeners:
            listener.join(_END_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _tell(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its end is told by the answer that does not come
            self._process.stdin.write(line + b"\n")
            self._process.stdin.flush()

    def _answer(self, pace: Pace) -> Said:
        found: list[Said | None] = []

        def came() -> bool:
            with contextlib.suppress(Empty):
                found.append(self._answers.get_nowait())
            return bool(found)

        try:
            pace.until(came, "an answer of Spark", self._deadline - time.monotonic())
        except Timeout:
            if self._required:
                raise
            raise TooSlow from None
        if found[0] is None:
            raise Refused(f"Spark ended: {' '.join(self._words) or 'it did not say why'}")
        return found[0]

    def _listen(self, said: IO[bytes]) -> None:
        for line in said:
            self._answers.put(msgspec.json.decode(line, type=Said))
        self._answers.put(None)

    def _overhear(self, said: IO[bytes]) -> None:
        for line in said:
            self._words = [*self._words, line.decode("utf-8", "replace").strip()][-_LAST_WORDS_LINES:]


def _environment(scratch: Path) -> dict[str, str]:
    """Whatever it leaves behind is in that folder."""
    (scratch / "sitecustomize.py").write_text(_UNZIPPED)
    path = [str(scratch), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        **os.environ,
        "TMPDIR": str(scratch),
        "PYTHONPATH": os.pathsep.join(path),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }

"""SQL over a range that is too large for one process's memory, carried out by Spark on this machine.

Spark takes long to start, so it is kept between queries, one at a time, and let go of when nobody has queried for a
while. It runs in processes of its own, which hold no secret but what the range is read with: the token of whoever asks,
for as long as the query lasts, and what the store of the objects wants to see. They are a session of the operating
system, and whatever is in it is killed when a query goes beyond its bounds, is cancelled, or when this process dies.

`records` and `rows` are as in `sql`, except that `json` is a VARIANT, and the dialect is Spark's.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from braidlog import limits
from braidlog.agents.running import Access
from braidlog.agents.sql import (
    Bounds,
    Refused,
    Result,
    bounds_of_answer,
    check,
    environment,
    fields_of,
    ran_away,
    result_of,
)
from braidlog.errors import Unavailable

if TYPE_CHECKING:
    from braidlog import Log

_MODULE: Final = "braidlog.spark.query_process"
_TOKEN: Final = "BRAIDLOG_TOKEN"
_STORES: Final = {"s3": "AWS_", "gs": "GOOGLE_", "az": "AZURE_"}  # what their credentials begin with
_KEPT: Final = ("JAVA_HOME", "SPARK_HOME")
_CANCELLED: Final = "the query was cancelled"
_CHUNK_BYTES: Final = 64 * limits.KIB
_LAST_WORDS_BYTES: Final = 2 * limits.KIB


def available() -> bool:
    """Whether the engine is installed."""
    return importlib.util.find_spec("pyspark") is not None


class SparkQuery:
    """One query, to be run once. `cancel` may be called from another thread at any time, and ends it."""

    def __init__(
        self,
        spark: Spark,
        access: Access,
        log: Log,
        sql: str,
        start: int,
        stop: int,
        bounds: Bounds | None = None,
        caller: str = "",
    ) -> None:
        self._bounds = bounds or Bounds()
        check(sql, self._bounds)
        self._spark = spark
        self._access = access
        self._log = log
        self._sql = sql
        self._range = (start, stop)
        self._caller = caller
        self._cancelled = threading.Event()

    def run(self) -> Result:
        """Have the query carried out, and return what it answered."""
        start, stop = self._range
        sample = self._log.read(
            start, stop, max_records=limits.DESCRIBE_SAMPLE_RECORDS, max_bytes=limits.DESCRIBE_SAMPLE_BYTES
        )
        order = {
            "sql": self._sql,
            "log": self._log.name,
            "start": start,
            "stop": stop,
            "fields": fields_of(record.value for record in sample),
            "url": self._access.url,
            "token": self._token(),
            "token_file": _absolute(self._access.token_file),
            "tls_ca": _absolute(self._access.tls_ca),
        } | bounds_of_answer(self._bounds)
        objects = self._log._session.backend.objects_of(self._log.id) or ""
        answer = self._spark.answer(order, _environment(objects), self._bounds, self._cancelled, self._caller)
        return result_of(answer, stop - start, 0)

    def _token(self) -> str | None:
        access = self._access
        if access.token is not None or access.token_file is not None or not access.url.startswith("braid"):
            return access.token
        return os.environ.get(_TOKEN)

    def cancel(self) -> None:
        """End it, wherever it is."""
        self._cancelled.set()
        self._spark.give_up(self._cancelled)


class Spark:
    """Spark, started when it is first needed. Close it in the end."""

    def __init__(self, idle_s: float = limits.SQL_SPARK_IDLE_S) -> None:
        self._idle_s = idle_s
        self._turn = threading.Lock()  # of queries
        self._lock = threading.Lock()  # of what follows
        self._callers: list[str] = []  # whose query is carried out, or waits for that
        self._driver: _Driver | None = None
        self._asking: threading.Event | None = None  # whose query is carried out
        self._closed = False
        self._timer: threading.Timer | None = None

    def answer(
        self,
        order: dict[str, Any],
        wanted: dict[str, str],
        bounds: Bounds,
        cancelled: threading.Event,
        caller: str = "",
    ) -> dict[str, Any]:
        """Carry out an order, when it is its turn, and within its bounds. Unavailable at once for all but the first
        that would wait, and for a caller who has another one here: nobody keeps what waits for all the others."""
        with self._place_of(caller), self._turn_of(cancelled):
            return self._answered(order, wanted, bounds, cancelled)

    @contextlib.contextmanager
    def _place_of(self, caller: str) -> Iterator[None]:
        with self._lock:
            if caller in self._callers:
                raise Unavailable("Spark is busy with a query of yours: ask again when that has been answered")
            if len(self._callers) > limits.SQL_SPARK_WAITING_THREADS_MAX:
                raise Unavailable("Spark is busy with queries of others, one at a time: ask again in a while")
            self._callers.append(caller)
        try:
            yield
        finally:
            with self._lock:
                self._callers.remove(caller)

    @contextlib.contextmanager
    def _turn_of(self, cancelled: threading.Event) -> Iterator[None]:
        deadline = time.monotonic() + limits.SQL_SPARK_TURN_S
        while not self._turn.acquire(timeout=limits.SQL_SPARK_LOOK_S):
            if cancelled.is_set():
                raise Refused(_CANCELLED)
            if time.monotonic() >= deadline:
                raise Unavailable("Spark is busy with a query of somebody else: ask again in a while")
        try:
            yield
        finally:
            self._turn.release()

    def _answered(
        self, order: dict[str, Any], wanted: dict[str, str], bounds: Bounds, cancelled: threading.Event
    ) -> dict[str, Any]:
        try:
            driver = self._ready(wanted, cancelled)
            told = driver.ask(order, bounds.time_s + limits.SQL_SPARK_KILL_S)
            if told is None or told.get("error") == "time":
                self._end(driver)  # there may be tasks that do not listen, and keep the places of others
            if cancelled.is_set():
                raise Refused(_CANCELLED)
            return ran_away(bounds) if told is None else told
        finally:
            self._rest()

    def give_up(self, cancelled: threading.Event) -> None:
        """End the query that this was handed over with, if that is carried out now."""
        with self._lock:
            driver = self._driver if self._asking is cancelled else None
        if driver is not None:
            driver.kill()

    def close(self) -> None:
        """End it, and whatever it is about."""
        with self._lock:
            self._closed = True
            driver = self._driver
            if self._timer is not None:
                self._timer.cancel()
        if driver is not None:
            driver.kill()
            with self._turn:  # whoever waited for an answer waits no more
                self._end(driver)

    def _ready(self, wanted: dict[str, str], cancelled: threading.Event) -> _Driver:
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            driver = self._driver
        if driver is not None and not (driver.lives and driver.environment == wanted):
            self._end(driver)
            driver = None
        started = driver or _Driver(wanted)
        with self._lock:
            self._driver, self._asking = started, cancelled
            unwanted = self._closed or cancelled.is_set()
        if unwanted:
            self._end(started)
            raise Refused(_CANCELLED)
        if driver is None:
            failure = started.failure()
            if failure:
                self._end(started)
                if cancelled.is_set():
                    raise Refused(_CANCELLED)
                raise Unavailable(f"Spark does not start: {failure}")
        return started

    def _rest(self) -> None:
        with self._lock:
            self._asking = None
            if self._driver is None or self._closed:
                return
            self._timer = threading.Timer(self._idle_s, self._sleep)
            self._timer.daemon = True
            self._timer.start()

    def _sleep(self) -> None:
        """Nobody has queried for a while, unless somebody began to just now."""
        with self._turn:
            with self._lock:
                driver = self._driver if self._timer is threading.current_thread() else None
            if driver is not None:
                self._end(driver)

    def _end(self, driver: _Driver) -> None:
        with self._lock:
            if self._driver is driver:
                self._driver = None
        driver.close()


class _Driver:
    """The processes, and a folder of theirs."""

    def __init__(self, wanted: dict[str, str]) -> None:
        self.environment = wanted
        self._said = bytearray()
        self._lock = threading.Lock()
        self._scratch = Path(tempfile.mkdtemp(prefix="braidlog-query-"))
        self._told = self._scratch / "told"
        self._answers, answers = os.pipe()
        try:
            with self._told.open("wb") as told:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", _MODULE, str(answers), str(self._scratch)],
                    stdin=subprocess.PIPE,
                    stdout=told,
                    stderr=told,
                    pass_fds=(answers,),
                    env=wanted | {"HOME": str(self._scratch), "TMPDIR": str(self._scratch)},
                    cwd=self._scratch,
                    start_new_session=True,
                )
        except BaseException:
            os.close(self._answers)
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        finally:
            os.close(answers)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def failure(self) -> str:
        """Why it did not start; empty, once it has."""
        if self._line(time.monotonic() + limits.SQL_SPARK_START_S) is not None:
            return ""
        words = self._told.read_bytes()[-_LAST_WORDS_BYTES:].decode("utf-8", "replace").strip()
        return words.splitlines()[-1] if words else f"it was not ready within {limits.SQL_SPARK_START_S:g} s"

    def ask(self, order: dict[str, Any], seconds: float) -> dict[str, Any] | None:
        """What it answers; None if it does not, and then it is of no use any more."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()  # and stays open: its end is the sign that nobody waits any more
        except OSError:
            return None
        return self._line(time.monotonic() + seconds)

    def _line(self, deadline: float) -> dict[str, Any] | None:
        with selectors.DefaultSelector() as ready:
            ready.register(self._answers, selectors.EVENT_READ)
            while b"\n" not in self._said:
                left = deadline - time.monotonic()
                if left <= 0 or not ready.select(left):
                    return None
                data = os.read(self._answers, _CHUNK_BYTES)
                if not data or len(self._said) > limits.SQL_SPARK_LINE_BYTES_MAX:
                    return None
                self._said += data
        line, _, rest = bytes(self._said).partition(b"\n")
        self._said = bytearray(rest)
        told: dict[str, Any] = json.loads(line)
        return told

    def kill(self) -> None:
        """From any thread. Whoever waits for an answer learns that there will be none."""
        with self._lock:
            if self._process.returncode is None:
                end_session(self._process.pid)

    def close(self) -> None:
        """Kill it, and clean up."""
        self.kill()
        self._process.wait()
        if self._answers >= 0:
            os.close(self._answers)
            self._answers = -1
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        shutil.rmtree(self._scratch, ignore_errors=True)


def end_session(leader: int) -> None:
    """Kill every process of a session of the operating system; the leader, and so perhaps this one, last.

    Some have made groups of their own, so a signal to the leader's group does not reach them.
    """
    for _ in range(2):  # whoever was begun while the first round went on
        for member in _members(leader):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)


def _members(leader: int) -> Iterator[int]:
    """As far as the system tells; those that it does not tell of end when the JVM is no more."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            session = int(entry.read_text().rpartition(")")[2].split()[3])
            member = int(entry.parent.name)
            if session == leader and member not in (leader, os.getpid()):
                yield member


def _environment(objects: str) -> dict[str, str]:
    """What Python and Java need to be found, and what the store of the objects wants to see."""
    store = _STORES.get(objects.partition("://")[0])
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT or (store is not None and name.startswith(store))
    }
    fixed = {"TZ": "UTC", "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_USER": "agent", "PYSPARK_PYTHON": sys.executable}
    return environment() | kept | fixed


def _absolute(path: str | None) -> str | None:
    return None if path is None else os.path.abspath(path)

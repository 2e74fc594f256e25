"""Validators, each run in a process of its own, within limits of time, memory and output.

Whatever becomes of that process is a verdict: one that crashes, hangs, raises, needs too much memory or prints without
end has failed, and the reason says so. The fork is as it was. The process and all that it started are killed when it
has answered, when its time is over, when nobody wants to know any more, and when whoever waits for it dies.

It can only read: a directory is opened read-only, and of a service it gets handles that change nothing. That keeps
mistakes in, not malice: a validator is code that the operator trusts.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct, structs

from braidlog import Braid, limits
from braidlog.agents.validators import split
from braidlog.agents.verdict import Finding, Verdict, failed
from braidlog.errors import InvalidArgument

_TOKEN: Final = "BRAIDLOG_TOKEN"  # handed over with the job, so that neither the validator nor its children find it
_UNWANTED: Final = "nobody waits for it any more"
_CHUNK_BYTES: Final = 64 * limits.KIB


class Access(Struct, frozen=True, kw_only=True):
    """How another process gets at the same logs. What is not given comes from the environment."""

    url: str
    token: str | None = None
    token_file: str | None = None
    tls_ca: str | None = None

    def __repr__(self) -> str:
        return f"<Access {self.url!r}>"

    @classmethod
    def to(cls, braid: Braid, *, token: str | None = None, tls_ca: str | None = None) -> Access:
        """Access to what is open here. InvalidArgument if nobody else can get at it."""
        if braid.url.startswith("memory:"):
            raise InvalidArgument(
                "validators run in processes of their own, which cannot see memory://: use a directory or a service"
            )
        return cls(url=braid.url, token=token, tls_ca=tls_ca)


class Bounds(Struct, frozen=True, kw_only=True):
    """What a validator may take. `memory_bytes` is address space beyond what the process has when the validator begins,
    and holds for each process that it starts; None is no limit."""

    timeout_s: float = limits.VALIDATOR_TIMEOUT_S
    memory_bytes: int | None = limits.VALIDATOR_MEMORY_BYTES

    def check(self) -> None:
        """InvalidArgument if no validator could be run within them."""
        if not 0 < self.timeout_s <= limits.VALIDATOR_TIMEOUT_MAX_S:
            raise InvalidArgument(
                f"a validator may take up to {limits.VALIDATOR_TIMEOUT_MAX_S:g} s, not {self.timeout_s:g}"
            )
        if self.memory_bytes is not None and self.memory_bytes < limits.VALIDATOR_MEMORY_BYTES_MIN:
            raise InvalidArgument(
                f"a validator that may have {self.memory_bytes:,} bytes gets nowhere: it needs "
                f"{limits.VALIDATOR_MEMORY_BYTES_MIN:,}"
            )


class Job(Struct, frozen=True, kw_only=True):
    """What the other process is told."""

    access: Access
    fork: str
    fork_id: int  # what has its name by then may be another
    validator: str
    parameters: dict[str, Any] = {}
    start: int | None = None
    bounds: Bounds = Bounds()


class Stopped(Exception):
    """Nobody wants to know any more what a validator says."""


class Stop:
    """Ends validators before their time, from any thread: the one that runs, and those that would come after it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stopped = False
        self._wake: list[Callable[[], object]] = []

    def stop(self) -> None:
        """From now on `check` raises."""
        with self._lock:
            self._stopped = True
            for wake in self._wake:
                wake()

    def check(self) -> None:
        """Raise Stopped if it was stopped."""
        if self._stopped:
            raise Stopped

    @contextlib.contextmanager
    def waking(self, wake: Callable[[], object]) -> Iterator[None]:
        """Have `wake` called when it is stopped, while this lasts."""
        with self._lock:
            self.check()
            self._wake.append(wake)
        try:
            yield
        finally:
            with self._lock:
                self._wake.remove(wake)


class Runner(Protocol):
    """How a desk has validators run. Stopped is raised if `stop` was used before there was a verdict."""

    def __call__(self, job: Job, name: str, stop: Stop) -> Finding: ...


def run(job: Job, name: str = "", stop: Stop | None = None) -> Finding:
    """Run a validator over a fork, in a process of its own."""
    split(job.validator)
    job.bounds.check()
    stop = stop or Stop()
    began = time.monotonic()
    with _Watched(job) as watched, stop.waking(watched.wake):
        verdict = watched.verdict(began + job.bounds.timeout_s)
    stop.check()
    return Finding(validator=name or job.validator, verdict=verdict, seconds=round(time.monotonic() - began, 3))


class _Watched:
    """The process, and what it said so far."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._said = bytearray()
        self._printed = bytearray()
        self._printed_bytes = 0

    def __enter__(self) -> _Watched:
        with contextlib.ExitStack() as handed_over, contextlib.ExitStack() as kept:
            self._answer, answer = os.pipe()
            kept.callback(os.close, self._answer)
            handed_over.callback(os.close, answer)
            self._woken, self._waking = os.pipe()
            kept.callback(os.close, self._woken)
            kept.callback(os.close, self._waking)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "braidlog.agents.runner", str(answer)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=(answer,),
                env=_environment(os.environ),
                start_new_session=True,
            )
            self._kept = kept.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._kept.close()

    def wake(self) -> None:
        """Have it killed by the thread that listens."""
        os.write(self._waking, b"!")

    def verdict(self, deadline: float) -> Verdict:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it died before it listened; its end tells how
            self._process.stdin.write(msgspec.json.encode(_with_token(self._job)) + b"\n")
            self._process.stdin.flush()  # and stays open: its end is the sign that nobody waits any more
        trouble = self._listen(deadline)
        if trouble:
            return failed(trouble)
        if not self._said:
            return failed(self._how_it_ended(deadline))
        try:
            return msgspec.json.decode(self._said, type=Verdict)
        except msgspec.DecodeError:
            return failed(self._how_it_ended(deadline))

    def _listen(self, deadline: float) -> str:
        """Take in what it says until it has said everything; else what was wrong."""
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as ready:
            ready.register(self._answer, selectors.EVENT_READ)
            ready.register(self._process.stdout, selectors.EVENT_READ)
            ready.register(self._woken, selectors.EVENT_READ)
            while True:
                left = deadline - time.monotonic()
                found = ready.select(left) if left > 0 else []
                if not found:
                    return f"it took longer than {self._job.bounds.timeout_s:g} s and was stopped"
                for key, _ in found:
                    if key.fd == self._woken:
                        return _UNWANTED
                    data = os.read(key.fd, _CHUNK_BYTES)
                    if key.fd == self._answer:
                        self._said += data
                        if not data:
                            return ""
                    elif data:
                        self._keep(data)
                    else:
                        ready.unregister(key.fileobj)
                if len(self._said) > limits.VALIDATOR_ANSWER_BYTES_MAX:
                    return f"its verdict has more than {limits.VALIDATOR_ANSWER_BYTES_MAX:,} bytes: say less"
                if self._printed_bytes > limits.VALIDATOR_PRINTED_BYTES_MAX:
                    return f"it printed more than {limits.VALIDATOR_PRINTED_BYTES_MAX:,} bytes and was stopped"

    def _keep(self, data: bytes) -> None:
        self._printed_bytes += len(data)
        self._printed += data
        del self._printed[: -limits.VALIDATOR_LAST_WORDS_BYTES]

    def _how_it_ended(self, deadline: float) -> str:
        """It closed the line without a verdict: it is dead, or about to be."""
        assert self._process.stdout is not None
        while not self._has_ended():
            if time.monotonic() >= deadline:
                return f"it took longer than {self._job.bounds.timeout_s:g} s and was stopped"
            if self._is_woken(limits.PROCESS_POLL_S):
                return _UNWANTED
        self._kill()  # whoever it started may hold the other end of what it printed
        status = self._process.wait()
        while data := self._process.stdout.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]
            self._keep(data)
        words = self._printed.decode("utf-8", "replace").strip()
        last = f", and its last words were: {words}" if words else ""
        if status < 0:
            return f"it crashed: ended by {signal.Signals(-status).name}{last}"
        return f"it ended with status {status} and no verdict{last}"

    def _is_woken(self, within_s: float) -> bool:
        with selectors.DefaultSelector() as ready:
            ready.register(self._woken, selectors.EVENT_READ)
            return bool(ready.select(within_s))

    def _has_ended(self) -> bool:
        """It is left as it is: as long as nobody has asked how it ended, no other process gets its number."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)


def _with_token(job: Job) -> Job:
    access = job.access
    token = os.environ.get(_TOKEN)
    if not token or access.token is not None or access.token_file is not None or not access.url.startswith("braid"):
        return job
    return structs.replace(job, access=structs.replace(access, token=token))


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in inherited.items() if name != _TOKEN}
    return {"MALLOC_ARENA_MAX": "2", **kept}  # else each thread reserves address space that it hardly uses

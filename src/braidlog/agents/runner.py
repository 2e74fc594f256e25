"""The other process: runs one validator over one fork and says what it found. See `running`.

The job comes as a line of JSON on standard input, the verdict goes to the file descriptor that the command line names.
What the validator prints goes elsewhere. The end of standard input means that nobody waits any more.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import threading
import traceback

import msgspec

import braidlog
from braidlog import limits
from braidlog.agents.running import Job
from braidlog.agents.validators import examine, load
from braidlog.agents.verdict import Verdict, failed
from braidlog.client.endings import handle_of
from braidlog.client.looking import looking
from braidlog.errors import BraidError


def main() -> None:
    """Do the one job, and end without waiting for anything that the validator left behind."""
    answer = int(sys.argv[1])
    os.set_inheritable(answer, False)
    asked = os.dup(0)  # the validator may read its standard input, and finds nothing there
    job = msgspec.json.decode(_line(asked), type=Job)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    threading.Thread(target=_end_when_forgotten, args=(asked,), daemon=True).start()
    verdict = _verdict(job)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    data = msgspec.json.encode(verdict)
    while data:
        data = data[os.write(answer, data) :]
    os._exit(0)


def _line(fd: int) -> bytes:
    """Byte by byte would do; nothing follows the line."""
    said = b""
    while not said.endswith(b"\n"):
        data = os.read(fd, 65536)
        if not data:
            os._exit(1)
        said += data
    return said


def _end_when_forgotten(fd: int) -> None:
    while os.read(fd, 65536):
        pass
    os.killpg(0, signal.SIGKILL)


def _limit(job: Job) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if job.bounds.memory_bytes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        most = _taken_bytes() + job.bounds.memory_bytes
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _taken_bytes() -> int:
    """The address space that this process has already."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # no such place on this system: what is granted has to do for all
        return 0


def _verdict(job: Job) -> Verdict:
    try:
        with _open(job) as braid:
            fork = handle_of(braid, job.fork_id, job.fork)
            _limit(job)
            return _examined(job, fork)
    except MemoryError:
        return failed(f"it needed more than the {job.bounds.memory_bytes or 0:,} bytes of memory that it may have")
    except BaseException as error:
        return failed(_told(error))


def _examined(job: Job, fork: braidlog.Log) -> Verdict:
    try:
        validator = load(job.validator)
    except BraidError as error:
        return failed(str(error))
    except MemoryError:
        raise
    except BaseException as error:
        return failed(f"{job.validator} cannot be loaded: {_told(error)}")
    return examine(fork, validator, job.parameters, job.start)


def _open(job: Job) -> braidlog.Braid:
    access = job.access
    if access.url.startswith(("braid://", "braids://")):
        opened = braidlog.open(access.url, token=access.token, token_file=access.token_file, tls_ca=access.tls_ca)
        return looking(opened)
    return braidlog.open(access.url, read_only=True)


def _told(error: BaseException) -> str:
    """What went wrong and where, on one line."""
    said = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{said[: limits.VERDICT_CHARS_MAX]}{where}"


if __name__ == "__main__":
    main()

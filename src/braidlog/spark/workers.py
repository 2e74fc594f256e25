"""The processes that Spark starts for Python, and keeps for one call after the other.

Whatever such a process raises comes to the driver as text, with the frames of Spark's and our insides before it. For an
error that says what to do these are noise, so they are left out. Anything else is a defect, and keeps its frames.

After each call Spark has the process look through all of its objects for garbage. Nearly all of them came with modules,
and stay: with Arrow and Spark imported that took 20 ms and more, a sixth of what writing 500,000 small records takes.
So what is there when modules were imported is set aside, and is never looked through again; neither are objects of a
user's functions in the same process, which matters only for cycles of them that become garbage later.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from braidlog.errors import BraidError
from braidlog.spark.errors import BraidlogFailed

_WORKER: Final = "PYTHON_WORKER_FACTORY_"  # every worker that Spark starts has variables of this name
_HIDE: Final = "SPARK_HIDE_TRACEBACK"

_modules_set_aside = 0


@contextmanager
def called() -> Iterator[None]:
    """Around whatever Spark calls."""
    try:
        yield
    except BraidError as error:
        if _in_a_worker():  # it ends after it reported an exception: what is set in its environment touches nobody else
            os.environ[_HIDE] = "1"
        raise BraidlogFailed(f"{type(error).__name__}: {error}") from None
    if _in_a_worker():  # a process of the user's own is none of our business
        _set_modules_aside()


def _set_modules_aside() -> None:
    global _modules_set_aside
    if len(sys.modules) != _modules_set_aside:
        _modules_set_aside = len(sys.modules)
        gc.collect()  # what is garbage by now would be kept for ever
        gc.freeze()


def _in_a_worker() -> bool:
    return any(name.startswith(_WORKER) for name in os.environ)

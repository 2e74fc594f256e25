"""How much work a call is: the lines of Python it runs. A count, unlike a time, is the same on every machine."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def work(call: Callable[..., object], *arguments: object, **named: object) -> int:
    """Lines run by a call and everything it calls."""
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        del frame, argument
        lines += event == "line"
        return trace

    before = sys.gettrace()
    gc.disable()  # a collection may run finalisers of somebody else's, and they are lines too
    sys.settrace(trace)
    try:
        call(*arguments, **named)
    finally:
        sys.settrace(before)
        gc.enable()
    return lines

"""Agents that do not get to the end of their work."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from apps.agents.scripted import Script


class Died(Exception):
    """An agent in the middle of its work."""


def dying(script: Callable[[str], Script], step: int) -> Callable[[str], Script]:
    """The same, but it dies before it makes the calls of a step."""

    def wrapped(asked: str) -> Script:
        running = script(asked)
        calls = next(running)
        for number in itertools.count():
            if number == step:
                raise Died(calls[0].tool)
            returned = yield calls
            try:
                calls = running.send(returned)
            except StopIteration as ended:
                return ended.value
        raise AssertionError

    return wrapped

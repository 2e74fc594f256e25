"""How long agents hold logs: in any time twice as long as the policy's `hold`, one agent holds a log for `hold` in all.

So no agent can hold one for ever by one promotable fork after the other, or side by side. Time when several of its
forks held a log counts once, and none counts of a fork that was promoted: the log went on by that. In memory, for one
process; but forks that live are seen whoever made them.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

from braidlog.errors import ConditionFailed

_LEAST: Final = 0.25  # of what the policy allows at once: with less left nobody could decide in time

_Span = tuple[float, float]  # from, up to


class Holding:
    """Of all agents of one server. Safe to use from several threads."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._living: dict[str, tuple[str, str, float]] = {}  # by fork: whose, of what log, and since when
        self._past: dict[tuple[str, str], list[_Span]] = {}  # by agent and log

    def grant(self, agent: str, log: str, ages: Mapping[str, float], most: float) -> float:
        """How many seconds an agent may hold a log from now on; ConditionFailed if that is too little to be of use.

        `ages` are its forks that hold it now, and how long they have; `most` is the policy's `hold`.
        """
        with self._lock:
            now = self._now()
            self._look(agent, log, ages, most, now)
            begin = now - 2 * most
            past = [span for span in self._past.pop((agent, log), []) if span[1] > begin]
            if past:
                self._past[agent, log] = past
            present = [(since, now) for who, what, since in self._living.values() if (who, what) == (agent, log)]
        spans = _merged([(max(since, begin), until) for since, until in [*past, *present]])
        held = sum(until - since for since, until in spans)
        if held <= (1 - _LEAST) * most:
            return most - held
        names = ", ".join(sorted(ages)[:5])
        wait = math.ceil(_when(spans, held - (1 - _LEAST) * most) - begin)
        raise ConditionFailed(
            f"{agent!r} has held {log!r} for {held:.0f} of the last {2 * most:g} s, and may for {most:g}: "
            + (f"propose or squash what holds it ({names})" if names else f"wait {wait} s")
            + ", or make a fork that is not promotable"
        )

    def _look(self, agent: str, log: str, ages: Mapping[str, float], most: float, now: float) -> None:
        for fork, (who, what, since) in list(self._living.items()):
            if (who, what) == (agent, log) and fork not in ages:  # it ended, and nobody here was told when
                del self._living[fork]
                self._past.setdefault((agent, log), []).append((since, min(now, since + most)))
        for fork, age in ages.items():
            self._living.setdefault(fork, (agent, log, now - age))

    def begun(self, agent: str, log: str, fork: str) -> None:
        """From now on a fork holds a log."""
        with self._lock:
            self._living[fork] = agent, log, self._now()

    def ended(self, fork: str, *, promoted: bool = False) -> None:
        """It does no more, if it did."""
        with self._lock:
            found = self._living.pop(fork, None)
            if found is not None and not promoted:
                agent, log, since = found
                self._past.setdefault((agent, log), []).append((since, self._now()))


def _merged(spans: list[_Span]) -> list[_Span]:
    """The same times, each once, in their order."""
    merged: list[_Span] = []
    for since, until in sorted(spans):
        if merged and since <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(until, merged[-1][1])
        else:
            merged.append((since, until))
    return merged


def _when(spans: list[_Span], much: float) -> float:
    """The time by which so much was held."""
    for since, until in spans:
        if until - since >= much:
            return since + much
        much -= until - since
    return spans[-1][1]

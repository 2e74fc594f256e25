"""What a writer counts of its own work: commits, appends and duties. Whoever serves it shows it.

Commits and appends are counted from when somebody first looks (`watch`): a log that nobody serves pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braidlog.embedded.census import Census
from braidlog.errors import BraidError
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.forest.machine import Forest
from braidlog.observe.catalog import Appends, Commits, Duties
from braidlog.observe.metrics import Registry

_APPENDED: Final = c.Appended
_AGAIN: Final = c.Again


class WriterMeasures:
    """`committed` and `applied` are called by one thread at a time, the one that commits."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.commits = Commits(self.registry)
        self.appends = Appends(self.registry)
        self.duties = Duties(self.registry)
        self.census: Census | None = None  # None: nobody looks
        self.committed = self.commits.durations.observe  # seconds
        self._observe_commands = self.commits.commands.observe

    def watch(self, forest: Forest) -> Census:
        """Count from now on, if it was not so before. To be called with the forest's lock held."""
        if self.census is None:
            self.census = Census(forest)
        return self.census

    def applied(self, batch: Sequence[c.Command], answers: Sequence[c.Result | BraidError]) -> None:
        """These were applied. What was answered from memory, without being appended again, is not counted again."""
        self._observe_commands(len(batch))
        batches = records = size = 0
        census = self.census
        for command, answer in zip(batch, answers):  # noqa: B905 - they are as many; strict would be felt here
            if type(answer) is _APPENDED:
                if answer.block != NONE:
                    batches += 1
                    records += answer.count
                    append = command.command if type(command) is _AGAIN else command
                    size += append.size  # type: ignore[union-attr] # of an append or a publication
            elif census is not None:
                census.take(command, answer)
        if batches:
            appends = self.appends
            appends.batches.value += batches
            appends.records.value += records
            appends.bytes.value += size

"""What a writer counts of its own work: commits, appends and duties. Whoever serves it shows it."""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.embedded.census import Census
from braidlog.errors import BraidError
from braidlog.forest import commands as c
from braidlog.forest.commands import NONE
from braidlog.observe.catalog import Appends, Commits, Duties
from braidlog.observe.metrics import Registry


class WriterMeasures:
    """`committed` and `applied` are called by one thread at a time, the one that commits."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.commits = Commits(self.registry)
        self.appends = Appends(self.registry)
        self.duties = Duties(self.registry)
        self.census: Census | None = None  # once somebody wants to know

    def committed(self, seconds: float) -> None:
        self.commits.durations.observe(seconds)

    def applied(self, batch: Sequence[c.Command], answers: Sequence[c.Result | BraidError]) -> None:
        """These were applied. What was answered from memory, without being appended again, is not counted again."""
        self.commits.commands.observe(len(batch))
        batches = records = size = 0
        census = self.census
        for command, answer in zip(batch, answers, strict=True):
            if type(answer) is c.Appended:
                if answer.block != NONE:
                    append = command.command if type(command) is c.Again else command
                    assert isinstance(append, c.Append)
                    batches += 1
                    records += answer.count
                    size += append.size
            elif census is not None:
                census.take(command, answer)
        if batches:
            appends = self.appends
            appends.batches.value += batches
            appends.records.value += records
            appends.bytes.value += size

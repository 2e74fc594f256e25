"""A sink that is struck where a test says: the real one, with a look at a file between its steps.

The file `fault` beside the directory of the logs names the step, and, to be killed there, the processes of the driver.
It is gone when it has struck, so that each fault happens once. Workers of Spark import this by its name.

Two attempts at one task, as with speculation, are played: Spark never begins a second one where all of it is in one
process.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from braidlog.spark.sink import BatchWriter, StreamWriter
from braidlog.spark.source import BraidDataSource

PLANNING: Final = "planning"  # a batch begins: the one before it is committed, in Spark's books too
WRITING: Final = "writing"  # a task has rows, and nothing is stored
STORED: Final = "stored"  # a task has stored its rows, and told nobody
COMMITTING: Final = "committing"  # all tasks are done, and nothing is published
PUBLISHED: Final = "published"  # it is in the log, and not in Spark's books
TWICE: Final = ("twice-first", "twice-second")  # each task runs twice, and the commit names that attempt
STEPS: Final = (PLANNING, WRITING, STORED, COMMITTING, PUBLISHED)


def arm(directory: str, step: str, *victims: int) -> None:
    """Strike once, when that step is reached: kill these processes, or raise an error if there are none."""
    path = fault_of(directory)
    beside = path.with_suffix(".new")
    beside.write_text(" ".join([step, *map(str, victims)]))
    beside.rename(path)


def struck(directory: str) -> bool:
    return not fault_of(directory).exists()


def fault_of(directory: str) -> Path:
    return Path(directory).parent / "fault"


class _Faults:
    def __init__(self, directory: str) -> None:
        self._path = fault_of(directory)

    def played(
        self, write: Callable[[Iterator[pa.RecordBatch]], WriterCommitMessage], rows: Iterator[pa.RecordBatch]
    ) -> WriterCommitMessage:
        """What a task tells; of two attempts, if that is wanted, the message of one. Nobody hears of the other."""
        wanted = self._path.read_text() if self._path.exists() else ""
        if wanted not in TWICE:
            return write(rows)
        given = list(rows)
        messages = [write(iter(given)) for _ in TWICE]
        return messages[TWICE.index(wanted)]

    def at(self, step: str) -> None:
        try:
            wanted, *victims = self._path.read_text().split()
        except FileNotFoundError:
            return
        if wanted == f"sometimes-{step}":
            if random.random() < 0.2:
                raise RuntimeError(f"struck at random: {step}")
            return
        if wanted != step:
            return
        self._path.unlink()
        for victim in victims:
            os.kill(int(victim), signal.SIGKILL)
        if victims:
            threading.Event().wait(60.0)  # nobody is there who could be told anything; this process ends with them
        raise RuntimeError(f"struck: {step}")


class FaultyBatchWriter(BatchWriter):
    faults: _Faults

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self.faults.at(WRITING)
        message = self.faults.played(super().write, iterator)
        self.faults.at(STORED)
        return message

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.faults.at(COMMITTING)
        super().commit(messages)
        self.faults.at(PUBLISHED)


class FaultyStreamWriter(StreamWriter):
    faults: _Faults

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        self.faults.at(WRITING)
        message = self.faults.played(super().write, iterator)
        self.faults.at(STORED)
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.faults.at(COMMITTING)
        super().commit(messages, batchId)
        self.faults.at(PUBLISHED)


class FaultySource(BraidDataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty"

    def writer(self, schema: StructType, overwrite: bool) -> FaultyBatchWriter:
        return self._struck(super().writer(schema, overwrite), FaultyBatchWriter)

    def streamWriter(self, schema: StructType, overwrite: bool) -> FaultyStreamWriter:
        return self._struck(super().streamWriter(schema, overwrite), FaultyStreamWriter)

    def _struck(self, writer, kind):  # type: ignore[no-untyped-def]
        writer.__class__ = kind
        writer.faults = _Faults(self._given["url"])
        writer.faults.at(PLANNING)
        return writer

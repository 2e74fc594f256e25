"""A log, or a fork, as a sink of Spark: batch and streaming, exactly once.

Tasks write Arrow objects straight to the store, each under an upload of its own, and tell the driver what they stored.
The driver appends all of it by one publication, in the order of the partitions: all or nothing. So a task may be tried
as often as Spark likes, twice at a time even: what is not named by the commit is never in the log, and is swept.

A streaming query is a writer that numbers its batches, and a batch that comes again, after whatever happened to the
driver, is recognised by the log itself.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from braidlog import limits
from braidlog.bulk import ObjectWriter
from braidlog.client.braid import Braid
from braidlog.client.log import Log
from braidlog.errors import AlreadyExists, BraidError, InvalidArgument, NotFound
from braidlog.facts import Upload
from braidlog.spark import binding, sink_columns, sink_options
from braidlog.spark.binding import Patience, Written
from braidlog.spark.reaching import INTERRUPTED, Reach
from braidlog.spark.sessions import settled
from braidlog.spark.sink_options import SinkOptions
from braidlog.spark.workers import called

_QUERY: Final = "sql.streaming.queryId"
_NO_FORKS: Final = ("", "dropped")  # how the last log of a name ended, if there was none or it was a root
_APPEND_ONLY: Final = (
    "a log is only ever appended to, so {what} cannot be written: {instead}; for another version of a log write on a "
    "fork of it, or to a new log"
)


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> BatchWriter:
    """For `df.write`. Everything that can be wrong with the call is told here, before a task runs."""
    if overwrite:
        raise InvalidArgument(_APPEND_ONLY.format(what="mode 'overwrite'", instead="use mode('append')"))
    return BatchWriter(_Sink.of(options, schema, streaming=False))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> StreamWriter:
    """For `df.writeStream`: asked for anew by each batch, and once more for its commit."""
    if overwrite:
        raise InvalidArgument(
            _APPEND_ONLY.format(
                what="output mode 'complete', which writes the whole result each time,",
                instead="use outputMode('append'), with a watermark for aggregations",
            )
        )
    return StreamWriter(_Sink.of(options, schema, streaming=True))


@dataclass(frozen=True)
class Message(WriterCommitMessage):
    """What a task tells the driver: what it stored, if it had any rows, and of which query."""

    query: str | None
    written: Written | None


@dataclass(frozen=True)
class _Sink:
    """What both kinds of writers are made of. Goes to the tasks, and to the process that commits."""

    options: SinkOptions
    columns: tuple[str, ...]
    reach: Reach

    @classmethod
    def of(cls, given: Mapping[str, str], schema: StructType, *, streaming: bool) -> _Sink:
        options = sink_options.parse(given, os.environ, streaming=streaming)
        sink = cls(options, sink_columns.checked(schema), Reach(settled(options.place)))
        if streaming:  # this may be a commit, which is more patient: it waits itself for what cannot be reached now
            with contextlib.suppress(*INTERRUPTED):
                sink.prepare(0.0)
        else:
            sink.prepare(limits.SPARK_REACH_S)
        return sink

    def prepare(self, patience_s: float) -> None:
        """See that the log is there. A stream asks with each batch, so what was found once is believed."""
        key = (self.reach, self.options.log)
        if key in _found:
            return
        self.reach.insist(self._see, patience_s, create=self.options.create_log)
        _found.add(key)

    def _see(self, braid: Braid) -> Log:
        """The log, made if it is not there and may be."""
        try:
            return self.log(braid)
        except NotFound as error:
            if error.into or not self.options.create_log:
                raise
            if error.end not in _NO_FORKS:
                raise NotFound(
                    f"log {self.options.log!r} was a fork that was {error.end}, and createLog makes no new log in its "
                    "place: write to another one, or create one of that name first",
                    end=error.end,
                ) from None
            with contextlib.suppress(AlreadyExists):
                return braid.create(self.options.log)
            return self.log(braid)  # somebody else was quicker

    def log(self, braid: Braid) -> Log:
        """What is written to: the log, or what a fork was promoted into, if it is to go on there."""
        try:
            return braid.log(self.options.log)
        except NotFound as error:
            if not error.into:
                raise
            if self.options.on_fork_end == "continue":
                return braid.log(error.into)
            raise NotFound(f"{error}; {binding.GO_ON}", into=error.into) from None

    def write(self, batches: Iterator[pa.RecordBatch]) -> Message:
        """In a task: store its rows, or nothing at all if there are none."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(_QUERY)
        writer: ObjectWriter | None = None
        upload: Upload | None = None
        try:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if writer is None or upload is None:
                    upload = self.begin_upload()
                    writer = ObjectWriter(upload, block_bytes=self.options.block_bytes)
                writer.add(batch.rename_columns(list(self.columns)))
            if writer is None or upload is None:
                return Message(query, None)
            return Message(query, Written(upload, writer.close()))
        except BaseException:
            if writer is not None:
                with contextlib.suppress(BraidError):
                    writer.abort()
            if upload is not None:
                binding.discard_all(self.reach, [upload])
            raise

    def begin_upload(self) -> Upload:
        """Leave to store objects. One that was given and not heard of ends by itself, so this is asked for again.

        A log that is to be made may not be there yet, if the driver did not wait until it could make it. Directories
        are made by the driver only: one that an executor does not see is not the one that the others see.
        """
        return self.reach.insist(lambda braid: self._see(braid).upload(ttl=self.options.upload_ttl_s))

    def commit(
        self, messages: Sequence[WriterCommitMessage | None], writer: str, sequence: int, *, skip_lower: bool
    ) -> None:
        parts = _written(messages)
        if parts:  # a batch without rows needs no mark: whenever it comes again, it is as good as new
            patience = Patience(self.options.commit_timeout_s, self.options.blocked_timeout_s)
            binding.bind(self.reach, parts, writer, sequence, patience, skip_lower=skip_lower)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        binding.discard_all(self.reach, [part.upload for part in _written(messages)])


class BatchWriter(DataSourceArrowWriter):
    """One `df.write`. Its number is drawn here, so that its own commit, asked again, happens once."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink
        self._writer, self._sequence = sink.options.txn or (f"spark-job:{uuid.uuid4().hex}", 0)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task."""
        with called():
            return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when all tasks are done."""
        with called():
            self._sink.commit(messages, self._writer, self._sequence, skip_lower=True)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when some task failed for good, or the commit did."""
        self._sink.abort(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """One batch of a query."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task."""
        with called():
            return self._sink.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver. The query is known to the tasks only, so they tell it."""
        query = next((message.query for message in messages if isinstance(message, Message)), None)
        with called():
            if query is None and _written(messages):
                raise InvalidArgument("Spark did not tell which query this is: a repetition of it would not be known")
            self._sink.commit(messages, f"spark:{query}", batchId, skip_lower=False)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver, when some task failed for good, or the commit did."""
        del batchId
        self._sink.abort(messages)


_found: set[tuple[Reach, str]] = set()  # logs that this process has seen


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[Written]:
    """In the order of the partitions; tasks that failed are None."""
    return [message.written for message in messages if isinstance(message, Message) and message.written is not None]

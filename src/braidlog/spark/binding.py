"""What the driver does when all tasks are done: one publication, until it is known to have happened.

A publication carries a writer and a sequence, and so it can be asked for again as often as it takes: it happens once.
The last sequence of its writer was written before, and is done. One below it is done too, where a user numbers writes.
A query does not go back that far by itself, so its batch may have other rows than the one of that number had.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from braidlog import limits
from braidlog.client.log import Log
from braidlog.errors import (
    Blocked,
    BraidError,
    ConditionFailed,
    Gone,
    InvalidArgument,
    OutcomeUnknown,
    Timeout,
    Unavailable,
)
from braidlog.facts import Upload, UploadedObject
from braidlog.spark.reaching import INTERRUPTED, Reach
from braidlog.spark.sessions import handle

GO_ON: Final = (
    "start the query again on the parent with the same checkpoint, or with option('onForkEnd', 'continue'): what the "
    "fork had is there, and nothing is written twice"
)
_SAFE: Final = (
    "Running the batch again is safe if it is of a streaming query, or has txnAppId and txnVersion: what was written "
    "is recognised and not written twice"
)

_log = logging.getLogger("braidlog")


@dataclass(frozen=True)
class Written:
    """What one task stored, all of it durable; nothing of it is in the log yet."""

    upload: Upload
    objects: list[UploadedObject]


@dataclass(frozen=True)
class Patience:
    """For how many seconds a commit is tried: while the log cannot be reached, and while a hold blocks it."""

    commit_s: float
    blocked_s: float


def bind(
    reach: Reach,
    parts: Sequence[Written],
    writer: str,
    sequence: int,
    patience: Patience,
    *,
    skip_lower: bool = True,
) -> bool:
    """Append what the tasks stored, in the order of `parts`, as one batch. False if it had been written before, as any
    sequence below the last one of the writer counts with `skip_lower`."""
    attempt = _Attempt(reach, parts, writer, sequence, skip_lower)
    deadline = time.monotonic() + patience.commit_s
    blocked_until: float | None = None
    unknown = False
    pause = limits.SPARK_PAUSE_S
    while True:
        try:
            return attempt.publish(deadline, blocked_until)
        except Blocked as error:
            now = time.monotonic()
            if blocked_until is None:
                blocked_until = now + patience.blocked_s
            elif now >= blocked_until:
                raise Blocked(
                    f"{error}; the write waited {patience.blocked_s:g} s for the decision (option blockedTimeout), and "
                    "wrote nothing: run it again when the fork is promoted or squashed",
                    by=error.by,
                ) from None
            deadline = now + patience.commit_s  # it is reached well
        except Gone as error:
            if unknown and error.end == "promoted":
                raise OutcomeUnknown(
                    f"whether this batch was written to log {attempt.log!r} before its end is unknown: {error}. "
                    f"{_SAFE}: {GO_ON}"
                ) from None
            raise Gone(_ended(attempt.log, error), end=error.end) from None
        except INTERRUPTED as error:
            unknown = unknown or isinstance(error, OutcomeUnknown)
            if time.monotonic() >= deadline:
                raise _given_up(error, attempt.log, patience.commit_s, unknown) from None
        time.sleep(pause)
        pause = min(2 * pause, limits.SPARK_PAUSE_MAX_S)


class _Attempt:
    def __init__(self, reach: Reach, parts: Sequence[Written], writer: str, sequence: int, skip_lower: bool) -> None:
        self.reach = reach
        self.uploads = [part.upload for part in parts]
        self.objects = [uploaded for part in parts for uploaded in part.objects]
        self.writer = writer
        self.sequence = sequence
        self.skip_lower = skip_lower
        self.log = self.uploads[0].log
        if len({upload.log_id for upload in self.uploads}) > 1:
            names = ", ".join(sorted({repr(upload.log) for upload in self.uploads}))
            raise ConditionFailed(
                f"a fork was promoted while tasks of this batch stored rows for {names}, so nothing was written: "
                "run it again"
            )
        self._check_bounds()

    def publish(self, deadline: float, blocked_until: float | None) -> bool:
        """One try. While a directory is ours alone nobody could end a hold, so that one is not waited for then."""
        with self.reach.braid(min(deadline - time.monotonic(), limits.SPARK_REACH_S)) as (braid, brief):
            log = handle(braid, self.uploads[0].log_id, self.log)
            try:
                before = log.info().tail
                positions = log.publish(
                    self.objects,
                    uploads=self.uploads,
                    writer=self.writer,
                    sequence=self.sequence,
                    wait=None if brief or blocked_until is None else max(blocked_until - time.monotonic(), 0.0),
                )
                repeated = positions is not None and positions.start < before
                if positions is not None and repeated:
                    self._compare(len(positions))
            except ConditionFailed as error:
                if error.sequence is None:
                    raise self._refused(error) from None
                if not self.skip_lower:
                    raise self._overtaken(error.sequence) from None
                repeated = True
            except InvalidArgument as error:
                raise self._refused(error) from None
            if repeated:
                discard(log, self.uploads)
            return not repeated

    def _check_bounds(self) -> None:
        blocks = sum(len(uploaded.blocks) for uploaded in self.objects)
        if (
            len(self.uploads) > limits.PUBLISH_UPLOADS_MAX
            or len(self.objects) > limits.PUBLISH_OBJECTS_MAX
            or blocks > limits.PUBLISH_BLOCKS_MAX
        ):
            raise InvalidArgument(
                f"nothing was written to log {self.log!r}: {len(self.uploads):,} tasks stored {len(self.objects):,} "
                f"objects with {blocks:,} blocks, and one commit takes {limits.PUBLISH_UPLOADS_MAX:,}, "
                f"{limits.PUBLISH_OBJECTS_MAX:,} and {limits.PUBLISH_BLOCKS_MAX:,}; give it fewer partitions "
                "(df.coalesce), larger blocks (option blockBytes), or write less at once"
            )

    def _compare(self, written: int) -> None:
        """The first one stays, as a query may choose its rows by chance; but whoever lost some can find out why."""
        records = sum(block.count for uploaded in self.objects for block in uploaded.blocks)
        if records != written:
            _log.warning(
                "write %d of %r had %d records when log %r took it, and has %d now, which are not written",
                *(self.sequence, self.writer, written, self.log, records),
            )

    def _overtaken(self, last: int) -> ConditionFailed:
        return ConditionFailed(
            f"batch {self.sequence} was not written to log {self.log!r}, as its query has written batch {last} there: "
            "if another driver runs the query, stop one of them; if the checkpoint is an older copy, what its batches "
            "had and what they would have now may differ, so start the query with a new checkpoint, from where the log "
            "ends",
            sequence=last,
        )

    def _refused(self, error: BraidError) -> BraidError:
        least = min(upload.expires for upload in self.uploads)
        if least > datetime.now(UTC):
            return type(error)(f"nothing was written to log {self.log!r}: {error}")
        return ConditionFailed(
            f"nothing was written to log {self.log!r}: what the tasks stored was kept until "
            f"{least:%Y-%m-%d %H:%M:%S} UTC only, and the job took longer; set option('uploadTtl', ...) to more than "
            f"the whole job takes, and run it again ({error})"
        )


def discard(log: Log, uploads: Sequence[Upload]) -> None:
    """Let go of what was stored. What cannot be let go of now, or not soon, ends with its time."""
    until = time.monotonic() + limits.SPARK_ABORT_S
    for upload in uploads:
        try:
            if time.monotonic() >= until:
                raise Timeout("there are many, and nobody waits for that")
            log.discard(upload)
        except BraidError as error:
            _log.warning(
                "upload %d of log %r was not discarded, it ends by itself: %s", upload.epoch, upload.log, error
            )
            return


def discard_all(reach: Reach, uploads: Sequence[Upload]) -> None:
    """The same for a write that failed: whatever went wrong, the first error is the one to be told."""
    if not uploads:
        return
    with contextlib.suppress(BraidError), reach.braid(limits.SPARK_ABORT_S) as (braid, _):
        discard(handle(braid, uploads[0].log_id, uploads[0].log), uploads)


def _ended(log: str, error: Gone) -> str:
    if error.end == "promoted":
        return f"{error}; this batch was not written: {GO_ON}"
    return f"{error}; nothing of this batch was written, and what was written before ended with log {log!r}"


def _given_up(error: BraidError, log: str, commit_s: float, unknown: bool) -> BraidError:
    if unknown:
        return OutcomeUnknown(
            f"whether the write to log {log!r} happened is unknown: {error}. It was asked for again and again for "
            f"{commit_s:g} s (option commitTimeout). {_SAFE}"
        )
    return Unavailable(f"nothing was written to log {log!r}, it could not be reached for {commit_s:g} s: {error}")

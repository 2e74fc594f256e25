"""Uploads and their publication, from what a caller passes to what he gets."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from braidlog import limits
from braidlog.broker.admission import check_publication
from braidlog.client import appends, arguments
from braidlog.client.session import Session
from braidlog.client.waiting import patience, patiently
from braidlog.errors import InvalidArgument
from braidlog.facts import Upload, UploadedObject
from braidlog.forest import commands as c
from braidlog.forest.uploads import epoch_of
from braidlog.objects.store import checked_name

T = TypeVar("T")


def begin(session: Session, log_id: int, name: str, ttl: float | timedelta) -> Upload:
    """Have an upload begun. Nothing is begun where nobody else could store anything."""
    span = arguments.micros("ttl", ttl)
    if not 0 < span <= limits.UPLOAD_TTL_MAX_S * 1e6:
        raise InvalidArgument(
            f"ttl: an upload lasts more than 0 and at most {limits.UPLOAD_TTL_MAX_S:,.0f} s, not {ttl}"
        )
    objects = session.backend.objects_of(log_id)
    if objects is None:
        raise InvalidArgument(
            f"log {name!r} keeps its objects in the memory of one process, where no other can write any: append to it, "
            "or use a directory or a service"
        )
    now = session.now_us()
    done = session.backend.execute(c.Upload(log_id, now, span, session.next_request()))
    assert isinstance(done, c.Done)
    expires = datetime.fromtimestamp((now + span) / 1e6, UTC)
    return Upload(log=name, log_id=log_id, epoch=done.value, objects=objects, expires=expires)


def publish(
    session: Session,
    log_id: int,
    objects: Iterable[UploadedObject],
    uploads: Iterable[Upload],
    expected_tail: int | None,
    writer: str | None,
    sequence: int | None,
    wait: float | None,
) -> range | None:
    """Bind the objects, and end the uploads that they are of and those that are named. Without objects, the latter."""
    published = [_checked(UploadedObject, "objects", uploaded) for uploaded in objects]
    named = _of_log(log_id, uploads)
    backend = session.backend
    if not published:
        nothing = appends.nothing(backend.describe(log_id), expected_tail)
        for upload in named:
            discard(session, log_id, upload)
        return nothing
    command = _command(session, log_id, published, named, expected_tail, writer, sequence)
    answer = patiently(backend, log_id, lambda: backend.execute(command), patience(wait))
    return appends.positions(answer, "ordered")


def discard(session: Session, log_id: int, upload: Upload) -> None:
    """End an upload, if it has not ended."""
    [checked] = _of_log(log_id, [upload])
    session.backend.execute(c.Discard(log_id, checked.epoch, session.next_request()))


def _command(
    session: Session,
    log_id: int,
    published: list[UploadedObject],
    named: list[Upload],
    expected_tail: int | None,
    writer: str | None,
    sequence: int | None,
) -> c.Publish:
    epochs = dict.fromkeys(epoch_of(checked_name(uploaded.object)) for uploaded in published)
    epochs |= dict.fromkeys(upload.epoch for upload in named)
    if len(epochs) > limits.PUBLISH_UPLOADS_MAX:
        raise InvalidArgument(f"{len(epochs):,} uploads are too many to publish at once: let writers share some")
    name, number = arguments.writer_and_sequence(writer, sequence)
    command = c.Publish(
        log_id,
        published,
        list(epochs),
        session.now_us(),
        arguments.optional("expected_tail", expected_tail),
        name,
        number,
        session.next_request(),
    )
    check_publication(command)  # a service does so again: whoever asks it may be anybody
    return command


def _of_log(log_id: int, uploads: Iterable[Upload]) -> list[Upload]:
    found = [_checked(Upload, "uploads", upload) for upload in uploads]
    for upload in found:
        if upload.log_id != log_id:
            raise InvalidArgument(f"upload {upload.epoch} is one of log {upload.log!r}: publish or discard it there")
    return found


def _checked(kind: type[T], what: str, value: object) -> T:
    if not isinstance(value, kind):
        raise InvalidArgument(f"{what}: {type(value).__name__} is no {kind.__name__}")
    return value

"""Where a directory keeps its objects: in its own folder, or in an object store elsewhere, and then always in that one.

The file OBJECTS says which: the URL of the store, then the directory's id. It is written when the directory is created,
before FORMAT; the store in turn says, beside the objects, whose they are. So neither can be taken for another's. How a
store is reached (the options of its URL) may change from one opening to the next; where it is may not.
"""

from __future__ import annotations

import contextlib
import re
from typing import Final, NamedTuple

from braidlog.errors import Corrupt, InvalidArgument, Unavailable
from braidlog.metadata import directory
from braidlog.objects import blob_store, probe
from braidlog.objects.blob_store import BlobStore
from braidlog.objects.blobs import Blobs
from braidlog.objects.files import Files
from braidlog.objects.locations import Location, open_blobs, open_store, parse
from braidlog.objects.store import FileStore, Store

OBJECTS: Final = directory.OBJECTS
_TEXT: Final = re.compile(r"([^\s]{1,3000})\n([0-9a-f]{32})\n")
_BYTES_MAX: Final = 4096


class Remembered(NamedTuple):
    location: Location
    directory_id: str


def remembered(files: Files) -> Remembered | None:
    """What OBJECTS says; None if the objects are in the directory's own folder."""
    with directory.storage(f"read {OBJECTS}"):
        try:
            file = files.open_read(OBJECTS)
        except FileNotFoundError:
            return None
        try:
            text = file.read(0, _BYTES_MAX).decode("utf-8", "replace")
        finally:
            file.close()
    match = _TEXT.fullmatch(text)
    try:
        if match is not None:
            return Remembered(parse(match[1]), match[2])
    except InvalidArgument as error:
        raise Corrupt(f"{OBJECTS}: {error}; restore the file from a copy") from error
    raise Corrupt(f"{OBJECTS}: {text[:64]!r} is not what braidlog writes there; restore the file from a copy")


def agreed(files: Files, wanted: str | None) -> Location | None:
    """The store that a directory's objects are in, or will be: None for its own folder. InvalidArgument if it is not
    the one that is wanted."""
    asked = None if wanted is None else parse(wanted)
    known = remembered(files)
    if directory.read_format(files) is None:  # it is still to be created
        return asked if asked is not None or known is None else known.location
    if known is None:
        if asked is not None:
            raise InvalidArgument(
                f"this directory keeps its objects in its own folder, not in {asked.place}: that is decided when it is "
                "created; create another one there, and copy the logs into it"
            )
        return None
    if asked is not None and asked.place != known.location.place:
        raise InvalidArgument(f"this directory keeps its objects in {known.location.place}, not in {asked.place}")
    return asked or known.location


def open_for_writing(files: Files, wanted: str | None, new_id: str) -> tuple[str, str, Store] | None:
    """(the directory's id, the URL, the store), proven to be sound and this directory's; None for its own folder.

    For the holder of the directory's lock. A directory that is still to be created gets the id that is answered.
    """
    location = agreed(files, wanted)
    if location is None:
        return None
    blobs = open_blobs(location)
    try:
        probe.require_sound(blobs, location.prefix, location.place)
        directory_id = directory.read_format(files)
        known = remembered(files)
        try:
            if directory_id is not None:
                blob_store.check_owner(blobs, location.prefix, directory_id, location.place)
            else:
                directory_id = new_id if known is None or known.location.place != location.place else known.directory_id
                _remember(files, location, directory_id)
                _claim(files, location, directory_id, blobs)
        except OSError as error:
            raise Unavailable(f"{location.place} cannot be worked with: {error.strerror or error}") from error
        if known is None or known.location != location:
            _remember(files, location, directory_id)
    except BaseException:
        blobs.close()
        raise
    return directory_id, location.url, BlobStore(blobs, location.prefix)


def open_for_reading(files: Files, folder: str | None) -> tuple[str | None, Store]:
    """(where the objects are, the store): in `folder`, unless they are elsewhere."""
    known = remembered(files)
    if known is None:
        return folder, FileStore(files)
    return known.location.url, open_store(known.location.url)


def _claim(files: Files, location: Location, directory_id: str, blobs: Blobs) -> None:
    try:
        blob_store.claim(blobs, location.prefix, directory_id, location.place)
    except InvalidArgument:
        with contextlib.suppress(OSError):  # so that another place can be named
            files.remove(OBJECTS)
        raise


def _remember(files: Files, location: Location, directory_id: str) -> None:
    with directory.storage(f"write {OBJECTS}"):
        directory.put_file(files, OBJECTS, f"{location.url}\n{directory_id}\n".encode())

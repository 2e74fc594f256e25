"""Objects in a place that may be far away: a `Store` on `Blobs`, each object under `<prefix>/<its name>`.

Beside them stands `<prefix>/braidlog-owner`, which holds the id of the one braidlog directory whose objects these are.
Two directories would give the same names, and each would sweep away what it does not know: so a prefix has one owner.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final

import pyarrow as pa

from braidlog.errors import InvalidArgument
from braidlog.objects.blobs import Blobs, Bytes
from braidlog.objects.store import Store, checked_name, is_object_name

OWNER: Final = "braidlog-owner"
_OWNER_BYTES_MAX: Final = 64


class BlobStore(Store):
    """As safe to use from several threads as its blobs are. Without a prefix, the keys are the names."""

    def __init__(self, blobs: Blobs, prefix: str = "") -> None:
        self._blobs = blobs
        self._under = f"{prefix}/" if prefix else ""

    def put(self, name: str, data: Bytes | Iterable[Bytes]) -> None:
        self._blobs.create(self._key(name), data)

    def get(self, name: str, offset: int, length: int) -> memoryview:
        data = self._blobs.read(self._key(name), offset, length)
        # Columns are used where they are, and Arrow wants them aligned, which what comes from a line is not.
        target = memoryview(pa.allocate_buffer(len(data))).cast("B")
        target[:] = data
        return target

    def size(self, name: str) -> int:
        return self._blobs.size(self._key(name))

    def delete(self, name: str) -> None:
        self._blobs.delete(self._key(name))

    def list(self, besides: Container[str] = ()) -> list[str]:
        names = (key.removeprefix(self._under) for key in self._blobs.list(self._under))
        return [name for name in names if is_object_name(name) and name not in besides]

    def sweep_unfinished(self, over: Callable[[str], bool]) -> None:
        """There is nothing: an object goes there in one piece, and is there or not."""

    def close(self) -> None:
        self._blobs.close()

    def _key(self, name: str) -> str:
        return self._under + checked_name(name)


def owner(blobs: Blobs, prefix: str) -> str | None:
    """The id of the directory whose objects are kept there; None if it is nobody's."""
    try:
        return bytes(blobs.read(_owner_key(prefix), 0, _OWNER_BYTES_MAX)).decode("ascii", "replace").strip()
    except FileNotFoundError:
        return None


def claim(blobs: Blobs, prefix: str, directory_id: str, where: str) -> None:
    """Make the prefix that of a new directory. InvalidArgument if it is another's, or has objects that are nobody's."""
    found = owner(blobs, prefix)
    if found is None:
        under = f"{prefix}/" if prefix else ""
        if left := [key for key in blobs.list(under) if is_object_name(key.removeprefix(under))]:
            raise InvalidArgument(
                f"{where} has objects already ({left[0]}) and nobody who owns them: name a prefix that is free"
            )
        try:
            blobs.create(_owner_key(prefix), f"{directory_id}\n".encode())
            return
        except FileExistsError:
            found = owner(blobs, prefix)
    if found != directory_id:
        raise InvalidArgument(
            f"{where} keeps the objects of another directory, the one with id {found}: name another prefix (if that "
            f"directory is no more, and nobody needs its objects, delete everything there)"
        )


def check_owner(blobs: Blobs, prefix: str, directory_id: str, where: str) -> None:
    """InvalidArgument if the prefix is not that of this directory: then it is the wrong store."""
    found = owner(blobs, prefix)
    if found != directory_id:
        whose = "nobody's" if found is None else f"those of the directory with id {found}"
        raise InvalidArgument(
            f"the objects at {where} are {whose}, not those of this directory, whose id is {directory_id}: "
            "is it another server or bucket?"
        )


def _owner_key(prefix: str) -> str:
    return f"{prefix}/{OWNER}" if prefix else OWNER

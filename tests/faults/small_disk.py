"""A file system of its own that can be filled and emptied again: a tmpfs, which takes Linux and root."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

MIB = 1024 * 1024


def possible(folder: Path) -> bool:
    """Whether this process may mount one there."""
    with contextlib.suppress(OSError):
        if _mounted(folder, 1):
            subprocess.run(["umount", str(folder)], capture_output=True, check=False)
            return True
    return False


class SmallDisk:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        """Until not a byte more fits."""
        with open(self._filler, "ab", buffering=0) as filler:
            for size in (MIB, 4096, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        os.unlink(self._filler)


@contextlib.contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[SmallDisk]:
    folder.mkdir(parents=True)
    if not _mounted(folder, size_mib):
        raise PermissionError(errno.EPERM, "a tmpfs cannot be mounted", str(folder))
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], capture_output=True, check=True)


def _mounted(folder: Path, size_mib: int) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_mib}m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0

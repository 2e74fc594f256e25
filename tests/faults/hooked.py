"""Files that let a test look around right before a file is synced, in the very thread that syncs it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from braidlog.objects.files import File, Files


class HookedFiles:
    """Any files, calling `before_sync(path)` before each sync."""

    def __init__(self, files: Files, before_sync: Callable[[str], None]) -> None:
        self._files = files
        self.before_sync = before_sync

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def create(self, path: str) -> File:
        return _HookedFile(self, self._files.create(path), path)

    def open(self, path: str) -> File:
        return _HookedFile(self, self._files.open(path), path)


class _HookedFile:
    def __init__(self, files: HookedFiles, file: File, path: str) -> None:
        self._files = files
        self._file = file
        self._path = path

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        self._files.before_sync(self._path)
        self._file.sync()

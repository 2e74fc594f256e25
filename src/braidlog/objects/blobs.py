"""Named bytes in a place that may be far away: what object stores have in common, and all that is asked of one.

Keys are relative paths with "/". `create` is all or nothing, durable when it returns, and never replaces: of two who
create the same key one wins. They must put different bytes, for by these a create that went unanswered is told from
somebody else's. What could be read once is what is read until it is deleted. Failures surface as OSError:
FileExistsError and FileNotFoundError for what they say, TimeoutError when no answer came in time (what was asked may
have happened), any other if it certainly did not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias

Bytes: TypeAlias = bytes | bytearray | memoryview


class Blobs(Protocol):
    """Safe to use from several threads."""

    def create(self, key: str, data: Bytes | Iterable[Bytes]) -> None:
        """Keep the bytes, which may come in parts, under a key that is free. FileExistsError if it is not."""

    def read(self, key: str, offset: int, length: int) -> memoryview:
        """Some bytes of it, fewer only at its end; FileNotFoundError if it is not there."""

    def size(self, key: str) -> int:
        """Bytes of all of it; FileNotFoundError if it is not there."""

    def delete(self, key: str) -> None:
        """Forget it. One that is not there is fine."""

    def list(self, prefix: str) -> list[str]:
        """The keys that begin so, sorted."""

    def close(self) -> None:
        """Let go of what is held open."""

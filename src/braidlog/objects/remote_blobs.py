"""Blobs in an object store elsewhere (S3, Google Cloud Storage, Azure, and what speaks like them), through `obstore`.

What is known to have failed for good is raised at once. All else (throttling, errors of the server, broken connections,
silence) is tried again with growing pauses until the time of the call is over, which includes every attempt.

A `create` without an answer may have happened, and the next attempt then finds the key taken. What stands there is read
back: the same bytes are ours, others are somebody else's. So those who contend for a key must put different bytes, as
everybody does who puts an id of his own into them. A `create` that is refused at once is never taken for ours.
"""

from __future__ import annotations

import errno
import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

from braidlog import limits
from braidlog.objects.blobs import Blobs, Bytes
from braidlog.observe.logs import Event

if TYPE_CHECKING:
    from obstore.store import ObjectStore

T = TypeVar("T")

_log = logging.getLogger("braidlog.objects")

_STATUS: Final = re.compile(r"status code: (\d{3})")
_HTTP_KIND: Final = re.compile(r"HttpError \{\s*kind: (\w+)")
_CODE: Final = re.compile(r"<Code>([^<]*)</Code>")
_TOLD: Final = re.compile(r"<Message>([^<]*)</Message>")
_LATER: Final = frozenset({408, 409, 425, 429})  # of the refusals, those that may be none the next time
_CONFLICT: Final = 409
_BEYOND: Final = 416
_NOT_IMPLEMENTED: Final = 501
_FINAL: Final = ("InvalidPathError", "NotSupportedError", "UnknownConfigurationKeyError", "NotModifiedError")
_LINES: Final = {"Connect": "it cannot be reached", "Timeout": "no answer in time"}
_MAYBE: Final = "it may have been kept all the same"
_DENIED: Final = ("PermissionDeniedError", "UnauthenticatedError")


class RemoteBlobs(Blobs):
    """`store` is one of obstore's, made not to retry by itself. `where` names it in errors."""

    def __init__(self, store: ObjectStore, where: str, *, timeout_s: float = limits.STORE_CALL_TIMEOUT_S) -> None:
        import obstore

        self._api = obstore
        self._store = store
        self.where = where
        self._timeout_s = timeout_s
        self._closed = threading.Event()
        self._pid = os.getpid()

    def create(self, key: str, data: Bytes | Iterable[Bytes]) -> None:
        body = memoryview(data) if isinstance(data, Bytes) else _gathered(data)
        doubtful = False  # whether an earlier attempt may have been carried out
        taken = False  # whether the key was found to be

        def attempt() -> None:
            nonlocal doubtful, taken
            try:
                if not taken:
                    self._api.put(self._store, key, body, mode="create", use_multipart=False)
                    return
            except self._api.exceptions.AlreadyExistsError as error:
                if not doubtful and _status(error) != _CONFLICT:
                    raise _taken(self.where, key) from None
                taken = True
            except self._api.exceptions.BaseError as error:
                doubtful = doubtful or not (_final(error) or _kind(error) == "Connect")
                raise
            except FileNotFoundError as error:  # the bucket is
                raise OSError(errno.ENXIO, f"{self.where}: cannot create {key}: {_reason(error)}") from None
            # A conflict is the answer while others create the same key, and in some stores also when it is there.
            try:
                ours = self._holds(key, body) and doubtful
            except FileNotFoundError:
                taken = False
                raise _Conflict("others were at the same key at the same time") from None
            if not ours:
                raise _taken(self.where, key)

        self._insist("create", key, attempt, lambda: doubtful)

    def read(self, key: str, offset: int, length: int) -> memoryview:
        if length <= 0:
            self.size(key)
            return memoryview(b"")
        return self._insist("read", key, lambda: self._range(key, offset, length))

    def size(self, key: str) -> int:
        return self._insist("look up", key, lambda: self._size(key))

    def delete(self, key: str) -> None:
        def attempt() -> None:
            try:
                self._api.delete(self._store, key)
            except FileNotFoundError:
                pass

        self._insist("delete", key, attempt)

    def list(self, prefix: str) -> list[str]:
        folder = prefix.rpartition("/")[0]

        def attempt() -> list[str]:
            try:
                pages = self._api.list(self._store, folder or None)
                return sorted(meta["path"] for page in pages for meta in page if meta["path"].startswith(prefix))
            except FileNotFoundError as error:
                raise OSError(errno.ENXIO, f"{self.where}: cannot list {prefix}: {_reason(error)}") from None

        return self._insist("list", prefix, attempt)

    def close(self) -> None:
        """What waits to be tried again is given up."""
        self._closed.set()

    # --- one attempt ---------------------------------------------------------------------------------------------

    def _size(self, key: str) -> int:
        return int(self._api.head(self._store, key)["size"])

    def _range(self, key: str, offset: int, length: int) -> memoryview:
        try:
            return memoryview(self._api.get_range(self._store, key, start=offset, length=length)).cast("B")
        except self._api.exceptions.BaseError as error:
            # Beyond the end there is nothing. Stores say so in different ways, so it is looked up.
            if _status(error) in (_BEYOND, None) and _kind(error) is None and offset >= self._size(key):
                return memoryview(b"")
            raise

    def _holds(self, key: str, body: memoryview) -> bool:
        """Whether exactly these bytes are there. One more is asked for each time, and must not be there at the end."""
        step = limits.STORE_COMPARE_BYTES
        offsets = range(0, max(len(body), 1), step)
        return all(self._range(key, at, step + 1) == body[at : at + step + 1] for at in offsets)

    # --- until it works, or the time is over ---------------------------------------------------------------------

    def _insist(
        self, doing: str, key: str, attempt: Callable[[], T], doubtful: Callable[[], bool] = lambda: False
    ) -> T:
        if self._pid != os.getpid():  # the threads that would carry it out are not here
            raise OSError(errno.EPERM, f"{self.where} was opened by the process that this one was forked from")
        began = time.monotonic()
        last_begin = began + self._timeout_s * (1 - 1 / limits.STORE_CALL_ATTEMPTS_MIN)
        pause = limits.STORE_RETRY_S
        tries = 0
        while True:
            tries += 1
            try:
                return attempt()
            except FileNotFoundError as error:
                if "<Code>NoSuchBucket<" in str(error):
                    raise OSError(errno.ENXIO, f"{self.where}: cannot {doing} {key}: there is no such bucket") from None
                raise FileNotFoundError(errno.ENOENT, f"{self.where}: there is no {key}") from None
            except _Conflict as error:
                reason, silent = str(error), False
            except self._api.exceptions.BaseError as error:
                self._raise_if_final(doing, key, error, doubtful())
                reason, silent = _reason(error), _kind(error) == "Timeout"
            wait = pause * random.uniform(0.5, 1.0)  # so that those who failed together do not come back together
            if time.monotonic() + wait > last_begin or self._closed.wait(wait):
                took = time.monotonic() - began
                problem = f"{self.where}: cannot {doing} {key}: {reason} (tried {tries} times in {took:.1f} s)"
                if doubtful():
                    raise TimeoutError(errno.ETIMEDOUT, f"{problem}; {_MAYBE}")
                raise TimeoutError(errno.ETIMEDOUT, problem) if silent else OSError(errno.EIO, problem)
            _log.info(Event("store_retry", store=self.where, doing=doing, key=key, tries=tries, reason=reason))
            pause = min(2 * pause, limits.STORE_RETRY_MAX_S)

    def _raise_if_final(self, doing: str, key: str, error: Exception, doubtful: bool) -> None:
        if not _final(error):
            return
        problem = f"{self.where}: cannot {doing} {key}: {_reason(error)}"
        if doubtful:  # an attempt before this one may have got through
            raise TimeoutError(errno.ETIMEDOUT, f"{problem}; {_MAYBE}") from None
        if type(error).__name__ in _DENIED:
            raise PermissionError(errno.EACCES, f"{problem}; check the credentials and what they allow") from None
        raise OSError(errno.EINVAL, problem) from None


class _Conflict(Exception):
    """Somebody else was at the same key; nothing is there now."""


def _gathered(parts: Iterable[Bytes]) -> memoryview:
    """In one piece, as it may have to be sent again: a part is done with when the next one is asked for."""
    whole = bytearray()
    for part in parts:
        whole += part
    return memoryview(whole)


def _taken(where: str, key: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, f"{where}: something else is kept under {key}")


def _final(error: Exception) -> bool:
    """Whether it was refused, and would be again."""
    name, status = type(error).__name__, _status(error)
    refused = status is not None and (400 <= status < 500 or status == _NOT_IMPLEMENTED) and status not in _LATER
    return refused or name in _FINAL or name in _DENIED or "BareRedirect" in str(error)


def _status(error: Exception) -> int | None:
    found = _STATUS.search(str(error))
    return None if found is None else int(found[1])


def _kind(error: Exception) -> str | None:
    """What went wrong with the line: Connect (nothing was sent), Timeout, and others; None if it was not the line."""
    found = _HTTP_KIND.search(str(error))
    return None if found is None else found[1]


def _reason(error: Exception) -> str:
    """In few words: what the server says, or what became of the line."""
    text = str(error).partition("\n\nDebug source:")[0]
    status, kind = _status(error), _kind(error)
    if status is not None:
        code, told = _CODE.search(text), _TOLD.search(text)
        words = [f"it answers {status}", *(found[1] for found in (code, told) if found is not None)]
        return " ".join(words)[: limits.STORE_REASON_CHARS_MAX]
    if kind is not None:
        return _LINES.get(kind, f"the connection failed ({kind})")
    return " ".join(text.split())[: limits.STORE_REASON_CHARS_MAX]

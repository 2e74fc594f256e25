"""From the URL of an object store to the store: `s3://bucket/prefix?endpoint=...`, `gs://...`, `az://...`.

A URL says where, never who: credentials come from the environment, or from the machine that this runs on, as every
program for that store takes them. A URL that has any is refused, as it would be remembered in the directory and sent to
everybody who asks where objects are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from braidlog import limits
from braidlog.errors import InvalidArgument, Unavailable
from braidlog.objects.blob_store import BlobStore
from braidlog.objects.files import OsFiles
from braidlog.objects.remote_blobs import RemoteBlobs
from braidlog.objects.store import FileStore, Store

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEMES: Final = ("s3", "gs", "az")

_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{2,221}")  # some old ones, and those of gs, are longer than 63
_SECRET: Final = re.compile(r"secret|password|token|credential|signature|sas|(^|_)key|access|auth", re.IGNORECASE)
_WHO: Final = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or the role of the machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or the account of the machine",
    "az": "AZURE_STORAGE_ACCOUNT_KEY and the like, or the identity of the machine",
}


class Location(NamedTuple):
    """Where objects are."""

    scheme: str
    bucket: str
    prefix: str  # without slashes at its ends; empty for the whole bucket
    options: tuple[tuple[str, str], ...]  # sorted

    @property
    def place(self) -> str:
        """Scheme, bucket and prefix: what makes two locations the same, however they are reached."""
        return f"{self.scheme}://{self.bucket}" + (f"/{quote(self.prefix)}" if self.prefix else "")

    @property
    def url(self) -> str:
        query = "&".join(f"{name}={quote(value, safe=':/')}" for name, value in self.options)
        return self.place + (f"?{query}" if query else "")

    @property
    def timeout_s(self) -> float:
        return float(dict(self.options).get("timeout", limits.STORE_CALL_TIMEOUT_S))


def is_location(text: str) -> bool:
    """Whether it is meant to be the URL of an object store, and not a path."""
    return "://" in text and text.partition("://")[0] in SCHEMES


def parse(url: str) -> Location:
    """InvalidArgument says what is wrong with it, without telling what may be secret in it."""
    scheme, colon, _ = url.partition("://")
    if not colon or scheme not in SCHEMES:
        raise InvalidArgument(
            f"{_shown(url)!r} is not the URL of an object store: those begin with {'://, '.join(SCHEMES)}://"
        )
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise InvalidArgument(f"{_shown(url)!r} is not a URL: {error}") from None
    who = f"credentials come from the environment ({_WHO[scheme]})"
    if "@" in parts.netloc:
        raise InvalidArgument(f"{scheme}://: a user or a password does not belong into a URL: {who}")
    options = parse_qsl(parts.query, keep_blank_values=True)
    allowed = _OPTIONS[scheme]
    for name, value in options:
        if name not in allowed:
            if _SECRET.search(name):
                raise InvalidArgument(f"{_shown(url)}: {name} does not belong into a URL: {who}")
            raise InvalidArgument(f"{_shown(url)}: there is no option {name!r}: there are {', '.join(allowed)}")
        try:
            allowed[name](value)
        except ValueError as error:
            raise InvalidArgument(f"{_shown(url)}: {name}={_shown(value)[:100]!r}: {error}") from None
    if len(dict(options)) < len(options):
        raise InvalidArgument(f"{_shown(url)}: an option stands there twice")
    if parts.fragment:
        raise InvalidArgument(f"{_shown(url)}: the URL of a store has no fragment")
    if _WORD.fullmatch(parts.netloc) and not _BUCKET.fullmatch(parts.netloc):
        raise InvalidArgument(
            f"{_shown(url)}: {parts.netloc[:80]!r} has {len(parts.netloc)} characters: a bucket has 3 to 63 characters"
        )
    if not _BUCKET.fullmatch(parts.netloc):
        raise InvalidArgument(f"{_shown(url)}: {parts.netloc!r} is no bucket: write {scheme}://bucket/prefix")
    prefix = unquote(parts.path).strip("/")
    if any(not part or part in (".", "..") or not part.isprintable() for part in prefix.split("/") if prefix):
        raise InvalidArgument(f"{_shown(url)}: {prefix!r} is no prefix: names with single slashes between them are")
    return Location(scheme, parts.netloc, prefix, tuple(sorted(options)))


def open_blobs(location: Location) -> RemoteBlobs:
    """What is kept there, keys counting from the bucket. Nothing is asked of it yet."""
    try:
        import obstore
        from obstore.store import AzureStore, GCSStore, S3Store
    except ImportError:
        raise Unavailable(
            f"{location.place}: object stores need the package obstore: pip install 'braidlog[s3]'"
        ) from None
    options = dict(location.options)
    attempt_s = location.timeout_s / limits.STORE_CALL_ATTEMPTS_MIN
    common: dict[str, Any] = {
        "client_options": {
            "timeout": timedelta(seconds=attempt_s),
            "connect_timeout": timedelta(seconds=min(limits.STORE_CONNECT_TIMEOUT_S, attempt_s)),
            **({"allow_http": True} if options.get("endpoint", "").startswith("http://") else {}),
        },
        # Whether a repeated request is ours can be told only by whoever knows that it is repeated: see remote_blobs.
        "retry_config": {
            "max_retries": 0,
            "retry_timeout": timedelta(0),
            "backoff": {"init_backoff": timedelta(milliseconds=1), "max_backoff": timedelta(milliseconds=1), "base": 2},
        },
    }
    store: ObjectStore
    try:
        if location.scheme == "s3":
            if "endpoint" in options:
                common["endpoint"] = options["endpoint"]
            if "region" in options:
                common["region"] = options["region"]
            common["virtual_hosted_style_request"] = options.get("virtual_hosted", "false") == "true"
            store = S3Store(location.bucket, **common)
        elif location.scheme == "gs":
            store = GCSStore(location.bucket, **common)
        else:
            if "account" in options:
                common["account_name"] = options["account"]
            if "endpoint" in options:
                common["endpoint"] = options["endpoint"]
            store = AzureStore(location.bucket, **common)
    except (obstore.exceptions.BaseError, ValueError, TypeError) as error:
        told = str(error).partition("\n")[0]
        raise InvalidArgument(f"{location.place} cannot be opened: {told}; check its options and credentials") from None
    return RemoteBlobs(store, location.place, timeout_s=location.timeout_s)


def open_store(url: str) -> BlobStore:
    """The objects that are kept there: what a reader needs, who was told the URL by a plan or a server."""
    location = parse(url)
    return BlobStore(open_blobs(location), location.prefix)


def store_at(objects: str, *, shared: bool = False) -> Store:
    """Where somebody was told that objects are: a folder, or a store elsewhere. `shared`: see FileStore."""
    return open_store(objects) if is_location(objects) else FileStore(OsFiles(Path(objects).parent), shared=shared)


def _shown(url: str) -> str:
    """Without what may be secret in it: anything before an @, and the options."""
    head = url.partition("?")[0]
    scheme, colon, rest = head.partition("://")
    return f"{scheme}{colon}{rest.rpartition('@')[2]}"[:200]


def _endpoint(value: str) -> None:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("write http://host:port or https://host")
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise ValueError("an endpoint has no user, no query and no fragment")


def _word(value: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", value):
        raise ValueError("letters, digits, '.', '_' and '-' are allowed")


def _flag(value: str) -> None:
    if value not in ("true", "false"):
        raise ValueError("true or false is allowed")


def _timeout(value: str) -> None:
    number = float(value)
    least, most = limits.STORE_CALL_TIMEOUT_MIN_S, limits.STORE_CALL_TIMEOUT_MAX_S
    if math.isnan(number) or not least <= number <= most:
        raise ValueError(f"seconds from {least:g} to {most:g} are allowed")


_OPTIONS: Final[Mapping[str, Mapping[str, Callable[[str], None]]]] = {
    "s3": {"endpoint": _endpoint, "region": _word, "virtual_hosted": _flag, "timeout": _timeout},
    "gs": {"timeout": _timeout},
    "az": {"account": _word, "endpoint": _endpoint, "timeout": _timeout},
}

"""Google's and Azure's stores, as far as they can be tried without them: what is made of a URL, and what is asked for.

Nobody here has an account there: Azure is played by a server that can put and get, and Google is not reached at all.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest
from obstore.store import AzureStore, GCSStore

from braidlog import limits
from braidlog.broker.rivals import open_objects
from braidlog.errors import BraidError, InvalidArgument
from braidlog.objects import locations
from braidlog.objects.blob_store import BlobStore


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine knows of clouds is not to be used."""
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")


def test_a_bucket_of_google(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = locations.open_blobs(locations.parse("gs://my-bucket/logs?timeout=6"))
    assert isinstance(blobs._store, GCSStore)
    assert blobs._store.config == {"bucket": "my-bucket"}
    _check_patience(blobs._store, 6)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nowhere/key.json")
    with pytest.raises(InvalidArgument, match=r"gs://my-bucket/logs cannot be opened.*credentials"):
        locations.open_blobs(locations.parse("gs://my-bucket/logs"))


def test_a_container_of_azure(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = locations.open_blobs(locations.parse("az://my-container/logs?account=me"))
    assert isinstance(blobs._store, AzureStore)
    assert blobs._store.config == {"account_name": "me", "container_name": "my-container"}
    _check_patience(blobs._store, limits.STORE_CALL_TIMEOUT_S)
    with pytest.raises(InvalidArgument, match="az://my-container/logs cannot be opened"):
        locations.open_blobs(locations.parse("az://my-container/logs"))  # of whom?
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "somebody")
    locations.open_blobs(locations.parse("az://my-container/logs"))


def _check_patience(store: AzureStore | GCSStore, timeout_s: float) -> None:
    """Repetitions are ours to make, and there is time for several."""
    assert store.retry_config is not None
    assert store.retry_config["max_retries"] == 0
    assert store.client_options is not None
    assert store.client_options["timeout"] == f"{timeout_s / limits.STORE_CALL_ATTEMPTS_MIN:g}s"
    assert "allow_http" not in store.client_options


class _Azure(BaseHTTPRequestHandler):
    """Keeps blobs, and the condition that a key is free."""

    protocol_version = "HTTP/1.1"
    kept: ClassVar[dict[str, bytes]] = {}
    conditions: ClassVar[list[str | None]] = []

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        self.conditions.append(self.headers["if-none-match"])
        taken = self.path in self.kept
        if not taken:
            self.kept[self.path] = data
        self._answer(409 if taken else 201)

    def do_GET(self) -> None:
        found = self.kept.get(self.path)
        if found is None:
            self._answer(404)
            return
        first, _, last = self.headers["range"].removeprefix("bytes=").partition("-")
        piece = found[int(first) : int(last) + 1]
        self._answer(206, piece, f"bytes {first}-{int(first) + len(piece) - 1}/{len(found)}")

    def _answer(self, code: int, data: bytes = b"", extent: str = "") -> None:
        self.send_response(code)
        self.send_header("etag", '"1"')
        self.send_header("last-modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.send_header("content-length", str(len(data)))
        if extent:
            self.send_header("content-range", extent)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@pytest.fixture
def azure() -> Iterator[str]:
    _Azure.kept.clear()
    _Azure.conditions.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), _Azure) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"az://container/logs?account=me&endpoint=http://127.0.0.1:{server.server_port}/me"
        server.shutdown()
        thread.join()


def test_azure_is_asked_to_create_only_what_is_not_there(azure: str) -> None:
    location = locations.parse(azure)
    blobs = locations.open_blobs(location)
    blobs.create("logs/one", b"first")
    assert _Azure.conditions == ["*"]
    assert list(_Azure.kept) == ["/me/container/logs/one"]
    with pytest.raises(FileExistsError):
        blobs.create("logs/one", b"second")
    assert bytes(blobs.read("logs/one", 1, 3)) == b"irs"
    with pytest.raises(FileNotFoundError):
        blobs.read("logs/other", 0, 1)
    assert isinstance(locations.open_store(azure), BlobStore)


def test_a_store_that_answers_nonsense_is_not_begun_on(azure: str) -> None:
    """This one can neither list nor delete, so a cluster must not trust it."""
    with pytest.raises(BraidError, match="az://container/logs"):
        open_objects(f"{azure}&timeout=1", "aa" * 16)

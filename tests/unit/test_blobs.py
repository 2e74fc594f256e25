"""The contract of `Blobs` and of the stores on them, the same in memory, in files and on a real S3 server."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import obstore
import pytest

from braidlog.errors import InvalidArgument, Unavailable
from braidlog.objects import blob_store, locations, probe
from braidlog.objects.blob_store import BlobStore
from braidlog.objects.blobs import Blobs, Bytes
from braidlog.objects.files import OsFiles
from braidlog.objects.memory_files import MemoryFiles
from braidlog.objects.remote_blobs import RemoteBlobs
from braidlog.objects.store import FileStore, Store, object_name

A, B, C = (object_name(1, seq) for seq in (1, 2, 3))


def in_memory() -> RemoteBlobs:
    return RemoteBlobs(obstore.store.MemoryStore(), "memory")


class Under(Blobs):
    """A part of a bucket that other tests use too."""

    def __init__(self, blobs: Blobs, under: str) -> None:
        self._blobs = blobs
        self._under = under

    def create(self, key: str, data: Bytes | Iterable[Bytes]) -> None:
        self._blobs.create(self._under + key, data)

    def read(self, key: str, offset: int, length: int) -> memoryview:
        return self._blobs.read(self._under + key, offset, length)

    def size(self, key: str) -> int:
        return self._blobs.size(self._under + key)

    def delete(self, key: str) -> None:
        self._blobs.delete(self._under + key)

    def list(self, prefix: str) -> list[str]:
        return [key.removeprefix(self._under) for key in self._blobs.list(self._under + prefix)]

    def close(self) -> None:
        self._blobs.close()


@pytest.fixture(params=["memory", "files", "seaweed"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> Iterator[Blobs]:
    made: Blobs
    match request.param:
        case "memory":
            made = in_memory()
        case "files":
            made = RemoteBlobs(obstore.store.LocalStore(tmp_path), "files")
        case _:
            location = locations.parse(request.getfixturevalue("seaweed").url(prefix))
            made = Under(locations.open_blobs(location), f"{location.prefix}/")
    yield made
    made.close()


@pytest.fixture(params=["memory files", "files", "memory blobs", "seaweed"])
def store(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> Iterator[Store]:
    made: Store
    match request.param:
        case "memory files":
            made = FileStore(MemoryFiles())
        case "files":
            made = FileStore(OsFiles(tmp_path))
        case "memory blobs":
            made = BlobStore(in_memory(), "some/where")
        case _:
            made = locations.open_store(request.getfixturevalue("seaweed").url(prefix))
    yield made
    made.close()


class TestBlobs:
    def test_what_was_created_is_read(self, blobs: Blobs) -> None:
        blobs.create("a/b", iter([b"one", bytearray(b"two"), memoryview(b"three")]))
        assert blobs.read("a/b", 0, 100) == b"onetwothree"
        assert blobs.read("a/b", 3, 3) == b"two"
        assert blobs.read("a/b", 10, 9) == b"e"
        assert blobs.read("a/b", 11, 9) == b""
        assert blobs.read("a/b", 500, 9) == b""
        assert blobs.read("a/b", 0, 0) == b""
        assert blobs.size("a/b") == 11

    def test_nothing_can_be_created_too(self, blobs: Blobs) -> None:
        blobs.create("empty", b"")
        assert blobs.size("empty") == 0
        assert blobs.read("empty", 0, 10) == b""

    def test_a_key_is_created_once(self, blobs: Blobs) -> None:
        blobs.create("a", b"first")
        with pytest.raises(FileExistsError):
            blobs.create("a", b"other")
        with pytest.raises(FileExistsError):
            blobs.create("a", b"first")  # equal bytes are no sign of an answer that was lost
        assert blobs.read("a", 0, 9) == b"first"

    def test_of_those_who_create_a_key_together_one_succeeds(self, blobs: Blobs) -> None:
        def create(number: int) -> int | None:
            try:
                blobs.create("a", b"%d" % number)
            except FileExistsError:
                return None
            return number

        with ThreadPoolExecutor(3) as pool:
            won = [number for number in pool.map(create, range(3)) if number is not None]
        assert [blobs.read("a", 0, 9)] == [b"%d" % number for number in won]

    def test_what_is_not_there_is_told_from_what_cannot_be_read(self, blobs: Blobs) -> None:
        for ask in (lambda: blobs.read("none", 0, 5), lambda: blobs.read("none", 0, 0), lambda: blobs.size("none")):
            with pytest.raises(FileNotFoundError, match="none"):
                ask()

    def test_deleting_is_final_and_can_be_done_again(self, blobs: Blobs) -> None:
        blobs.create("a", b"x")
        blobs.delete("a")
        blobs.delete("a")
        with pytest.raises(FileNotFoundError):
            blobs.read("a", 0, 1)
        blobs.create("a", b"y")
        assert blobs.read("a", 0, 1) == b"y"

    def test_keys_are_listed_by_how_they_begin(self, blobs: Blobs) -> None:
        for key in ("log/2", "log/1", "log/10", "logs/1", "snap/1", "log/deep/er"):
            blobs.create(key, b"")
        assert blobs.list("log/") == ["log/1", "log/10", "log/2", "log/deep/er"]
        assert blobs.list("log/1") == ["log/1", "log/10"]
        assert blobs.list("lo") == ["log/1", "log/10", "log/2", "log/deep/er", "logs/1"]
        assert blobs.list("none/") == []

    def test_more_are_listed_than_come_at_once(self) -> None:
        blobs = in_memory()
        keys = [f"many/{number:05}" for number in range(2_500)]
        for key in keys:
            blobs.create(key, b"")
        assert blobs.list("many/") == keys

    def test_parts_may_be_used_again(self, blobs: Blobs) -> None:
        def parts() -> Iterator[memoryview]:
            memory = bytearray(4)
            for number in range(3):
                memory[:] = b"%04d" % number
                yield memoryview(memory)

        blobs.create("a", parts())
        assert blobs.read("a", 0, 99) == b"000000010002"

    def test_parts_that_end_with_an_error_leave_nothing(self, blobs: Blobs) -> None:
        def parts() -> Iterator[bytes]:
            yield b"x"
            raise MemoryError

        with pytest.raises(MemoryError):
            blobs.create("a", parts())
        assert blobs.list("") == []

    def test_the_probe_passes_and_leaves_nothing(self, blobs: Blobs) -> None:
        checks = list(probe.probe(blobs, "x/y", 2))
        assert [check.problem for check in checks if not check.passed] == []
        assert len(checks) == 6
        assert blobs.list("") == []


class TestStores:
    def test_an_object_is_kept_and_read(self, store: Store) -> None:
        data = random.Random(1).randbytes(3_000_000)
        store.put(A, (data[at : at + 1_000_000] for at in range(0, len(data), 1_000_000)))
        assert store.size(A) == len(data)
        assert store.get(A, 0, len(data)) == data
        assert store.get(A, 1_234_567, 77) == data[1_234_567:1_234_644]
        assert store.get(A, len(data) - 3, 100) == data[-3:]

    def test_a_name_is_used_once(self, store: Store) -> None:
        store.put(A, b"first")
        with pytest.raises(FileExistsError):
            store.put(A, b"second")
        assert store.get(A, 0, 9) == b"first"

    def test_objects_are_listed_but_for_some(self, store: Store) -> None:
        assert store.list() == []
        for name in (B, A, C):
            store.put(name, b"x")
        assert store.list() == [A, B, C]
        assert store.list(besides={A, C}) == [B]

    def test_what_was_deleted_is_gone(self, store: Store) -> None:
        store.put(A, b"x")
        assert store.get(A, 0, 1) == b"x"
        store.delete(A)
        store.delete(A)
        with pytest.raises(FileNotFoundError):
            store.get(A, 0, 1)
        with pytest.raises(FileNotFoundError):
            store.size(A)
        assert store.list() == []

    def test_other_names_are_refused(self, store: Store) -> None:
        use: Callable[[str], object]
        for use in (lambda name: store.put(name, b""), lambda name: store.get(name, 0, 1), store.size, store.delete):
            with pytest.raises(InvalidArgument, match="object name"):
                use("../x")


def test_what_else_is_under_the_prefix_is_no_object() -> None:
    blobs = in_memory()
    store = BlobStore(blobs, "p")
    store.put(A, b"x")
    blob_store.claim(in_memory(), "p", "ab" * 16, "memory")
    blobs.create("p/notes.txt", b"mine")
    blobs.create(f"p/deeper/{B}", b"not ours")
    blobs.create(f"pq/{C}", b"not ours")
    assert store.list() == [A]


class TestOwner:
    def test_a_prefix_has_one_owner(self) -> None:
        blobs = in_memory()
        blob_store.claim(blobs, "p", "aa" * 16, "memory")
        blob_store.claim(blobs, "p", "aa" * 16, "memory")
        blob_store.check_owner(blobs, "p", "aa" * 16, "memory")
        with pytest.raises(InvalidArgument, match="another directory, the one with id aaaa"):
            blob_store.claim(blobs, "p", "bb" * 16, "memory")
        with pytest.raises(InvalidArgument, match="not those of this directory"):
            blob_store.check_owner(blobs, "p", "bb" * 16, "memory")
        blob_store.claim(blobs, "q", "bb" * 16, "memory")

    def test_objects_of_nobody_are_not_taken_over(self) -> None:
        blobs = in_memory()
        BlobStore(blobs, "p").put(A, b"x")
        with pytest.raises(InvalidArgument, match="nobody who owns them"):
            blob_store.claim(blobs, "p", "aa" * 16, "memory")


class Careless(RemoteBlobs):
    """A store that ignores conditions."""

    def create(self, key: str, data: object) -> None:
        obstore.put(self._store, key, data)  # type: ignore[arg-type]


def test_a_store_that_ignores_conditions_fails_the_probe() -> None:
    blobs = Careless(obstore.store.MemoryStore(), "careless")
    failed = [check.what for check in probe.probe(blobs) if not check.passed]
    assert failed == ["a key that is taken is not created again", "of several who create a key at once, one succeeds"]
    with pytest.raises(InvalidArgument, match=r"careless is not safe to keep logs in.*ignores conditions"):
        probe.require_sound(blobs, "", "careless")


class TestLocations:
    def test_a_url_says_where(self) -> None:
        found = locations.parse("s3://bucket/some/prefix/?timeout=5&endpoint=http://127.0.0.1:9000")
        assert found.place == "s3://bucket/some/prefix"
        assert found.url == "s3://bucket/some/prefix?endpoint=http://127.0.0.1:9000&timeout=5"
        assert found.timeout_s == 5
        assert locations.parse(found.url) == found
        assert locations.parse("gs://bucket").prefix == ""
        assert locations.parse("az://container/p?account=me").place == "az://container/p"

    @pytest.mark.parametrize(
        ("url", "problem"),
        [
            ("ftp://bucket/x", "not the URL of an object store"),
            ("/some/path", "not the URL of an object store"),
            ("s3:///prefix", "no bucket"),
            ("s3://b/prefix", "'b' has 1 characters: a bucket has 3 to 63"),
            ("gs://" + "b" * 223, "has 223 characters: a bucket has 3 to 63"),
            ("s3://bucket/a//b", "no prefix"),
            ("s3://bucket/a/../b", "no prefix"),
            ("s3://bucket/a#b", "no fragment"),
            ("s3://bucket/a?speed=9", "no option 'speed'"),
            ("s3://bucket/a?timeout=never", "timeout='never'"),
            ("s3://bucket/a?timeout=0", "seconds from 0.1 to 600"),
            ("s3://bucket/a?timeout=5&timeout=6", "twice"),
            ("s3://bucket/a?endpoint=localhost:9000", "http://host:port"),
            ("s3://bucket/a?virtual_hosted=yes", "true or false"),
            ("gs://bucket/a?endpoint=http://x", "no option 'endpoint'"),
            ("s3://[bucket/a", "not a URL"),
        ],
    )
    def test_a_wrong_url_is_explained(self, url: str, problem: str) -> None:
        with pytest.raises(InvalidArgument, match=problem):
            locations.parse(url)

    @pytest.mark.parametrize(
        "url",
        [
            "s3://me:hunter2@bucket/a",
            "s3://bucket/a?secret_access_key=hunter2",
            "s3://bucket/a?aws_session_token=hunter2",
            "az://bucket/a?account_key=hunter2",
            "az://bucket/a?sas=hunter2",
            "s3://bucket/a?endpoint=http://me:hunter2@host",
        ],
    )
    def test_a_url_with_a_secret_is_refused_and_not_repeated(self, url: str) -> None:
        with pytest.raises(InvalidArgument) as refusal:
            locations.parse(url)
        assert "hunter2" not in str(refusal.value)

    def test_without_obstore_it_is_said_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(__import__("sys").modules, "obstore", None)
        with pytest.raises(Unavailable, match=r"pip install 'braidlog\[s3\]'"):
            locations.open_store("s3://bucket/a")

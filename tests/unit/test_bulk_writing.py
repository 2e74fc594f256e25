"""bulk.ObjectWriter: any Arrow columns become blocks that read back as they were, cut where they should be."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import braidlog
from braidlog import bulk, limits
from braidlog.bulk import writing
from braidlog.errors import InvalidArgument, Unavailable
from braidlog.facts import Upload, UploadedObject
from braidlog.objects.batch import records
from braidlog.objects.blob_store import BlobStore
from braidlog.objects.files import OsFile, OsFiles
from braidlog.objects.format import BlockPlace, check_object, read_block
from braidlog.objects.local_blobs import MemoryBlobs
from braidlog.objects.store import FileStore, Making, object_name

Row = tuple[bytes, bytes | None, tuple[tuple[str, bytes], ...], int]
HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def upload(tmp_path: Path) -> Upload:
    return upload_to(tmp_path)


def upload_to(folder: Path, epoch: int = 3) -> Upload:
    return Upload(log="log", log_id=1, epoch=epoch, objects=str(folder / "objects"), expires=datetime.now(UTC))


def read_back(upload: Upload, objects: list[UploadedObject]) -> list[Row]:
    """Everything in them, after all that is said of them was found to be true."""
    store = FileStore(OsFiles(Path(upload.objects).parent))
    found: list[Row] = []
    for uploaded in objects:
        data = store.get(uploaded.object, 0, 1 << 30)
        places = [BlockPlace(block.offset, block.length, block.crc) for block in uploaded.blocks]
        assert len(data) == uploaded.size == store.size(uploaded.object)
        check_object(uploaded.object, data, uploaded.crc, places)
        for block, place in zip(uploaded.blocks, places, strict=True):
            rows = read_block(uploaded.object, place, data[place.offset : place.offset + place.length])
            assert rows.num_rows == block.count
            rows.validate(full=True)
            told = records(rows, 0, block.count, 0)
            assert sum(record.size for record in told) == block.size
            times = [record.timestamp for record in told]
            assert (min(times), max(times)) == (block.least, block.greatest)
            found += [(record.value, record.key, record.headers, record.timestamp) for record in told]
    return found


def written(upload: Upload, *tables: Any, **options: Any) -> list[UploadedObject]:
    with bulk.ObjectWriter(upload, **{"timestamp": 9} | options) as writer:
        for table in tables:
            writer.add(table)
    return writer.close()


def test_values_alone_are_records(upload: Upload) -> None:
    objects = written(upload, pa.table({"value": [b"a", b"", b"c"]}))
    assert read_back(upload, objects) == [(b"a", None, (), 9), (b"", None, (), 9), (b"c", None, (), 9)]


TEXT = [
    pa.binary(),
    pa.large_binary(),
    pa.string(),
    pa.large_string(),
    pa.binary_view(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.binary()),
    pa.dictionary(pa.int8(), pa.string()),
]


@pytest.mark.parametrize("kind", TEXT, ids=str)
def test_every_kind_of_bytes_and_text_is_taken(upload: Upload, kind: pa.DataType) -> None:
    plain = pa.array(["ä", "", "b", "ä"])
    values = plain.cast(pa.binary()) if "binary" in str(kind) else plain
    column = values.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else values.cast(kind)
    table = pa.table({"value": column, "key": column})
    objects = written(upload, table, table.slice(1, 2), pa.concat_tables([table, table]))
    one = [("ä".encode(),) * 2, (b"", b""), (b"b", b"b"), ("ä".encode(),) * 2]
    assert [row[:2] for row in read_back(upload, objects)] == [*one, *one[1:3], *one, *one]


@pytest.mark.parametrize(
    "column",
    [
        pa.array([5, None, -7], pa.int64()),
        pa.array([5, None, -7], pa.timestamp("us")),
        pa.array([5, None, -7], pa.timestamp("us", "Europe/Berlin")),
        pa.array([5_400, None, -6_700], pa.timestamp("ns", "UTC")),
    ],
    ids=lambda column: str(column.type),
)
def test_timestamps_are_moments_and_none_is_the_default(upload: Upload, column: pa.Array) -> None:
    objects = written(upload, pa.table({"value": [b"a", b"b", b"c"], "timestamp": column}))
    found = [row[3] for row in read_back(upload, objects)]
    assert found[:2] == [5, 9]
    assert found[2] in (-7, -6)  # of nanoseconds, whichever microsecond is near


def test_the_default_is_now(upload: Upload) -> None:
    before = datetime.now(UTC)
    objects = written(upload, pa.table({"value": [b"a"]}), timestamp=None)
    [row] = read_back(upload, objects)
    assert before.timestamp() * 1e6 - 1 <= row[3] <= datetime.now(UTC).timestamp() * 1e6 + 1


texts = st.text(max_size=4)
datas = st.binary(max_size=20)
rows = st.tuples(
    datas,
    st.none() | datas,
    st.none() | st.lists(st.tuples(texts, datas), max_size=3),
    st.none() | st.integers(-(10**12), 10**12),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(rows, max_size=9), max_size=5), st.integers(1, 300), st.integers(1, 900), st.booleans())
def test_whatever_is_added_reads_back_however_it_is_cut(
    tmp_path: Path, batches: list[list[Any]], block_bytes: int, object_bytes: int, sliced: bool
) -> None:
    upload = upload_to(tmp_path)
    tables = [_table(batch, sliced=sliced) for batch in batches]
    objects = written(upload, *tables, block_bytes=block_bytes, object_bytes=object_bytes)
    wanted = [
        (value, key, tuple(headers or ()), 9 if time is None else time)
        for batch in batches
        for value, key, headers, time in batch
    ]
    assert read_back(upload, objects) == wanted
    for uploaded in objects:
        for block in uploaded.blocks:
            assert block.count == 1 or block.size + 24 * block.count <= block_bytes


def _table(batch: list[Any], *, sliced: bool) -> pa.RecordBatch:
    padded = [(b"pad", b"pad", [("pad", b"pad")], 1), *batch, (b"pad", None, None, None)] if sliced else batch
    headers = [None if row[2] is None else [{"name": n, "value": v} for n, v in row[2]] for row in padded]
    columns = {
        "value": pa.array([row[0] for row in padded], pa.binary()),
        "key": pa.array([row[1] for row in padded], pa.binary()),
        "headers": pa.array(headers, HEADERS),
        "timestamp": pa.array([row[3] for row in padded], pa.int64()),
    }
    whole = pa.RecordBatch.from_pydict(columns)
    return whole.slice(1, len(batch)) if sliced else whole


def test_headers_may_be_called_by_key_and_stand_in_large_lists(upload: Upload) -> None:
    kind = pa.large_list(pa.struct([("value", pa.binary()), ("key", pa.string())]))
    column = pa.array([[{"key": "a", "value": b"1"}, {"key": "b", "value": b""}], None, []], kind)
    objects = written(upload, pa.table({"value": [b"x", b"y", b"z"], "headers": column}))
    assert [row[2] for row in read_back(upload, objects)] == [(("a", b"1"), ("b", b"")), (), ()]


PAIRS = st.lists(st.tuples(texts, datas), max_size=3)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(PAIRS, min_size=1, max_size=12),
    st.sampled_from([pa.string(), pa.large_string()]),
    st.sampled_from([pa.binary(), pa.large_binary(), pa.string()]),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(1, 200),
)
def test_headers_are_taken_however_they_are_laid_out(
    tmp_path: Path,
    lists: list[list[tuple[str, bytes]]],
    name_kind: pa.DataType,
    value_kind: pa.DataType,
    value_first: bool,
    unused: int,
    skipped: int,
    block_bytes: int,
) -> None:
    """With elements that no record refers to, null ones among them, and as slices of what is longer."""
    pairs = [pair for one in lists for pair in one]
    if value_kind == pa.string():
        pairs = [(name, value.hex().encode()) for name, value in pairs]
    names = pa.array([None] * unused + [name for name, _ in pairs] + [None], name_kind)
    datas_ = pa.array([None] * unused + [value for _, value in pairs] + [None], pa.binary()).cast(value_kind)
    both = [(datas_, "value"), (names, "key")] if value_first else [(names, "name"), (datas_, "value")]
    children, labels = zip(*both, strict=True)
    elements = pa.StructArray.from_arrays(children, names=labels)
    ends = [unused]
    for one in lists:
        ends.append(ends[-1] + len(one))
    column = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), elements)
    first = min(skipped, len(lists) - 1)
    batch = pa.RecordBatch.from_pydict({"value": [b"v"] * len(lists), "headers": column}).slice(first)
    objects = written(upload := upload_to(tmp_path), batch, block_bytes=block_bytes)
    at = iter(pairs)
    wanted = [tuple(next(at) for _ in one) for one in lists]
    assert [row[2] for row in read_back(upload, objects)] == wanted[first:]


def test_blocks_without_headers_hold_nothing_of_those_that_have_some(upload: Upload) -> None:
    column = pa.array([[{"name": "n", "value": b"v"}]] * 2_000 + [[]] * 100, HEADERS)
    objects = written(upload, pa.table({"value": [b"x"] * 2_100, "headers": column}), block_bytes=2_600)
    assert objects[-1].blocks[-1].length < 10_000


def test_a_piece_of_a_column_beyond_what_narrow_offsets_reach(upload: Upload) -> None:
    """Its buffer is never touched but at the end: a file of which only that is there."""
    hole = Path(upload.objects).parent / "large"
    with hole.open("wb") as file:
        file.truncate(2**31 + 100)
        file.seek(2**31)
        file.write(b"onetwo")
    with pa.memory_map(str(hole)) as mapped:
        ends = pa.array([0, 2**31, 2**31 + 3, 2**31 + 3, 2**31 + 6], pa.int64())
        valid = pa.py_buffer(bytes([0b1011]))
        column = pa.Array.from_buffers(
            pa.large_binary(), 4, [valid, ends.buffers()[1], mapped.read_buffer(2**31 + 100)]
        ).slice(1)
        objects = written(upload, pa.table({"value": [b"a", b"b", b"c"], "key": column}))
    assert [row[1] for row in read_back(upload, objects)] == [b"one", None, b"two"]


def _with(**columns: Any) -> pa.Table:
    return pa.table({"value": [b"a", b"b"]} | columns)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (pa.table({"key": [b"a"]}), "no column 'value'"),
        (pa.table({"value": [1]}), "'value' has type int64"),
        (_with(position=[1, 2]), "column 'position'"),
        (_with(key=[1.5, 2]), "'key' has type double"),
        (_with(timestamp=["now", "then"]), "'timestamp' has type string"),
        (_with(headers=[[1], [2]]), "'headers' has type"),
        (_with(headers=pa.array([[{"name": b"a", "value": b"b"}]] * 2)), "'headers' has type"),
        (pa.table({"value": pa.array([b"a", None])}), "row 3: its value is null"),
        (pa.table({"value": pa.array(["a", None]).dictionary_encode()}), "row 3: its value is null"),
        (_with(headers=pa.array([[], [{"name": None, "value": b""}]], HEADERS)), "row 3: a header has no name"),
        (_with(headers=pa.array([[], [{"name": "", "value": None}]], HEADERS)), "row 3: a header has no value"),
        (_with(headers=pa.array([[], [None]], HEADERS)), "row 3: a header has no name"),
        (_with(headers=pa.array([[], [{"name": "n", "value": b""}] * 300], HEADERS)), "row 3 has 300 headers"),
        (_with(headers=pa.array([[{"name": "n" * 2000, "value": b""}], []], HEADERS)), "row 2: a header's name has"),
        (pa.table({"value": [b"", bytes(limits.RECORD_BYTES_MAX + 1)]}), "row 3 has 16,777,217 bytes"),
        (_with(timestamp=pa.array([0, -(2**63)], pa.int64())), "row 3: no timestamp is so early"),
        (_with(timestamp=pa.array([0, 2**60], pa.timestamp("s"))), "row 3: no timestamp is so late"),
        (_with(timestamp=pa.array([-(2**60), 0], pa.timestamp("ms"))), "row 2: no timestamp is so early"),
    ],
)
def test_what_is_no_record_is_refused_with_its_row_and_nothing_is_taken(
    upload: Upload, table: pa.Table, told: str
) -> None:
    writer = bulk.ObjectWriter(upload, timestamp=9)
    good = pa.table({"value": [b"1", b"2"]})
    writer.add(good)
    with pytest.raises(InvalidArgument, match=told):
        writer.add(table)
    writer.add(good)
    assert [row[0] for row in read_back(upload, writer.close())] == [b"1", b"2"] * 2


def test_a_large_record_has_a_block_of_its_own(upload: Upload) -> None:
    values = [b"a", bytes(5_000), b"b", b"c"]
    objects = written(upload, pa.table({"value": values}), block_bytes=200)
    assert [block.count for uploaded in objects for block in uploaded.blocks] == [1, 1, 2]
    assert [row[0] for row in read_back(upload, objects)] == values


def test_many_small_additions_share_blocks_and_objects(upload: Upload) -> None:
    tables = [pa.table({"value": [b"%d" % number]}) for number in range(1000)]
    objects = written(upload, *tables, block_bytes=10_000, object_bytes=1 << 20)
    assert len(objects) == 1
    assert len(objects[0].blocks) == 3
    assert [row[0] for row in read_back(upload, objects)] == [b"%d" % number for number in range(1000)]


def test_objects_are_stored_while_records_come(upload: Upload) -> None:
    writer = bulk.ObjectWriter(upload, block_bytes=1_000, object_bytes=10_000)
    for _ in range(50):
        writer.add(pa.table({"value": [bytes(900)]}))
    assert len(list(Path(upload.objects).iterdir())) >= 3  # it does not keep all that it was given
    assert len(read_back(upload, writer.close())) == 50


def test_a_name_that_is_taken_is_not_used(upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a whole object, or by one that somebody is at, or was when he was killed."""
    folder = Path(upload.objects)
    folder.mkdir()
    (folder / object_name(3, 1)).write_bytes(b"another's")
    (folder / f".tmp-{object_name(3, 2)}").write_bytes(b"half of another's")
    draws = iter([1, 2, 1, 5])
    monkeypatch.setattr(writing.secrets, "randbits", lambda _: next(draws))
    objects = written(upload, pa.table({"value": [b"a"]}))
    assert [uploaded.object for uploaded in objects] == [object_name(3, 5)]
    assert (folder / object_name(3, 1)).read_bytes() == b"another's"
    assert (folder / f".tmp-{object_name(3, 2)}").read_bytes() == b"half of another's"


def test_what_is_aborted_is_deleted(upload: Upload) -> None:
    writer = bulk.ObjectWriter(upload, block_bytes=100, object_bytes=100)
    writer.add(pa.table({"value": [bytes(200)] * 3}))
    assert list(Path(upload.objects).iterdir())
    writer.abort()
    writer.abort()
    assert not list(Path(upload.objects).iterdir())
    with pytest.raises(InvalidArgument, match="was aborted"):
        writer.close()
    with pytest.raises(InvalidArgument, match="was aborted"):
        writer.add(pa.table({"value": [b"x"]}))


def test_an_exception_aborts(upload: Upload) -> None:
    def fail() -> None:
        with bulk.ObjectWriter(upload, object_bytes=1, block_bytes=1) as writer:
            writer.add(pa.table({"value": [b"x"]}))
            assert list(Path(upload.objects).iterdir())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert not list(Path(upload.objects).iterdir())


def test_it_closes_once_and_says_the_same_again(upload: Upload) -> None:
    writer = bulk.ObjectWriter(upload)
    writer.add(pa.table({"value": [b"x"]}))
    objects = writer.close()
    assert writer.close() == objects
    with pytest.raises(InvalidArgument, match="was closed"):
        writer.add(pa.table({"value": [b"x"]}))
    assert pickle.loads(pickle.dumps((upload, objects))) == (upload, objects)


def test_what_was_told_of_may_be_published_and_is_not_aborted(tmp_path: Path) -> None:
    with braidlog.open(tmp_path) as braid:
        log = braid.create("log")

        def fail() -> None:
            with bulk.ObjectWriter(log.upload()) as writer:
                writer.add(pa.table({"value": [b"x"]}))
                log.publish(writer.close())
                writer.abort()
                raise RuntimeError

        with pytest.raises(RuntimeError):
            fail()
    with braidlog.open(tmp_path) as braid:
        assert braid.log("log")[0].value == b"x"


def test_a_writer_without_records_stores_nothing(upload: Upload) -> None:
    assert written(upload, pa.table({"value": pa.array([], pa.binary())})) == []


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename", "sync_dir"])
@pytest.mark.parametrize("blocks", [0, 3])
def test_a_disk_that_fails_anywhere_leaves_nothing(
    upload: Upload, monkeypatch: pytest.MonkeyPatch, call: str, blocks: int
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left")

    one = pa.table({"value": [bytes(90)]})
    Path(upload.objects).mkdir()
    writer = bulk.ObjectWriter(upload, block_bytes=100, object_bytes=1 if call == "create" else 1 << 20)

    def write() -> None:
        with writer:
            for _ in range(blocks):
                writer.add(one)
            writer.add(pa.table({"value": [b"x"]}))
            monkeypatch.setattr(OsFile if call in ("write", "sync") else OsFiles, call, full)

    with pytest.raises(Unavailable, match=r"no space left.*free some space.*write all of it with another writer"):
        write()
    monkeypatch.undo()
    for go_on in (writer.close, lambda: writer.add(one)):
        with pytest.raises(InvalidArgument, match="another one"):
            go_on()
    writer.abort()
    assert not list(Path(upload.objects).iterdir())
    assert not open_below(Path(upload.objects))


def open_below(folder: Path) -> list[str]:
    """Files that this process has open there, deleted ones too."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
    return [path for path in found if path.startswith(str(folder))]


def test_half_of_an_addition_is_not_published(upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    right = FileStore.begin
    begun = 0

    def full(store: FileStore, name: str) -> Making:
        nonlocal begun
        begun += 1
        if begun > 1:
            raise OSError(errno.ENOSPC, "no space left")
        return right(store, name)

    writer = bulk.ObjectWriter(upload, block_bytes=100, object_bytes=100)
    monkeypatch.setattr(FileStore, "begin", full)
    with pytest.raises(Unavailable, match="no space left"):
        writer.add(pa.table({"value": [bytes(200)] * 3}))
    monkeypatch.undo()
    for go_on in (writer.close, lambda: writer.add(pa.table({"value": [b"x"]}))):
        with pytest.raises(InvalidArgument, match="another one"):
            go_on()
    assert not list(Path(upload.objects).iterdir())


def test_an_upload_that_is_over_is_told(upload: Upload) -> None:
    writer = bulk.ObjectWriter(upload, block_bytes=100)
    writer.add(pa.table({"value": [bytes(90)] * 3}))
    FileStore(OsFiles(Path(upload.objects).parent)).sweep_unfinished(lambda _: True)
    with pytest.raises(Unavailable, match=r"its upload is over.*begin another upload"):
        writer.close()


def test_a_store_elsewhere_takes_an_object_as_a_whole_and_under_a_name_that_is_free(
    upload: Upload, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = BlobStore(MemoryBlobs())
    store.put(object_name(3, 1), b"another's")
    draws = iter([1, 2])
    monkeypatch.setattr(writing.secrets, "randbits", lambda _: next(draws))
    monkeypatch.setattr(writing, "store_at", lambda *_, **__: store)
    with bulk.ObjectWriter(upload, block_bytes=100) as writer:
        writer.add(pa.table({"value": [bytes(90)] * 3}))
        assert store.list() == [object_name(3, 1)]
    [uploaded] = writer.close()
    assert uploaded.object == object_name(3, 2)
    places = [BlockPlace(block.offset, block.length, block.crc) for block in uploaded.blocks]
    check_object(uploaded.object, store.get(uploaded.object, 0, 1 << 20), uploaded.crc, places)
    assert bytes(store.get(object_name(3, 1), 0, 99)) == b"another's"


def test_a_block_has_no_more_records_than_a_batch_may_have(upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing.limits, "BATCH_RECORDS_MAX", 7)
    objects = written(upload, *[pa.table({"value": [b"x"] * rows}) for rows in (5, 5, 20)])
    counts = [block.count for uploaded in objects for block in uploaded.blocks]
    assert sum(counts) == 30
    assert max(counts) <= 7


def test_a_block_is_written_as_soon_as_it_is_full(upload: Upload) -> None:
    writer = bulk.ObjectWriter(upload, block_bytes=1_000)
    for _ in range(50):
        writer.add(pa.table({"value": [bytes(900)]}))
    [unfinished] = Path(upload.objects).iterdir()
    assert open_below(Path(upload.objects)) == [str(unfinished)]
    assert unfinished.stat().st_size >= 45_000  # and is not kept in memory until its object is large
    assert len(read_back(upload, writer.close())) == 50


def test_chunks_near_the_size_of_a_block_are_not_joined(upload: Upload, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each join is a copy of all of it."""
    monkeypatch.setattr(writing.pa, "concat_batches", None)
    tables = [pa.table({"value": [bytes(76)] * rows}) for rows in (8, 12, 9, 25)]  # each weighs 100 bytes
    objects = written(upload, *tables, block_bytes=1_000)
    assert [block.count for uploaded in objects for block in uploaded.blocks] == [8, 6, 6, 9, 8, 8, 9]


def test_a_folder_of_another_machine_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="not there on this machine"):
        bulk.ObjectWriter(upload_to(tmp_path / "elsewhere"))


@pytest.mark.parametrize("options", [{"block_bytes": 0}, {"object_bytes": 0}, {"block_bytes": 1 << 40}])
def test_sizes_are_within_bounds(upload: Upload, options: dict[str, int]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        bulk.ObjectWriter(upload, **options)


def test_the_default_timestamp_fits(upload: Upload) -> None:
    with pytest.raises(InvalidArgument, match="64 bits"):
        bulk.ObjectWriter(upload, timestamp=2**63)


def test_only_arrow_is_added(upload: Upload) -> None:
    not_arrow: Iterable[Any] = ([b"x"], {"value": [b"x"]}, "x")
    for given_ in not_arrow:
        with pytest.raises(InvalidArgument, match="add a pyarrow RecordBatch or Table"):
            bulk.ObjectWriter(upload).add(given_)

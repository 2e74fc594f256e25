"""`braid import` and `braid export`: what goes out comes back, and what is wrong is named and never skipped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import braidlog
from braidlog import Record
from braidlog.cli import exit_codes, ingest
from tests.e2e.test_cli import Command

RECORDS = [
    Record(b"text", None, (), 1_700_000_000_000_000),
    Record(b"", b"", (("empty", b""),), 0),
    Record(b"\xff\x00binary\n", b"\xfe", (("h", b"1"), ("h", b"\xfd"), ("\u00e9\U0001f9f5", b"x")), -1),
    Record(b'{"json": [1, 2]}', b"k", (), 2**62),
    Record("grüße\r\n\ttab".encode(), b"key", (("a", b"b"),), 1),
]


@pytest.fixture
def braid(tmp_path: Path) -> Command:
    """A log `all` with one of everything, and an empty one."""
    with braidlog.open(tmp_path / "logs") as opened:
        opened.create("all").append_many(RECORDS, timestamp=0)
        opened.create("log")
    return Command(tmp_path / "logs")


def records_in(braid: Command, name: str) -> list[Record]:
    with braidlog.open(braid.place, read_only=True) as opened:
        return opened.log(name).read(0)


def values_in(braid: Command, name: str) -> list[bytes]:
    return [record.value for record in records_in(braid, name)]


# --- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet", "out.pq", "out.arrow", "out.arrows", "out.feather"])
def test_a_file_brings_back_all_of_each_record(braid: Command, tmp_path: Path, name: str) -> None:
    file = str(tmp_path / name)
    whole = ["--records"] if name.endswith("jsonl") else []
    told = braid.json("export", "all", file, *whole)
    assert (told["records"], told["file"]) == (len(RECORDS), file)
    assert braid.json("import", "log", file, *whole)["records"] == len(RECORDS)
    assert records_in(braid, "log") == records_in(braid, "all")
    assert [(r.value, r.key, r.headers, r.timestamp) for r in records_in(braid, "all")] == [
        (r.value, r.key, r.headers, r.timestamp) for r in RECORDS
    ]


@pytest.mark.parametrize("form", ["jsonl", "parquet", "arrow"])
def test_a_pipe_does_too(braid: Command, form: str) -> None:
    whole = ["--records"] if form == "jsonl" else []
    data = braid("export", "all", "--format", form, *whole).stdout_bytes
    braid("import", "log", "--format", form, *whole, feed=data)
    assert records_in(braid, "log") == records_in(braid, "all")


@pytest.mark.parametrize("form", ["jsonl", "lines"])
def test_values_alone_come_back_as_values(braid: Command, form: str) -> None:
    braid("append", "log", '{"a": 1}', "[2]", '"three"', "--key", "k")
    exported = braid("export", "log", "--format", form)
    assert exported.stdout == '{"a": 1}\n[2]\n"three"\n'
    assert "3 records were left out" in exported.stderr
    braid("import", "back", "--create", "--format", form, feed=exported.stdout_bytes)
    assert values_in(braid, "back") == [b'{"a": 1}', b"[2]", b'"three"']


def test_csv_keeps_text_and_comes_back_by_its_columns(braid: Command, tmp_path: Path) -> None:
    braid("append", "log", 'quote " comma ,', "two\nlines", "--key", "k", "--timestamp", "2026-01-31T12:00:00Z")
    file = str(tmp_path / "out.csv")
    braid("export", "log", file)
    columns = ("--value-column", "value", "--key-column", "key", "--timestamp-column", "timestamp")
    braid("import", "back", file, "--create", *columns)
    assert records_in(braid, "back") == records_in(braid, "log")


def test_a_range_is_exported_and_a_hold_respected(braid: Command) -> None:
    braid("append", "log", "1", "2", "3", "4")
    assert braid("export", "log", "--start", "1", "--stop", "3").stdout == "2\n3\n"
    braid("fork", "log", "trial", "--promotable")
    braid("append", "log", "5")
    assert braid("export", "log", "--stop", "99").stdout == "1\n2\n3\n4\n"
    braid("export", "log", "--start", "4", code=exit_codes.BLOCKED)
    braid("export", "log", "--start", "9", code=exit_codes.OUT_OF_RANGE)


def test_a_long_log_goes_out_in_many_tables_and_comes_back_in_many_batches(braid: Command, tmp_path: Path) -> None:
    big = b"\n".join(b"%06d" % number + b"x" * 2_000 for number in range(12_000))
    braid("append", "log", feed=big)
    file = str(tmp_path / "big.parquet")
    braid("export", "log", file)
    assert pq.ParquetFile(file).num_row_groups > 1
    told = braid.json("import", "back", file, "--create")
    assert (told["first"], told["last"]) == (0, 11_999)
    assert values_in(braid, "back") == big.split(b"\n")


def test_an_arrow_file_is_one_that_any_reader_opens(braid: Command, tmp_path: Path) -> None:
    file = tmp_path / "out.arrow"
    braid("export", "all", str(file))
    table = pa.ipc.open_file(str(file)).read_all()
    assert table.column_names == ["position", "timestamp", "key", "value", "headers"]
    assert table.column("position").to_pylist() == list(range(len(RECORDS)))


# --- what others write -----------------------------------------------------------------------------------------------


def test_json_lines_are_kept_as_they_stand(braid: Command, tmp_path: Path) -> None:
    file = tmp_path / "in.ndjson"
    file.write_bytes(b'\xef\xbb\xbf{"a":  1}\r\n\n  \n[null]\n3')
    braid("import", "log", str(file))
    assert values_in(braid, "log") == [b'{"a":  1}', b"[null]", b"3"]


def test_a_record_may_be_written_by_hand(braid: Command) -> None:
    lines = [
        {"value": {"sku": "anchor"}, "key": "k", "headers": {"h": "x"}, "timestamp": "2026-01-31T12:00:00+01:00"},
        {"value": "text", "position": 99},
    ]
    braid("import", "log", "--records", feed="\n".join(map(json.dumps, lines)))
    first, second = records_in(braid, "log")
    assert (first.value, first.key, first.headers) == (b'{"sku":"anchor"}', b"k", (("h", b"x"),))
    assert first.time == datetime(2026, 1, 31, 11, tzinfo=UTC)
    assert (second.value, second.position) == (b"text", 1)
    assert second.timestamp > first.timestamp


def test_rows_of_csv_are_json_objects(braid: Command, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text('\ufeffid,name\n1,"two\nlines"\n\n2,\n')
    braid("import", "log", str(file))
    assert values_in(braid, "log") == [b'{"id":"1","name":"two\\nlines"}', b'{"id":"2","name":""}']


def test_rows_of_a_table_are_json_objects(braid: Command, tmp_path: Path) -> None:
    fine = pa.array([1, 2], pa.timestamp("ns"))
    table = pa.table({"id": [1, None], "price": [Decimal("1.5"), Decimal("2.5")], "tags": [["a"], []], "at": fine})
    pq.write_table(table, tmp_path / "in.parquet")
    braid("import", "log", str(tmp_path / "in.parquet"))
    assert [json.loads(value) for value in values_in(braid, "log")] == [
        {"id": 1, "price": "1.5", "tags": ["a"], "at": "1970-01-01 00:00:00.000000001"},
        {"id": None, "price": "2.5", "tags": [], "at": "1970-01-01 00:00:00.000000002"},
    ]


def test_columns_of_a_table_can_be_named(braid: Command, tmp_path: Path) -> None:
    table = pa.table({"v": ["x", "y"], "k": [7, None], "t": pa.array([5_000_000, 6_000_000], pa.timestamp("ns"))})
    with pa.ipc.new_stream(str(tmp_path / "in.arrows"), table.schema) as stream:
        stream.write_table(table)
    columns = ("--value-column", "v", "--key-column", "k", "--timestamp-column", "t")
    braid("import", "log", str(tmp_path / "in.arrows"), *columns)
    assert [(r.value, r.key, r.timestamp) for r in records_in(braid, "log")] == [
        (b"x", b"7", 5_000),
        (b"y", None, 6_000),
    ]


def test_several_files_of_several_formats_go_in_order(braid: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\ntwo")
    (tmp_path / "b.jsonl").write_text("3\n")
    told = braid.json("import", "log", str(tmp_path / "a.txt"), str(tmp_path / "b.jsonl"))
    assert (told["records"], told["first"], told["last"]) == (3, 0, 2)
    assert values_in(braid, "log") == [b"one", b"two", b"3"]


def test_create_makes_the_log_once(braid: Command) -> None:
    braid("import", "new", feed="1\n", code=exit_codes.NOT_FOUND)
    braid("import", "new", "--create", feed="1\n")
    braid("import", "new", "--create", feed="2\n")
    assert values_in(braid, "new") == [b"1", b"2"]


def test_an_import_into_a_held_log_says_that_positions_are_withheld(braid: Command) -> None:
    braid("fork", "log", "trial", "--promotable")
    assert "withholds" in braid("import", "log", feed="1\n2\n").stderr
    assert braid.json("import", "log", feed="3\n")["first"] is None
    braid("squash", "trial", "--yes")
    assert values_in(braid, "log") == [b"1", b"2", b"3"]


# --- what is wrong ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "place", "before"),
    [
        ("in.jsonl", '1\n2\n{"a": }\n4\n', "line 3", 2),
        ("in.jsonl", "1\n" + "[" * 5_000 + "\n", "line 2", 1),
        ("in.jsonl", b'1\n"\xff"\n', "line 2", 1),
        ("in.csv", "a,b\n1,2\n3\n", "line 3", 1),
        ("in.csv", 'a,b\n1,2\n3,"unclosed\n', "line 3", 1),
        ("in.csv", b"a\nx\n\xff\n", "line 3", 1),
        ("in.csv", "a,a\n1,2\n", "line 1", 0),
        ("in.parquet", "nothing of the kind", "as Parquet", 0),
        ("in.arrow", "nothing of the kind", "as Arrow", 0),
        ("in.arrow", "ARROW1 and nothing else", "as Arrow", 0),
    ],
)
def test_bad_input_is_named_and_everything_before_it_appended(
    braid: Command, tmp_path: Path, name: str, text: str | bytes, place: str, before: int
) -> None:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    result = braid("import", "log", str(file), code=exit_codes.FAILED)
    assert f"{file}, {place}: " in result.stderr
    told = {0: "nothing was appended", 1: "1 record appended, at 0 to 0", 2: "2 records appended, at 0 to 1"}
    assert told[before] in result.stderr
    assert len(values_in(braid, "log")) == before


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("[1]", "a record is a JSON object"),
        ("{}", "no value"),
        ('{"value": 1, "colour": 2}', "unknown field 'colour'"),
        ('{"value": 1, "value_base64": "eA=="}', "both"),
        ('{"value_base64": "*"}', "not base64"),
        ('{"value": 1, "headers": 7}', "headers"),
        ('{"value": 1, "headers": [["a"]]}', "a header is a pair"),
        ('{"value": 1, "timestamp": "noon"}', "noon"),
        ('{"value": 1, "timestamp": true}', "not a time"),
    ],
)
def test_a_bad_record_is_explained(braid: Command, line: str, problem: str) -> None:
    result = braid("import", "log", "--records", feed=f'{{"value": 0}}\n{line}\n', code=exit_codes.FAILED)
    assert "stdin, line 2: " in result.stderr
    assert problem in result.stderr
    assert values_in(braid, "log") == [b"0"]


def test_an_empty_cell_is_no_value(braid: Command, tmp_path: Path) -> None:
    pq.write_table(pa.table({"v": ["x", None]}), tmp_path / "in.parquet")
    result = braid("import", "log", str(tmp_path / "in.parquet"), "--value-column", "v", code=exit_codes.FAILED)
    assert "row 2: the column 'v' is empty" in result.stderr
    assert values_in(braid, "log") == [b"x"]


def test_a_column_that_is_not_there_is_named(braid: Command) -> None:
    result = braid("import", "log", "--format", "csv", "--key-column", "k", feed="a,b\n1,2\n", code=exit_codes.FAILED)
    assert "there is no 'k', but 'a', 'b'" in result.stderr


def test_a_file_that_only_claims_to_be_ours_is_refused(braid: Command, tmp_path: Path) -> None:
    for columns in ({"value": ["text"]}, {"value": [None], "key": ["k"], "timestamp": [1], "headers": [[]]}):
        table = pa.table(columns).replace_schema_metadata({"braidlog.format": "1"})
        pq.write_table(table, tmp_path / "in.parquet")
        braid("import", "log", str(tmp_path / "in.parquet"), code=exit_codes.FAILED)
    assert values_in(braid, "log") == []


def test_an_error_in_json_carries_what_was_appended(braid: Command) -> None:
    result = braid("--json", "import", "log", feed="1\nbad\n", code=exit_codes.FAILED)
    told = json.loads(result.stderr)
    assert told["error"] == "BadInput"
    assert told["notes"] == ["before that: 1 record appended, at 0 to 0"]


def test_what_stopped_the_import_is_told_with_what_was_appended(
    braid: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: Iterator[int] = iter(range(2))
    add = ingest.Ingest.add

    def interrupted(self: ingest.Ingest, items: list[bytes]) -> None:
        if next(added, None) is None:
            raise KeyboardInterrupt
        add(self, items)

    monkeypatch.setattr(ingest.Ingest, "add", interrupted)
    result = braid("append", "log", feed=b"x\n" * 150_000, code=exit_codes.INTERRUPTED)
    assert "100,000 records appended, at 0 to 99999" in result.stderr
    assert len(values_in(braid, "log")) == 100_000


@pytest.mark.parametrize(("form", "problem"), [("jsonl", "not JSON"), ("csv", "not UTF-8"), ("lines", "has a newline")])
def test_what_does_not_fit_a_format_is_refused_with_its_position(
    braid: Command, tmp_path: Path, form: str, problem: str
) -> None:
    file = tmp_path / "out"
    result = braid("export", "all", str(file), "--format", form, code=exit_codes.FAILED)
    assert "at position " in result.stderr
    assert problem in result.stderr
    assert list(tmp_path.glob("out*")) == []


def test_an_existing_file_is_replaced_only_with_yes(braid: Command, tmp_path: Path) -> None:
    file = tmp_path / "out.parquet"
    file.write_text("precious")
    braid("export", "all", str(file), code=exit_codes.USAGE)
    assert file.read_text() == "precious"
    braid("export", "all", str(file), "--yes")
    assert pq.read_table(file).num_rows == len(RECORDS)


def test_a_device_is_written_and_not_replaced(braid: Command) -> None:
    braid("export", "all", "/dev/null", "--format", "parquet")
    assert not Path("/dev/null").is_file()

"""The API contract: the errors a caller meets, and the limits that are checked."""

from __future__ import annotations

import pytest

from braidlog import Braid, Log, Record, errors, limits

BUILTIN_KIN = {
    errors.InvalidArgument: ValueError,
    errors.NotFound: LookupError,
    errors.OutOfRange: IndexError,
    errors.Timeout: TimeoutError,
}
NAMES = {
    "AlreadyExists",
    "Blocked",
    "ConditionFailed",
    "Corrupt",
    "Gone",
    "InvalidArgument",
    "Locked",
    "NotFound",
    "NotPermitted",
    "NotPromotable",
    "OutOfRange",
    "OutcomeUnknown",
    "Timeout",
    "Trimmed",
    "Unavailable",
}


def test_every_error_is_a_braid_error() -> None:
    found = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert found == NAMES | {"BraidError"}
    for name in NAMES:
        assert issubclass(getattr(errors, name), errors.BraidError)


def test_errors_are_also_what_python_calls_them() -> None:
    for error, builtin in BUILTIN_KIN.items():
        assert issubclass(error, builtin)


# --- names ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a", "A-Z.a_z-0.9", "x" * limits.NAME_CHARS_MAX, "...", "-"])
def test_these_are_names(braid: Braid, name: str) -> None:
    assert braid.create(name).name == name


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "x" * (limits.NAME_CHARS_MAX + 1), "with space", "a/b", "caf\xe9", "a\n", "\0", None, 7, b"bytes"],
)
def test_these_are_not(braid: Braid, name: object) -> None:
    log = braid.create("orders")
    for call in (braid.create, braid.log, braid.drop, log.sfork, log.cfork):
        if name is None and call in (log.sfork, log.cfork):
            continue
        with pytest.raises(errors.InvalidArgument, match="name"):
            call(name)  # type: ignore[arg-type]
    assert list(braid.logs()) == [log]


# --- records -------------------------------------------------------------------------------------------------------


def test_a_record_has_at_most_16_mib(log: Log) -> None:
    assert limits.RECORD_BYTES_MAX == 16 * 2**20
    largest = bytes(limits.RECORD_BYTES_MAX)
    assert log.append(largest) == 0
    assert len(log[0].value) == len(largest)
    with pytest.raises(errors.InvalidArgument, match=rf"16,777,217 bytes.*{limits.RECORD_BYTES_MAX:,}"):
        log.append(largest + b"x")
    assert log.tail() == 1


def test_key_and_headers_count(log: Log) -> None:
    half = bytes(limits.RECORD_BYTES_MAX // 2)
    with pytest.raises(errors.InvalidArgument, match="16,777,217"):
        log.append(half, key=half + b"x")
    with pytest.raises(errors.InvalidArgument, match="16,777,217"):
        log.append_many([b"small", Record(half, headers=(("h", half),))])
    assert log.tail() == 0


def test_a_batch_has_at_most_64_mib(log: Log) -> None:
    part = bytes(limits.RECORD_BYTES_MAX)
    with pytest.raises(errors.InvalidArgument, match=rf"67,108,865 bytes.*{limits.BATCH_BYTES_MAX:,}"):
        log.append_many([*[part] * 4, b"x"])
    assert log.tail() == 0


def test_a_batch_has_at_most_a_million_records(log: Log) -> None:
    with pytest.raises(errors.InvalidArgument, match=rf"1,000,001 records.*{limits.BATCH_RECORDS_MAX:,}"):
        log.append_many([b""] * (limits.BATCH_RECORDS_MAX + 1))
    assert log.tail() == 0


def test_a_record_has_at_most_256_headers(log: Log) -> None:
    pairs = [("h", b"")] * limits.RECORD_HEADERS_MAX
    log.append(b"x", headers=pairs)
    assert len(log[0].headers) == limits.RECORD_HEADERS_MAX == 256
    with pytest.raises(errors.InvalidArgument, match=r"257 headers.*256"):
        log.append(b"x", headers=[*pairs, ("h", b"")])


def test_a_header_name_is_text_of_at_most_1024_characters(log: Log) -> None:
    log.append(b"x", headers={"h" * limits.HEADER_NAME_CHARS_MAX: b""})
    with pytest.raises(errors.InvalidArgument, match=r"1025 characters.*1024"):
        log.append(b"x", headers={"h" * (limits.HEADER_NAME_CHARS_MAX + 1): b""})
    with pytest.raises(errors.InvalidArgument, match="UTF-8"):
        log.append(b"x", headers={"\ud800": b""})


def test_a_writers_name_is_text_of_at_most_256_characters(log: Log) -> None:
    assert log.append(b"x", writer="w" * limits.WRITER_CHARS_MAX, sequence=0) == 0
    with pytest.raises(errors.InvalidArgument, match="256"):
        log.append(b"x", writer="w" * (limits.WRITER_CHARS_MAX + 1), sequence=0)
    with pytest.raises(errors.InvalidArgument, match="UTF-8"):
        log.append(b"x", writer="\ud800", sequence=0)
    assert log.append(b"the log goes on") == 1


# --- labels --------------------------------------------------------------------------------------------------------


def test_labels_are_at_most_64_of_at_most_1024_characters(braid: Braid) -> None:
    most = {f"label-{number}": "x" * limits.LABEL_CHARS_MAX for number in range(limits.LABELS_MAX)}
    assert braid.create("orders", labels=most).info().labels == most
    with pytest.raises(errors.InvalidArgument, match=r"65 labels.*64"):
        braid.create("more", labels=most | {"one": "more"})
    with pytest.raises(errors.InvalidArgument, match="1024"):
        braid.create("longer", labels={"x": "x" * (limits.LABEL_CHARS_MAX + 1)})


@pytest.mark.parametrize("labels", [{"a": 1}, {1: "a"}, {"": "a"}, ["a"], "a", {"a": "\ud800"}])
def test_labels_are_text(braid: Braid, labels: object) -> None:
    with pytest.raises(errors.InvalidArgument, match="label"):
        braid.create("orders", labels=labels)  # type: ignore[arg-type]
    assert braid.create("orders").append(b"the braid goes on") == 0

"""The reference of the wire says what the code does: the header, the kinds, every message and its fields."""

from __future__ import annotations

import re
import struct
from typing import Any, get_args

import pytest

from braidlog import limits
from braidlog.wire import frames
from braidlog.wire import messages as m
from tests.tidy.sources import ROOT

TEXT = (ROOT / "docs" / "reference" / "wire.md").read_text()


def table(title: str, *, nth: int = 0) -> list[list[str]]:
    """The rows of a table below a heading."""
    section = TEXT.split(f"\n## {title}\n", 1)[1].split("\n## ", 1)[0]
    tables = re.findall(r"(?:^\|.*\|\n)+", section, re.MULTILINE)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in tables[nth].splitlines()]
    return rows[2:]


def fields_of(kind: Any) -> str:
    return ", ".join(kind.__struct_fields__)


@pytest.mark.parametrize(("title", "union"), [("Requests", m.Request), ("Notes", m.Note), ("Answers", m.Answer)])
def test_every_message_is_there_with_its_fields_in_their_order(title: str, union: Any) -> None:
    documented = {row[0].strip("`"): row[1] for row in table(title)}
    assert documented == {kind.__struct_config__.tag: fields_of(kind) for kind in get_args(union)}


def test_every_answer_that_is_named_is_one_and_is_what_the_code_says() -> None:
    tags = {kind.__name__: kind.__struct_config__.tag for kind in get_args(m.Answer)}
    documented = {row[0].strip("`"): row[2].strip("`") for row in table("Requests")}
    assert set(documented.values()) <= set(tags.values())
    for kind in get_args(m.Request):
        said = re.search(r"Answer: (\w+)", kind.__doc__ or "")
        if said is not None:
            assert documented[kind.__struct_config__.tag] == tags[said[1]], kind


def test_the_header_is_laid_out_as_it_says() -> None:
    rows = [(int(offset), int(size)) for offset, size, _ in table("Frames")]
    assert [offset for offset, _ in rows] == [sum(size for _, size in rows[:n]) for n in range(len(rows))]
    assert sum(size for _, size in rows) == frames.HEADER_BYTES
    header = bytes(frames.encode(frames.Kind.PUSH, 0x01020304, 0x05060708, b"head", b"a body")[0])
    length, head, _, kind, flags, nothing, number, seen = (
        int.from_bytes(header[offset : offset + size], "little") for offset, size in rows
    )
    assert (length, head, kind, flags, nothing) == (10, 4, frames.Kind.PUSH, 0, 0)
    assert (number, seen) == (0x01020304, 0x05060708)
    covered = header[:8] + header[12:28] + b"heada body"
    assert struct.unpack_from("<I", header, 8)[0] == frames.crc32c(covered)


def test_every_kind_is_there() -> None:
    assert {(int(number), name) for number, name, _ in table("Frames", nth=1)} == {
        (k.value, k.name) for k in frames.Kind
    }


def test_the_bounds_are_those_of_the_code() -> None:
    mib = limits.MIB
    for said in (
        f"at most {limits.WIRE_FRAME_BYTES_MAX // mib} MiB",
        f"at most {limits.WIRE_HELLO_BYTES_MAX // limits.KIB} KiB before the `hello`",
        f"(at most {limits.WIRE_BATCH_BYTES_MAX // mib} MiB)",
        f"for {limits.CONNECTION_STALLED_S:g} s without a byte",
        f"{limits.CONNECTION_IN_FLIGHT_BYTES_MAX // mib} MiB or {limits.CONNECTION_REQUESTS_MAX:,} requests",
        f"leaves {limits.CONNECTION_UNSENT_BYTES_MAX // mib} MiB of answers unread",
        f"carries out {limits.CONNECTION_READ_REQUESTS_MAX} at a time",
        f"({limits.SUBSCRIBE_FETCH_BYTES // mib} MiB, or one record)",
        f"Credit beyond {limits.SUBSCRIBE_CREDIT_BYTES_MAX // mib} MiB",
        f"up to {limits.CONNECTION_SUBSCRIPTIONS_MAX:,} subscriptions",
        f"together have {limits.SERVER_IN_FLIGHT_BYTES_MAX // mib} MiB",
        f"after every {limits.SETTLE_REQUESTS:,} changes",
        f"version {frames.VERSION}",
    ):
        assert said in " ".join(TEXT.split()), said

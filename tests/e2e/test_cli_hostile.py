"""Whatever stands on the command line or comes through the pipe, `braid` ends with a known status and no traceback."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import braidlog
from braidlog import Record
from braidlog.cli import exit_codes
from braidlog.cli.formats import FORMATS
from braidlog.cli.main import cli

# Those that run long by design, and what waits by design.
LASTING = {"demo", "bench", "completion", "serve", "metadata", "broker", "cluster"}
VERBS = sorted(cli.commands.keys() - LASTING)
NEVER = {"--follow", "-f"}
WAITS = {"--wait"}

JUNK = st.text(st.characters(exclude_characters="/~\0", exclude_categories=()), max_size=12)
NAMES = ["orders", "fork", "held", "trial", "none", "..", ""]
NUMBERS = ["0", "1", "-1", "2", "99", "007", "1e3", "9223372036854775807", "9223372036854775808", "NaN", "inf"]
TEXTS = ["-", "--", "--yes", "k=v", "=", "none", "1ms", "5m", "-n", *FORMATS]
URLS = [
    "memory://",
    "memory://x",
    "file://x",
    "file://[",
    "~nobody-there/x",
    "logs",
    "logs/log",
    "x" * 300,
    "/dev/null",
    "",
]
WORDS = st.sampled_from([*NAMES, *NUMBERS, *TEXTS]) | JUNK
ARGUMENTS = WORDS.filter(lambda word: word not in NEVER)
ONE_IN_FIVE = st.integers(0, 4).map(lambda number: number == 4)
INPUTS = st.binary(max_size=64) | st.sampled_from([b'{"value": 1}\n', b"a,b\n1,2\n", b"ARROW1\0\0", b"PAR1"])


def fitting(parameter: click.Parameter) -> st.SearchStrategy[str]:
    """Values that the parameter takes, most of them."""
    if isinstance(parameter.type, click.Choice):
        return st.sampled_from(sorted(map(str, parameter.type.choices)))
    if isinstance(parameter.type, click.IntRange):
        return st.sampled_from(["0", "1", "2", "3", "99"])
    by_name = {"log": NAMES, "fork": NAMES, "at": URLS, "labels": ["k=v"], "headers": ["k=v"], "timestamp": ["7"]}
    return st.sampled_from(by_name.get(parameter.name or "", TEXTS))


@st.composite
def calls(draw: st.DrawFn) -> list[str]:
    """A verb with arguments and options of its own, and one value in five that may not suit them."""
    verb = draw(st.sampled_from(VERBS))
    words = [verb]
    options = [p for p in cli.commands[verb].params if isinstance(p, click.Option) and not NEVER & set(p.opts)]
    for option in draw(st.lists(st.sampled_from(options), max_size=4, unique_by=lambda option: option.opts[0])):
        words.append(option.opts[0])
        if option.opts[0] in WAITS:
            words.append("1ms")
        elif not option.is_flag:
            words.append(draw(ARGUMENTS if draw(ONE_IN_FIVE) else fitting(option)))
    if draw(st.booleans()) and any("--yes" in option.opts for option in options):
        words.append("--yes")
    for argument in cli.commands[verb].params:
        if isinstance(argument, click.Argument) and (argument.required or draw(st.booleans())):
            words.append(draw(ARGUMENTS if draw(ONE_IN_FIVE) else fitting(argument)))
    return words


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that all calls of a test fall upon."""
    root = tmp_path_factory.mktemp("hostile")
    with braidlog.open(root / "logs") as opened:
        orders = opened.create("orders")
        orders.append_many([b"1", b"\xff"])
        orders.cfork("fork").append(b"2")
        opened.create("kept").append_many([Record(b"v", b"k", (("h", b"x"),)), Record(b"w")])
        opened.create("held").cfork("trial", promotable=True)
    return root


def check(root: Path, words: list[str], feed: bytes) -> None:
    before = os.getcwd()
    os.chdir(root)
    try:
        result = CliRunner().invoke(cli, words, input=feed, env={"BRAIDLOG_URL": "logs"})
    finally:
        os.chdir(before)
    assert isinstance(result.exception, SystemExit | None), (words, result.exc_info)
    assert result.exit_code in exit_codes.MEANINGS, words
    assert result.exit_code != exit_codes.CORRUPT, (words, result.stderr)
    assert "Traceback" not in result.stderr


SLOW = settings(
    max_examples=400, deadline=timedelta(seconds=20), suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@SLOW
@given(words=calls(), feed=INPUTS)
def test_verbs_with_any_arguments(place: Path, words: list[str], feed: bytes) -> None:
    check(place, words, feed)


@settings(SLOW, max_examples=100)
@given(words=st.lists(ARGUMENTS, max_size=6), feed=INPUTS)
def test_any_words_at_all(place: Path, words: list[str], feed: bytes) -> None:
    check(place, words, feed)


@settings(SLOW, max_examples=150)
@given(form=st.sampled_from(FORMATS), whole=st.booleans(), feed=st.binary(max_size=400))
def test_any_bytes_to_import(place: Path, form: str, whole: bool, feed: bytes) -> None:
    words = ["--at", "memory://", "import", "orders", "--create", "--format", form]
    check(place, [*words, "--records"] if whole else words, feed)


@pytest.fixture(scope="module")
def exported(place: Path) -> dict[str, bytes]:
    """The same log in both columnar formats."""
    env = {"BRAIDLOG_URL": str(place / "logs")}
    formats = ("parquet", "arrow")
    return {
        form: CliRunner().invoke(cli, ["export", "kept", "--format", form], env=env).stdout_bytes for form in formats
    }


@settings(SLOW, max_examples=150)
@given(form=st.sampled_from(["parquet", "arrow"]), data=st.data())
def test_damaged_files_to_import(place: Path, exported: dict[str, bytes], form: str, data: st.DataObject) -> None:
    """A file of ours with some bytes changed or cut is refused, or taken if it still makes sense."""
    damaged = bytearray(exported[form])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.sampled_from([len(damaged), len(damaged) // 2]) | st.integers(0, len(damaged)))
    words = ["--at", "memory://", "import", "orders", "--create", "--format", form]
    check(place, words, bytes(damaged[:cut]))

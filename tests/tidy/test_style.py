"""Rules of style that a machine can check, so that nobody else has to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from braidlog import limits
from tests.tidy.sources import ROOT, modules, shown, texts, tree

LINES_MAX = 600
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc"}
UNFINISHED = re.compile("|".join(("TO" + "DO", "FIX" + "ME")))
MACHINE_PATH = re.compile("|".join(f"(?<![\\w.])/{folder}/" for folder in ("home", "root", "Users", "work")))
UNITS = {
    "VERSIONS",
    "UPLOADS",
    "BLOCKS",
    "ATTEMPTS",
    "ADDRESSES",
    "BATCHES",
    "BROKERS",
    "BYTES",
    "CHARS",
    "CLIENTS",
    "COMMANDS",
    "CONNECTIONS",
    "CONSUMERS",
    "CONTENDERS",
    "DEPTH",
    "FETCHERS",
    "FILES",
    "PROCESSES",
    "FORKS",
    "PROPOSALS",
    "HEADERS",
    "LABELS",
    "FLUSHES",
    "LOGS",
    "OBJECTS",
    "OUTCOMES",
    "RECORDS",
    "REQUESTS",
    "RETRIES",
    "ROUNDS",
    "ROWS",
    "RUNS",
    "S",
    "SLOTS",
    "SCOPES",
    "STORERS",
    "READERS",
    "SUBSCRIPTIONS",
    "TASKS",
    "THREADS",
    "TOKENS",
    "TOMBSTONES",
    "WRITERS",
}
SCALES = {"KIB", "MIB"}

EVERYWHERE = [*modules("src"), *modules("tests"), *modules("bench"), *modules("sim"), *modules("apps")]


def test_a_module_opens_with_its_contract() -> None:
    silent = [shown(path) for path in EVERYWHERE if path.stat().st_size and not ast.get_docstring(tree(path))]
    assert silent == []


def test_a_module_can_be_held_in_mind() -> None:
    lengths = {
        shown(path): len(path.read_text().splitlines())
        for path in [*modules("src"), *modules("bench"), *modules("sim"), *modules("apps")]
    }
    assert {name: length for name, length in lengths.items() if length > LINES_MAX} == {}


def test_names_say_what_things_are() -> None:
    empty = [f"{shown(path)}: {name}" for path in EVERYWHERE for name in names_in(path) if words(name) & EMPTY_NAMES]
    assert empty == []


def names_in(path: Path) -> list[str]:
    """What the module is called, and what it defines."""
    defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return [path.stem, path.parent.name, *(node.name for node in ast.walk(tree(path)) if isinstance(node, defined))]


def words(name: str) -> set[str]:
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


@pytest.mark.parametrize("pattern", [UNFINISHED, MACHINE_PATH], ids=["nothing left to do", "no machine named"])
def test_no_text_has(pattern: re.Pattern[str]) -> None:
    lines = [(shown(path), line) for path in texts() for line in path.read_text().splitlines()]
    assert [(name, line) for name, line in lines if pattern.search(line)] == []


def test_no_test_sleeps() -> None:
    found = [f"{shown(path)}:{node.lineno}" for path in modules("tests") for node in sleeps_in(path)]
    assert found == []


def sleeps_in(path: Path) -> list[ast.ImportFrom | ast.Call]:
    """Except `asyncio.sleep(0)`, which lets others run and takes no time."""
    found: list[ast.ImportFrom | ast.Call] = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "asyncio"):
            found += [node for alias in node.names if alias.name == "sleep"]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sleep":
            found += [node] if ast.unparse(node) != "asyncio.sleep(0)" else []
    return found


LIMITS = [name for name in vars(limits) if name.isupper()]


def test_a_limit_names_its_unit() -> None:
    assert [name for name in LIMITS if name not in SCALES and not set(name.split("_")) & UNITS] == []


def test_a_limit_limits_something() -> None:
    """It is used by somebody, or by another limit."""
    used = re.findall(r"\b[A-Z_]+\b", "\n".join(path.read_text() for path in modules("src")))
    assert [name for name in LIMITS if used.count(name) < 2] == []


def test_the_license_and_the_readme_are_there() -> None:
    for name in ("LICENSE", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        assert (ROOT / name).is_file(), name

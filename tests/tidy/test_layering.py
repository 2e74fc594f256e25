"""The tree of folders is the architecture: a module imports from its own layer and from those below, never upwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE, ROOT, shown, tree
from tests.tidy.sources import modules as all_modules

# From the ground up. What stands in one row stands side by side: the parts of a row do not import each other.
LAYERS: list[set[str]] = [
    {"errors", "limits", "record", "version"},
    {"wording"},
    {"config", "facts", "observe"},
    {"forest"},
    {"objects"},
    {"metadata", "wire"},
    {"embedded"},
    {"broker"},
    {"client"},
    {"braidlog"},  # the package itself: the names that it exports
    {"bulk"},
    {"agents", "aio", "testing"},
    {"mcp", "spark"},
    {"cli"},
    {"__main__"},
]

# The forest is a pure state machine. This is all it may use: no file, clock, chance, thread or network is among it.
FOREST_USES = {
    "__future__",
    "array",
    "bisect",
    "collections",
    "collections.abc",
    "functools",
    "heapq",
    "itertools",
    "msgspec",
    "operator",
    "re",
    "sys",
    "typing",
}
FOREST_NEVER_CALLS = {"open", "input", "print", "id", "hash"}  # the last two differ from process to process
FOREST_MAY_CALL = {  # as keys that never leave the process
    ("forest/invariants.py", "id"),
    ("forest/space.py", "id"),
    ("forest/state.py", "id"),
}

LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}


SIGNPOST = ROOT / "src" / "pyspark_braidlog"  # where PySpark finds the format: not a part, only the way to one


def modules(folder: str) -> list[Path]:
    return [path for path in all_modules(folder) if SIGNPOST not in path.parents]


def part_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "braidlog" if first == "__init__" else first


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{shown(path)}: imports are absolute"
            assert node.module is not None
            if node.module == "braidlog":
                yield from (_exported(alias.name) for alias in node.names)
            else:
                yield node.module


def _exported(name: str) -> str:
    """`from braidlog import x`: the module x, or a name that the package exports."""
    is_module = (PACKAGE / name).is_dir() or (PACKAGE / f"{name}.py").is_file()
    return f"braidlog.{name}" if is_module else "braidlog"


def target(module: str) -> str | None:
    """The part of braidlog that a module belongs to; None if it is not ours."""
    names = module.split(".")
    if names[0] != "braidlog":
        return None
    return names[1] if len(names) > 1 else "braidlog"


def test_imports_go_only_downwards() -> None:
    upwards = [
        f"{shown(path)} imports {module}"
        for path in modules("src")
        for module in imports(path)
        if (other := target(module)) not in (None, part_of(path)) and LEVEL[other] >= LEVEL[part_of(path)]
    ]
    assert upwards == []


def test_every_part_has_its_layer() -> None:
    assert {part_of(path) for path in modules("src")} == set(LEVEL)


@pytest.mark.parametrize("path", [path for path in modules("src") if part_of(path) == "forest"], ids=shown)
def test_the_forest_is_pure(path: Path) -> None:
    assert {module for module in imports(path) if target(module) is None} <= FOREST_USES
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FOREST_NEVER_CALLS:
            assert (path.relative_to(PACKAGE).as_posix(), node.func.id) in FOREST_MAY_CALL, node.lineno


def test_the_ground_stands_on_nothing_of_ours() -> None:
    for name in ("errors", "limits", "record", "version"):
        assert {target(module) for module in imports(PACKAGE / f"{name}.py")} == {None}

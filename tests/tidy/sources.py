"""The project's own files, as the tidy tests look at them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "braidlog"


@cache
def modules(folder: str) -> tuple[Path, ...]:
    """Every Python file below a folder of the project; none if there is no such folder."""
    return tuple(sorted((ROOT / folder).rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), str(path))


def shown(path: Path) -> str:
    """How a failure names a file."""
    return path.relative_to(ROOT).as_posix()


def texts() -> Iterator[Path]:
    """Every file that a person wrote, of those that say something about the project."""
    for folder in ("src", "tests", "bench", "sim", "apps"):
        yield from modules(folder)
    yield from (ROOT / "docs").rglob("*.md")
    yield from ROOT.glob("*.md")
    yield from (ROOT / "Makefile", ROOT / "pyproject.toml")

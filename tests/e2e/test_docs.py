"""Every snippet of the documentation runs, from the first to the last of its page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import braidlog

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN = {"text", "console"}  # pictures and layouts, nothing to run
IN_SPARK = {ROOT / "docs" / "spark.md", ROOT / "docs" / "pipelines.md"}  # tests/spark has a session for these


def snippets(page: Path, language: str) -> list[str]:
    return [code for found, code in FENCE.findall(page.read_text()) if found == language]


def with_snippets(language: str) -> list[Path]:
    return [page for page in PAGES if snippets(page, language)]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_fence_says_what_it_is(page: Path) -> None:
    assert {language for language, _ in FENCE.findall(page.read_text())} <= {"python", "sh", *SHOWN}


@pytest.mark.parametrize("page", [page for page in with_snippets("python") if page not in IN_SPARK], ids=name)
def test_python_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__"}
    try:
        for code in snippets(page, "python"):
            exec(compile(code, str(page), "exec"), scope)
    finally:
        for left in scope.values():
            if isinstance(left, braidlog.Braid):  # as a session ends: its threads end with it
                left.close()


@pytest.mark.parametrize("page", with_snippets("sh"), ids=name)
def test_shell_runs(page: Path, tmp_path: Path) -> None:
    lines = "\n".join(snippets(page, "sh")).splitlines()
    makes = [line.split()[1] for line in lines if line.startswith("make ")]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(makes) <= set(targets), "make commands are run by the build itself; here they must exist"
    script = "\n".join(line for line in lines if not line.startswith(("make ", "braid demo")))
    braid = tmp_path / "bin" / "braid"
    braid.parent.mkdir()
    braid.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m braidlog.cli.main "$@"\n')
    braid.chmod(0o755)
    environment = {
        **os.environ,
        "PATH": f"{braid.parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    seed = _directories_opened_by(page, tmp_path)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", seed + script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _directories_opened_by(page: Path, folder: Path) -> str:
    """Shell snippets may look at what the page's Python snippets made: make it first."""
    if not snippets(page, "python") or "--at shared.braid" not in page.read_text():
        return ""
    return f'cd "{folder}"; "{sys.executable}" -c "import braidlog; braidlog.open(\'shared.braid\').close()"\n'


def test_no_page_links_into_nothing() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{name(page)} links to {target}, which is not there"

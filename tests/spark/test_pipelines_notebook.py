"""The notebooks run from the first cell to the last, in the session that tests share, and are kept without outputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def play(notebook: dict[str, Any]) -> int:
    """Run its cells as Jupyter would; answers how many. A cell that fails ends it, and the error says which it was."""
    scope: dict[str, object] = {"__name__": "__main__"}
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for cell in cells:
        exec(compile("".join(cell["source"]), f"<{cell['id']}>", "exec"), scope)
    return len(cells)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_kept_clean(path: Path) -> None:
    notebook = json.loads(path.read_text())
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    identities = [cell["id"] for cell in notebook["cells"]]
    assert len(set(identities)) == len(identities)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["id"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert play(json.loads(path.read_text())) >= 8
    assert spark.version, "it made use of the session that there is, and did not stop it"


def test_a_cell_that_fails_is_noticed() -> None:
    cells = [
        {"cell_type": "code", "id": "a", "source": ["x = 1\n"]},
        {"cell_type": "code", "id": "b", "source": ["x / 0"]},
    ]
    with pytest.raises(ZeroDivisionError) as raised:
        play({"cells": cells})
    assert raised.traceback[-1].path == "<b>" or "<b>" in str(raised.traceback[-1].path)

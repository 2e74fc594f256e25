"""Every snippet of the page about Spark runs, from the first to the last, in the session that all tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.e2e.test_docs import IN_SPARK, snippets


@pytest.mark.parametrize("page", sorted(IN_SPARK), ids=lambda page: page.name)
def test_the_snippets_run(page: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "__main__", "spark": spark}
    for code in snippets(page, "python"):
        exec(compile(code, str(page), "exec"), scope)

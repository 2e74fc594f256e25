"""The page on metrics lists every metric that a service has, and no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.broker.local import LocalService
from braidlog.broker.measuring import KINDS
from braidlog.broker.threaded import ServerThread
from braidlog.client.opening import open_files
from braidlog.objects.memory_files import MemoryFiles
from braidlog.observe import catalog
from braidlog.observe.metrics import Family, Registry
from tests.e2e.conformance import writer_of

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


@pytest.fixture
def families() -> Iterator[list[Family]]:
    braid = open_files(MemoryFiles(), "memory://", folder=None)
    thread = ServerThread(lambda: LocalService(writer_of(braid)), "listed")
    standby = Registry()
    catalog.Standby(standby, applied=lambda: 0, silent_s=lambda: 0.0)
    found = {family.name: family for registry in (standby, thread.server.registry) for family in registry.families()}
    yield list(found.values())
    thread.close()
    braid.close()


def test_the_table_is_the_registry(families: list[Family]) -> None:
    written = [line for line in PAGE.read_text().splitlines() if line.startswith("| `braidlog_")]
    assert written == [row_of(family) for family in sorted(families, key=lambda family: family.name)]


def row_of(family: Family) -> str:
    labels = ", ".join(f"`{label}`" for label in family.labels)
    return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |".replace("|  |", "| |")


def test_every_value_that_a_label_can_have_is_told(families: list[Family]) -> None:
    page = PAGE.read_text()
    for family in families:
        for label, values in family.labels.items():
            told = values if label != "version" and values != KINDS else ()
            assert [value for value in told if f"`{value}`" not in page] == [], (family.name, label)

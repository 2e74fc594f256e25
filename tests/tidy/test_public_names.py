"""What users may rely on: the names, their signatures, and that the awaited ones are the same."""

from __future__ import annotations

import importlib.resources
import inspect
import tomllib
from typing import Any

import pytest

import braidlog
from braidlog import aio, errors, testing
from tests.tidy.sources import ROOT

NAMES = {
    "Ancestor",
    "Braid",
    "BraidError",
    "Consumer",
    "Diff",
    "DiffEntry",
    "EndOfLog",
    "Info",
    "Log",
    "Outcome",
    "Plan",
    "PlanPart",
    "Record",
    "Retention",
    "Subscription",
    "Ticket",
    "Upload",
    "UploadedBlock",
    "UploadedObject",
    "errors",
    "open",
}
AWAITED = {"Braid", "Log", "Subscription", "Ticket"}  # the classes that braidlog.aio has, too
STILL = {"request_id", "done", "name", "id", "position", "end", "url", "read_only"}  # facts at hand: nothing to await


def public(owner: type) -> dict[str, Any]:
    return {name: value for name, value in vars(owner).items() if not name.startswith("_")}


def awaitable_pairs() -> list[tuple[str, Any, Any]]:
    pairs = [("open", braidlog.open, aio.open)]
    for name in sorted(AWAITED):
        ours, theirs = public(getattr(braidlog, name)), public(getattr(aio, name))
        pairs += [(f"{name}.{method}", ours[method], theirs[method]) for method in ours.keys() & theirs.keys()]
    return sorted(pairs, key=lambda pair: pair[0])


def test_the_public_names_are_these() -> None:
    assert set(braidlog.__all__) == NAMES
    assert list(braidlog.__all__) == sorted(braidlog.__all__)
    for name in NAMES:
        assert hasattr(braidlog, name)


def test_aio_has_what_can_be_awaited() -> None:
    assert set(aio.__all__) == AWAITED | {"open"}


@pytest.mark.parametrize("name", sorted(AWAITED))
def test_aio_classes_have_the_same_public_names(name: str) -> None:
    assert public(getattr(aio, name)).keys() == public(getattr(braidlog, name)).keys()


@pytest.mark.parametrize(("name", "ours", "theirs"), awaitable_pairs(), ids=[name for name, _, _ in awaitable_pairs()])
def test_aio_signatures_are_the_same_parameter_by_parameter(name: str, ours: Any, theirs: Any) -> None:
    if isinstance(ours, property):
        assert isinstance(theirs, property)
        assert name.partition(".")[2] in STILL
        return
    assert list(inspect.signature(theirs).parameters.values()) == list(inspect.signature(ours).parameters.values())
    if name == "Braid.logs":
        assert inspect.isasyncgenfunction(theirs)
    else:
        assert inspect.iscoroutinefunction(theirs)
        assert inspect.signature(theirs).return_annotation == inspect.signature(ours).return_annotation


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [("__enter__", "__aenter__"), ("__exit__", "__aexit__"), ("__iter__", "__aiter__"), ("__next__", "__anext__")],
)
def test_aio_has_the_asynchronous_protocols_of_the_same_classes(ours: str, theirs: str) -> None:
    for name in AWAITED:
        assert (ours in vars(getattr(braidlog, name))) == (theirs in vars(getattr(aio, name))), name


def documented() -> list[tuple[str, Any]]:
    """Every public name, and for the API every public member."""
    found: list[tuple[str, Any]] = []
    for module in (braidlog, aio, errors, testing):
        for name in getattr(module, "__all__", None) or [name for name in vars(module) if name[0].isupper()]:
            value = getattr(module, name)
            if inspect.ismodule(value):
                continue
            found.append((f"{module.__name__}.{name}", value))
            if inspect.isclass(value) and module is not testing:
                members = [item for item in public(value).items() if callable(item[1]) or isinstance(item[1], property)]
                found += [(f"{module.__name__}.{name}.{key}", member) for key, member in members]
    return found


def test_everything_public_says_what_it_is() -> None:
    assert [name for name, value in documented() if not inspect.getdoc(value)] == []


def test_no_public_signature_gives_up_on_types() -> None:
    for name, value in documented():
        if not inspect.isfunction(value):
            continue
        for parameter in inspect.signature(value).parameters.values():
            assert "Any" not in str(parameter.annotation), f"{name}({parameter})"


def test_the_types_are_shipped() -> None:
    assert importlib.resources.files("braidlog").joinpath("py.typed").is_file()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert packages == ["src/braidlog", "src/pyspark_braidlog"]


def test_the_version_is_the_projects() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert braidlog.__version__ == project["project"]["version"]

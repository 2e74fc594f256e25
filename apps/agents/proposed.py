"""What became of a proposal, as the tools tell it; and the policy under which agents propose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from pydantic import BaseModel

from apps.agents.scripted import Call, Returned


class Attempt(BaseModel):
    """A proposal: its fork, how it ended, and what the validators said."""

    fork: str
    state: str
    reasons: list[str] = []
    positions: list[int] = []


def proposing(fork: str, title: str) -> Call:
    """The call that makes one."""
    return Call("propose_promotion", {"fork": fork, "title": title})


def attempt(said: Returned) -> Attempt:
    """What the call returned."""
    verdicts = said["verdicts"]
    return Attempt(
        fork=said["fork"],
        state=said["state"],
        reasons=[reason for verdict in verdicts for reason in verdict["reasons"]],
        positions=[position for verdict in verdicts for position in verdict.get("positions", [])],
    )


@contextmanager
def left_to_validators(log: str) -> Iterator[Path]:
    """A policy by which validators alone decide what is promoted into a log, and what they refuse is gone at once."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "policy.toml"
        path.write_text(f'[[log]]\npattern = "{log}"\npromotion = "auto"\non_failure = "squash"\nhold = "60s"\n')
        yield path

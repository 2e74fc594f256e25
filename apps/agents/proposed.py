"""What became of a proposal, as the tools tell it; and the policy under which agents propose."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from pydantic import BaseModel

from apps.agents.scripted import Call, Returned
from apps.agents.workplace import Workplace

HOLD: Final = "60s"


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


def attempts(place: Workplace) -> list[Attempt]:
    """All that were made at a workplace, as the server answered: whatever the agent says of them."""
    return [attempt(Returned(said)) for said in place.proposals]


def add_hold(parser: argparse.ArgumentParser) -> None:
    """How long a fork may hold the log, for commands whose agents propose."""
    parser.add_argument("--hold", default=HOLD, help=f"that a fork may hold the log, such as 90s or 5m ({HOLD})")


@contextmanager
def left_to_validators(log: str, hold: str = HOLD) -> Iterator[Path]:
    """A policy by which validators alone decide what is promoted into a log, and what they refuse is gone at once."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "policy.toml"
        rule = {"pattern": log, "promotion": "auto", "on_failure": "squash", "hold": hold}
        path.write_text("[[log]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in rule.items()))
        yield path

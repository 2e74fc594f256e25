"""What a testing agent answers."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from apps.agents.windows_oracle import Difference


class Injected(BaseModel):
    """An event of the agent's own."""

    position: int = Field(description="on the fork of the case")
    value: Any
    late_ms: int | None = Field(default=None, description="how far the stream had come beyond it")


class CaseReport(BaseModel):
    """What came of one case."""

    case: str
    verdict: Literal["right", "wrong", "crashed", "timed out"]
    injected: list[Injected] = Field(description="all of them, but for the last event, which ends the windows")
    live_between: int = Field(description="records that production wrote between them")
    crash: str | None = Field(default=None, description="why it ended, if it crashed or timed out")
    differences: list[Difference] = Field(default_factory=list)
    triggers: list[list[Injected]] = Field(
        default_factory=list, description="each of the smallest sets of injected events with which it goes wrong"
    )
    replays: int = Field(default=0, description="how often it was tried with fewer events")

    @property
    def passed(self) -> bool:
        return self.verdict == "right"

"""What system logs and the labels of agents' forks are called, in one place.

A system log is a log like any other. Its name begins with `braidlog.`, which is how it is known: agents do not write
it, no policy lets anything be promoted into it, and `braid ls` leaves it out unless asked.
"""

from __future__ import annotations

from typing import Final

from braidlog.forest.names import SYSTEM_PREFIX, is_system

PROPOSALS: Final = f"{SYSTEM_PREFIX}proposals"
REGISTRY: Final = f"{SYSTEM_PREFIX}registry"
AUDIT: Final = f"{SYSTEM_PREFIX}audit"

AGENT_LABEL: Final = "braidlog.agent"  # of a fork: the agent that it was made for
PROPOSAL_LABEL: Final = "braidlog.proposal"  # of a fork that a desk made: the proposal that it carries

__all__ = ["AGENT_LABEL", "AUDIT", "PROPOSALS", "PROPOSAL_LABEL", "REGISTRY", "SYSTEM_PREFIX", "is_system"]

"""Agents work on forks; what they wrote is validated, proposed, decided about and only then promoted.

    from braidlog import agents

    agents.validate(braid, fork, "checks.py:restock")               one validator, in a process of its own
    agents.Registry(braid).add("restock", "checks.py:restock", logs="orders*")
    agents.promote(fork, braid=braid)                               if all that stand before its parent pass
    agents.Desk(braid, agents.Policy.load("policy.toml"))           proposals, and people who review them
    agents.Audit(braid)                                             who called what

All of it works on an open `braidlog.Braid`, a directory or a service, and keeps what it knows in logs of it.
"""

from braidlog.agents.audit import Audit, Entry
from braidlog.agents.desk import Desk, Details, Hold
from braidlog.agents.names import AGENT_LABEL, is_system
from braidlog.agents.policy import Policy, Rule
from braidlog.agents.promoting import Promotion, promote, validate
from braidlog.agents.proposals import Excerpt, Proposal, Summary
from braidlog.agents.registry import Registration, Registry
from braidlog.agents.running import Access, Bounds, Job, run
from braidlog.agents.validators import Context
from braidlog.agents.verdict import Finding, Verdict

__all__ = [
    "AGENT_LABEL",
    "Access",
    "Audit",
    "Bounds",
    "Context",
    "Desk",
    "Details",
    "Entry",
    "Excerpt",
    "Finding",
    "Hold",
    "Job",
    "Policy",
    "Promotion",
    "Proposal",
    "Registration",
    "Registry",
    "Rule",
    "Summary",
    "Verdict",
    "is_system",
    "promote",
    "run",
    "validate",
]

"""What is there, compared with what must be there."""

from __future__ import annotations

from typing import Any

from braidlog.client.braid import Braid
from braidlog.embedded.replica import Replica
from braidlog.errors import Blocked
from braidlog.forest import invariants
from tests.faults.ledger import Account, Ledger, Reach


def replica_of(braid: Braid) -> Replica:
    """What stands behind a braid. Users never see it; the proofs look at its invariants."""
    backend = braid._session.backend
    assert isinstance(backend, Replica)
    return backend


def verify(braid: Braid, ledgers: list[Ledger]) -> Ledger:
    """The one of the possible ledgers that describes the braid, all of it. AssertionError if none does."""
    replica = replica_of(braid)
    with replica.lock:
        assert invariants.broken(replica.forest) == []
    problems = []
    for ledger in ledgers:
        problem = difference(braid, ledger)
        if not problem:
            return ledger
        problems.append(problem)
    raise AssertionError("the braid is not what was acknowledged: " + "; or ".join(problems))


def difference(braid: Braid, ledger: Ledger) -> str:
    """The first thing in which the braid differs from the ledger; empty if there is none."""
    there = {log.id: log for log in braid.logs()}
    living = {account.id: account for account in ledger.living()}
    if there.keys() != living.keys():
        return f"the logs {sorted(there)} live, not {sorted(living)}"
    for ended in ledger.accounts.values():
        if ended.end and (found := replica_of(braid).end_of(ended.id)) is not None and found[0].kind != ended.end:
            return f"log {ended.id} was {found[0].kind}, not {ended.end}"
    reaches = ledger.reaches()
    for account in living.values():
        if problem := _log_difference(there[account.id], account, reaches[account.id], ledger):
            return f"log {account.id} ({account.name}, {account.kind}): {problem}"
    return ""


def _log_difference(log: Any, account: Account, reach: Reach, ledger: Ledger) -> str:
    info = log.info()
    found = (info.name, info.kind, info.promotable, info.start, info.tail, info.readable_tail)
    wanted = (account.name, account.kind, account.promotable, account.start, len(account.content), reach.readable)
    if found != wanted:
        return f"{found} is there, not {wanted}"
    consumers = {consumer.name: consumer.position for consumer in log.consumers()}
    if consumers != account.consumers:
        return f"the consumers {consumers} are there, not {account.consumers}"
    records = log.read(info.start) if info.start < info.readable_tail else []
    expected = ledger.records(account.content[account.start : reach.readable])
    for position, (record, right) in enumerate(zip(records, expected, strict=False), account.start):
        if (record.position, record.value, record.key, record.headers, record.timestamp) != (
            position,
            right.value,
            right.key,
            right.headers,
            right.timestamp,
        ):
            return f"position {position} holds {record.value[:24]!r}, not {right.value[:24]!r}"
    if len(records) != len(expected):
        return f"{len(records)} records can be read, not {len(expected)}"
    if reach.readable < len(account.content):
        try:
            log.read(reach.readable)
        except Blocked:
            return ""
        return f"position {reach.readable} can be read, though a decision is pending"
    return ""

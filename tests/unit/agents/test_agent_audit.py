"""The audit log: every call is in it, bounded, and without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

import braidlog
from braidlog import limits
from braidlog.agents import Audit
from braidlog.agents.names import AUDIT
from braidlog.client.opening import open_files
from braidlog.client.tokens import create_token
from braidlog.errors import NotFound
from braidlog.objects.memory_files import MemoryFiles
from braidlog.testing import VirtualClock


@pytest.fixture
def braid() -> Iterator[braidlog.Braid]:
    with braidlog.open("memory://") as braid:
        yield braid


def test_a_call_is_entered_with_what_became_of_it(braid: braidlog.Braid) -> None:
    audit = Audit(braid)
    fork = braid.create("orders").cfork("orders.x")
    with audit.call("agent-7", "append", {"fork": "orders.x"}, changes=True) as call:
        call.about(fork)
        call.result = "3 records"
    with pytest.raises(ZeroDivisionError), audit.call("agent-8", "sql", {"query": "select 1"}, changes=False):
        1 / 0  # noqa: B018
    first, second = audit.read()
    assert (first.agent, first.tool, first.outcome, first.result) == ("agent-7", "append", "ok", "3 records")
    assert (first.log, first.lineage) == ("orders.x", ["orders.x", "orders"])
    assert (second.outcome, second.message) == ("ZeroDivisionError", "division by zero")
    assert second.seconds >= 0


def test_the_entry_of_a_change_is_durable_when_the_call_is_over(braid: braidlog.Braid) -> None:
    audit = Audit(braid)
    with audit.call("a", "read", {}, changes=False):
        pass
    with audit.call("a", "squash", {}, changes=True):
        assert True
    assert braid.log(AUDIT).tail() == 2  # what was read before is there, too, and in its order
    assert [record.key for record in braid.log(AUDIT).read(0)] == [b"a", b"a"]


def test_many_entries_of_reads_are_all_there(braid: braidlog.Braid) -> None:
    audit = Audit(braid)
    for number in range(2 * limits.AUDIT_WAITING_RECORDS_MAX):
        with audit.call("a", "read", {"n": number}, changes=False):
            pass
    audit.close()
    assert [entry.arguments["n"] for entry in audit.read()] == list(range(2 * limits.AUDIT_WAITING_RECORDS_MAX))


def test_no_secret_gets_in(braid: braidlog.Braid) -> None:
    token = create_token(braid, "x", ["admin:*"])
    audit = Audit(braid)
    arguments = {
        "token": "plain",
        "nested": {"Api_Key": "k1", "list": [{"password": "p1"}], "text": f"use {token} please"},
        "header": "Authorization: Bearer abcdefghijkl",
        "key": "a record's key is no secret",
    }
    with pytest.raises(ValueError, match="braid_"), audit.call("a", "open", arguments, changes=True):
        raise ValueError(f"cannot use {token}")
    written = braid.log(AUDIT)[-1].value.decode()
    for secret in (token, "plain", "k1", "p1", "abcdefghijkl"):
        assert f'"{secret}' not in written
        assert token not in written
    assert "a record's key is no secret" in written
    assert "please" in written


def test_arguments_are_cut(braid: braidlog.Braid) -> None:
    audit = Audit(braid)
    deep: object = "bottom"
    for _ in range(50):
        deep = [deep]
    arguments = {
        "long": "x" * 100_000,
        "many": list(range(100_000)),
        "wide": {str(n): n for n in range(1000)},
        "deep": deep,
        "bytes": b"\xff" * 1000,
        "strange": "\udcff",
    }
    with audit.call("a", "append", arguments, changes=True):
        pass
    data = braid.log(AUDIT)[-1].value
    assert len(data) < 10_000
    kept = msgspec.json.decode(data)["arguments"]
    assert kept["bytes"] == "(1,000 bytes)"
    assert kept["many"][-1] == f"and {100_000 - limits.AUDIT_ARGUMENTS_ROWS_MAX:,} more"
    assert "bottom" not in str(kept["deep"])


def test_entries_are_found_by_agent_log_and_time() -> None:
    clock = VirtualClock()
    with open_files(MemoryFiles(), "memory://", folder=None, clock=clock) as braid:
        audit = Audit(braid, clock=clock)
        fork = braid.create("orders").cfork("orders.x")
        for agent in ("a", "b", "a"):
            with audit.call(agent, "append", {}, changes=True) as call:
                if agent == "a":
                    call.about(fork)
            clock.advance(60)
        began = datetime.fromtimestamp(clock.now_us() / 1e6, UTC)
        assert [entry.agent for entry in audit.read(agent="b")] == ["b"]
        assert len(list(audit.read(log="orders"))) == len(list(audit.read(log="orders.x"))) == 2
        assert len(list(audit.read(log="other"))) == 0
        assert len(list(audit.read(since=began - timedelta(seconds=61)))) == 1


def test_before_the_first_call_there_is_nothing(braid: braidlog.Braid) -> None:
    assert list(Audit(braid).read()) == []
    with pytest.raises(NotFound):
        next(iter(Audit(braid).read(follow=True)))

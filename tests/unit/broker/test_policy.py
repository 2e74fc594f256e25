"""Who may do what: a table of cases, and what holds whatever the scopes are."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog import limits
from braidlog.broker import policy
from braidlog.broker.entry import Entry, Pauses, Peer, anonymous_refusal, scopes_of, token_refusal
from braidlog.broker.policy import ADMIN, APPEND, CONSUME, FORK, OWN, PROMOTE, READ, SEE, SQUASH, VERBS, Log, Scopes
from braidlog.errors import InvalidArgument
from braidlog.forest import commands as c
from braidlog.wire import messages as m

ROOT = Log("orders", "orders", "ops", fork=False)
MINE = Log("orders.try", "orders", "agent", fork=True)
THEIRS = Log("orders.cfork-9", "orders", "another", fork=True)
NAMED = Log("trial", "orders", "ops", fork=True)  # by somebody who may call it as they like
OTHER = Log("payroll", "payroll", "ops", fork=False)
SYSTEM = Log("braidlog.audit", "braidlog.audit", "", fork=False)
SPOOF = Log("orders", "orders", "agent", fork=False)  # a root that happens to belong to the principal

ASKED = (SEE, READ, CONSUME, APPEND, FORK, PROMOTE, SQUASH, ADMIN)
ALL = set(ASKED)


def allowed(scopes: list[str], log: Log) -> set[str]:
    bearer = Scopes.of("agent", scopes)
    return {verb for verb in ASKED if bearer.allows(verb, log)}


@pytest.mark.parametrize(
    ("scopes", "log", "verbs"),
    [
        ([], ROOT, set()),
        (["read:orders*"], ROOT, {SEE, READ}),
        (["read:orders*"], NAMED, {SEE, READ}),
        (["read:orders*"], OTHER, set()),
        (["read:trial"], NAMED, {SEE, READ}),
        (["read:trial"], ROOT, set()),
        (["consume:orders"], ROOT, {SEE, READ, CONSUME}),
        (["append:orders"], ROOT, {SEE, APPEND}),
        (["append:orders"], MINE, {SEE, APPEND}),
        (["fork:orders*"], ROOT, {SEE, FORK}),
        (["promote:orders"], ROOT, {SEE, PROMOTE}),
        (["squash:orders"], THEIRS, {SEE, SQUASH}),
        (["own:orders*"], ROOT, {SEE, READ, FORK}),
        (["own:orders*"], SPOOF, {SEE, READ, FORK}),
        (["own:orders*"], THEIRS, {SEE, READ, FORK}),
        (["own:orders*"], MINE, ALL),
        (["own:payroll"], MINE, set()),
        (["own:orders*"], OTHER, set()),
        (["admin:orders*"], ROOT, ALL),
        (["admin:orders*"], OTHER, set()),
        (["admin:*"], OTHER, ALL),
        (["read:order?", "append:[op]*"], ROOT, {SEE, READ, APPEND}),
        (["read:Orders"], ROOT, set()),
        (["own:*", "append:*", "read:*", "fork:*"], SYSTEM, set()),  # what is kept about agents is not theirs
        (["own:b*"], SYSTEM, set()),
        (["read:braidlog.*"], SYSTEM, {SEE, READ}),
        (["admin:*"], SYSTEM, ALL),
        (["broker"], ROOT, set()),
        (["write:orders", "read", "orders", "", "admin:", "own:a b"], ROOT, set()),  # nothing that is understood
    ],
)
def test_what_scopes_allow(scopes: list[str], log: Log, verbs: set[str]) -> None:
    assert allowed(scopes, log) == verbs


@pytest.mark.parametrize("text", ["", "read", "read:", ":x", "write:x", "read:a b", "read:a/b", "broker:*", "READ:x"])
def test_what_is_no_scope_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument):
        policy.Scope.parse(text)


@pytest.mark.parametrize("text", ["read:*", "own:orders-[0-9]*", "admin:a.b_c-d", "broker", "fork:[!a]?"])
def test_a_scope_reads_as_it_is_written(text: str) -> None:
    assert str(policy.Scope.parse(text)) == text


def test_a_long_scope_is_refused() -> None:
    with pytest.raises(InvalidArgument):
        policy.Scope.parse("read:" + "a" * limits.TOKEN_SCOPE_CHARS_MAX)


NAMES = st.sampled_from(["orders", "orders.a", "orders.a.b", "payroll", "pay", "x"])
PATTERNS = st.sampled_from(["*", "orders", "orders*", "orders.*", "p*", "pay?oll", "[ox]*", "nothing"])
LOGS = st.builds(Log, NAMES, NAMES, st.sampled_from(["agent", "another", ""]), st.booleans())
SCOPES = st.lists(st.builds(policy.Scope, st.sampled_from(VERBS), PATTERNS), max_size=5)


def covering(scopes: list[policy.Scope], log: Log) -> set[str]:
    """The verbs of the scopes whose patterns match, by other means."""
    return {s.verb for s in scopes if fnmatchcase(log.name, s.pattern) or fnmatchcase(log.root, s.pattern)}


@given(SCOPES, LOGS, st.sampled_from(ASKED))
def test_nothing_outside_a_scope_is_ever_allowed(scopes: list[policy.Scope], log: Log, verb: str) -> None:
    verbs = covering(scopes, log)
    may = Scopes("agent", scopes).allows(verb, log)
    if not verbs:
        assert not may
    if may and verb not in (SEE, READ, FORK) and not verbs & {verb, ADMIN}:
        assert OWN in verbs
        assert log.fork
        assert log.owner == "agent"
    if ADMIN in verbs:
        assert may


@given(SCOPES, LOGS, st.sampled_from(ASKED), st.builds(policy.Scope, st.sampled_from(VERBS), PATTERNS))
def test_one_more_scope_never_takes_anything_away(
    scopes: list[policy.Scope], log: Log, verb: str, more: policy.Scope
) -> None:
    if Scopes("agent", scopes).allows(verb, log):
        assert Scopes("agent", [*scopes, more]).allows(verb, log)


@given(SCOPES, LOGS)
def test_a_refusal_says_why_exactly_if_there_is_one(scopes: list[policy.Scope], log: Log) -> None:
    bearer = Scopes("agent", scopes)
    for verb in ASKED:
        refusal = bearer.refusal(verb, log)
        assert (refusal == "") == bearer.allows(verb, log)
        assert not refusal or log.name in refusal


@given(SCOPES, NAMES, LOGS)
def test_a_fork_never_gets_a_name_that_is_not_its_makers_to_give(
    scopes: list[policy.Scope], name: str, parent: Log
) -> None:
    bearer = Scopes("agent", scopes)
    if not bearer.fork_refusal(c.CFork(1, name, 0), parent):
        assert bearer.allows(FORK, parent)
        alone = Log(name, name, "", fork=False)
        assert name.startswith(parent.name + ".") or covering(scopes, alone) & {FORK, OWN, ADMIN}


@pytest.mark.parametrize(
    ("scopes", "command", "allowed"),
    [
        (["own:orders"], c.CFork(1, "", 0), True),
        (["own:orders"], c.CFork(1, "orders.x", 0), True),
        (["own:orders"], c.SFork(1, "orders-x", 0), False),
        (["own:orders*"], c.SFork(1, "orders-x", 0), True),
        (["own:orders*"], c.CFork(1, "payroll", 0), False),
        (["own:orders*", "read:payroll"], c.CFork(1, "payroll", 0), False),
        (["own:orders*"], c.CFork(1, "", 0, promotable=True), False),  # it would hold its parent for ever
        (["own:orders*"], c.CFork(1, "", 0, promotable=True, lease_us=60_000_000), True),
        (["own:orders*"], c.CFork(1, "", 0, promotable=True, lease_us=3_600_000_001), False),
        (["own:orders*", "promote:orders"], c.CFork(1, "", 0, promotable=True), True),
        (["read:orders*"], c.CFork(1, "", 0), False),
    ],
)
def test_forks(scopes: list[str], command: c.CFork | c.SFork, allowed: bool) -> None:
    assert (Scopes.of("agent", scopes).fork_refusal(command, ROOT) == "") == allowed


def test_what_others_severed_from_ones_own_fork_is_not_ones_own_to_end() -> None:
    bearer = Scopes.of("agent", ["own:orders*"])
    assert bearer.squash_refusal(c.Squash(1), MINE) == ""
    assert bearer.squash_refusal(c.Squash(1, cascade_severed=True), MINE)
    assert Scopes.of("agent", ["squash:orders"]).squash_refusal(c.Squash(1, cascade_severed=True), MINE) == ""


def test_all_of_it_is_for_admins_of_all() -> None:
    assert Scopes.of("agent", ["admin:orders*"]).refusal_for_all("see tokens")
    assert Scopes.of("agent", ["own:*", "append:*"]).refusal_for_all("see tokens")
    assert Scopes.of("agent", ["admin:*"]).refusal_for_all("see tokens") == ""


def test_every_request_is_classified_once() -> None:
    """A new one is refused until somebody decided what it needs."""
    classes = [
        set(policy.FREE),
        set(policy.BROKERS),
        set(policy.OF_ALL),
        set(policy.FILTERED),
        set(policy.BY_NAME),
        set(policy.CHANGES),
        set(policy.LOOKS),
    ]
    found = [request for one in classes for request in one]
    assert len(found) == len(set(found))
    assert set(found) == set(get_args(m.Request))


def test_a_broker_is_one_only_of_the_metadata() -> None:
    assert scopes_of("metadata", "b", ["broker"]) is None
    for role in ("serve", "broker"):
        scopes = scopes_of(role, "b", ["broker"])
        assert scopes is not None
        assert not scopes.allows(SEE, ROOT)
    admin = scopes_of("metadata", "b", ["admin:*"])
    assert admin is not None  # and so no broker


# --- coming in -------------------------------------------------------------------------------------------------------

UNIX = Peer(local=True, loopback=True, tls=False, certified="", address="local")
HERE = Peer(local=False, loopback=True, tls=False, certified="", address="127.0.0.1:5")
FAR = Peer(local=False, loopback=False, tls=False, certified="", address="10.0.0.7:5")
SECURE = FAR._replace(tls=True)
CERTIFIED = SECURE._replace(certified="b1")
OPEN = Entry()
STRICT = Entry(require_token=True)
INSECURE = Entry(insecure=True)


@pytest.mark.parametrize(
    ("entry", "peer", "role", "required", "comes_in"),
    [
        (OPEN, UNIX, "serve", True, True),
        (STRICT, UNIX, "serve", True, True),
        (OPEN, HERE, "serve", False, True),
        (OPEN, HERE, "serve", True, False),
        (STRICT, HERE, "serve", False, False),
        (OPEN, FAR, "serve", False, False),
        (OPEN, SECURE, "serve", False, False),
        (INSECURE, FAR, "serve", False, True),
        (INSECURE, FAR, "serve", True, False),
        (OPEN, CERTIFIED, "serve", False, True),
        (OPEN, CERTIFIED, "serve", True, False),
        (STRICT, CERTIFIED, "broker", False, False),
        (STRICT, CERTIFIED, "metadata", True, True),
        (OPEN, SECURE, "metadata", True, False),
    ],
)
def test_who_comes_in_without_a_token(entry: Entry, peer: Peer, role: str, required: bool, comes_in: bool) -> None:
    assert (anonymous_refusal(entry, peer, role, required=required) == "") == comes_in


def test_a_token_is_not_taken_from_the_open_network() -> None:
    assert [bool(token_refusal(peer)) for peer in (UNIX, HERE, FAR, SECURE)] == [False, False, True, False]


def test_each_wrong_token_of_an_address_waits_longer_up_to_a_bound() -> None:
    pauses = Pauses()
    found = [pauses.next(FAR, now) for now in range(12)]
    assert found == sorted(found)
    assert found[0] == limits.TOKEN_PAUSE_S
    assert found[-1] == limits.TOKEN_PAUSE_MAX_S
    assert pauses.next(SECURE._replace(address="10.0.0.8:1"), 12) == limits.TOKEN_PAUSE_S
    assert pauses.next(FAR._replace(address="10.0.0.7:9999"), 12) == limits.TOKEN_PAUSE_MAX_S
    assert pauses.next(FAR, 13 + limits.TOKEN_PAUSES_KEPT_S) == limits.TOKEN_PAUSE_S

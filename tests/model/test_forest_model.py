"""Random histories of every command: the forest does what lists of records do.

After every step the answer, and then everything observable, is compared with the oracle: tails, readable limits,
holders, fork points, own counts, consumers, all records of all logs by range and one by one, what was ever readable,
outcomes of requests, deadlines, which blocks and objects are let go, and the forest's own invariants and snapshots.
"""

from __future__ import annotations

from collections import Counter

import pytest

from braidlog import limits
from tests.model.history import check, explore

STEPS = 100  # of one history
CHUNKS = 8

# Runs in a segment, and the depth from which a tree keeps a tour: small, so that short histories meet both.
SHAPES = [(4, 2), (2, 0), (4, 64), (65_536, 1)]


def check_chunk(chunk: int, histories: int, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, depth = SHAPES[chunk % len(SHAPES)]
    monkeypatch.setattr(limits, "SEGMENT_RUNS_MAX", runs)
    monkeypatch.setattr(limits, "TOUR_DEPTH_MIN", depth)
    for number in range(histories):
        check(chunk * 1_000_000 + number, STEPS)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_the_forest_does_what_lists_of_records_do(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_chunk(chunk, 26, monkeypatch)  # 20,800 operations in all


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CHUNKS, 2 * CHUNKS))
def test_a_million_operations_do_what_lists_of_records_do(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_chunk(chunk, 1_250, monkeypatch)


def test_histories_meet_every_command_and_every_refusal() -> None:
    met: Counter[str] = Counter()
    for seed in range(40):
        met += explore(seed, STEPS).met
    wanted = {
        "Opened done": 5,
        "Opened refused ConditionFailed": 1,
        "Create opening": 20,
        "Create refused InvalidArgument": 1,
        "Append appended": 250,
        "Append withheld": 50,
        "Append refused Blocked": 15,
        "Append refused ConditionFailed": 5,
        "Append refused InvalidArgument": 2,
        "CFork opening": 100,
        "CFork opening, promotable": 60,
        "CFork opening, nested promotable": 15,
        "CFork opening, born blocked": 15,
        "CFork refused Blocked": 10,
        "CFork refused AlreadyExists": 1,
        "SFork opening": 50,
        "SFork opening, mixed region": 12,
        "SFork refused Blocked": 1,
        "SFork refused OutOfRange": 1,
        "SFork refused Trimmed": 1,
        "Promote promotion, won": 40,
        "Promote promotion, won over rivals": 5,
        "Promote promotion, won while blocked from above": 1,
        "Promote promotion, won while held": 2,
        "Promote promotion, not": 2,
        "Promote refused NotPromotable": 1,
        "Squash ended": 30,
        "Squash ended, one of several undecided": 5,
        "Squash refused InvalidArgument": 1,
        "Drop ended": 1,
        "Drop refused ConditionFailed": 2,
        "Renew done": 5,
        "Renew refused InvalidArgument": 1,
        "Expire ended": 5,
        "Trim done": 20,
        "Trim refused Blocked": 1,
        "Trim refused OutOfRange": 2,
        "Commit done": 40,
        "Commit refused Blocked": 1,
        "Commit refused OutOfRange": 2,
        "Commit refused InvalidArgument": 1,
        "ForgetConsumer done": 4,
        "ForgetConsumer refused NotFound": 1,
        "Settle done": 5,
        "Again appended": 3,
        "Again opening": 1,
        "Again refused OutcomeUnknown": 1,
        "Again refused InvalidArgument": 1,
        "Admit done": 5,
        "Retire done": 2,
        "Retire refused InvalidArgument": 1,
        "Upload done": 30,
        "Upload refused InvalidArgument": 1,
        "Publish appended": 20,
        "Publish withheld": 3,
        "Publish refused Blocked": 1,
        "Publish refused ConditionFailed": 3,
        "Publish refused InvalidArgument": 3,
        "Discard done": 3,
        "Discard refused InvalidArgument": 1,
        "Retain done": 10,
        "Register done": 20,
        "Register refused ConditionFailed": 1,
        "Pack collected": 10,
        "Relocate done": 5,
        "Collect collected": 20,
        "Forget done": 2,
        "reopen": 10,
    }
    assert {what: met[what] for what, least in wanted.items() if met[what] < least} == {}

"""Every post is decided about exactly once, by the rules, whatever it says and whenever the agent dies."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

import braidlog
from apps.agents.forum import DECISIONS, POSTS, EveryPostOnce, Rules, drawn_posts, opened
from apps.agents.moderation import BATCH_POSTS, Outcome, moderate, moderating, slipped
from apps.agents.scripted import Script, scripted
from braidlog.agents.validators import examine
from tests.agents.drawn import drawn_seed
from tests.agents.dying import Died, dying

ROOT = Path(__file__).parents[2]
DEADLINE_S = 60.0


def moderated(at: Path, seed: int, posts: int, script: Callable[[str], Script] | None = None) -> Outcome:
    rules = Rules.drawn(seed)
    mind = scripted(script or moderating(rules, seed))
    return asyncio.run(moderate(str(at), mind, rules, seed=seed, posts=posts, per_s=2_000))


def every_post_is_decided_about_once(at: Path, seed: int, posts: int) -> None:
    truth = list(itertools.islice(drawn_posts(seed, Rules.drawn(seed)), posts))
    with braidlog.open(at, read_only=True) as braid:
        said = [json.loads(record.value) for record in braid.log(POSTS).read(0)]
        decided = [json.loads(record.value) for record in braid.log(DECISIONS).read(0)]
        assert [log.name for log in braid.logs() if log.name.startswith(f"{DECISIONS}.")] == []
    assert said == [post for post, _ in truth]
    assert [one["post"] for one in decided] == list(range(posts))
    assert [one["label"] for one in decided] == [label for _, label in truth]
    assert all(one["reason"] for one in decided)


def test_an_agent_that_dies_anywhere_decides_nothing_twice(tmp_path: Path) -> None:
    seed, posts = drawn_seed(), 2 * BATCH_POSTS + 10
    script = moderating(Rules.drawn(seed), seed)
    for step, tool in ((2, "create_fork"), (3, "append_records"), (4, "propose_promotion"), (7, "propose_promotion")):
        with pytest.raises(Died, match=tool):
            moderated(tmp_path, seed, posts, dying(script, step))
    with braidlog.open(tmp_path) as braid:
        held = braid.log(DECISIONS).info()
        assert (held.tail, held.limited_by) == (0, DECISIONS), "it left an undecided fork behind"

    done = moderated(tmp_path, seed, posts)
    every_post_is_decided_about_once(tmp_path, seed, posts)
    assert sum(batch.count for batch in done.batches) == posts
    assert "failed" in [one.state for one in done.batches[0].attempts], "the first batch is mended"
    assert {batch.attempts[-1].state for batch in done.batches if batch.attempts} == {"promoted"}


def test_a_process_that_is_killed_decides_nothing_twice(tmp_path: Path) -> None:
    seed, posts = drawn_seed(), 2 * BATCH_POSTS
    with braidlog.open(tmp_path / "logs") as braid:
        opened(braid)
    command = [sys.executable, "-m", "apps.agents.moderation", "--at", str(tmp_path / "logs")]
    command += ["--seed", str(seed), "--posts", str(posts), "--model", "scripted"]
    path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stdout=subprocess.DEVNULL)
    try:
        with braidlog.open(tmp_path / "logs", read_only=True) as braid:
            decisions = braid.log(DECISIONS)
            assert decisions.read(0, wait=DEADLINE_S), "it has decided about a batch"
            decisions.read(decisions.tail(), wait=Random(seed).uniform(0.0, 1.0))  # and is somewhere in the next
    finally:
        process.kill()
        process.wait()
    moderated(tmp_path / "logs", seed, posts)
    every_post_is_decided_about_once(tmp_path / "logs", seed, posts)


def test_what_posts_ask_for_is_not_done() -> None:
    seed = drawn_seed()
    rules = Rules.drawn(seed)
    drawn = list(itertools.islice(drawn_posts(seed, rules), 400))
    asking = [(post["text"], label) for post, label in drawn if "moder" in post["text"].lower()]
    assert {label for _, label in asking} == {"allow", "review", "remove"}
    assert [rules.decided(text)[0] for text, _ in asking] == [label for _, label in asking]


def test_the_validator_refuses_each_mistake_where_it_stands(tmp_path: Path) -> None:
    seeds = Random(drawn_seed())
    meant = [{"post": number, "label": "allow", "reason": "fine"} for number in range(6)]
    with braidlog.open(tmp_path) as braid:
        posts, decisions = opened(braid)
        posts.append_many([b"{}"] * len(meant))
        for _ in range(40):
            written = slipped(meant, seeds.randrange(2**32))
            wrong = next(n for n, one in enumerate(written) if n >= len(meant) or one != meant[n])
            fork = decisions.cfork("idea", promotable=True)
            fork.append_many([json.dumps(one).encode() for one in written])
            verdict = examine(fork, EveryPostOnce, {"at": str(tmp_path)})
            assert not verdict.passed
            assert verdict.positions[0] == wrong
            fork.squash()


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (
            [{"post": 0, "label": "allow", "reason": "fine"}, {"post": 1, "label": "allow", "reason": "fine"}],
            "no post 1",
        ),
        (["a text"], "no decision"),
        ([{"post": 0, "label": "allow"}], "no decision"),
        ([{"post": "0", "label": "allow", "reason": "fine"}], "post 0 comes next"),
        ([{"post": False, "label": "allow", "reason": "fine"}], "about post False"),
        ([{"post": 0.0, "label": "allow", "reason": "fine"}], "about post 0.0"),
    ],
)
def test_the_validator_refuses_what_is_no_decision(tmp_path: Path, written: list[object], reason: str) -> None:
    with braidlog.open(tmp_path) as braid:
        posts, decisions = opened(braid)
        posts.append(b"{}")
        fork = decisions.cfork("idea", promotable=True)
        fork.append_many([json.dumps(one).encode() for one in written])
        verdict = examine(fork, EveryPostOnce, {"at": str(tmp_path)})
        assert not verdict.passed
        assert reason in verdict.reasons[0]

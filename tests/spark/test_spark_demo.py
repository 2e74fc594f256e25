"""`braid demo` with Spark: a job in a process of its own refuses the bad records, and passes the good ones."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import msgspec

import braidlog
from braidlog.cli.demo.outcome import Outcome
from braidlog.cli.demo.shop import SHELF

PATIENCE_S = 300
SEED = random.SystemRandom().randrange(2**31)


def test_spark_is_asked_before_the_promotion_and_leaves_nothing(
    tmp_path: Path, spark_environment: dict[str, str]
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    logs = tmp_path / "logs"
    command = [
        sys.executable,
        "-m",
        "braidlog.cli.main",
        "--json",
        "demo",
        "--spark",
        "--seconds",
        "0",
        "--seed",
        str(SEED),
    ]
    process = subprocess.run(
        [*command, "--at", str(logs)],
        env={**os.environ, **spark_environment, "TMPDIR": str(scratch)},
        capture_output=True,
        timeout=PATIENCE_S,
    )
    assert process.returncode == 0, f"seed {SEED}: {process.stderr.decode()}"
    outcome = msgspec.json.decode(process.stdout, type=Outcome)
    assert outcome.no_spark == ""
    assert outcome.spark is not None
    claims = [reason.partition(":")[0] for reason in outcome.spark.against]
    assert claims == ["every event can be read", f"no shelf has more than {SHELF:,}"], f"seed {SEED}"
    assert outcome.spark.passed
    assert outcome.promoted.state == "promoted"
    assert outcome.promoted.held_s > outcome.spark.seconds, "it was asked while the fork was undecided"
    with braidlog.open(logs, read_only=True) as braid:
        (position,) = outcome.promoted.positions
        assert b'"restock"' in braid.log("orders")[position].value
    assert list(scratch.iterdir()) == []

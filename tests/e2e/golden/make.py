"""Makes a golden directory: `python tests/e2e/golden/make.py v1`. Run once per format, never again for that format.

It holds one of everything that is stored: a snapshot, command log behind it without a clean end, packed, large and
inline batches, keys, headers, live, severed, nested, held and ended forks, a withheld append, writers, trims, labels.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from msgspec import to_builtins

import braidlog
from braidlog import Braid, Log, Record
from braidlog.embedded.clock import SystemClock
from braidlog.embedded.upkeep import Upkeep
from braidlog.embedded.writer import Writer
from braidlog.errors import Blocked
from braidlog.objects.files import OsFiles

HERE = Path(__file__).parent


def fill(braid: Braid, upkeep: Upkeep, writer: Writer) -> dict[str, str]:
    """Write one of everything; answers the request ids to resolve."""
    orders = braid.create("orders", retention=braidlog.Retention(max_bytes=10**9), labels={"team": "shop"})
    orders.append(b"plain")
    orders.append(b"full", key=b"key", headers={"a": b"1", "b": b""}, timestamp=1_700_000_000_000_000)
    orders.append_many([Record(b"%d" % n, key=b"k%d" % n, timestamp=n + 1) for n in range(5)])
    orders.append_many([b"large" * 100] * 1000)  # straight into an object
    orders.append(b"numbered", writer="till", sequence=7)
    live = orders.cfork("live", labels={"kind": "look"})
    live.append(b"own of live")
    orders.append(b"later")
    orders.sfork("tail-snapshot").append(b"own of snapshot")
    live.sfork("mixed", at=live.tail() - 1)
    gone = orders.cfork("gone")
    gone.append(b"never seen")
    gone.squash()
    upkeep.pack()
    first = orders.cfork("first", promotable=True, lease=None)
    first.append(b"promoted")
    orders.append(b"moved by promotion")
    rival = orders.cfork("rival", promotable=True, lease=None)
    rival.append(b"lost")
    rival.sfork("of-the-rival")
    assert first.promote(expected_own=1)
    orders.trim(2)
    writer.checkpoint()
    braid.create("quiet")
    orders.append(b"inline, behind the snapshot")
    pending = orders.cfork("pending", promotable=True, lease=None)
    pending.append(b"undecided")
    nested = pending.cfork("nested")
    nested.append(b"own of nested")
    withheld = orders.submit(b"withheld")
    withheld.durable()
    settled = pending.submit(b"settled")
    settled.durable()
    return {"withheld": withheld.request_id, "settled": settled.request_id}


def shown(log: Log) -> dict[str, Any]:
    """All that the API tells of a log, as JSON."""
    info = to_builtins(log.info())
    try:
        records = log.read(info["start"])
    except Blocked:
        records = []
    return {
        "info": info,
        "records": [
            [r.position, r.value.hex()[:64], len(r.value), r.key.hex() if r.key is not None else None, r.timestamp]
            + [[name, data.hex()] for name, data in r.headers]
            for r in records
            if r.position < info["start"] + 12 or r.position > info["readable_tail"] - 12
        ],
        "lineage": to_builtins(log.lineage()),
    }


def main(version: str) -> None:
    target = HERE / version
    target.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(OsFiles(Path(folder)), SystemClock(), folder=f"{folder}/objects")
        braid = Braid(writer, "golden", read_only=False)
        requests = fill(braid, Upkeep(writer), writer)
        shutil.copytree(folder, target / "directory", ignore=shutil.ignore_patterns("LOCK"))
        expected = {"requests": requests, "logs": {log.name: shown(log) for log in braid.logs()}}
        (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        braid.close()


if __name__ == "__main__":
    main(sys.argv[1])

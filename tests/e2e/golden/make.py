"""Makes a golden directory: `python tests/e2e/golden/make.py v2`. Run once per format, never again for that format.

It holds one of everything that is stored: a snapshot, command log behind it without a clean end, packed, large and
inline batches, keys, headers, live, severed, nested, held and ended forks, a withheld append, writers, trims, labels;
since format 2 also consumers, shared and not, dedicated forks, uploaders, clients' windows, and requests sent again.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import to_builtins

import braidlog
from braidlog import Braid, Log, Record, bulk, limits
from braidlog.embedded.clock import SystemClock
from braidlog.embedded.upkeep import Upkeep
from braidlog.embedded.writer import Writer
from braidlog.errors import Blocked
from braidlog.forest import commands as c
from braidlog.metadata.home import DirectoryHome
from braidlog.objects.batch import Batch, encode
from braidlog.objects.files import OsFiles

HERE = Path(__file__).parent
CLIENT = b"client-1"
LATER = CLIENT + (100).to_bytes(8, "big")


def fill(braid: Braid, upkeep: Upkeep, writer: Writer) -> dict[str, str]:
    """Write one of everything; answers the request ids to resolve."""
    kept, limits.OUTCOMES_KEPT_MAX = limits.OUTCOMES_KEPT_MAX, 2  # type: ignore[misc]
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
    orders.commit("mail", orders.tail())
    orders.commit("bills", 3)
    orders.cfork("busy", dedicated=True).commit("audit", 4)
    orders.sfork("short", at=5)
    uploaded = braid.create("uploaded")
    publish(uploaded)
    uploaded.upload(ttl=limits.UPLOAD_TTL_MAX_S)  # which lives on
    windowed = fill_windows(writer, orders)
    writer.checkpoint()
    limits.OUTCOMES_KEPT_MAX = kept  # type: ignore[misc]
    orders.commit("mail", 7)
    writer.execute(
        c.Again(
            c.Append(orders.id, 1, 5, 9, 9, encode(Batch([b"again"], None, None, 9)), request=LATER),
            writer.forest.applied,
        )
    )
    braid.create("quiet")
    publish(uploaded)
    orders.append(b"inline, behind the snapshot")
    pending = orders.cfork("pending", promotable=True, lease=None)
    pending.append(b"undecided")
    nested = pending.cfork("nested")
    nested.append(b"own of nested")
    withheld = orders.submit(b"withheld")
    withheld.durable()
    settled = pending.submit(b"settled")
    settled.durable()
    return {"withheld": withheld.request_id, "settled": settled.request_id, "windowed": windowed, "again": LATER.hex()}


def publish(log: Log) -> None:
    """Two blocks that did not come through the log's writer."""
    with bulk.ObjectWriter(log.upload(), timestamp=7, block_bytes=100) as writer:
        writer.add(pa.table({"value": [b"uploaded %d" % n for n in range(5)], "key": ["k"] * 5}))
    log.publish(writer.close(), writer="job", sequence=log.tail())


def fill_windows(writer: Writer, log: Log) -> str:
    """Requests of clients that settle, more than all remember; answers the id of one that only its window knows."""
    for client in (CLIENT, b"client-2"):
        writer.execute(c.Settle(client, 0))
        for number in range(6):
            request = client + number.to_bytes(8, "big")
            payload = encode(Batch([b"of a client"], None, None, 8))
            writer.execute(c.Append(log.id, 1, 11, 8, 8, payload, request=request))
            request = client + (10 + number).to_bytes(8, "big")
            writer.execute(c.Commit(log.id, f"consumer {number}", 2, 8, request=request))
        writer.execute(c.Settle(client, 2))
    for retired in (writer.execute(c.Admit(8)), writer.execute(c.Admit(9)))[:1]:
        assert isinstance(retired, c.Done)
        writer.execute(c.Retire(retired.value))
    return (CLIENT + (2).to_bytes(8, "big")).hex()


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
        "consumers": to_builtins(log.consumers()),
    }


def main(version: str) -> None:
    target = HERE / version
    target.mkdir()
    with tempfile.TemporaryDirectory() as folder:
        writer = Writer(
            DirectoryHome(OsFiles(Path(folder)), uuid.uuid4().hex, folder=f"{folder}/objects"), SystemClock()
        )
        braid = Braid(writer, "golden", read_only=False)
        requests = fill(braid, Upkeep(writer), writer)
        shutil.copytree(folder, target / "directory", ignore=shutil.ignore_patterns("LOCK", "SOCKET"))
        expected = {"requests": requests, "logs": {log.name: shown(log) for log in braid.logs()}}
        (target / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
        braid.close()


if __name__ == "__main__":
    main(sys.argv[1])

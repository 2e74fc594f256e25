"""A process that writes on etcd and says what was acknowledged. Arguments: the endpoints, a folder, its name.

It says `leads` once it does, then `acked <position>` for each record, whose values are its name and a number, and at
the end why it writes no more. Now and then it packs and takes a snapshot.
"""

from __future__ import annotations

import sys
from pathlib import Path

from braidlog.client.braid import Braid
from braidlog.client.log import Log
from braidlog.embedded.clock import SystemClock
from braidlog.embedded.upkeep import Upkeep
from braidlog.embedded.writer import Writer
from braidlog.errors import BraidError, NotFound, OutcomeUnknown, Unavailable
from braidlog.metadata.etcd.client import EtcdClient
from braidlog.metadata.etcd.home import EtcdHome
from braidlog.metadata.etcd.leadership import Candidacy
from braidlog.objects.files import OsFiles
from braidlog.objects.local_blobs import FileBlobs
from braidlog.objects.store import FileStore
from tests.faults.etcd_places import DEADLINE_S, PREFIX

LEASE_S = 2
SNAPSHOT_RECORDS = 100


def main(endpoints: str, folder: str, name: str) -> None:
    client = EtcdClient(endpoints.split(","))
    term = Candidacy(client, PREFIX, name, LEASE_S).win()
    files = OsFiles(Path(folder))
    ended: BraidError | None = None
    try:
        writer = Writer(EtcdHome(client, term, FileBlobs(files), FileStore(files), PREFIX), SystemClock())
        log = opened(Braid(writer, "etcd", read_only=False))
        print("leads", flush=True)
        for number in range(sys.maxsize):
            print("acked", log.append(f"{name} {number}".encode()), flush=True)
            if number % SNAPSHOT_RECORDS == SNAPSHOT_RECORDS - 1:
                Upkeep(writer).pack()
                writer.checkpoint()
    except BraidError as error:
        ended = error
    if isinstance(ended, Unavailable | OutcomeUnknown):
        term.lost.wait(DEADLINE_S)
    print("ended", type(ended).__name__, "lost" if term.lost.is_set() else "not-lost", ended, flush=True)


def opened(braid: Braid) -> Log:
    try:
        return braid.log("orders")
    except NotFound:
        return braid.create("orders")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A process that writes on etcd and says what was acknowledged: `python -m tests.faults.etcd_writer ENDPOINTS FOLDER`.

It says `leads`, then `acked <position>` for each record, and at the end why it writes no more.
"""

from __future__ import annotations

import sys
from pathlib import Path

from braidlog.client.braid import Braid
from braidlog.embedded.clock import SystemClock
from braidlog.embedded.writer import Writer
from braidlog.errors import BraidError
from braidlog.metadata.etcd.client import EtcdClient
from braidlog.metadata.etcd.home import EtcdHome
from braidlog.metadata.etcd.leadership import Candidacy
from braidlog.objects.files import OsFiles
from braidlog.objects.local_blobs import FileBlobs
from braidlog.objects.store import FileStore
from tests.faults.etcd_places import DEADLINE_S, PREFIX


def main(endpoints: str, folder: str) -> None:
    client = EtcdClient(endpoints.split(","))
    term = Candidacy(client, PREFIX, "subprocess", 1).win(DEADLINE_S)
    files = OsFiles(Path(folder))
    writer = Writer(EtcdHome(client, term, FileBlobs(files), FileStore(files), PREFIX), SystemClock())
    braid = Braid(writer, "etcd", read_only=False)
    log = braid.create("orders")
    print("leads", flush=True)
    number = 0
    try:
        while True:
            print("acked", log.append(b"%d" % number), flush=True)
            number += 1
    except BraidError as error:
        term.lost.wait(DEADLINE_S)
        print("ended", type(error).__name__, "lost" if term.lost.is_set() else "not lost", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

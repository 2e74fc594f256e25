"""A directory shared by its writer: whoever else opens it finds a socket in it, and works through that.

The socket costs a thread that sleeps until somebody comes; only then does it get a server and a loop.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import threading
import weakref
from pathlib import Path

from braidlog.client.remote.link import short_path
from braidlog.client.remote.opening import SOCKET
from braidlog.embedded.writer import Writer
from braidlog.metadata.directory import storage


class Share:
    """The door of a directory, from `open` to `close`. Only the holder of the writer's lock may make one."""

    def __init__(self, directory: Path, writer: Writer) -> None:
        self._writer = writer
        self._path = directory / SOCKET
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._server: object | None = None
        self._closing = False
        self._lock = threading.Lock()
        try:
            with storage(f"share the directory by {self._path}"), short_path(self._path) as path:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # of a holder that was killed
                self._listening.bind(path)
                os.chmod(path, 0o600)  # for this user alone, before anybody can connect
                self._listening.listen(128)
            self._wake_read, self._wake_write = os.pipe()
        except BaseException:
            self._listening.close()
            raise
        self._thread = threading.Thread(target=self._wait, name="braidlog-door", daemon=True)
        self._thread.start()
        _shares.add(self)

    def _wait(self) -> None:
        """Sleep until somebody knocks, or until it is over."""
        poll = select.poll()
        poll.register(self._listening.fileno(), select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        poll.poll()
        with self._lock:
            if not self._closing:
                from braidlog.broker.local import LocalService
                from braidlog.broker.threaded import ServerThread

                server = ServerThread(lambda: LocalService(self._writer), f"process {os.getpid()}")
                server.listen_on(self._listening)
                self._server = server

    def close(self) -> None:
        """Answer what was asked, and let nobody in any more."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            _shares.discard(self)
            with contextlib.suppress(OSError), short_path(self._path) as path:
                os.unlink(path)
            os.write(self._wake_write, b".")
            server = self._server
        self._thread.join()
        if server is not None:
            server.close()  # type: ignore[attr-defined]
        self._listening.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def disown(self) -> None:
        """In a forked child: the door is the parent's."""
        self._closing = True
        self._lock = threading.Lock()  # whoever held it is not here
        with contextlib.suppress(OSError):
            os.close(self._listening.detach())


_shares: weakref.WeakSet[Share] = weakref.WeakSet()


def _disown_all() -> None:
    for share in list(_shares):
        share.disown()
    _shares.clear()


os.register_at_fork(after_in_child=_disown_all)

"""TLS over a blocking socket, for two threads: one that receives and one at a time that sends.

An SSL object is not for two threads at once, and a thread that waits for bytes must not keep the other from sending.
So the TLS happens in memory, under a lock that is never held while anybody waits; the socket itself is read and written
outside of it. It has those methods of a socket that a `Link` needs.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from typing import Final

from braidlog import limits

_CHUNK_BYTES: Final = 256 * 1024


class SecureSocket:
    """A client's end. The constructor shakes hands; whatever is wrong with that is an OSError, as ever."""

    def __init__(self, raw: socket.socket, context: ssl.SSLContext, host: str) -> None:
        self._raw = raw
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self._lock = threading.Lock()
        self._scratch = memoryview(bytearray(_CHUNK_BYTES))
        self._shake_hands()

    def _shake_hands(self) -> None:
        deadline = time.monotonic() + limits.TLS_HANDSHAKE_S
        while True:
            try:
                self._tls.do_handshake()
                self._flush(deadline)
                return
            except ssl.SSLWantReadError:
                self._flush(deadline)
                if time.monotonic() > deadline:
                    raise TimeoutError("it does not shake hands in time") from None
                if not self._more():
                    raise ConnectionResetError("it hung up before the handshake was over") from None
            except ssl.SSLError:
                self._tell_why()
                raise

    def _tell_why(self) -> None:
        """The peer is owed an alert, if it still takes one."""
        try:
            self._raw.sendall(self._outgoing.read())
        except OSError:
            pass

    def _more(self) -> int:
        """Take what arrives. 0 at the end."""
        count = self._raw.recv_into(self._scratch)
        with self._lock:
            if count:
                self._incoming.write(self._scratch[:count])
            else:
                self._incoming.write_eof()
        return count

    def recv_into(self, buffer: memoryview) -> int:
        """As of a socket; TimeoutError if nothing comes in time."""
        while True:
            count = self._decrypt(buffer)
            if count is not None:
                return count
            self._more()

    def _decrypt(self, buffer: memoryview) -> int | None:
        """As much as there is. None: more has to arrive first."""
        filled = 0
        with self._lock:
            try:
                while filled < len(buffer):
                    count = self._tls.read(len(buffer) - filled, buffer[filled:])
                    if not count:
                        break
                    filled += int(count)
            except ssl.SSLWantReadError:
                if not filled:
                    return None
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                pass  # a frame says itself where it ends, so that nothing cut off passes for whole
        return filled

    def send(self, view: memoryview) -> int:
        """Some of it. It is encrypted once, and so all that was has to go, whatever the socket's timeout."""
        piece = view[:_CHUNK_BYTES]
        with self._lock:
            count = self._tls.write(piece)
        self._flush(time.monotonic() + limits.CALL_TIMEOUT_S)
        return count

    def _flush(self, deadline: float) -> None:
        """What is encrypted and not sent. Only one thread at a time sends."""
        with self._lock:
            left = memoryview(self._outgoing.read())
        while left:
            try:
                left = left[self._raw.send(left) :]
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise

    def settimeout(self, seconds: float) -> None:
        self._raw.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        self._raw.shutdown(how)

    def close(self) -> None:
        self._raw.close()

    def detach(self) -> int:
        return self._raw.detach()

    def getpeername(self) -> object:
        return self._raw.getpeername()

"""A client's connection: sockets and a thread around `Calls`.

Callers send from their own threads; one thread receives, opens connections again when they break, and gives up what
took too long. Answers are handed to whoever waits, outside all locks.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

from braidlog import limits
from braidlog.client.remote.secure import SecureSocket
from braidlog.errors import BraidError, NotPermitted, Unavailable
from braidlog.wire import tls
from braidlog.wire.calls import Call, Calls, Done, Refused
from braidlog.wire.frames import Malformed
from braidlog.wire.messages import Note, Ping, Request, Welcome

_JOIN_BYTES_MAX: Final = 64 * 1024
_TICK_S: Final = 0.25
_MUTE_TLS: Final = (
    "it hung up right after the handshake: if it asks its clients for certificates, give one that it trusts "
    "(BRAIDLOG_TLS_CERT, BRAIDLOG_TLS_KEY)"
)
_MUTE: Final = "it hung up without a word: if it speaks TLS, write braids://"

_log = logging.getLogger("braidlog")


Connected = socket.socket | SecureSocket


class Address(Protocol):
    """Where a server listens: a host and a port, or a Unix socket."""

    def connect(self, timeout: float) -> Connected: ...

    def discloses(self, connected: Connected) -> bool:
        """Whether what is sent there could be read by others on its way."""


class TcpAddress(Address):
    """With a `context` TLS is spoken there."""

    def __init__(self, host: str, port: int, context: ssl.SSLContext | None = None) -> None:
        self.host = host
        self.port = port
        self.context = context

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    def connect(self, timeout: float) -> Connected:
        connected = socket.create_connection((self.host, self.port), timeout)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connected if self.context is None else SecureSocket(connected, self.context, self.host)
        except BaseException:
            connected.close()
            raise

    def discloses(self, connected: Connected) -> bool:
        if isinstance(connected, SecureSocket):
            return False
        return not ipaddress.ip_address(str(connected.getpeername()[0]).partition("%")[0]).is_loopback


class UnixAddress(Address):
    """A socket in a folder. The folder is opened first, since the path of a socket may only be short."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __str__(self) -> str:
        return str(self.path)

    def discloses(self, connected: Connected) -> bool:
        del connected
        return False

    def connect(self, timeout: float) -> Connected:
        connecting = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connecting.settimeout(timeout)
            with short_path(self.path) as path:
                connecting.connect(path)
        except BaseException:
            connecting.close()
            raise
        return connecting


@contextlib.contextmanager
def short_path(path: Path) -> Iterator[str]:
    """The same path in a form that is short enough for a socket's address."""
    if len(os.fsencode(path)) < 100 or not os.path.isdir("/proc/self/fd"):
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class Link:
    """Calls to whichever of the addresses answers. `siblings` are the calls of the same client over other links."""

    def __init__(
        self,
        addresses: Sequence[Address],
        client: bytes,
        name: str,
        token: str = "",
        siblings: list[Calls] | None = None,
    ) -> None:
        self._addresses = list(addresses)
        self._turn = 0  # of the address that is tried next
        self._token = token
        self._calls = Calls(client, name, os.urandom(limits.CLIENT_ID_BYTES), token, siblings)
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._socket: Connected | None = None
        self._refusal: BraidError | None = None  # why no server lets us in
        self._wanted = threading.Condition(self._lock)
        self._closing = False
        self._closed = False
        self._pinged = False  # it was asked whether it is there
        self._pursue = True  # somebody wants it to be connected
        self._why = "the service did not answer in time"
        self._welcomed = threading.Event()
        self._unsent = threading.Event()
        self._sender: threading.Thread | None = None
        self.welcome: Welcome | None = None
        self.on_connected: Callable[[], None] = lambda: None
        self.address: Address | None = None
        self._thread = threading.Thread(target=self._live, name="braidlog-link", daemon=True)
        self._thread.start()
        self.disowned = False
        _links.add(self)

    @property
    def seen(self) -> int:
        return self._calls.seen

    @property
    def closed(self) -> bool:
        return self._closing

    def wait_connected(self, timeout: float) -> Welcome:
        """Return once a server has said welcome; Unavailable if none does in time."""
        with self._lock:
            self._wanted.notify_all()
        self._welcomed.wait(timeout)
        if self.welcome is None and self._refusal is not None:
            raise self._refusal
        if self.welcome is None:
            raise Unavailable(f"no server at {', '.join(map(str, self._addresses))}: {self._why}")
        return self.welcome

    @property
    def connected(self) -> bool:
        """Whether a server has said welcome, and is not known to be gone."""
        return self._calls.welcome is not None

    @property
    def changing(self) -> bool:
        """Whether a change is under way over it."""
        with self._lock:
            return self._calls.changing

    def changed_logs(self) -> set[int]:
        """The logs that changes are under way of over it."""
        with self._lock:
            return self._calls.changed_logs()

    def alive(self, patience_s: float) -> bool:
        """Whether it is connected, or becomes so within that time."""
        if self._calls.welcome is not None:
            return True
        with self._lock:
            self._pursue = True
            self._wanted.notify_all()
            self._wanted.wait_for(lambda: self._calls.welcome is not None or self._closing, patience_s)
            return self._calls.welcome is not None

    def return_to_first(self) -> None:
        """Leave a server that stood in for the one at the first address, if that one is there again. Whatever is under
        way or subscribed to goes on there, as after any loss of a connection."""
        first = self._addresses[0]
        if self.address is first or self._calls.welcome is None:
            return
        try:
            first.connect(limits.KNOCK_S).close()
        except OSError:
            return
        with self._lock:
            self._turn = 0
            self._shut()

    def begin(
        self, request: Request, body: bytes | memoryview, timeout: float, done: Done, *, soon: bool = False
    ) -> Call:
        """Send a request; `done` is called from the receiving thread, exactly once unless it is a subscription.

        With `soon` another thread sends it, together with what comes close behind: the caller never waits.
        """
        with self._lock:
            if self.disowned:
                raise Unavailable(
                    "this braid belongs to the process that opened it, and this process was forked from that one: "
                    "open it again here"
                )
            if self._closing:
                raise Unavailable("this braid is closed: open it again")
            call = self._calls.begin(request, body, time.monotonic() + timeout, done)
            self._wanted.notify()
        if soon:
            self._send_soon()
        else:
            self._transmit()
        return call

    def note(self, call: Call, note: Note) -> None:
        with self._lock:
            self._calls.note(call, note)
        self._transmit()

    def forget(self, call: Call) -> None:
        with self._lock:
            self._calls.forget(call)

    def close(self, grace_s: float = limits.SHUTDOWN_GRACE_S) -> None:
        """Wait until changes that are under way are answered, but not for ever; then let go."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._wanted.wait_for(lambda: not self._calls.changing, grace_s)
            self._closed = True
            self._wanted.notify_all()
            self._shut()
        self._unsent.set()
        if threading.current_thread() is not self._thread:
            self._thread.join(limits.CONNECT_TIMEOUT_S + _TICK_S)

    def disown(self) -> None:
        """In the child of a fork of the process: the connection is the parent's, and its threads are not here."""
        self.disowned = self._closing = self._closed = True
        self._lock = threading.Lock()  # whoever held it is not here
        self._wanted = threading.Condition(self._lock)
        self._sending = threading.Lock()
        connected, self._socket = self._socket, None
        if connected is not None:
            with contextlib.suppress(OSError):
                os.close(connected.detach())

    def _send_soon(self) -> None:
        if self._sender is None:
            with self._lock:
                if self._sender is None:
                    self._sender = threading.Thread(target=self._keep_sending, name="braidlog-sender", daemon=True)
                    self._sender.start()
        self._unsent.set()

    def _keep_sending(self) -> None:
        while not self._closed:
            self._unsent.wait()
            self._unsent.clear()
            self._transmit()

    # --- sending -------------------------------------------------------------------------------------------------

    def _transmit(self, *, patiently: bool = True) -> None:
        """Send what is to be sent. Whoever comes while another sends finds his own sent along, or sends it then.

        The receiving thread never waits for a sender, who may be waiting for a server that waits to be read.
        """
        while self._sending.acquire(blocking=patiently):
            try:
                with self._lock:
                    out, self._calls.out = self._calls.out, []
                    to = self._socket
                if out and to is not None:
                    _send(to, out)
            except OSError:
                if to is not None:
                    with contextlib.suppress(OSError):  # the receiving thread finds out, and takes care of it
                        to.shutdown(socket.SHUT_RDWR)
                return
            finally:
                self._sending.release()
            if not self._calls.out or self._socket is None:  # else it came while we sent, and its owner left it to us
                return

    def _shut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    # --- receiving -----------------------------------------------------------------------------------------------

    def _live(self) -> None:
        try:
            self._run()
        except Exception as error:  # a mistake of ours: nobody receives any more, and so nobody may wait
            _log.exception("the connection to a service failed")
            self._closing = self._closed = True
            self._unsent.set()
            self._refused(Unavailable(f"the connection failed: {type(error).__name__}: {error}; open the braid again"))

    def _run(self) -> None:
        failures = 0
        while not self._closed:
            with self._lock:
                # Without a reason to be connected there is no hurry to be.
                if failures and not len(self._calls) and not self._pursue:
                    self._wanted.wait(_TICK_S)
                    if not len(self._calls) and not self._pursue and not self._closed:
                        continue
            address = self._addresses[self._turn % len(self._addresses)]
            self._turn += 1
            greeted = False
            began = time.monotonic()
            try:
                greeted = self._converse(address)
                self._why = f"the connection to {address} was lost"
            except Refused as refused:
                self._refused(refused.error)
            except (OSError, ValueError, Malformed) as error:  # a host that cannot be one is a ValueError
                why = tls.explained(error, str(address))
                self._why = str(why) if isinstance(why, BraidError) else f"cannot reach {address}: {error}"
                if isinstance(error, ConnectionRefusedError) and isinstance(address, TcpAddress):
                    self._why += "; is `braid serve` running there, and is the port right?"
                if isinstance(why, BraidError) and failures + 1 >= len(self._addresses):
                    self._refused(why)
            # One that is lost again and again right after the welcome is not pursued without a pause.
            lasted = time.monotonic() - began > limits.RECONNECT_MAX_S
            failures = (0 if lasted else 1) if greeted else failures + 1
            self._lost()
            if failures and not self._closed:
                pause = min(limits.RECONNECT_S * 2 ** min(failures // len(self._addresses), 10), limits.RECONNECT_MAX_S)
                self._pause(pause)
        with self._lock:
            self._calls.fail("this braid was closed")
        self._hand_out()

    def _refused(self, error: BraidError) -> None:
        """Trying again will not help: who waits is told now."""
        self._why = str(error)
        self._refusal = error
        with self._lock:
            self._calls.refuse(error)
            self._pursue = False
            self._wanted.notify_all()
        self._welcomed.set()
        self._hand_out()

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._closed and (left := until - time.monotonic()) > 0:
            with self._lock:
                self._wanted.wait(min(left, _TICK_S))
            self._expire()

    def _converse(self, address: Address) -> bool:
        """Talk to one server until the connection ends. Says whether it got as far as a welcome."""
        connected = address.connect(limits.CONNECT_TIMEOUT_S)
        greeted = False
        try:
            connected.settimeout(_TICK_S)
            if self._token and address.discloses(connected):
                raise Refused(
                    NotPermitted(
                        f"a token must not travel over the network without TLS, and braid://{address} is without: "
                        "write braids://"
                    )
                )
            with self._lock:
                self._calls.connected()
                self._socket = connected
            self._transmit()
            scratch = memoryview(bytearray(limits.RECEIVE_BYTES))
            began = looked = heard = time.monotonic()
            while not self._closed:
                room = self._calls.room()
                try:
                    count = connected.recv_into(scratch if room is None else room)
                except ConnectionResetError:
                    if heard != began:
                        raise
                    count = 0
                except TimeoutError:
                    self._expire()
                    if not len(self._calls):
                        heard = time.monotonic() if greeted else heard  # it owes nothing: its silence says nothing
                    self._mind_silence(time.monotonic() - heard)
                    if not greeted and time.monotonic() - began > limits.CONNECT_TIMEOUT_S:
                        raise TimeoutError("it does not say welcome") from None
                    continue
                if not count:
                    if heard == began:
                        raise ConnectionResetError(_MUTE_TLS if isinstance(connected, SecureSocket) else _MUTE)
                    return greeted
                heard = time.monotonic()
                with self._lock:
                    try:
                        if room is None:
                            self._calls.receive(bytes(scratch[:count]))
                        else:
                            self._calls.filled(count)
                    finally:
                        more = bool(self._calls.out)
                        leave = self._calls.leaving and not self._calls.owed
                        welcome = self._calls.welcome
                if welcome is not None and not greeted:
                    greeted = True
                    self._refusal = None
                    self.welcome = welcome
                    self.address = address
                    self._welcomed.set()
                    with self._lock:
                        self._pursue = False
                        self._wanted.notify_all()
                    self.on_connected()
                self._hand_out()
                if more:
                    self._transmit(patiently=False)
                if leave:
                    return greeted
                if time.monotonic() - looked > _TICK_S:  # there may always be something to receive
                    looked = time.monotonic()
                    self._expire()
            return greeted
        finally:
            with self._lock:
                self._socket = None
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)
            with self._sending:  # or its number might go to the next one while somebody still sends to it
                connected.close()

    def _mind_silence(self, silent_s: float) -> None:
        """Ask a server that says nothing whether it is there, and give up one that does not answer that either: it may
        be stopped, or cut off, and others may be well."""
        with self._lock:
            if not len(self._calls):
                return
            if silent_s > limits.SILENCE_S:
                raise TimeoutError(f"it said nothing for {silent_s:.1f} s")
            if silent_s > limits.PING_S and not self._pinged:
                self._pinged = True
                self._calls.begin(Ping(), b"", time.monotonic() + limits.SILENCE_S, self._ponged)
        self._transmit(patiently=False)

    def _ponged(self, *_: object) -> None:
        self._pinged = False

    def _lost(self) -> None:
        self._pinged = False
        with self._lock:
            self._calls.lost()
        self._hand_out()
        self._expire()

    def _expire(self) -> None:
        with self._lock:
            self._calls.expire(time.monotonic(), self._why)
        self._hand_out()

    def _hand_out(self) -> None:
        with self._lock:
            finished, self._calls.finished = self._calls.finished, []
            if self._closing:
                self._wanted.notify_all()
        for call, answer, body in finished:
            try:
                call.done(call, answer, body)
            except Exception:  # of one caller: the others want to be told too
                _log.exception("what was to be done with the answer to a %s failed", type(call.request).__name__)


_links: weakref.WeakSet[Link] = weakref.WeakSet()


def _disown_all() -> None:
    """A forked child shares its parent's sockets, and what it sent over them would be taken for the parent's."""
    for link in list(_links):
        link.disown()


os.register_at_fork(after_in_child=_disown_all)


def _send(to: Connected, pieces: list[bytes | memoryview]) -> None:
    """All of it. The socket's timeout is short, for receiving; a peer that does not read for long is given up."""
    if len(pieces) > 1 and sum(map(len, pieces)) <= _JOIN_BYTES_MAX:
        pieces = [b"".join(pieces)]
    deadline = time.monotonic() + limits.CALL_TIMEOUT_S
    for piece in pieces:
        view = memoryview(piece)
        while view:
            try:
                view = view[to.send(view) :]
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise

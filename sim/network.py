"""Connections between processes: bytes arrive in order and late, or not at all, and then the connection is gone.

Each direction of a connection has its own delays, so what is sent over one may overtake what is sent over another. A
connection that is cut loses what is on its way behind some byte, and its two ends learn of it at different times.
Between hosts that are parted nothing arrives and nobody learns anything; what was on its way arrives when they meet
again, unless the connection was given up meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from sim.world import Process, World

DELAY_S = (0.0001, 0.0012)
SLOW_DELAY_S = (0.002, 0.08)
SLOW_CHANCE = 0.04
SPLIT_CHANCE = 0.03  # that what is written at once arrives in two pieces


class Listener(NamedTuple):
    process: Process
    factory: Callable[[], Any]
    host: str
    port: int


class Listening:
    """As asyncio.Server, as far as it is used."""

    def __init__(self, network: Network, listener: Listener) -> None:
        self._network = network
        self._listener = listener
        self.sockets = [self]

    def getsockname(self) -> tuple[str, int]:
        return self._listener.host, self._listener.port

    def close(self) -> None:
        if self._network.listeners.get(self._listener.host) is self._listener:
            del self._network.listeners[self._listener.host]


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners: dict[str, Listener] = {}
        self.connections: list[Connection] = []
        self._parted: set[frozenset[str]] = set()

    def join(self, process: Process) -> None:
        process.loop.network = self
        process.on_kill.append(lambda silently: self._killed(process, silently))

    # --- who can reach whom --------------------------------------------------------------------------------------

    def part(self, some: set[str], others: set[str]) -> list[frozenset[str]]:
        """Nothing goes between these any more."""
        new = [frozenset((one, other)) for one in sorted(some) for other in sorted(others) if one != other]
        self._parted.update(new)
        return new

    def reunite(self, pairs: list[frozenset[str]] | None = None) -> None:
        """These, or all, reach each other again."""
        self._parted.difference_update(list(self._parted) if pairs is None else pairs)
        for connection in list(self.connections):
            for end in connection.ends:
                end.go_on()

    def parted(self, one: str, other: str) -> bool:
        return bool(self._parted) and frozenset((one, other)) in self._parted

    # --- connecting ----------------------------------------------------------------------------------------------

    def listen(self, listener: Listener) -> Listening:
        if listener.host in self.listeners and self.listeners[listener.host].process.alive:
            raise OSError(98, f"{listener.host} is listened on already")
        self.listeners[listener.host] = listener
        return Listening(self, listener)

    async def connect(self, process: Process, factory: Callable[[], Any], host: str, port: int) -> tuple[Any, Any]:
        world = self.world
        await asyncio.sleep(self.delay())
        listener = self.listeners.get(host)
        if self.parted(process.host, host):
            await asyncio.sleep(1e6)  # whoever connects has a deadline
        if listener is None or not listener.process.alive or listener.process is process:
            raise ConnectionRefusedError(111, f"nobody listens at {host}:{port}")
        await asyncio.sleep(self.delay())
        if not listener.process.alive or self.listeners.get(listener.host) is not listener:
            raise ConnectionResetError(104, f"{host}:{port} went away")
        connection = Connection(self, process, listener.process)
        self.connections.append(connection)
        near, far = connection.ends
        far.begin(listener.factory())
        protocol = factory()
        near.protocol = protocol
        protocol.connection_made(near)
        world.tell(process.host, f"connected {listener.process.host}")
        return near, protocol

    def delay(self) -> float:
        rng = self.world.rng
        low, high = SLOW_DELAY_S if rng.random() < SLOW_CHANCE else DELAY_S
        return low + rng.random() * (high - low)

    # --- mishaps -------------------------------------------------------------------------------------------------

    def cut(self, connection: Connection) -> None:
        self.world.counts["cuts"] += 1
        for end in connection.ends:
            end.lose_incoming()
            end.fall(self.delay())

    def _killed(self, process: Process, silently: bool) -> None:
        for host in [host for host, listener in self.listeners.items() if listener.process is process]:
            del self.listeners[host]
        for connection in list(self.connections):
            for end in connection.ends:
                if end.process is process:
                    end.vanish(silently)


class Connection:
    def __init__(self, network: Network, near: Process, far: Process) -> None:
        self.network = network
        self.ends = (End(self, near, serving=False), End(self, far, serving=True))
        self.ends[0].peer, self.ends[1].peer = self.ends[1], self.ends[0]

    def over(self) -> None:
        if all(end.closed for end in self.ends) and self in self.network.connections:
            self.network.connections.remove(self)


class End(asyncio.Transport):
    """One end, as the transport of its protocol."""

    peer: End

    def __init__(self, connection: Connection, process: Process, *, serving: bool) -> None:
        super().__init__()
        self.connection = connection
        self.process = process
        self.serving = serving
        self.protocol: Any = None
        self.closed = False  # its protocol hears nothing any more
        self._closing = False
        self._network = connection.network
        self._world = connection.network.world
        self._arriving: deque[bytes | None] = deque()  # on its way to this end, in order; None is the end of it
        self._last_at = 0.0  # when the last of it is due
        self._due = 0  # how many of it are due, and wait for something else
        self._reading = True

    def begin(self, protocol: Any) -> None:
        """The serving end learns of the connection when its loop gets to it."""
        self.protocol = protocol
        self.process.loop.post(lambda: None if self.closed else protocol.connection_made(self))

    # --- asyncio.Transport ---------------------------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if not self._closing and not self.closed and data:
            self.peer._send(bytes(data))

    def writelines(self, pieces: Any) -> None:
        self.write(b"".join(pieces))

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.peer._send(None)
            self.process.loop.post(self._lost)

    def abort(self) -> None:
        if not self.closed:
            self._closing = True
            self.peer.lose_incoming()
            self.peer._send(None)
            self.process.loop.post(self._lost)

    def is_closing(self) -> bool:
        return self._closing or self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    @property
    def expects(self) -> int:
        """How much is on its way here."""
        return len(self._arriving)

    def set_write_buffer_limits(self, high: Any = None, low: Any = None) -> None:
        """Nobody here sends as much as that."""

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.go_on()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default  # all trust each other, as on one machine

    # --- on the way ----------------------------------------------------------------------------------------------

    def _send(self, data: bytes | None) -> None:
        """The other end sent this."""
        if self.closed:
            return
        rng = self._world.rng
        if data is not None and len(data) > 1 and rng.random() < SPLIT_CHANCE:
            at = rng.randrange(1, len(data))
            self._queue(data[:at])
            data = data[at:]
        self._queue(data)

    def _queue(self, data: bytes | None) -> None:
        self._arriving.append(data)
        self._last_at = max(self._last_at, self._world.now + self._network.delay())
        self._world.at(self._last_at, self._ripe)

    def _ripe(self) -> None:
        self._due += 1
        self.go_on()

    def go_on(self) -> None:
        """Deliver what is due, if it can be."""
        if self._due and self._reading and not self._network.parted(self.process.host, self.peer.process.host):
            due, self._due = self._due, 0
            for _ in range(due):
                if self._arriving and self.process.alive and not self.closed:
                    self.process.loop.post(self._deliver, self._arriving.popleft())

    def _deliver(self, data: bytes | None) -> None:
        if self.closed:
            return
        if data is None:
            self._lost()
            return
        self._world.tell(self.process.host, f"got {len(data)} from {self.peer.process.host}")
        view = memoryview(data)
        while view and not self.closed:
            room = self.protocol.get_buffer(-1)
            count = min(len(room), len(view))
            room[:count] = view[:count]
            view = view[count:]
            self.protocol.buffer_updated(count)

    def lose_incoming(self) -> None:
        """Behind some byte of what is on its way here, nothing arrives."""
        if not self._arriving:
            return
        kept = self._world.rng.randrange(len(self._arriving) + 1)
        lost = [self._arriving.pop() for _ in range(len(self._arriving) - kept)]
        if any(lost):
            self._world.counts["requests lost" if self.serving else "replies lost"] += 1
        if kept and self._arriving[-1] is not None and self._world.rng.random() < 0.5:
            data = self._arriving.pop()
            assert data is not None
            self._arriving.append(data[: self._world.rng.randrange(1, len(data) + 1)])

    def fall(self, delay_s: float) -> None:
        """The connection is gone; this end learns of it after what still arrives."""
        self._closing = True
        self._arriving.append(None)
        self._last_at = max(self._last_at, self._world.now + delay_s)
        self._world.at(self._last_at, self._ripe)

    def vanish(self, silently: bool) -> None:
        """The process of this end is gone."""
        self.closed = True
        self.peer.lose_incoming()
        if not silently:
            self.peer._send(None)
        self.connection.over()

    def _lost(self) -> None:
        if not self.closed:
            self.closed = True
            self._closing = True
            self._arriving.clear()
            self.protocol.connection_lost(None)
            if not self.peer.closed:
                self.peer._send(None)
            self.connection.over()

"""How a server listens."""

from __future__ import annotations

import asyncio
import socket

import pytest

from braidlog.broker.running import _take
from braidlog.config import Address


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_answers_are_sent_at_once(host: str) -> None:
    """Else a small answer waits up to 40 ms for the acknowledgement of the one before it."""

    async def nodelay() -> int:
        loop = asyncio.get_running_loop()
        accepted: asyncio.Future[asyncio.BaseTransport] = loop.create_future()

        class Accepting(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                accepted.set_result(transport)

        door = await _take(Address(host, 0), False)
        server = await loop.create_server(Accepting, sock=door.bound[0])
        async with server:
            connected, _ = await loop.create_connection(asyncio.Protocol, *door.bound[0].getsockname()[:2])
            transport = await accepted
            option: int = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            transport.close()
            connected.close()
        return option

    assert asyncio.run(asyncio.wait_for(nodelay(), 10))

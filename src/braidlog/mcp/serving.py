"""How clients reach the server: over stdin and stdout, or over HTTP with a token."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import MCPServer
from pydantic import AnyHttpUrl

from braidlog import limits
from braidlog.broker.entry import is_loopback
from braidlog.errors import InvalidArgument, Unavailable
from braidlog.mcp.callers import TokenCallers
from braidlog.mcp.catalog import Choice
from braidlog.mcp.house import House
from braidlog.mcp.server import build


def serve_stdio(house: House, choice: Choice) -> None:
    """Until stdin ends, or somebody sends a SIGTERM."""
    server = build(house, choice)

    async def serve() -> None:
        task = asyncio.ensure_future(server.run_stdio_async())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(serve())


def serve_http(
    house: House,
    callers: TokenCallers,
    choice: Choice,
    address: tuple[str, int],
    ready: Callable[[str], None],
    tls: tuple[str, str] | None = None,
) -> None:
    """Until a signal ends it. `ready` is told the URL, once whoever asks is answered and a signal ends it in peace."""
    host, port = address
    listening = _listening(host, port, secure=tls is not None)
    scheme, shown = ("http", host) if tls is None else ("https", host)
    url = f"{scheme}://{f'[{shown}]' if ':' in shown else shown}:{listening.getsockname()[1]}"
    auth = AuthSettings(issuer_url=AnyHttpUrl(url), resource_server_url=None)
    server: MCPServer[Any] = build(house, choice, callers, auth)
    app = server.streamable_http_app(host=host, max_request_body_size=limits.MCP_REQUEST_BYTES_MAX)
    config = uvicorn.Config(
        app,
        log_level=logging.WARNING,
        access_log=False,
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
        timeout_graceful_shutdown=round(limits.MCP_SHUTDOWN_S),
        lifespan="on",
    )
    _Server(config, lambda: ready(f"{url}/mcp")).run(sockets=[listening])


class _Server(uvicorn.Server):
    """Ends in peace at a signal, so that what it served is closed; uvicorn's own sends itself the signal again."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if not self.should_exit:
            self._ready()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """While it serves, signals ask it to end."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _listening(host: str, port: int, *, secure: bool) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        if not secure and not is_loopback(str(where[0])):
            raise InvalidArgument(
                f"{host} can be reached from other machines, and tokens must not travel there in the clear: give "
                "--tls-cert and --tls-key, or listen on 127.0.0.1"
            )
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(where)
        listening.listen(128)
    except OSError as error:
        raise Unavailable(f"cannot listen on {host}:{port}: {error}") from error
    return listening

"""What the verbs that serve have in common: what is opened, what is said when it is ready, and how it ends.

On stdout stands where the process listens, once it does, and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from braidlog.broker import running
from braidlog.broker.running import Listening, MakeService
from braidlog.cli.call import Call
from braidlog.cli.output import flush, say, write_json, write_line
from braidlog.config import Address, Settings, refuse_password
from braidlog.errors import InvalidArgument, Locked, Unavailable
from braidlog.observe.logs import audit_to, configure_logging
from braidlog.wire import tls

if TYPE_CHECKING:
    from braidlog import Braid
    from braidlog.broker.service import Service
    from braidlog.embedded.writer import Writer


def serve_place(call: Call, settings: Settings) -> None:
    """Serve a directory, or memory, until told to end."""
    place = OpenPlace(settings.text("at"), settings.role, settings.text("objects") or None)
    conduct(call, settings, place.open, release=place.close)


def conduct(
    call: Call,
    settings: Settings,
    make_service: MakeService,
    *,
    release: Callable[[], None] = lambda: None,
) -> None:
    """Run a role with the settings that all roles have."""
    configure_logging(settings.text("log_format"), settings.text("log_level"))
    if settings.text("audit_file"):
        audit_to(settings.text("audit_file"))
    running.conduct(
        running.run(
            make_service,
            settings.text("name") or f"{settings.role} {os.getpid()}",
            settings.addresses("listen"),
            ready=lambda listening: _tell(call, listening),
            release=release,
            http=settings.address("http"),
            insecure=settings.flag("insecure"),
            tls=_tls(settings),
            require_token=settings.flag("require_token"),
            grace_s=settings.seconds("shutdown_grace_s"),
        )
    )


def _tls(settings: Settings) -> ssl.SSLContext | None:
    certificate, key, ca = (settings.text(name) for name in ("tls_cert", "tls_key", "tls_ca"))
    if not (certificate or key):
        if ca:
            raise InvalidArgument("tls_ca checks certificates of clients, which needs TLS: give tls_cert and tls_key")
        return None
    return tls.server_context(certificate, key, ca)


def _tell(call: Call, listening: Listening) -> None:
    if call.json:
        write_json({"url": listening.url, "http": listening.http})
    else:
        for line in listening.lines:
            write_line(line)
    flush()


class OpenPlace:
    """A directory that this process writes, shared by its socket too; or memory."""

    def __init__(self, url: str, role: str, objects: str | None = None) -> None:
        self._url = url
        self._objects = objects
        self._role = role
        self._braid: Braid | None = None

    async def open(self, address: Address) -> Service:
        """In a thread, as it may take long. It is never given up half-way: then nobody would close it."""
        del address
        opening = asyncio.ensure_future(asyncio.to_thread(_open, self._url, self._objects))
        try:
            self._braid = await asyncio.shield(opening)
        except asyncio.CancelledError:
            self._braid = await opening
            raise
        return _local_service(_writer_of(self._braid), self._role)

    def close(self) -> None:
        if self._braid is not None:
            self._braid.close()


def _local_service(writer: Writer, role: str) -> Service:
    from braidlog.broker.local import LocalService
    from braidlog.broker.metadata import MetadataService

    return MetadataService(writer) if role == "metadata" else LocalService(writer, role=role)


def _open(url: str, objects: str | None) -> Braid:
    import braidlog
    from braidlog.client.opening import directory_of, write_directory

    if url.startswith(("braid://", "braids://")):
        refuse_password(url)
        raise InvalidArgument(f"{url} is a service already: --at names the directory to serve, or memory://")
    where = directory_of(url)
    if where is None:
        say("NOTHING IS KEPT: memory:// is for trying things out, and all records are lost when this process ends")
        return braidlog.open(url, objects=objects)
    try:
        return write_directory(where, share=True, objects=objects)
    except Locked as error:
        if error.shared:
            error.add_note(f"that process shares it: `--at {where}` works for every other verb meanwhile")
        raise
    except OSError as error:
        raise Unavailable(f"cannot open {where}: {error}; check the path and its permissions") from error


def _writer_of(braid: Braid) -> Writer:
    from braidlog.embedded.writer import Writer

    backend = braid._session.backend
    assert isinstance(backend, Writer)  # it was opened for writing, here
    return backend

"""`braid broker`: how a broker is made of its settings. The rest of its life is that of every role."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import secrets
import socket
from typing import TYPE_CHECKING

from braidlog import limits
from braidlog.cli.call import Call
from braidlog.cli.serving import conduct
from braidlog.config import Address, Settings, token_of
from braidlog.errors import BraidError, InvalidArgument, Unavailable
from braidlog.objects import blob_store, locations
from braidlog.wire import tls

if TYPE_CHECKING:
    from braidlog.broker.service import Service


def serve_broker(call: Call, settings: Settings) -> None:
    """Be a broker until told to end. It begins to listen once the metadata process has let it join."""

    async def make(address: Address) -> Service:
        return await make_broker(settings, address)

    conduct(call, settings, make)


async def make_broker(settings: Settings, address: Address) -> Service:
    """A broker that clients find at `address`, or where it says that they do."""
    from braidlog.broker.remote import BrokerService

    metadata = settings.addresses("metadata")
    name = settings.text("name") or default_name()
    advertised = advertised_at(settings.address("advertise") or address)
    joined = asyncio.Event()
    ca = settings.text("metadata_tls_ca")
    broker = BrokerService(
        [(one.host, one.port) for one in metadata],
        name,
        str(advertised),
        token=token_of(settings),
        tls=tls.client_context(ca, settings.text("tls_cert"), settings.text("tls_key")) if ca else None,
    )
    refused: list[BraidError] = []

    def refuse(error: BraidError) -> None:
        refused.append(error)
        joined.set()

    broker.on_ready = joined.set
    broker.on_refused = refuse
    try:
        await joined.wait()
        if refused:
            raise refused[0]
        broker.on_refused = lambda _: None  # once it has joined, it goes on trying
        _check_objects(settings.text("objects"), broker.objects)
        await asyncio.to_thread(_reach, broker.objects)
    except BaseException:
        broker.close()
        raise
    return broker


def default_name() -> str:
    """Unlike that of any other broker: in a container every process has the same number."""
    return f"broker {socket.gethostname()[: limits.BROKER_HOST_CHARS_MAX]} {os.getpid()} {secrets.token_hex(4)}"


def advertised_at(address: Address) -> Address:
    """Where clients are sent, if they can get there."""
    try:
        anywhere = ipaddress.ip_address(address.host).is_unspecified
    except ValueError:
        anywhere = address.host == "0"  # short for 0.0.0.0
    if anywhere:
        raise InvalidArgument(
            f"clients cannot be sent to {address}, which is all addresses of whatever machine they are on: give "
            "--advertise HOST:PORT with the one that they find this broker at"
        )
    return address


def _reach(objects: str | None) -> None:
    """A broker that cannot read the objects would be of no use: better told now than to its clients."""
    if objects is None or not locations.is_location(objects):
        return
    location = locations.parse(objects)
    blobs = locations.open_blobs(location)
    try:
        owner = blob_store.owner(blobs, location.prefix)
    except OSError as error:
        raise Unavailable(f"{location.place} cannot be worked with: {error.strerror or error}") from error
    finally:
        blobs.close()
    if owner is None:
        raise InvalidArgument(f"nobody keeps objects at {location.url}: is it another server or bucket from here?")


def _check_objects(wanted: str, found: str | None) -> None:
    """Objects go where the metadata process looks for them; whoever meant another place is told."""
    if wanted and (found is None or not _same(wanted, found)):
        raise InvalidArgument(f"objects: the metadata process keeps them in {found}, not in {wanted}")


def _same(one: str, other: str) -> bool:
    if locations.is_location(one) and locations.is_location(other):
        return locations.parse(one).place == locations.parse(other).place
    return os.path.realpath(one) == os.path.realpath(other)

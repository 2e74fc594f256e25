"""`braid metadata --etcd`: one of several metadata processes, made of its settings."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from braidlog.cli.call import Call
from braidlog.cli.serving import conduct
from braidlog.config import Address, Settings
from braidlog.errors import InvalidArgument

if TYPE_CHECKING:
    from braidlog.broker.node import MetadataNode
    from braidlog.broker.service import Service


def serve_node(call: Call, settings: Settings) -> None:
    """Follow, and lead when it is this process's turn, until told to end."""
    made = _Node(settings)
    conduct(call, settings, made.make, release=made.release)


class _Node:
    def __init__(self, settings: Settings) -> None:
        if not settings.text("objects"):
            raise InvalidArgument(
                "with etcd the objects and snapshots need a place that all processes reach: give --objects, for "
                "example s3://bucket/prefix, or file:///path of a directory that they share"
            )
        self._settings = settings
        self._node: MetadataNode | None = None

    async def make(self, address: Address) -> Service:
        from braidlog.broker.node import MetadataNode
        from braidlog.broker.rivals import EtcdRivalry

        settings = self._settings
        rivalry = await asyncio.to_thread(
            EtcdRivalry.from_settings,
            [member.strip() for member in settings.text("etcd").split(",")],
            prefix=settings.text("etcd_prefix"),
            objects=settings.text("objects"),
            address=str(settings.address("advertise") or address),
            lease_s=settings.seconds("etcd_lease_s"),
            ca=settings.text("etcd_ca"),
            certificate=settings.text("etcd_cert"),
            key=settings.text("etcd_key"),
            user=settings.text("etcd_user"),
            password=settings.text("etcd_password"),
        )
        self._node = MetadataNode(rivalry)
        return self._node

    def release(self) -> None:
        if self._node is not None:
            self._node.release()

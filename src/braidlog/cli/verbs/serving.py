"""`braid serve`, `braid metadata` and `braid broker`: the roles that a process can have for others."""

from __future__ import annotations

from typing import Any

import click

from braidlog.cli.call import Call, pass_call
from braidlog.cli.role import Role, settings_of
from braidlog.config import URL_VARIABLE
from braidlog.errors import InvalidArgument


@click.command(cls=Role)
@pass_call
def serve(call: Call, /, **given: Any) -> None:
    """Serve a directory to other processes over TCP: everything in one process.

    It is opened for writing, and created if it is not there. Prints `listening on braid://HOST:PORT` once it does; that
    URL is what clients open. SIGTERM and ctrl-C end it when all that was asked is answered.
    """
    from braidlog.cli.serving import serve_place

    settings = settings_of(call, "serve", given)
    if settings is not None:
        serve_place(call, settings)


@click.command(cls=Role)
@pass_call
def metadata(call: Call, /, **given: Any) -> None:
    """Keep the order of all logs, for brokers to ask.

    The same as `braid serve` but for its role: clients talk to brokers, and brokers to this process. With --etcd there
    may be several of it: one leads, and another takes over when that one ends.
    """
    settings = settings_of(call, "metadata", given)
    if settings is None:
        return
    if settings.text("etcd"):
        if settings.text("at") and settings.source("at") != URL_VARIABLE:  # which is set for clients, too
            raise InvalidArgument(
                "--at and --etcd exclude each other: give --at DIR for one process, or --etcd and --objects for several"
            )
        from braidlog.cli.leading import serve_node

        serve_node(call, settings)
        return
    if not settings.text("at"):
        raise InvalidArgument("braid metadata needs a directory, --at DIR, or --etcd and --objects to share it")
    from braidlog.cli.serving import serve_place

    serve_place(call, settings)


@click.command(cls=Role)
@pass_call
def broker(call: Call, /, **given: Any) -> None:
    """Serve clients, storing records as objects and asking a metadata process for their order.

    A broker keeps nothing of its own: any number of them share one metadata process and one directory of objects.
    """
    from braidlog.cli.brokering import serve_broker

    settings = settings_of(call, "broker", given)
    if settings is not None:
        serve_broker(call, settings)

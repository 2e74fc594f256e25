"""How a process of Spark reaches the braid: the driver to plan, an executor only when it has to plan again.

A directory is followed read-only, which needs no lock and works beside whoever writes it. Secrets never travel with a
plan: each process takes its token from the file that `tokenFile` names, or from its own environment.
"""

from __future__ import annotations

from typing import Final

import braidlog
from braidlog import Braid, Log
from braidlog.client.opening import directory_of
from braidlog.client.remote.opening import SCHEMES
from braidlog.errors import InvalidArgument
from braidlog.spark.options import Place

FORGOTTEN: Final = "forgotten"


def reach(place: Place) -> Braid:
    """An open braid, which the caller closes."""
    if place.url.startswith(SCHEMES):
        return braidlog.open(place.url, timeout=place.timeout_s, token_file=place.token_file, tls_ca=place.tls_ca)
    if not (place.token_file is place.tls_ca is None):
        raise InvalidArgument("tokenFile and tlsCa are for services: a directory asks nobody who they are")
    return braidlog.open(place.url, read_only=True)


def settled(place: Place) -> Place:
    """The same for every process, whoever's home it may be looked at from."""
    where = None if place.url.startswith(SCHEMES) else directory_of(place.url)
    return place if where is None else Place(str(where), place.token_file, place.tls_ca, place.timeout_s)


def handle(braid: Braid, log_id: int, name: str) -> Log:
    """A log by its number, which stays its own when its name is given to another."""
    return Log(braid._session, log_id, name)


def ending(braid: Braid, log_id: int) -> tuple[str, str]:
    """How a log ended that lives no more, and the name of the log that it lives on in, if any. `FORGOTTEN` if it was so
    long ago that nobody knows."""
    found = braid._session.backend.end_of(log_id)
    if found is None or found[0].name.startswith("#"):  # no log is called so: it stands for a name that is not known
        return FORGOTTEN, ""
    return found[0].kind, found[1]

"""What carries the effects of the core out: one transaction after the other, until a machine rests."""

from __future__ import annotations

import time
from collections.abc import Callable

from braidlog import limits
from braidlog.errors import Unavailable
from braidlog.metadata.etcd import core
from braidlog.metadata.etcd.client import Ambiguous, EtcdClient, NoRoom, NotSent, Refused
from braidlog.metadata.etcd.core import Effects, Happening, Look, Send


def drive(
    client: EtcdClient,
    effects: Effects,
    step: Callable[[Happening], Effects],
    timeout_s: float,
    stopped: Callable[[], bool] = lambda: False,
) -> Effects:
    """Send what is to be sent, to one member after the other; answers the effects that say how it ended."""
    deadline = time.monotonic() + timeout_s
    tries, told = 0, ""
    while effects and isinstance(ask := effects[0], Send | Look):
        if tries and (time.monotonic() >= deadline or client.closed or stopped()):
            effects = step(core.GaveUp(f"etcd did not answer within {timeout_s:g} s ({told})"))
            continue
        event, why = attempt(client, ask)
        if why:
            tries, told = tries + 1, why
            client.pace(tries)
        effects = step(event)
    return effects


def attempt(client: EtcdClient, ask: Send | Look) -> tuple[Happening, str]:
    """(what came of it, why there was no answer if there was none)."""
    try:
        if isinstance(ask, Look):
            return core.Seen(client.read(*ask.keys, timeout_s=limits.ETCD_TIMEOUT_S).kvs), ""
        return core.Answered(client.txn(ask.txn)), ""
    except NoRoom as refusal:
        return core.Full(str(refusal)), str(refusal)
    except Refused as refusal:
        return core.Refused(str(refusal)), str(refusal)
    except NotSent as failure:
        return core.NotSent(), str(failure)
    except (Ambiguous, Unavailable) as failure:
        return core.Lost(), str(failure)

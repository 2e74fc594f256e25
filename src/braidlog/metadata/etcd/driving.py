"""What carries the effects of the core out: one transaction after the other, until a machine rests."""

from __future__ import annotations

import time
from collections.abc import Callable

from braidlog.metadata.etcd import core
from braidlog.metadata.etcd.client import Ambiguous, EtcdClient, NotSent, Refused
from braidlog.metadata.etcd.codec import Txn
from braidlog.metadata.etcd.core import Effects, Happening, Send


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
    while effects and isinstance(send := effects[0], Send):
        if tries and (time.monotonic() >= deadline or client.closed or stopped()):
            effects = step(core.GaveUp(f"etcd did not answer within {timeout_s:g} s ({told})"))
            continue
        event, why = attempt(client, send.txn)
        if why:
            tries, told = tries + 1, why
            client.pace(tries)
        effects = step(event)
    return effects


def attempt(client: EtcdClient, txn: Txn) -> tuple[Happening, str]:
    """(what came of it, why there was no answer if there was none)."""
    try:
        return core.Answered(client.txn(txn)), ""
    except Refused as refusal:
        return core.Refused(str(refusal)), str(refusal)
    except NotSent as failure:
        return core.NotSent(), str(failure)
    except Ambiguous as failure:
        return core.Lost(), str(failure)

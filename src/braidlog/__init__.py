"""braidlog: a shared log that can be forked.

    import braidlog

    with braidlog.open("orders.braid") as braid:
        orders = braid.create("orders")
        orders.append(b"one order")
        fork = orders.cfork("trial", promotable=True)   # live, and nothing is copied
        fork.append(b"an experiment")
        fork.promote()                                   # or fork.squash()

`braidlog.aio` has the same names, awaited.
"""

from braidlog import errors
from braidlog.client.braid import Braid
from braidlog.client.log import Log
from braidlog.client.opening import open
from braidlog.client.subscription import Subscription
from braidlog.client.ticket import Ticket
from braidlog.errors import BraidError
from braidlog.facts import (
    Ancestor,
    Consumer,
    Diff,
    DiffEntry,
    EndOfLog,
    Info,
    Outcome,
    Plan,
    PlanPart,
    Retention,
    Upload,
    UploadedBlock,
    UploadedObject,
)
from braidlog.record import Record
from braidlog.version import VERSION

__version__ = VERSION

__all__ = [
    "Ancestor",
    "Braid",
    "BraidError",
    "Consumer",
    "Diff",
    "DiffEntry",
    "EndOfLog",
    "Info",
    "Log",
    "Outcome",
    "Plan",
    "PlanPart",
    "Record",
    "Retention",
    "Subscription",
    "Ticket",
    "Upload",
    "UploadedBlock",
    "UploadedObject",
    "errors",
    "open",
]

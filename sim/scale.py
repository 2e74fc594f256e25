"""The limits of braidlog for the time of a simulation: everything that is rare in life is common here.

Objects, snapshots, compactions and forgotten outcomes come with a few hundred commands, leases and deadlines with a few
seconds of virtual time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from braidlog import limits

GRACE_S = 1.0

SCALED: dict[str, float] = {
    "INLINE_BYTES_MAX": 2048,
    "WIRE_BLOCK_BYTES_MIN": 1024,
    "WIRE_READ_BYTES_MAX": 32 * 1024,
    "CHECKPOINT_COMMANDS": 120,
    "PACK_AGE_S": 0.8,
    "PACK_BYTES": 12 * 1024,
    "COMPACT_OBJECTS_MIN": 4,
    "COMPACT_IDLE_S": 0.3,
    "GRACE_S": GRACE_S,
    "KEEPER_PERIOD_S": 0.3,
    "SWEEP_S": 0.6,
    "SWEEP_IDLE_S": 2.0,
    "OUTCOMES_KEPT_MAX": 48,
    "DECIDED_OUTCOMES_KEPT_MAX": 400,
    "SETTLE_REQUESTS": 6,
    "LOOP_LAG_PERIOD_S": 1e6,
    "RECEIVE_BYTES": 16 * 1024,
    "METADATA_TIMEOUT_S": 2.5,
    "CALL_TIMEOUT_S": 4.0,
    "CONNECT_TIMEOUT_S": 0.6,
    "PING_S": 0.4,
    "SILENCE_S": 1.0,
    "RECONNECT_MAX_S": 0.3,
    "BROKER_LEASE_S": 1.2,
    "ROUTE_S": 1.0,
    "CONNECTION_STALLED_S": 4.0,
    "SHUTDOWN_GRACE_S": 0.1,
    "COMMIT_TIMEOUT_S": 10.0,
}


@contextlib.contextmanager
def scaled() -> Iterator[None]:
    before = {name: getattr(limits, name) for name in SCALED}
    try:
        for name, value in SCALED.items():
            setattr(limits, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(limits, name, value)

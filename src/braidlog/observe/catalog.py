"""Every metric that braidlog has, in groups: whoever does the work makes the group that tells of it.

A server makes `Traffic`, `Connections` and `Process`, whatever service stands behind it; a writer of a command log
makes `Commits`, `Appends` and `Duties`; a service that holds a forest makes `Forest`, one that has a cache `Blocks`. A
group registers its metrics with the registry that it is given. Names never change once they were released: dashboards
and alarms go by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braidlog import limits
from braidlog.observe.metrics import Read, Registry
from braidlog.version import VERSION

# What can become of a request. Bounded, and each means something else to whoever is woken by it.
OK: Final = "ok"
BLOCKED: Final = "blocked"  # a hold stood in the way
REFUSED: Final = "refused"  # the caller's affair: a name that is not there, a condition that does not hold
UNAVAILABLE: Final = "unavailable"  # ours: storage, load, or a time that ran out
UNKNOWN: Final = "unknown"  # it may or may not have happened
CORRUPT: Final = "corrupt"
OUTCOMES: Final = (OK, BLOCKED, REFUSED, UNAVAILABLE, UNKNOWN, CORRUPT)

DUTIES: Final = ("pack", "expire", "retain", "collect", "compact", "checkpoint", "end_uploads", "sweep", "other")
DONE: Final = "done"
IDLE: Final = "idle"
FAILED: Final = "failed"

ROLES: Final = ("serve", "metadata", "broker", "other")
KINDS_OF_LOG: Final = ("root", "cfork", "promotable", "sfork")


class RequestMeter:
    """What is counted of one kind of request."""

    __slots__ = ("_kind", "_outcomes", "durations", "ok")

    def __init__(self, traffic: Traffic, kind: str, *, timed: bool) -> None:
        self.ok: Final = traffic.requests.of(kind, OK)
        self.durations: Final = traffic.durations.of(kind) if timed else None
        self._outcomes = traffic.requests
        self._kind = kind

    def failed(self, outcome: str) -> None:
        self._outcomes.of(self._kind, outcome).value += 1


class Traffic:
    """What comes and goes over connections. For the loop's thread alone."""

    def __init__(self, registry: Registry, kinds: Sequence[str]) -> None:
        self.requests = registry.counters(
            "braidlog_requests_total", "Requests answered, by what they asked for and what became of them.",
            kind=kinds, outcome=OUTCOMES,
        )  # fmt: skip
        self.durations = registry.histograms(
            "braidlog_request_duration_seconds",
            "From a request's arrival to its answer, but for those that are answered when something happens.",
            limits.DURATION_BUCKETS_S,
            kind=kinds,
        )
        self.slow = registry.counter(
            "braidlog_slow_requests_total", f"Requests that took longer than {limits.SLOW_REQUEST_S:g} s."
        )
        self.received = registry.counter("braidlog_received_bytes_total", "Bytes that came in over connections.")
        self.sent = registry.counter("braidlog_sent_bytes_total", "Bytes handed to connections to be sent.")
        self.opened = registry.counter("braidlog_connections_opened_total", "Connections accepted.")
        self.dropped = registry.counter(
            "braidlog_connections_dropped_total", "Connections closed by the server for what came over them."
        )
        self.read_records = registry.counter(
            "braidlog_read_records_total", "Records that were read or pushed to subscribers."
        )
        self.read_bytes = registry.counter(
            "braidlog_read_bytes_total", "Bytes of records that were read or pushed, as they travel."
        )


class Connections:
    """What is open now: read from the server when somebody looks."""

    def __init__(
        self, registry: Registry, *, connections: Read, in_flight_bytes: Read, subscriptions: Read, watches: Read
    ) -> None:
        registry.gauge("braidlog_connections", "Connections that are open.", read=connections)
        registry.gauge("braidlog_in_flight_bytes", "Bytes of requests that are not answered yet.", read=in_flight_bytes)
        registry.gauge("braidlog_subscriptions", "Subscriptions that are open.", read=subscriptions)
        registry.gauge("braidlog_watches", "Requests that wait for something about a log to change.", read=watches)


class Process:
    """The process, and the loop that serves."""

    def __init__(self, registry: Registry, *, cpu_seconds: Read, resident_bytes: Read, uptime_seconds: Read) -> None:
        registry.counter(
            "braidlog_process_cpu_seconds_total",
            "Processor time of the whole process since the server began.",
            read=cpu_seconds,
        )
        registry.gauge(
            "braidlog_process_resident_memory_bytes",
            "Memory of the process that is resident; where the system does not tell, the most that ever was.",
            read=resident_bytes,
        )
        registry.gauge("braidlog_uptime_seconds", "Seconds since the server began.", read=uptime_seconds)
        self.lag = registry.histogram(
            "braidlog_loop_lag_seconds",
            f"How late the loop comes to a call that is due every {limits.LOOP_LAG_PERIOD_S:g} s.",
            limits.DURATION_BUCKETS_S,
        )
        self._builds = registry.gauges(
            "braidlog_build_info", "1, with the version and the role of the process.", version=(VERSION,), role=ROLES
        )

    def is_a(self, role: str) -> None:
        self._builds.of(VERSION, role if role in ROLES else "other").set(1)


class Appends:
    """What was appended. For one thread at a time."""

    def __init__(self, registry: Registry) -> None:
        self.batches = registry.counter("braidlog_appends_total", "Batches appended, each atomic.")
        self.records = registry.counter("braidlog_appended_records_total", "Records appended.")
        self.bytes = registry.counter(
            "braidlog_appended_bytes_total", "Bytes of keys, values and headers of records appended."
        )


class Commits:
    """Group commits. For one thread at a time."""

    def __init__(self, registry: Registry) -> None:
        self.durations = registry.histogram(
            "braidlog_commit_duration_seconds",
            "To write and sync one commit of the command log.",
            limits.DURATION_BUCKETS_S,
        )
        self.commands = registry.histogram(
            "braidlog_commit_commands", "Commands that became durable with one sync.", limits.COMMIT_BUCKETS_COMMANDS
        )
        self.failures = registry.counter(
            "braidlog_commit_failures_total", "Commits that failed; after one, nothing is acknowledged any more."
        )


class Duties:
    """The work behind the scenes. Any thread may count."""

    def __init__(self, registry: Registry) -> None:
        self._runs = registry.counters(
            "braidlog_upkeep_runs_total",
            "Times that a duty was seen to: done, idle for want of anything to do, or failed and to be tried again.",
            shared=True,
            duty=DUTIES,
            outcome=(DONE, IDLE, FAILED),
        )
        self._durations = registry.histograms(
            "braidlog_upkeep_duration_seconds",
            "How long duties took that were done or failed.",
            limits.DURATION_BUCKETS_S,
            shared=True,
            duty=DUTIES,
        )

    def seen_to(self, duty: str, outcome: str, seconds: float) -> None:
        if duty not in DUTIES:
            duty = "other"
        self._runs.of(duty, outcome).add()
        if outcome != IDLE:
            self._durations.of(duty).observe(seconds)


class Blocks:
    """Bytes at rest and in memory: read when somebody looks."""

    def __init__(
        self,
        registry: Registry,
        *,
        cached: Read,
        cached_bytes: Read,
        hits: Read,
        misses: Read,
    ) -> None:
        registry.gauge("braidlog_cache_blocks", "Blocks in the cache.", read=cached)
        registry.gauge("braidlog_cache_bytes", "Bytes in the cache.", read=cached_bytes)
        registry.counter("braidlog_cache_hits_total", "Blocks that were found in the cache.", read=hits)
        registry.counter("braidlog_cache_misses_total", "Blocks that had to be fetched or decoded.", read=misses)


class Forest:
    """What lives in a forest, set from one look at it each time somebody asks."""

    def __init__(self, registry: Registry, *, applied: Read) -> None:
        self.logs = registry.gauges("braidlog_logs", "Living logs and forks, by kind.", kind=KINDS_OF_LOG)
        self.held = registry.gauge(
            "braidlog_held_logs",
            f"Logs that the oldest {limits.STATUS_FORKS_EXAMINED_MAX:,} undecided forks hold.",
        )
        self.oldest = registry.gauge(
            "braidlog_oldest_hold_seconds", "Age of the oldest undecided fork; 0 if there is none."
        )
        self.overdue = registry.gauge(
            "braidlog_overdue_leases",
            "Undecided forks whose lease has run out and that nobody has ended yet; of the oldest "
            f"{limits.STATUS_FORKS_EXAMINED_MAX:,} undecided forks.",
        )
        self.consumers = registry.gauge(
            "braidlog_consumers", "Consumers that logs keep a position of, without those that a fork inherited only."
        )
        self.lag = registry.gauge(
            "braidlog_consumer_lag_max_records",
            "Records that the consumer furthest behind has yet to see; of the first "
            f"{limits.STATUS_CONSUMERS_EXAMINED_MAX:,} consumers.",
        )
        self.inline = registry.gauge(
            "braidlog_inline_bytes", "Bytes that ride in the command log and wait to be packed into an object."
        )
        self.objects = registry.gauge("braidlog_objects", "Objects in the store that the forest knows.")
        self.uploads = registry.gauge("braidlog_uploads", "Uploads that live: begun, and neither published nor ended.")
        self.blocks = registry.gauge("braidlog_blocks", "Blocks in objects that logs refer to.")
        registry.counter(
            "braidlog_applied_commands_total", "Commands that were ever applied to the forest.", read=applied
        )

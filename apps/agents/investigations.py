"""What there is to look for in readings of sensors: for each kind of anomaly a rule, and a script that follows it.

The rule is what a model is told, and what a finding has to satisfy. A script asks for what one query may read at once,
and puts the parts together: ranges that a query cannot take are split. It takes fleets of some hundred devices: what it
asks for each of them has to fit into an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any, Final

from pydantic import BaseModel

from apps.agents.readings import CELSIUS_MAX, CELSIUS_MIN, Kind
from apps.agents.scripted import Call, Returned, Script, Stuck
from braidlog import limits

SPIKE_DEVIATIONS: Final = 10
STUCK_READINGS: Final = 12
SILENT_GAPS: Final = 25
DRIFT_SPREADS: Final = 8
TENTHS: Final = 10
TENTH_READINGS_MIN: Final = 5
NORMAL: Final = 1.4826  # the median of deviations is so much smaller than the standard deviation of a normal curve
GAP: Final = 1.4427  # and the median of gaps than their mean, where records come at random
OVERLAP: Final = 20  # parts overlap by this fraction of one, so that nothing falls between them


class Finding(BaseModel):
    """An anomaly that was found. Positions and times are those of its first and last record."""

    device: str
    kind: Kind
    first: int
    last: int
    first_time: str
    last_time: str
    evidence: str


class Findings(BaseModel):
    """All that one investigation found."""

    findings: list[Finding]


class Task(BaseModel):
    """Where to look: positions of a fork, and how many of them a query takes."""

    fork: str
    start: int
    stop: int
    records_per_query: int = limits.SQL_RECORDS_MAX

    def parts(self, overlap: bool) -> Iterator[tuple[int, int]]:
        """The range in as many parts as it takes."""
        behind = self.records_per_query // OVERLAP if overlap else 0
        start = self.start
        while True:
            stop = min(self.stop, start + self.records_per_query)
            yield start, stop
            if stop >= self.stop:
                return
            start = stop - behind

    def query(self, sql: str, start: int, stop: int) -> Call:
        """A query of a part."""
        arguments = {"log": self.fork, "sql": sql, "start": start, "stop": stop}
        return Call("query_sql", arguments | {"max_rows": limits.SQL_ROWS_MAX, "time_s": limits.SQL_TIME_MAX_S})


@dataclass(frozen=True)
class Investigation:
    """One kind of anomaly: its rule in words, and how a script finds it."""

    kind: Kind
    rule: str
    script: Callable[[str], Script]

    @property
    def instructions(self) -> str:
        """For a model."""
        return (
            f"You look for one kind of anomaly in a log of readings of sensors. {self.rule} Report each device once, "
            "with the positions and times of the first and last record concerned and the figures as evidence; report "
            "nothing that the rule does not cover. You are given a fork, and the positions to look at. Use query_sql "
            "on that fork, on at most `records_per_query` positions at once, and aggregate there. The view `rows` has "
            "_position, _timestamp, device, seq, celsius and volts; the view `records` also has what is no JSON. Do "
            "not squash the fork: others work on it."
        )


def question(task: Task) -> str:
    """What an investigation is asked; its last line is the task as JSON."""
    return f"Look at the positions from `start` up to `stop`, without it, of this fork:\n{task.model_dump_json()}"


def task_of(question: str) -> Task:
    """What was asked."""
    return Task.model_validate_json(question.splitlines()[-1])


# --- what a query of each part finds ---------------------------------------------------------------------------------

_MEASURED: Final = f"""r AS MATERIALIZED (
SELECT _position AS p, _timestamp AS t, device, celsius FROM rows
WHERE celsius BETWEEN {CELSIUS_MIN} AND {CELSIUS_MAX})"""

_SPIKE: Final = f"""WITH {_MEASURED},
m AS (SELECT device, median(celsius) AS m FROM r GROUP BY device),
w AS (SELECT date_trunc('hour', t) AS h, median(celsius - m) AS w FROM r JOIN m USING (device) GROUP BY h),
x AS MATERIALIZED (SELECT p, t, device, celsius, celsius - m - w AS x
  FROM r JOIN m USING (device) JOIN w ON h = date_trunc('hour', t)),
s AS (SELECT device, median(x) AS c, greatest(0.01, {NORMAL} * mad(x)) AS s FROM x GROUP BY device)
SELECT device, min(p), max(p), min(t), max(t),
  count(*) || ' readings from ' || min(celsius) || ' to ' || max(celsius) || ', up to '
  || round(max(abs(x - c) / s)) || ' deviations off'
FROM x JOIN s USING (device) WHERE abs(x - c) > {SPIKE_DEVIATIONS} * s GROUP BY device"""

_STUCK: Final = f"""WITH r AS (
SELECT _position AS p, _timestamp AS t, device, seq, celsius,
  lag(seq) OVER w AS seq_before, lag(celsius) OVER w AS before
FROM rows WINDOW w AS (PARTITION BY device ORDER BY _position)),
g AS (SELECT *, sum(CASE WHEN celsius = before THEN 0 ELSE 1 END) OVER (PARTITION BY device ORDER BY p) AS run
  FROM r WHERE seq IS DISTINCT FROM seq_before)
SELECT device, min(p), max(p), min(t), max(t), count(*) || ' readings of ' || celsius || ' in a row'
FROM g WHERE celsius IS NOT NULL GROUP BY device, run, celsius HAVING count(*) >= {STUCK_READINGS}"""

_IMPOSSIBLE: Final = f"""SELECT device, min(_position), max(_position), min(_timestamp), max(_timestamp),
  count(*) || ' readings from ' || min(celsius) || ' to ' || max(celsius)
FROM rows WHERE celsius < {CELSIUS_MIN} OR celsius > {CELSIUS_MAX} GROUP BY device"""

_DUPLICATES: Final = """WITH d AS (
SELECT device, seq, count(*) AS n,
  min(_position) AS a, max(_position) AS z, min(_timestamp) AS ta, max(_timestamp) AS tz
FROM rows GROUP BY device, seq HAVING count(*) > 1)
SELECT device, min(a), max(z), min(ta), max(tz), sum(n - 1) || ' copies of ' || count(*) || ' records, such as seq '
  || min(seq)
FROM d GROUP BY device"""

_GARBLED: Final = """SELECT coalesce(key, '?'), min(position), max(position), min(timestamp), max(timestamp),
  count(*) || ' records that are no JSON, such as ' || min(text)
FROM records WHERE json IS NULL GROUP BY key"""


def _in_parts(kind: Kind, sql: str) -> Callable[[str], Script]:
    """A script for what can be told from each part by itself."""

    def script(question: str) -> Script:
        task = task_of(question)
        found = yield [task.query(sql, *part) for part in task.parts(overlap=True)]
        return Findings(findings=_joined([_finding(kind, row) for row in _rows(found)]))

    return script


def _rows(found: list[Returned]) -> list[list[Any]]:
    """Of all parts; none of them is to be cut."""
    if any(one.get("truncated") for one in found):
        raise Stuck("an answer was cut: there are too many devices for one, so look at fewer positions at a time")
    return [row for one in found for row in one["rows"]]


def _finding(kind: Kind, row: list[Any]) -> Finding:
    device, first, last, first_time, last_time, evidence = row
    return Finding(
        device=device,
        kind=kind,
        first=first,
        last=last,
        first_time=first_time,
        last_time=last_time,
        evidence=str(evidence),
    )


def _joined(findings: list[Finding]) -> list[Finding]:
    """What parts that overlap found of the same is one finding."""
    joined: list[Finding] = []
    for one in sorted(findings, key=lambda one: (one.device, one.first, one.last)):
        before = joined[-1] if joined else None
        if before is None or before.device != one.device or one.first > before.last:
            joined.append(one)
        elif one.last > before.last:
            joined[-1] = before.model_copy(update={"last": one.last, "last_time": one.last_time})
    return joined


# --- what takes the whole range --------------------------------------------------------------------------------------

_GAPS: Final = """WITH r AS (SELECT _position AS p, _timestamp AS t, device,
  lead(_position) OVER w AS next_p, lead(_timestamp) OVER w AS next_t
FROM rows WINDOW w AS (PARTITION BY device ORDER BY _position))
SELECT device, count(*), median(next_p - p), min(p), min(t), max(p), max(t),
  arg_max(p, next_p - p), arg_max(t, next_p - p), arg_max(next_p, next_p - p), arg_max(next_t, next_p - p)
FROM r GROUP BY device ORDER BY device"""


def _silent(question: str) -> Script:
    """The longest gap of each device, within parts, between them, and at the end."""
    task = task_of(question)
    found = yield [task.query(_GAPS, *part) for part in task.parts(overlap=False)]
    rows = sorted(_rows(found), key=lambda row: (row[0], row[3]))
    ends = max((row[6] for row in rows), default="")
    findings = []
    for device in dict.fromkeys(row[0] for row in rows):
        own = [row[1:] for row in rows if row[0] == device]
        usual = [row[1] for row in own if row[1] is not None]
        gaps = [(row[8] - row[6], *row[6:10]) for row in own if row[6] is not None]
        gaps += [(after[2] - before[4], *before[4:6], *after[2:4]) for before, after in pairwise(own)]
        gaps.append((task.stop - own[-1][4], *own[-1][4:6], task.stop - 1, ends))
        length, first, first_time, last, last_time = max(gaps)
        mean = GAP * median(usual) if usual else length
        if length > SILENT_GAPS * mean and sum(row[0] for row in own) >= SILENT_GAPS:
            evidence = f"nothing for {length} positions, {length / mean:.0f} times its usual gap"
            findings.append(_finding("silent", [device, first, last, first_time, last_time, evidence]))
    return Findings(findings=findings)


def _levels(task: Task) -> str:
    width = max(1, -(-(task.stop - task.start) // TENTHS))
    return f"""WITH {_MEASURED},
l AS (SELECT device, (p - {task.start}) // {width} AS tenth, count(*) AS n, round(median(celsius), 3) AS level
  FROM r GROUP BY device, tenth)
SELECT device, list([tenth, n, level] ORDER BY tenth) FROM l GROUP BY device ORDER BY device"""


def _drift(question: str) -> Script:
    """How far each device is from where it began, beyond what the others are, in each tenth of the range."""
    task = task_of(question)
    found = yield [task.query(_levels(task), *part) for part in task.parts(overlap=False)]
    levels = _off_the_others(found)
    ends: dict[str, float] = {device: off[max(off)] for device, off in levels.items()}
    middle = median(ends.values()) if ends else 0.0
    spread = max(0.05, NORMAL * median(abs(end - middle) for end in ends.values())) if ends else 1.0
    suspects: dict[str, int] = {}
    for device, off in levels.items():
        away = [tenth for tenth, one in off.items() if one * ends[device] > 0 and abs(one) > DRIFT_SPREADS / 2 * spread]
        back = [tenth for tenth in off if tenth not in away]
        if abs(ends[device]) > DRIFT_SPREADS * spread and away[-1] == max(off):
            suspects[device] = max(back, default=-1) + 1
    if not suspects:
        return Findings(findings=[])
    sql = _whereabouts(task, suspects)
    found = yield [task.query(sql, *part) for part in task.parts(overlap=False)]
    pieces: dict[str, list[list[Any]]] = {}
    for row in _rows(found):
        pieces.setdefault(row[0], []).append(row)
    findings = []
    for device, own in pieces.items():
        evidence = (
            f"{ends[device]:+.2f} degrees from where it began, {abs(ends[device]) / spread:.0f} times what is usual"
        )
        first, last = min(own, key=lambda row: row[1]), max(own, key=lambda row: row[2])
        findings.append(_finding("drift", [device, first[1], last[2], first[3], last[4], evidence]))
    return Findings(findings=findings)


def _off_the_others(found: list[Returned]) -> dict[str, dict[int, float]]:
    """For each device and tenth: its level less the one that it began with, less what that is for the fleet."""
    measured: dict[str, dict[int, tuple[float, float]]] = {}
    for device, tenths in _rows(found):
        own = measured.setdefault(device, {})
        for tenth, count, level in tenths:
            if count > own.get(int(tenth), (0.0, 0.0))[0]:  # a tenth may lie in two parts: that with more counts
                own[int(tenth)] = (count, level)
    moved = {}
    for device, own in measured.items():
        enough = {tenth: level for tenth, (count, level) in own.items() if count >= TENTH_READINGS_MIN}
        if enough and min(enough) == 0:
            moved[device] = {tenth: level - enough[0] for tenth, level in sorted(enough.items())}
    fleet = {
        tenth: median(off[tenth] for off in moved.values() if tenth in off)
        for tenth in {tenth for off in moved.values() for tenth in off}
    }
    return {device: {tenth: one - fleet[tenth] for tenth, one in off.items()} for device, off in moved.items()}


def _whereabouts(task: Task, suspects: dict[str, int]) -> str:
    """The records of devices from a tenth on. Names of devices come from records: they are quoted."""
    width = max(1, -(-(task.stop - task.start) // TENTHS))
    wanted = " OR ".join(
        f"(device = '{device.replace(chr(39), chr(39) * 2)}' AND _position >= {task.start + tenth * width})"
        for device, tenth in suspects.items()
    )
    return f"""SELECT device, min(_position), max(_position), min(_timestamp), max(_timestamp) FROM rows
WHERE {wanted} GROUP BY device"""


INVESTIGATIONS: Final = (
    Investigation(
        "spike",
        f"Spikes: readings that a sensor can measure ({CELSIUS_MIN:g} to {CELSIUS_MAX:g} degrees), and more than "
        f"{SPIKE_DEVIATIONS} robust standard deviations of their device off, after its median and the hour's weather, "
        "which is the fleet's median deviation in that hour, are taken away.",
        _in_parts("spike", _SPIKE),
    ),
    Investigation(
        "stuck",
        f"Stuck sensors: {STUCK_READINGS} or more readings of a device in a row that are the same, copies of one "
        "record (the same seq) not counted.",
        _in_parts("stuck", _STUCK),
    ),
    Investigation(
        "silent",
        f"Silent devices: nothing came from a device for more than {SILENT_GAPS} times its mean gap in positions "
        f"({GAP} times the median one), within the range or up to its end. `first` and `last` are the records before "
        "and after, or the end. Devices with fewer records than that are left out.",
        _silent,
    ),
    Investigation(
        "drift",
        "Drift: in the last tenth of the range a device's median reading is further from that in the first tenth than "
        f"the fleet's, by more than {DRIFT_SPREADS} times what is usual among devices (their robust spread). It begins "
        "in the tenth from which on it is half as far off or more, and lasts to the end.",
        _drift,
    ),
    Investigation(
        "impossible",
        f"Impossible readings: below {CELSIUS_MIN:g} or above {CELSIUS_MAX:g} degrees, which no sensor here measures.",
        _in_parts("impossible", _IMPOSSIBLE),
    ),
    Investigation(
        "duplicates",
        "Duplicates: records of a device with a seq that it has sent before.",
        _in_parts("duplicates", _DUPLICATES),
    ),
    Investigation(
        "garbled",
        "Garbled records: values that are no JSON. Their device is the record's key.",
        _in_parts("garbled", _GARBLED),
    ),
)

"""A forest and its oracle in lockstep: every step is given to both, and then everything observable is compared.

The world also plays the store: it keeps the records of inline batches and of objects, throws away what the forest says
nobody needs, and reads through the places that the forest names. So a record that the forest let go too early, or a
row that it counts wrongly, is a record that cannot be read here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

from braidlog.errors import Blocked, BraidError, Gone, OutcomeUnknown, Trimmed
from braidlog.facts import UploadedBlock, UploadedObject
from braidlog.forest import commands as c
from braidlog.forest import consumers as consumers_of
from braidlog.forest import invariants
from braidlog.forest.commands import NONE
from braidlog.forest.log import Log
from braidlog.forest.machine import Forest
from braidlog.forest.reading import Extent, locate, resolve, size_of
from braidlog.forest.state import freeze, thaw
from braidlog.forest.tails import reach
from tests.model.oracle import Answer, Limit, NaiveLog, Oracle

NOBODY = 1_000_000  # the id of a log that never was
RECORD_SIZE_BYTES = 8


@dataclass(frozen=True)
class Step:
    """One line of a history. Logs, requests and objects go by labels, so that a history stays readable when cut."""

    verb: str
    log: str = ""
    more: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join([self.verb, self.log, *(f"{key}={value}" for key, value in self.more.items())]).strip()


class Mismatch(AssertionError):
    """The forest differs from its oracle. `kind` says in what, `steps` what had happened."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.steps: list[Step] = []


def same(kind: str, what: object, found: object, wanted: object) -> None:
    if found != wanted:
        raise Mismatch(kind, f"{what} is {found}, and should be {wanted}")


def same_bytes(kind: str, what: str, found: bytes, wanted: bytes) -> None:
    """For frozen forests, which are long: names only the parts that differ."""
    if found != wanted:
        parts = zip(msgspec.msgpack.decode(found), msgspec.msgpack.decode(wanted), strict=True)
        same(kind, what, *zip(*((left, right) for left, right in parts if left != right), strict=True))


class World:
    def __init__(self, record_size: int = RECORD_SIZE_BYTES) -> None:
        self.forest = Forest()
        self.oracle = Oracle(record_size)
        self.record_size = record_size
        self.now = 0
        self.ids: dict[str, int] = {}  # of logs, by label
        self.requests: dict[str, bytes] = {}
        self.commands: list[c.Command] = []
        self.records_made = 0
        self.times: dict[int, int] = {}  # timestamps of records
        self.inline: dict[int, list[int]] = {}
        self.objects: dict[str, dict[int, list[int]]] = {}
        self.planned: dict[str, c.Command] = {}  # packs and relocations whose object is being written, by object
        self.ever: dict[int, list[int | None]] = {}  # what could ever be read of a log
        self.met: Counter[str] = Counter()  # what kinds of things happened
        self._doors: dict[str, Callable[[Step], None]] = {
            "append": self._append,
            "publish": self._publish,
            "plan-pack": self._plan_pack,
            "plan-relocate": self._plan_relocate,
            "apply-plan": self._apply_plan,
            "retain": self._retain,
            "reopen": self._reopen,
        }

    def perform(self, step: Step) -> None:
        """Do one step on both sides and compare them."""
        self.now = step.more.get("now", self.now)
        door = self._doors.get(step.verb)
        if door is not None:
            door(step)
        else:
            self._both(self._again(self._command(step), step), step)
        self.compare()

    def finish(self) -> None:
        """The same commands on a fresh forest, never frozen and thawed, give the same bytes."""
        fresh = Forest()
        for command in self.commands:
            fresh.apply(command)
        same_bytes("replay", "the forest after a replay", freeze(fresh), freeze(self.forest))

    # --- steps ---------------------------------------------------------------------------------------------------

    def _command(self, step: Step) -> c.Command:
        log, more = self._id(step.log), step.more
        request = self._request(more)
        name = more.get("name", more.get("into", ""))
        fork: dict[str, Any] = {"labels": more.get("labels", {}), "owner": more.get("owner", ""), "request": request}
        match step.verb:
            case "opened":
                return c.Opened(more["epoch"], self.now)
            case "create":
                retain = (more.get("age", NONE), more.get("bytes", NONE))
                return c.Create(name, self.now, more.get("discipline", "eager"), *retain, **fork)
            case "cfork":
                lease = more.get("lease", NONE)
                fork["dedicated"] = more.get("dedicated", False)
                return c.CFork(log, name, self.now, more.get("promotable", False), more.get("ttl", NONE), lease, **fork)
            case "sfork":
                return c.SFork(log, name, self.now, more.get("at", NONE), more.get("ttl", NONE), **fork)
            case "promote":
                return c.Promote(log, more.get("own", NONE), more.get("tail", NONE), request)
            case "squash":
                return c.Squash(log, more.get("cascade", False), request)
            case "drop":
                return c.Drop(log, more.get("cascade", False), request)
            case "renew":
                return c.Renew(log, self.now, request)
            case "expire":
                return c.Expire(log, self.now)
            case "trim":
                return c.Trim(log, self._before(log, more["before"]), request)
            case "register":
                self.objects.setdefault(more["object"], {})
                return c.Register(more["object"], more.get("epoch", self.oracle.epoch), 1, 2, self.now)
            case "commit":
                return c.Commit(log, more["consumer"], self._before(log, more["position"]), self.now, request)
            case "forget-consumer":
                return c.ForgetConsumer(log, more["consumer"], request)
            case "settle":
                return c.Settle(request_of(more["upto"])[:8], int.from_bytes(request_of(more["upto"])[8:], "big"))
            case "admit":
                return c.Admit(self.now, request)
            case "retire":
                return c.Retire(more["epoch"], request)
            case "upload":
                return c.Upload(log, self.now, more["ttl"], request)
            case "discard":
                return c.Discard(log, more["epoch"], request)
            case "collect":
                return c.Collect(self.now)
            case "forget":
                return c.Forget([name for name, condemned in self.oracle.objects.items() if condemned])
        raise AssertionError(f"unknown step {step}")

    def _again(self, command: c.Command, step: Step) -> c.Command:
        """The command as it is, or as one that was sent before."""
        return c.Again(command, 0) if step.more.get("again") else command

    def _before(self, log_id: int, before: int | str) -> int:
        log = self.oracle.living.get(log_id)
        if before == "readable":
            return self.oracle.limit(log).readable if log is not None else 0
        return int(before)

    def _id(self, label: str) -> int:
        return self.ids.get(label, NOBODY)

    def _request(self, more: Mapping[str, Any]) -> bytes:
        label = more.get("request", "")
        return self.requests.setdefault(label, request_of(label)) if label else b""

    def _append(self, step: Step) -> None:
        more = step.more
        times: tuple[int, ...] = more["times"]
        records = list(range(self.records_made, self.records_made + len(times)))
        self.records_made += len(times)
        self.times.update(zip(records, times, strict=True))
        name, offset, row = more.get("object", ""), more.get("offset", 0), 0
        if name in self.objects:
            stored = self.objects[name].setdefault(offset, [])
            row = len(stored)
            stored += records
        command = c.Append(
            self._id(step.log),
            len(records),
            len(records) * self.record_size,
            min(times, default=0),
            max(times, default=0),
            b"" if name else b"inline",
            name,
            offset,
            1,
            2,
            more.get("tail", NONE),
            more.get("writer", ""),
            more.get("sequence", NONE),
            self._request(more),
            row,
        )
        result = self._both(self._again(command, step), step, records)
        if isinstance(result, c.Appended) and result.block != NONE and not name:
            self.inline[result.block] = records

    def _publish(self, step: Step) -> None:
        """Objects of some blocks each, that were stored before: under a name that is taken stands what stood there."""
        more = step.more
        made: list[UploadedObject] = []
        records: list[int] = []
        for name, blocks in more["objects"]:
            described: list[UploadedBlock] = []
            stood = self.objects.get(name)
            for offset, times in enumerate(blocks):
                rows = [] if stood is None else stood.get(offset, [])
                if len(rows) != len(times):
                    rows = list(range(self.records_made, self.records_made + len(times)))
                    self.records_made += len(times)
                    self.times.update(zip(rows, times, strict=True))
                records += rows
                size = len(rows) * self.record_size
                described.append(UploadedBlock(offset, 1, 2, len(rows), size, min(times), max(times)))
                if stood is None:
                    self.objects.setdefault(name, {})[offset] = rows
            made.append(UploadedObject(name, len(blocks), 3, described))
        command = c.Publish(
            self._id(step.log),
            made,
            list(more["epochs"]),
            self.now,
            more.get("tail", NONE),
            more.get("writer", ""),
            more.get("sequence", NONE),
            self._request(more),
        )
        self._both(self._again(command, step), step, records)

    def _plan_pack(self, step: Step) -> None:
        """Some inline blocks are copied into a new object, one block of it for each log."""
        chance = Random(step.more["pick"])
        by_log: dict[int, list[int]] = {}
        for block in self.oracle.inline():
            if chance.random() < step.more["share"]:
                by_log.setdefault(self.oracle.blocks[block].log, []).append(block)
        name = step.more["object"]
        stored = self.objects.setdefault(name, {})
        parts = []
        for offset, (log, sources) in enumerate(by_log.items()):
            stored[offset] = [record for source in sources for record in self.inline[source]]
            parts.append(c.PackedBlock(log, offset, 1, 2, sources, [len(self.inline[source]) for source in sources]))
        self.planned[name] = c.Pack(name, parts)

    def _plan_relocate(self, step: Step) -> None:
        """Some blocks of objects are copied into one block of a new object."""
        chance = Random(step.more["pick"])
        name = step.more["object"]
        together: list[int] = []
        moves = []
        for block, place in self.forest.space.places.items():
            if chance.random() < step.more["share"]:
                rows = len(self.oracle.blocks[block].rows)
                moves.append(c.Move(block, 0, 1, 2, len(together)))
                together += self.objects[place.object][place.offset][place.row : place.row + rows]
        self.objects.setdefault(name, {})[0] = together
        self.planned[name] = c.Relocate(name, moves)

    def _apply_plan(self, step: Step) -> None:
        command = self.planned.pop(step.more["object"], None)
        if command is not None:
            self._both(command, step)

    def _retain(self, step: Step) -> None:
        """Retention works on whole runs, and where runs end is the forest's affair: its answer is judged, not foretold.

        Nothing may go that is neither too old nor more than the bytes to keep, and no whole run may stay that is.
        """
        command = c.Retain(self._id(step.log), self.now)
        self.commands.append(command)
        if self.oracle.living.get(command.log) is None:
            result = self.forest.apply(command)
            same("answer", step, isinstance(result, BraidError), True)
            return
        log, naive = self.forest.logs[command.log], self.oracle.living[command.log]
        oldest = command.now - naive.retain_age_us if naive.retain_age_us != NONE else -1
        keep = naive.retain_bytes if naive.retain_bytes != NONE else 1 << 60
        same("answer", step, self._told(self.forest.apply(command)), ("done", log.start))
        self.met["Retain done"] += 1
        for position in range(naive.start, log.start):
            left = (len(naive.content) - position - 1) * self.record_size
            if self.times[naive.content[position]] >= oldest and left < keep:
                raise Mismatch("retention", f"{naive.name} lost {position}, which is young, and {left} bytes after it")
        readable = self.oracle.limit(naive).readable
        if not naive.start <= log.start <= readable:
            raise Mismatch("retention", f"{naive.name} starts at {log.start}, and {readable} cannot be read")
        for first in resolve(log.view, log.start, readable)[: 1 if naive.kind == "root" else 0]:
            left = (len(naive.content) - log.start) * self.record_size
            if first.greatest < oldest or 0 < first.rows * self.record_size <= left - keep:
                raise Mismatch("retention", f"{naive.name} keeps {first}, though it is over its retention")
        naive.start = log.start

    def _reopen(self, _: Step) -> None:
        self.forest = thaw(freeze(self.forest))
        self.met["reopen"] += 1

    def _both(self, command: c.Command, step: Step, records: list[int] | None = None) -> object:
        self.commands.append(command)
        detail = self._detail(command)
        wanted = self.oracle.apply(command, records or [])
        self._note(command, wanted, detail)
        try:
            bare = command.command if isinstance(command, c.Again) else command
            if isinstance(bare, c.Append | c.Publish | c.CFork | c.SFork) and isinstance(
                command, c.Append | c.Publish | c.CFork | c.SFork | c.Again
            ):
                self._compare_foresight(command, wanted)
            result = self.forest.apply(command)
        except Mismatch:
            raise
        except Exception as error:
            raise Mismatch("crash", f"{step} ended in {type(error).__name__}: {error}") from error
        same("answer", step, self._told(result), wanted)
        if isinstance(result, c.Opening) and "into" in step.more:
            self.ids[step.more["into"]] = result.log
        if isinstance(result, c.Collected):
            for block in result.blocks:
                self.inline.pop(block, None)
        if isinstance(command, c.Forget):
            for name in command.objects:
                self.objects.pop(name, None)
        if isinstance(result, c.Promotion) and result.promoted:
            self._carry_over(result.ended[0])
        return result

    def _detail(self, command: c.Command) -> str:
        """What is special about a command that may well be carried out; told before it is."""
        oracle = self.oracle
        log = oracle.living.get(getattr(command, "log", NOBODY))
        if log is None:
            return ""
        limit = oracle.limit(log)
        rivals = len(oracle.undecided_forks(log.parent)) - 1 if log.promotable and log.parent is not None else 0
        match command:
            case c.CFork(promotable=True):
                return "nested promotable" if log.promotable else "promotable"
            case c.CFork() if limit.readable < limit.tail:
                return "born blocked"
            case c.SFork() if log.parent is not None and log.own and command.at > log.fork_point:
                return "mixed region"
            case c.Promote() if limit.blocked:
                return "won while blocked from above"
            case c.Promote() if rivals:
                return "won over rivals"
            case c.Promote() if oracle.undecided_forks(log):
                return "won while held"
            case c.Squash() if rivals:
                return "one of several undecided"
        return ""

    def _note(self, command: c.Command, answer: Answer, detail: str) -> None:
        what = f"{type(command).__name__} {answer[0]}"
        match answer:
            case ("refused", error, _):
                self.met[f"{what} {error}"] += 1
            case ("appended", _, _, _, True):
                self.met[f"{type(command).__name__} withheld"] += 1
            case ("promotion", won, _):
                self.met[f"{what}, {'won' if won else 'not'}"] += 1
                self.met[f"{what}, {detail}"] += bool(won and detail)
            case _:
                self.met[what] += 1
                self.met[f"{what}, {detail}"] += bool(detail)

    def _compare_foresight(self, command: c.Append | c.Publish | c.CFork | c.SFork | c.Again, wanted: Answer) -> None:
        """What a hold would refuse is known before anything is tried; nothing is foreseen that then goes well."""
        try:
            self.forest.check_holds(command)
        except BraidError as error:
            foreseen: Answer = self._told(error)
        else:
            foreseen = ("nothing",)
        if wanted[:2] == ("refused", "Blocked") or (foreseen[0] == "refused" and wanted[0] != "refused"):
            same("foresight", f"what is foreseen of {command}", foreseen, wanted)

    def _told(self, result: object) -> Answer:
        """The forest's answer in the oracle's words."""
        match result:
            case BraidError():
                return "refused", type(result).__name__, _detail(result)
            case c.Appended():
                log = self.oracle.successor(result.log).id
                return "appended", log, result.first, result.count, result.withheld
            case c.Opening():
                return "opening", result.log, result.name
            case c.Promotion():
                return "promotion", result.promoted, frozenset(result.ended)
            case c.Ended():
                return "ended", frozenset(result.logs)
            case c.Done():
                return "done", result.value
            case c.Collected():
                return "collected", frozenset(result.blocks), frozenset(result.condemned)
        raise AssertionError(f"unknown answer {result}")

    def _carry_over(self, fork_id: int) -> None:
        """What could be read of a promoted fork can from now on be read of its parent, at the same positions."""
        saw = self.ever[self.oracle.successor(fork_id).id]
        more = self.ever.pop(fork_id, [])[len(saw) :]  # nothing, when this repeats an old answer
        if None not in more:  # else the fork was trimmed beyond what was seen of the parent
            saw += more

    # --- comparing -----------------------------------------------------------------------------------------------

    def compare(self) -> None:
        """Everything that can be observed of the forest, against the oracle."""
        forest, oracle = self.forest, self.oracle
        same("applied", "the number of commands applied", forest.applied, len(self.commands))
        if wrong := oracle.contradictions():
            raise AssertionError(f"the oracle contradicts itself: {wrong}")
        same("logs", "the living", set(forest.logs), set(oracle.living))
        limits = oracle.limits()
        for log in forest.logs.values():
            naive = oracle.living[log.id]
            self._compare_description(log, naive)
            self._compare_limit(log, limits[log.id])
            self._compare_content(log, naive, limits[log.id])
        for log_id, end in forest.ends.items():
            ended = oracle.logs[log_id]
            same("ends", ended.name, (end.kind, end.name, end.position), (ended.end, ended.name, ended.end_tail))
        for request in self.requests.values():
            known = forest.recall(request)
            same("outcomes", f"the outcome of {request!r}", known and self._told(known), oracle.recall(request))
        same("deadlines", f"what is overdue at {self.now}", forest.overdue(self.now), oracle.overdue(self.now))
        uploads = forest.space.uploads
        living = {epoch: (upload.log, upload.expires) for epoch, upload in uploads.by_epoch.items()}
        same("uploads", "the living uploads", living, oracle.uploads)
        over = [
            (log, epoch) for epoch, (log, at) in oracle.uploads.items() if at <= self.now or log not in oracle.living
        ]
        same("uploads", f"which of them are over at {self.now}", uploads.overdue(self.now, forest.logs), over)
        try:
            wrong = invariants.broken(forest)
        except Exception as error:
            raise Mismatch("crash", f"the invariants ended in {type(error).__name__}: {error}") from error
        same("invariants", "the list of broken ones", wrong, [])
        frozen = freeze(forest)
        same_bytes("frozen", "the forest frozen, thawed and frozen again", freeze(thaw(frozen)), frozen)

    def _compare_description(self, log: Log, naive: NaiveLog) -> None:
        for name in _DESCRIPTION:
            found, wanted = getattr(log, name), getattr(naive, name)
            if found != wanted:
                same("description", f"{name} of {naive.name}", found, wanted)
        parents = (log.parent and log.parent.id, naive.parent and naive.parent.id)
        same("description", f"the parent of {naive.name}", *parents)
        same("own", f"the own records of {naive.name}", log.own, len(naive.own))
        same("own", f"the own bytes of {naive.name}", log.own_size, len(naive.own) * self.record_size)
        found = {writer: (known.sequence, self._told(_answer(known.outcome))) for writer, known in log.writers.items()}
        wanted = {writer: (sequence, self.oracle.told(batch)) for writer, (sequence, batch) in naive.writers.items()}
        same("writers", f"the writers of {naive.name}", found, wanted)
        consumers = {name: (consumers_of.position_of(log, name), at) for name, (_, at) in log.consumers.items()}
        same("consumers", f"the consumers of {naive.name}", consumers, naive.consumers)

    def _compare_limit(self, log: Log, wanted: Limit) -> None:
        at = reach(log)
        same("tail", f"the tail of {log.name}", at.tail, wanted.tail)
        holder = wanted.holder and wanted.holder.name
        found = (at.readable, at.holder and at.holder.name, at.blocked)
        same("limit", f"(readable, held by, blocked) of {log.name}", found, (wanted.readable, holder, wanted.blocked))

    def _compare_content(self, log: Log, naive: NaiveLog, limit: Limit) -> None:
        start, tail = naive.start, limit.tail
        try:
            found = self._read(log, start, tail)
            singly = [self._record(*locate(log.view, position)) for position in range(start, tail)]
        except (AssertionError, LookupError) as error:
            raise Mismatch("unreadable", f"{naive.name} cannot be read from {start} to {tail}: {error!r}") from error
        same("content", f"the range from {start} of {naive.name}", found, naive.content[start:])
        same("content", f"each position from {start} of {naive.name}", singly, found)
        same("size", f"the size of {naive.name}", size_of(log.view, start, tail), len(found) * self.record_size)
        saw = self.ever.setdefault(log.id, [None] * start)
        if limit.readable < len(saw):
            raise Mismatch("stability", f"{naive.name} was readable up to {len(saw)}, now up to {limit.readable}")
        same("stability", f"what was read before from {start} of {naive.name}", found[: len(saw) - start], saw[start:])
        saw += found[len(saw) - start : limit.readable - start]

    def _read(self, log: Log, start: int, stop: int) -> list[int]:
        found: list[int] = []
        for extent in resolve(log.view, start, stop):
            if extent.position != start + len(found):
                raise LookupError(f"{extent} does not follow position {start + len(found)}")
            records = [self._record(extent.block, row) for row in range(extent.row, extent.row + extent.rows)]
            self._compare_extent(log, extent, records)
            found += records
        return found

    def _compare_extent(self, log: Log, extent: Extent, records: list[int]) -> None:
        own = self.oracle.living[log.id].own
        for record in records:
            if (record in own) != extent.own:
                raise Mismatch("own", f"record {record} of {log.name} is its own, or not: {extent}")
            if not extent.least <= self.times[record] <= extent.greatest:
                raise Mismatch("times", f"record {record} of {log.name} has time {self.times[record]}: {extent}")

    def _record(self, block: int, row: int) -> int:
        place = self.forest.space.places.get(block)
        if place is None:
            return self.inline[block][row]
        return self.objects[place.object][place.offset][place.row + row]


def request_of(label: str) -> bytes:
    """The id of a request: of one of three clients, and its number."""
    number = int(label[1:])
    return b"client-%d" % (number % 3) + number.to_bytes(8, "big")


def _detail(error: BraidError) -> object:
    match error:
        case Blocked():
            return error.by
        case Gone():
            return error.end
        case Trimmed():
            return error.start
        case OutcomeUnknown():
            return error.request_id
    return None


def _answer(outcome: Any) -> c.Appended:
    return c.Appended(outcome.log, outcome.first, outcome.count, NONE, outcome.withheld)


_DESCRIPTION = (
    "name",
    "kind",
    "fork_point",
    "promotable",
    "dedicated",
    "start",
    "epoch",
    "created",
    "expires",
    "ttl_us",
    "lease_us",
    "lease_expires",
    "retain_age_us",
    "retain_bytes",
    "labels",
    "owner",
    "origin_id",
    "origin_name",
)

"""Random histories, and the smallest one that still shows a fault.

The author writes a history step by step while it happens, looking at the oracle to find the spots where forests go
wrong: nested undecided forks, forks of held and of blocked logs, severed forks inside mixed regions, squashed rivals.
Every choice comes from one seed. A history that fails is cut, step by step, for as long as it fails in the same way.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.model.oracle import NaiveLog
from tests.model.world import RECORD_SIZE_BYTES, Mismatch, Step, World

LOGS_MAX = 12  # living at once; beyond it the author prefers to end some
RECORDS_MAX = 60  # in one log; beyond it the author appends elsewhere

_WEIGHTS = {
    "append": 34,
    "cfork": 17,
    "sfork": 8,
    "promote": 6,
    "squash": 4,
    "trim": 4,
    "commit": 6,
    "forget_consumer": 2,
    "settle": 2,
    "admit": 1,
    "retire": 1,
    "upload": 4,
    "publish": 6,
    "discard": 1,
    "pack": 5,
    "relocate": 3,
    "collect": 4,
    "again": 4,
    "retain": 2,
    "renew": 2,
    "expire": 2,
    "forget": 1,
    "reopen": 2,
    "create": 1,
    "drop": 1,
    "opened": 1,
    "stray": 1,
    "rivals": 1,
    "outlived": 1,
}


class Author:
    def __init__(self, seed: int, world: World) -> None:
        self.chance = Random(seed)
        self.world = world
        self.labels = 0
        self.now = 1_000
        self.later: list[Step] = []  # what is begun is finished by and by, with other steps between

    def next(self) -> Step:
        """What happens next."""
        self.now += self.chance.randrange(4)
        living = self._living()
        if not living:
            return self._create()
        if self.later and self.chance.random() < 0.4:
            return self.later.pop(0)
        crowded = len(living) > LOGS_MAX
        weights = {
            verb: weight * (4 if crowded and verb in ("promote", "squash", "drop") else 1)
            for verb, weight in _WEIGHTS.items()
            if not (crowded and verb in ("cfork", "sfork", "create"))
        }
        verb = self.chance.choices(list(weights), list(weights.values()))[0]
        step: Step = getattr(self, f"_{verb}")()
        return step

    # --- choosing ------------------------------------------------------------------------------------------------

    def _living(self) -> list[NaiveLog]:
        return list(self.world.oracle.living.values())

    def _label(self, log: NaiveLog) -> str:
        return next(label for label, log_id in self.world.ids.items() if log_id == log.id)

    def _any(self) -> NaiveLog:
        return self.chance.choice(self._living())

    def _undecided(self) -> list[NaiveLog]:
        return [log for log in self._living() if log.promotable]

    def _often(self, wanted: list[NaiveLog], share: float) -> NaiveLog:
        """One of the wanted logs, usually."""
        return self.chance.choice(wanted) if wanted and self.chance.random() < share else self._any()

    def _new(self, prefix: str) -> str:
        self.labels += 1
        return f"{prefix}{self.labels}"

    def _sometimes(self, share: float, **more: Any) -> dict[str, Any]:
        return more if self.chance.random() < share else {}

    def _requested(self) -> dict[str, Any]:
        return {"request": self._new("r")} if self.chance.random() < 0.25 else {}

    # --- steps ---------------------------------------------------------------------------------------------------

    def _create(self) -> Step:
        more: dict[str, Any] = {"into": self._new("root"), "now": self.now}
        more |= self._sometimes(0.3, age=self.chance.randrange(5, 60))
        more |= self._sometimes(0.3, bytes=self.chance.randrange(0, 12 * RECORD_SIZE_BYTES))
        more |= self._sometimes(0.1, labels={"team": "a"}, owner="somebody")
        more |= self._sometimes(0.05, discipline="lazy")
        more |= self._naming() | self._requested()
        return Step("create", "", more)

    def _naming(self) -> dict[str, Any]:
        """A name other than the label: taken, freed by a log that ended, not allowed, or left to the forest."""
        if self.chance.random() < 0.9:
            return {}
        old = self.chance.choice(list(self.world.oracle.logs.values()) or [None])
        return {"name": self.chance.choice([old.name if old else "x", "", "not a name"])}

    def _append(self) -> Step:
        short = [log for log in self._living() if len(log.content) < RECORDS_MAX]
        if not short:
            return self._trim()
        held = [log for log in short if self.world.oracle.undecided_forks(log)]
        undecided = [log for log in short if log.promotable]
        log = self.chance.choice(self.chance.choice([held, undecided, short, short]) or short)
        count = self.chance.choice([1, 1, 1, 2, 2, 3])
        times = tuple(self.now + self.chance.randrange(-6, 3) for _ in range(count))
        more: dict[str, Any] = {"times": times if self.chance.random() < 0.99 else ()}
        more |= self._requested()
        if self.chance.random() < 0.2:
            writer = self.chance.choice("uvw")
            sequence = log.writers[writer][0] if writer in log.writers else 0
            more |= {"writer": writer, "sequence": sequence + self.chance.choice([-1, 0, 1, 1, 1, 2])}
        more |= self._sometimes(0.1, tail=len(log.content) - self.chance.choice([0, 0, 1]))
        objects = [name for name, condemned in self.world.oracle.objects.items() if not condemned]
        if objects and self.chance.random() < 0.15:
            name = self.chance.choice([*objects, "never-registered"])
            blocks = self.world.objects.get(name, {})
            shared = [
                offset for offset in blocks if offset >= 100
            ]  # that appends share, the others hold what was packed
            more |= {"object": name, "offset": self.chance.choice([100 + len(blocks), *shared])}
        return Step("append", self._label(log), more)

    def _cfork(self) -> Step:
        oracle = self.world.oracle
        limits = oracle.limits()
        limited = [log for log in self._living() if limits[log.id].holder is not None]
        forked = [log for log in self._living() if oracle.forks(log)]  # their forks are blocked when they are held
        parent = self._often(self.chance.choice([limited, limited, self._undecided(), forked]), 0.8)
        more: dict[str, Any] = {"into": self._new("fork"), "now": self.now}
        if self.chance.random() < 0.55:
            more |= {"promotable": True} | self._sometimes(0.3, lease=self.chance.randrange(10, 150))
        more |= self._sometimes(0.1, ttl=self.chance.randrange(20, 200))
        more |= self._sometimes(0.05, labels={"for": "test"}, owner="agent")
        more |= self._sometimes(0.1, dedicated=True)
        return Step("cfork", self._label(parent), more | self._naming() | self._requested())

    def _sfork(self) -> Step:
        limits = self.world.oracle.limits()
        mixed = [log for log in self._living() if log.parent and log.own and limits[log.id].readable > log.fork_point]
        log = self._often(self.chance.choice([mixed, self._undecided()]), 0.8)
        limit = limits[log.id]
        more: dict[str, Any] = {"into": self._new("cut"), "now": self.now}
        places = [limit.readable, limit.readable - 1, log.fork_point, log.start, limit.tail + 1]
        inside = self.chance.randint(min(log.fork_point, limit.readable), limit.readable)
        places += [inside] * 5 + [self.chance.randint(0, limit.tail)]
        more |= self._sometimes(0.75, at=max(self.chance.choice(places), 0))
        more |= self._sometimes(0.1, ttl=self.chance.randrange(10, 120))
        return Step("sfork", self._label(log), more | self._naming() | self._requested())

    def _promote(self) -> Step:
        if not self._undecided() and self.chance.random() < 0.9:
            return self._cfork()
        limits = self.world.oracle.limits()
        limited = [log for log in self._undecided() if limits[log.id].holder is not None]
        log = self._often(self.chance.choice([self._undecided(), limited]) or self._undecided(), 0.97)
        more = self._sometimes(0.1, own=len(log.own) - self.chance.choice([0, 0, 1]))
        more |= self._sometimes(0.1, tail=len(log.content) - self.chance.choice([0, 0, 1]))
        return Step("promote", self._label(log), more | self._requested())

    def _squash(self) -> Step:
        oracle = self.world.oracle
        rivals = [log for log in self._undecided() if log.parent and len(oracle.undecided_forks(log.parent)) > 1]
        cut = [log for log in self._living() if log.kind == "sfork"]
        pinned = [log for log in rivals if any(other.origin is log for other in cut)]
        more = self._sometimes(0.1, cascade=True) | self._requested()
        return Step("squash", self._label(self._often(self.chance.choice([rivals, pinned, pinned, cut]), 0.8)), more)

    def _drop(self) -> Step:
        roots = [log for log in self._living() if log.kind == "root"]
        return Step("drop", self._label(self._often(roots, 0.8)), self._sometimes(0.15, cascade=True))

    def _stray(self) -> Step:
        """Something asked of a log that ended, or never was."""
        label = self.chance.choice([*self.world.ids, "nobody"])
        verb = self.chance.choice(
            ["append", "cfork", "sfork", "promote", "squash", "drop", "renew", "expire", "trim", "upload", "publish"]
        )
        more = {"times": (self.now,), "before": 0, "into": self._new("stray"), "now": self.now}
        return Step(verb, label, more | {"ttl": 5, "epochs": [1], "objects": [("1-o", [(self.now,)])]})

    def _again(self) -> Step:
        """A request that was made before, or should have been, by whatever command."""
        requests = list(self.world.requests)
        if not requests:
            return self._append()
        unknown = [f"r{self.chance.randint(1, self.labels)}"] * 2  # never made, most likely
        step = self.chance.choice([self._append, self._cfork, self._promote, self._publish])()
        more = {**step.more, "request": self.chance.choice([*requests, *unknown, self._new("r")])}
        more |= self._sometimes(0.6, again=True)
        if self.chance.random() < 0.12:
            del more["request"]
        return Step(step.verb, step.log, more)

    def _trim(self) -> Step:
        limits = self.world.oracle.limits()
        log = self._often([log for log in self._living() if limits[log.id].holder is not None], 0.4)
        limit = limits[log.id]
        before = self.chance.choice(
            [self.chance.randint(0, limit.readable), limit.readable, limit.tail, limit.tail + 1]
        )
        return Step("trim", self._label(log), {"before": before} | self._requested())

    def _commit(self) -> Step:
        limits = self.world.oracle.limits()
        log = self._often([log for log in self._living() if limits[log.id].holder is not None], 0.4)
        limit = limits[log.id]
        places = [self.chance.randint(0, limit.readable)] * 3 + [limit.readable, limit.tail, limit.tail + 1]
        consumer = self.chance.choice(
            ["a", "b", "b", "c", "not\nprintable"] if self.chance.random() < 0.2 else ["a", "b"]
        )
        more = {"consumer": consumer, "position": self.chance.choice(places), "now": self.now}
        return Step("commit", self._label(log), more | self._requested())

    def _forget_consumer(self) -> Step:
        log = self._often([log for log in self._living() if log.consumers], 0.8)
        consumer = self.chance.choice([*log.consumers, "nobody"])
        return Step("forget-consumer", self._label(log), {"consumer": consumer} | self._requested())

    def _settle(self) -> Step:
        return Step("settle", "", {"upto": f"r{self.chance.randint(self.labels // 2, self.labels)}"})

    def _admit(self) -> Step:
        return Step("admit", "", {"now": self.now} | self._requested())

    def _retire(self) -> Step:
        epochs = [*self.world.oracle.admitted, self.chance.randint(-1, self.world.oracle.newest_epoch + 1)]
        return Step("retire", "", {"epoch": self.chance.choice(epochs)} | self._requested())

    def _upload(self) -> Step:
        short = [log for log in self._living() if len(log.content) < RECORDS_MAX] or self._living()
        undecided = [log for log in short if log.promotable or self.world.oracle.undecided_forks(log)]
        log = self._often(self.chance.choice([undecided, short]), 0.95)
        ttl = self.chance.choice([0, *[self.chance.randrange(5, 400)] * 12])
        return Step("upload", self._label(log), {"ttl": ttl, "now": self.now} | self._requested())

    def _publish(self) -> Step:
        """Mostly what can be published: objects of living uploads of one log, and at times those of all of them."""
        oracle = self.world.oracle
        living = {epoch: log for epoch, (log, _) in oracle.uploads.items() if log in oracle.living}
        if not living:
            return self._upload()
        log = oracle.living[self.chance.choice(list(living.values()))]
        epochs = [epoch for epoch, owner in living.items() if owner == log.id]
        epochs = self.chance.sample(epochs, self.chance.randint(1, len(epochs)))
        stray = self.chance.randint(1, oracle.newest_epoch + 1)
        epochs += self.chance.choice([[], [], [], [], [], [], [stray]])
        objects: list[tuple[str, list[tuple[int, ...]]]] = []
        for _ in range(self.chance.choice([0, 1, 1, 1, 2, 2, 3])):
            name = f"{self.chance.choice([*epochs * 9, stray]):x}-{self._new('o')}"
            published = [known for known in oracle.objects if "-" in known]
            if published and self.chance.random() < 0.04:
                name = self.chance.choice(published)
            blocks = [
                tuple(self.now + self.chance.randrange(-6, 3) for _ in range(self.chance.randint(1, 2)))
                for _ in range(self.chance.randint(1, 3))
            ]
            objects.append((name, blocks))
        if objects and self.chance.random() < 0.05:
            objects.append(objects[0])
        more: dict[str, Any] = {"objects": objects, "epochs": epochs, "now": self.now} | self._requested()
        if self.chance.random() < 0.2:
            writer = self.chance.choice("uvw")
            sequence = log.writers[writer][0] if writer in log.writers else 0
            more |= {"writer": writer, "sequence": sequence + self.chance.choice([-1, 0, 1, 1, 1, 2])}
        more |= self._sometimes(0.1, tail=len(log.content) - self.chance.choice([0, 0, 1]))
        if self.chance.random() < 0.15:  # asked again when its uploads are over
            self.later.append(Step("publish", self._label(log), more))
        return Step("publish", self._label(log), more)

    def _discard(self) -> Step:
        """By whoever began it, or because its time is over: the log may be no more."""
        oracle = self.world.oracle
        epochs = [*oracle.uploads, self.chance.randint(-1, oracle.newest_epoch + 1)]
        epoch = self.chance.choice(epochs)
        owner = oracle.logs.get(oracle.uploads[epoch][0]) if epoch in oracle.uploads else None
        log = self._any() if owner is None or self.chance.random() < 0.2 else owner
        return Step("discard", self._label(log), {"epoch": epoch, "now": self.now} | self._requested())

    def _retain(self) -> Step:
        kept = [log for log in self._living() if (log.retain_age_us, log.retain_bytes) != (-1, -1)]
        return Step("retain", self._label(self._often(kept, 0.9)), {"now": self.now})

    def _renew(self) -> Step:
        timed = [log for log in self._living() if log.deadline() != -1]
        return Step("renew", self._label(self._often(timed, 0.8)), {"now": self.now} | self._requested())

    def _expire(self) -> Step:
        timed = [log for log in self._living() if log.deadline() != -1]
        log = self._often(timed, 0.8)
        now = max(self.now, log.deadline() - 1 + self.chance.randrange(2)) if self.chance.random() < 0.4 else self.now
        return Step("expire", self._label(log), {"now": now})

    def _opened(self) -> Step:
        epoch = self.world.oracle.newest_epoch + self.chance.choice([0, 1, 1, 2])
        return Step("opened", "", {"epoch": epoch, "now": self.now})

    def _pack(self) -> Step:
        return self._plan("plan-pack")

    def _relocate(self) -> Step:
        return self._plan("plan-relocate")

    def _plan(self, verb: str) -> Step:
        name = self._new("o")
        oracle = self.world.oracle
        register = self._sometimes(0.04, epoch=oracle.newest_epoch + 1)
        if self.chance.random() < 0.3:  # an uploader's, or that of one that is gone
            epochs = [*oracle.admitted, self.chance.randint(0, oracle.newest_epoch)]
            register = {"epoch": self.chance.choice(epochs)}
        self.later += [
            Step("register", "", {"object": name, "now": self.now} | register),
            Step("apply-plan", "", {"object": name}),
        ]
        share = self.chance.choice([0.3, 0.7, 1.0, 1.0])
        return Step(verb, "", {"object": name, "pick": self.chance.randrange(1000), "share": share})

    def _rivals(self) -> Step:
        """Two undecided forks see their parent grow; one is squashed, a severed fork of it stays, the other wins."""
        parent, loser, winner = self._label(self._any()), self._new("fork"), self._new("fork")
        self.later += [
            Step("cfork", parent, {"into": winner, "promotable": True}),
            *self._appends(winner, parent, loser),
            Step("sfork", loser, {"into": self._new("cut")}),
            Step("squash", loser),
            Step("promote", winner),
        ]
        return Step("cfork", parent, {"into": loser, "promotable": True})

    def _outlived(self) -> Step:
        """A log is trimmed beyond a severed fork of it."""
        log = self._label(self._any())
        self.later += [*self._appends(log, log), Step("trim", log, {"before": "readable"}), Step("collect")]
        return Step("sfork", log, {"into": self._new("cut")})

    def _appends(self, *labels: str) -> list[Step]:
        return [Step("append", label, {"times": (self.now,) * self.chance.randint(1, 2)}) for label in labels]

    def _collect(self) -> Step:
        return Step("collect", "", {"now": self.now})

    def _forget(self) -> Step:
        return Step("forget")

    def _reopen(self) -> Step:
        return Step("reopen")


def explore(seed: int, length: int) -> World:
    """Write and check one history of so many steps. The Mismatch it may raise carries the history in `steps`."""
    world = World(_record_size(seed))
    author = Author(seed, world)
    steps: list[Step] = []
    try:
        for _ in range(length):
            steps.append(author.next())
            world.perform(steps[-1])
        world.finish()
    except Mismatch as mismatch:
        mismatch.steps = steps
        raise
    return world


def _record_size(seed: int) -> int:
    return 0 if seed % 10 == 9 else RECORD_SIZE_BYTES  # records may well be empty


def perform(steps: list[Step], record_size: int) -> None:
    """A history that is known already."""
    world = World(record_size)
    for step in steps:
        world.perform(step)
    world.finish()


def smallest(steps: list[Step], record_size: int, kind: str) -> list[Step]:
    """Cut a failing history for as long as it fails in the same way."""

    def fails(candidate: list[Step]) -> bool:
        try:
            perform(candidate, record_size)
        except Mismatch as mismatch:
            return mismatch.kind == kind
        return False

    size = len(steps) // 2
    while size:
        at, cut = 0, False
        while at < len(steps):
            candidate = steps[:at] + steps[at + size :]
            if fails(candidate):
                steps, cut = candidate, True
            else:
                at += size
        if not (cut and size == 1):
            size //= 2
    return steps


def check(seed: int, length: int) -> None:
    """Explore one history; what fails is shown as the smallest history that fails."""
    try:
        explore(seed, length)
    except Mismatch as mismatch:
        least = smallest(mismatch.steps, _record_size(seed), mismatch.kind)
        try:
            perform(least, _record_size(seed))
        except Mismatch as smaller:
            mismatch = smaller
        story = "\n".join(f"  {step}" for step in least)
        raise AssertionError(f"seed {seed}, {mismatch}\nthe smallest history that fails so:\n{story}") from mismatch

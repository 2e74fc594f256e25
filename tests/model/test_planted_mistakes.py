"""The model is only worth something if it catches what can go wrong: each known mistake is planted, and caught.

The mistakes are those that are easy to make and hard to see. Each must fail within a bounded number of histories, and
by what somebody would observe and not by a crash, save one; the same histories pass when nothing is planted.
"""

from __future__ import annotations

from collections.abc import Callable, Container

import msgspec
import pytest

from braidlog import limits
from braidlog.forest import commands as c
from braidlog.forest import consumers, forks, space, tails, uploads
from braidlog.forest.index import Index, Insertions, Segment
from braidlog.forest.log import Log, View, Way
from braidlog.forest.machine import Forest
from tests.model.history import explore
from tests.model.world import Mismatch

STEPS = 100
HISTORIES_MAX = 150

Plant = Callable[[pytest.MonkeyPatch], None]


def any_promotable_edge_exempts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hold does not reach a log that has some promotable edge on its path, wherever that edge is."""
    walk = tails._walk

    def wrong(log: Log) -> tails.Reach:
        found = walk(log)
        node = log
        while node.parent is not None:
            if node.promotable and node is not log:
                return tails.Reach(found.tail, found.tail, None, False)
            node = node.parent
        return found

    monkeypatch.setattr(limits, "TOUR_DEPTH_MIN", 64)
    monkeypatch.setattr(tails, "_walk", wrong)


def severed_forks_read_through_live_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is pinned: a severed fork looks up to whatever its source, and the logs above that, show now."""
    right = forks.sfork

    def wrong(forest: Forest, source: Log, command: c.SFork, name: str) -> Log:
        log = right(forest, source, command, name)
        log.view.up = Way(source)
        return log

    monkeypatch.setattr(forks, "sfork", wrong)
    monkeypatch.setattr(forks, "_freeze", lambda way, view: None)  # noqa: ARG005


def rivals_keep_looking_at_the_promoted_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a losing fork saw beyond its fork point is not frozen, so its severed forks see the winner's order."""
    monkeypatch.setattr(forks, "_freeze", lambda way, view: None)  # noqa: ARG005


def promotion_lets_rivals_live(monkeypatch: pytest.MonkeyPatch) -> None:
    right = forks.end_subtree

    def wrong(forest: Forest, top: Log, end: str) -> list[int]:
        return [] if end == forks.LOST else right(forest, top, end)

    monkeypatch.setattr(forks, "end_subtree", wrong)


def promotion_appends_instead_of_merging(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fork's records go behind the parent's, not among them."""

    def wrong(self: Index, fork_point: int, fork: Index) -> Index:
        del fork_point
        result = Index()
        end = 0
        for run in self.runs(0, 1 << 62):
            end = run.start + run.rows
            result.append(*run)
        for run in fork.runs(0, 1 << 62):
            end = max(end, run.start)
            result.append(end, *run[1:])
            end += run.rows
        return result

    monkeypatch.setattr(Index, "merged", wrong)


def the_collector_ignores_what_severed_forks_pin(monkeypatch: pytest.MonkeyPatch) -> None:
    right = space.needed

    def wrong(logs: list[Log]) -> dict[View, list[tuple[int, int]]]:
        present = {log.view for log in logs}
        return {view: ranges for view, ranges in right(logs).items() if view in present}

    monkeypatch.setattr(space, "needed", wrong)


def the_collector_keeps_all_between_a_pin_and_a_trim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the lowest and the highest position that is needed are remembered."""

    def wrong(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
        return [(min(low for low, _ in ranges), max(high for _, high in ranges))] if ranges else []

    monkeypatch.setattr(space, "_joined", wrong)


def a_hold_is_never_lifted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was withheld stays withheld when the last undecided fork is gone."""
    right = forks._lift

    def wrong(forest: Forest, parent: Log) -> None:
        parent.withheld, kept = [], parent.withheld
        right(forest, parent)
        parent.withheld = kept

    monkeypatch.setattr(forks, "_lift", wrong)


def the_earliest_fork_point_never_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log stays held from the first fork point it ever was held from, though that fork is gone."""
    right = Log.earliest_fork_point
    first: dict[Log, int] = {}
    monkeypatch.setattr(Log, "earliest_fork_point", lambda log: first.setdefault(log, right(log)))


def only_the_last_decision_tells_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions below the next undecided fork stay untold when an earlier one is squashed."""

    def wrong(forest: Forest, parent: Log) -> None:
        if not parent.promotables:
            forks._lift(forest, parent)

    monkeypatch.setattr(forks, "_decided", wrong)


def withheld_positions_do_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Insertions, "moved", lambda self, position: position)  # noqa: ARG005


def the_tour_misses_promotions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The promoted fork's children still count it on their path."""
    monkeypatch.setattr(tails.Tour, "dissolve", lambda self, log: None)  # noqa: ARG005


def packing_joins_runs_that_a_fork_may_still_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then promotion cannot put the fork's records between them, and says so."""
    right = Segment.rename
    monkeypatch.setattr(Segment, "rename", lambda self, moved, inline, _: right(self, moved, inline, 1 << 62))


def a_squashed_rival_is_forgotten_by_the_next_promotion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Severed forks of a rival that was squashed before the decision see the winner's order."""
    right = forks.end_subtree

    def wrong(forest: Forest, top: Log, end: str) -> list[int]:
        ended = right(forest, top, end)
        if top.parent is not None:
            top.parent.loose_ways.clear()
        return ended

    monkeypatch.setattr(forks, "end_subtree", wrong)


def forks_share_their_consumers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes a copy before he changes a consumer."""
    monkeypatch.setattr(consumers, "_own", lambda log: log.consumers)


def consumers_of_a_severed_fork_stand_beyond_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    right = consumers.inherit
    monkeypatch.setattr(consumers, "inherit", lambda log, parent, _: right(log, parent, 1 << 62))


def consumers_may_stand_where_nobody_can_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "reach", lambda log: (at := tails.reach(log))._replace(readable=at.tail))


def a_retired_uploader_goes_on_registering(monkeypatch: pytest.MonkeyPatch) -> None:
    right = space.Space.retire

    def wrong(self: space.Space, epoch: int) -> None:
        kept = dict(self.admitted)
        right(self, epoch)
        self.admitted = kept

    monkeypatch.setattr(space.Space, "retire", wrong)


def an_epoch_is_given_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next epoch follows the writer's, not the newest that was given."""

    def wrong(self: space.Space, now: int) -> int:
        self.newest_epoch = max(self.newest_epoch, self.epoch + 1)
        self.admitted[self.epoch + 1] = now
        return self.epoch + 1

    monkeypatch.setattr(space.Space, "admit", wrong)


def appends_that_share_a_block_all_begin_it(monkeypatch: pytest.MonkeyPatch) -> None:
    right = space.Space.add_placed
    monkeypatch.setattr(space.Space, "add_placed", lambda self, place: right(self, place._replace(row=0)))


def an_upload_outlives_its_publication(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads.Uploads, "end", lambda *_: None)


def an_object_is_published_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    right = uploads.Uploads.check

    def wrong(self: uploads.Uploads, command: c.Publish, registered: Container[str]) -> None:
        once = {uploaded.object: uploaded for uploaded in command.objects}
        right(self, msgspec.structs.replace(command, objects=list(once.values())), registered)

    monkeypatch.setattr(uploads.Uploads, "check", wrong)


def a_publication_counts_its_first_block_only(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Forest._bound

    def wrong(self: Forest, command: c.Append | c.Publish, log: Log, tail: int, count: int, *rest: int) -> c.Appended:
        first = command.objects[0].blocks[0].count if isinstance(command, c.Publish) else count
        return right(self, command, log, tail, first, *rest)

    monkeypatch.setattr(Forest, "_bound", wrong)


def what_was_uploaded_for_another_log_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    right = uploads.Uploads.check

    def wrong(self: uploads.Uploads, command: c.Publish, registered: Container[str]) -> None:
        own = uploads.Uploads()
        own.by_epoch = {epoch: living._replace(log=command.log) for epoch, living in self.by_epoch.items()}
        right(own, command, registered)

    monkeypatch.setattr(uploads.Uploads, "check", wrong)


SEEN = {
    "answer",
    "consumers",
    "content",
    "description",
    "limit",
    "logs",
    "outcomes",
    "stability",
    "tail",
    "unreadable",
    "uploads",
    "writers",
}


@pytest.fixture(autouse=True)
def _small_segments_and_early_tours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SEGMENT_RUNS_MAX", 4)
    monkeypatch.setattr(limits, "TOUR_DEPTH_MIN", 2)


def test_the_same_histories_pass_when_nothing_is_planted() -> None:
    for seed in range(12):
        explore(seed, STEPS)


@pytest.mark.parametrize(
    "plant",
    [
        any_promotable_edge_exempts,
        severed_forks_read_through_live_logs,
        rivals_keep_looking_at_the_promoted_parent,
        promotion_lets_rivals_live,
        promotion_appends_instead_of_merging,
        the_collector_ignores_what_severed_forks_pin,
        the_collector_keeps_all_between_a_pin_and_a_trim,
        a_hold_is_never_lifted,
        the_earliest_fork_point_never_moves,
        only_the_last_decision_tells_positions,
        withheld_positions_do_not_move,
        the_tour_misses_promotions,
        packing_joins_runs_that_a_fork_may_still_part,
        a_squashed_rival_is_forgotten_by_the_next_promotion,
        forks_share_their_consumers,
        consumers_of_a_severed_fork_stand_beyond_its_end,
        consumers_may_stand_where_nobody_can_read,
        a_retired_uploader_goes_on_registering,
        an_epoch_is_given_twice,
        appends_that_share_a_block_all_begin_it,
        an_upload_outlives_its_publication,
        an_object_is_published_twice,
        a_publication_counts_its_first_block_only,
        what_was_uploaded_for_another_log_is_published,
    ],
    ids=lambda plant: plant.__name__,
)
def test_the_model_catches(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    seen = {"crash"} if plant is packing_joins_runs_that_a_fork_may_still_part else SEEN
    assert _first_mismatch().kind in seen


def _first_mismatch() -> Mismatch:
    for seed in range(HISTORIES_MAX):
        try:
            explore(seed, STEPS)
        except Mismatch as mismatch:
            return mismatch
    pytest.fail(f"{HISTORIES_MAX} histories did not notice it")

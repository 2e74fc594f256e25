"""The claims of the AgileLog paper about forks (its sections 4 and 5), one test each, on the forest alone.

Claims about cost count work, never time: see `work`.
"""

from __future__ import annotations

import pytest

from braidlog.forest import commands as c
from braidlog.forest.log import Log
from braidlog.forest.machine import Forest
from braidlog.forest.reading import locate, resolve
from braidlog.forest.tails import reach
from tests.paper.work import work
from tests.transcripts.stage import Stage

CHAIN = 10_000
STAR = 100_000


def staged(*lines: str) -> Stage:
    stage = Stage()
    for line in lines:
        stage.play(line)
    return stage


def answer(stage: Stage, line: str) -> str:
    return stage.play(line)[0]


def create(forest: Forest, name: str) -> int:
    result = forest.apply(c.Create(name, 0))
    assert isinstance(result, c.Opening)
    return result.log


def cfork(forest: Forest, parent: int, *, promotable: bool = False) -> int:
    result = forest.apply(c.CFork(parent, "", 0, promotable))
    assert isinstance(result, c.Opening)
    return result.log


def append(forest: Forest, log: int, count: int = 1) -> c.Appended:
    result = forest.apply(c.Append(log, count, count, 0, 0, b"-"))
    assert isinstance(result, c.Appended)
    return result


def with_runs(runs: int) -> tuple[Forest, int]:
    forest = Forest()
    root = create(forest, "root")
    for _ in range(runs):
        append(forest, root)
    return forest, root


def forest_state(log: Log) -> dict[str, object]:
    """All that the forest keeps of a log itself, its index included."""
    state = {name: getattr(log, name) for name in Log.__slots__ if name not in ("tree", "enter", "leave")}
    return {**state, "runs": list(log.view.index.runs(0, 1 << 62)), "children": dict(log.children)}


# --- the abstraction (section 4.1) -----------------------------------------------------------------------------------


def test_every_fork_is_a_log_with_the_same_interface() -> None:
    stage = staged("create root", "append root a", "cfork root live", "sfork root cut", "cfork root trial promotable")
    for name in ("cut", "trial"):
        assert answer(stage, f"append {name} x") == "at 1"
        assert stage.read(name) == "a x"
        assert answer(stage, f"cfork {name} {name}-live") == f"log {name}-live"
        assert answer(stage, f"sfork {name} {name}-cut") == f"log {name}-cut"
    assert answer(stage, "promote trial") == "promoted, ended trial"
    assert answer(stage, "append live x") == "at 2"
    assert answer(stage, "squash live") == "ended live"


@pytest.fixture(scope="module")
def chain() -> tuple[Forest, list[int]]:
    """A chain of live forks, each with a record of its own."""
    forest, root = with_runs(1)
    logs = [root]
    for _ in range(CHAIN):
        logs.append(cfork(forest, logs[-1]))
        append(forest, logs[-1])
    return forest, logs


@pytest.fixture(scope="module")
def star() -> tuple[Forest, int, list[int]]:
    """A log with very many live forks."""
    forest, root = with_runs(1)
    return forest, root, [cfork(forest, root) for _ in range(STAR)]


def test_forks_of_forks_have_no_limit_in_depth(chain: tuple[Forest, list[int]]) -> None:
    forest, logs = chain
    deepest = forest.logs[logs[-1]]
    assert reach(deepest).tail == CHAIN + 1
    assert len(resolve(deepest.view, 0, CHAIN + 1)) == CHAIN + 1


def test_a_log_can_be_forked_any_number_of_times(star: tuple[Forest, int, list[int]]) -> None:
    forest, root, forks = star
    assert len(forest.logs[root].children) == STAR
    assert all(reach(forest.logs[fork]).tail == reach(forest.logs[root]).tail for fork in forks[:: STAR // 100])


def test_a_cfork_shares_history_and_inherits_what_its_parent_gets() -> None:
    stage = staged("create root", "append root a b", "cfork root fork", "append root c", "append root d")
    assert stage.read("fork") == "a b c d"


def test_writes_on_a_cfork_are_seen_below_it_and_nowhere_else() -> None:
    stage = staged("create root", "append root a", "cfork root fork", "cfork fork below", "cfork root beside")
    stage.play("append fork x")
    assert [stage.read(name) for name in ("root", "fork", "below", "beside")] == ["a", "a x", "a x", "a"]


def test_an_sfork_is_isolated_both_ways() -> None:
    stage = staged("create root", "append root a b", "sfork root cut", "append root c", "append cut x")
    assert stage.read("cut") == "a b x"
    assert stage.read("root") == "a b c"


def test_an_sfork_may_be_taken_from_the_past() -> None:
    stage = staged("create root", "append root a b", "append root c", "sfork root cut at=1", "append cut x")
    assert stage.read("cut") == "a x"


def test_appends_on_a_cfork_are_linearizably_interleaved_with_the_parents() -> None:
    stage = staged("create root", "cfork root fork", "append root a", "append fork x", "append root b", "append fork y")
    assert stage.read("fork") == "a x b y"


def test_squash_deletes_a_fork_and_its_children_for_good() -> None:
    stage = staged("create root", "cfork root fork", "cfork fork below", "cfork below deepest")
    assert answer(stage, "squash fork") == "ended fork below deepest"
    for line in ("append fork x", "cfork below again", "sfork deepest cut", "squash fork"):
        assert answer(stage, line).startswith("Gone")


def test_the_root_cannot_be_squashed() -> None:
    stage = staged("create root", "append root a")
    assert answer(stage, "squash root").startswith("InvalidArgument")
    assert stage.read("root") == "a"


def test_promote_makes_the_fork_the_parent_and_ends_its_own_name() -> None:
    stage = staged("create root", "append root a", "cfork root fork promotable", "append fork x", "append root b")
    content = stage.read("fork")
    assert answer(stage, "promote fork") == "promoted, ended fork"
    assert stage.read("root") == content == "a x b"
    assert answer(stage, "append fork y").startswith("Gone")
    assert answer(stage, "append root c") == "at 3"


def test_only_promotable_cforks_can_be_promoted() -> None:
    stage = staged("create root", "cfork root live", "sfork root cut")
    for name in ("live", "cut", "root"):
        assert answer(stage, f"promote {name}").startswith("NotPromotable")


def test_of_many_promotable_forks_the_first_promote_wins() -> None:
    stage = staged("create root", *(f"cfork root fork{n} promotable" for n in range(3)), "append fork1 x")
    assert answer(stage, "promote fork1") == "promoted, ended fork1 fork0 fork2"
    assert answer(stage, "promote fork0") == "not promoted"
    assert answer(stage, "append fork2 y").startswith("Gone")
    assert stage.read("root") == "x"


# --- restrictions while a promotable fork is undecided (sections 4.1 and 5.6) ----------------------------------------


def test_the_parent_is_read_only_up_to_the_earliest_promotable_fork_point() -> None:
    stage = staged("create root", "append root a", "cfork root one promotable", "append root b")
    stage.play("cfork root two promotable")
    assert stage.read("root") == "a"
    assert reach(stage.log("root")).holder is stage.log("root")


def test_appends_to_a_held_parent_go_on_but_tell_no_position() -> None:
    stage = staged("create root", "append root a", "cfork root fork promotable", "append fork x")
    assert answer(stage, "append root b request=b") == "taken, position withheld"
    stage.play("promote fork")
    assert stage.read("root") == "a x b"
    assert answer(stage, "resolve b") == "at 2"


def test_ordinary_descendants_of_a_held_parent_are_blocked_beyond_the_fork_point() -> None:
    stage = staged("create root", "append root a", "cfork root live", "append live x", "cfork live below")
    stage.play("cfork root fork promotable")
    stage.play("append root b")
    for name in ("live", "below"):
        assert answer(stage, f"append {name} y").startswith("Blocked")
        assert stage.read(name) == "a x"


def test_restrictions_move_with_the_earliest_fork_and_end_with_the_last() -> None:
    stage = staged("create root", "append root a", "cfork root live", "cfork root one promotable", "append root b")
    for line in ("cfork root two promotable", "append root c"):
        stage.play(line)
    seen = [stage.read("root")]
    for line in ("squash one", "squash two"):
        stage.play(line)
        seen.append(stage.read("root"))
    assert seen == ["a", "a b", "a b c"]
    assert answer(stage, "append live x") == "at 3"
    assert answer(stage, "append root d") == "at 3"


def test_a_promotable_fork_can_be_read_and_written_throughout() -> None:
    stage = staged("create root", "append root a", "cfork root fork promotable", "append root b")
    assert answer(stage, "append fork x") == "at 2"
    assert stage.read("fork") == "a b x"
    stage.play("cfork fork below")
    assert answer(stage, "append below y") == "at 3"


# --- how it is done (sections 5.3 to 5.6) ----------------------------------------------------------------------------


@pytest.mark.parametrize("promotable", [False, True])
def test_creating_a_fork_copies_neither_data_nor_metadata(promotable: bool) -> None:
    counts = []
    for runs in (10, 5_000):
        forest, root = with_runs(runs)
        blocks, before = dict(forest.space.inline), list(forest.logs[root].view.index.runs(0, 1 << 62))
        counts.append(work(cfork, forest, root, promotable=promotable))
        fork = forest.logs[root + 1]
        assert fork.view.index.segments == []
        assert reach(fork).tail == runs
        assert forest.space.inline == blocks
        assert list(forest.logs[root].view.index.runs(0, 1 << 62)) == before
    assert counts[0] == counts[1]


def test_severing_a_fork_from_the_past_copies_nothing_either() -> None:
    counts = []
    for runs in (10, 5_000):
        forest, root = with_runs(runs)
        counts.append(work(forest.apply, c.SFork(root, "cut", 0, at=5)))
        cut = forest.by_name("cut")
        assert cut.view.index.segments == []
        assert reach(cut).tail == 5
    assert counts[0] == counts[1]


def test_a_cfork_is_a_node_in_its_parents_tree_and_an_sfork_the_root_of_another() -> None:
    stage = staged("create root", "cfork root fork", "sfork fork cut", "cfork cut below")
    root, fork, cut, below = (stage.log(name) for name in ("root", "fork", "cut", "below"))
    assert fork.parent is root
    assert fork.tree is root.tree
    assert cut.parent is None
    assert below.parent is cut
    assert below.tree is cut.tree is not root.tree


def test_an_inherited_position_is_looked_up_in_the_parent_less_the_own_records_before_it() -> None:
    stage = staged("create G", "append G g0", "cfork G R", "append R r0", "append G g1", "append R r1", "append G g2")
    assert stage.read("R") == "g0 r0 g1 r1 g2"
    index = stage.log("R").view.index
    assert [index.find(position) for position in (0, 2, 4)] == [(-1, 0), (-1, 1), (-1, 2)]
    assert [index.own_before(position + 1)[0] for position in (1, 3)] == [1, 2]  # counted up to and including it
    assert locate(stage.log("R").view, 2) == locate(stage.log("G").view, 1)


def test_a_records_metadata_stands_in_one_index_only() -> None:
    stage = staged("create root", "append root a", "cfork root fork", "cfork fork below")
    for line in ("append root b", "append fork x", "append below y", "append root c"):
        stage.play(line)
    runs = [run.block for log in stage.forest.logs.values() for run in log.view.index.runs(0, 1 << 62)]
    assert sorted(runs) == sorted(set(runs)) == sorted(stage.forest.space.inline)


def test_an_append_changes_its_own_log_and_only_the_tails_below() -> None:
    forest, root = with_runs(1)
    below = [cfork(forest, root) for _ in range(20)]
    below += [cfork(forest, log) for log in below]
    before = {log: forest_state(forest.logs[log]) for log in below}
    append(forest, root, 3)
    assert {log: forest_state(forest.logs[log]) for log in below} == before
    assert {reach(forest.logs[log]).tail for log in below} == {4}


def test_an_append_costs_the_same_whatever_hangs_below_it() -> None:
    forest, root = with_runs(1)
    alone = work(append, forest, root)
    for _ in range(1_000):
        cfork(forest, root)
    assert work(append, forest, root) == alone


def test_in_a_deep_chain_append_tail_and_fork_cost_the_logarithm(chain: tuple[Forest, list[int]]) -> None:
    forest, logs = chain
    enough = 2_000  # lines; a walk of the chain alone would take 10,000
    for log in (logs[0], logs[CHAIN // 2], logs[-1]):
        assert work(append, forest, log) < enough
        assert work(reach, forest.logs[log]) < enough
        assert work(cfork, forest, log) < enough


def test_in_a_wide_star_append_tail_and_fork_cost_the_same_as_in_a_small_one(
    star: tuple[Forest, int, list[int]],
) -> None:
    small, small_root = with_runs(1)
    small_fork = cfork(small, small_root)
    forest, root, forks = star
    pairs = [
        (lambda: append(small, small_root), lambda: append(forest, root)),
        (lambda: append(small, small_fork), lambda: append(forest, forks[7])),
        (lambda: reach(small.logs[small_fork]), lambda: reach(forest.logs[forks[-1]])),
        (lambda: cfork(small, small_root), lambda: cfork(forest, root)),
        (lambda: small.apply(c.Squash(small_fork)), lambda: forest.apply(c.Squash(forks[8]))),
    ]
    for in_small, in_star in pairs:
        assert work(in_star) <= work(in_small) + 10


def test_a_range_read_pays_the_depth_once(chain: tuple[Forest, list[int]]) -> None:
    forest, logs = chain
    view = forest.logs[logs[-1]].view
    one, hundred = (work(resolve, view, 0, stop) for stop in (1, 100))
    assert hundred < 2 * one


def test_the_earliest_fork_point_is_kept_for_each_log() -> None:
    stage = staged("create root", "append root a", "cfork root one promotable", "append root b")
    stage.play("cfork root two promotable")
    root = stage.log("root")
    assert root.earliest_fork_point() == stage.log("one").fork_point == 1
    stage.play("squash one")
    assert root.earliest_fork_point() == stage.log("two").fork_point == 2


def test_promote_copies_only_metadata_after_the_fork_point_and_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("braidlog.limits.SEGMENT_RUNS_MAX", 100)
    counts = []
    for runs in (1_000, 5_000):
        forest, root = with_runs(runs)
        fork = cfork(forest, root, promotable=True)
        for _ in range(10):
            append(forest, fork)
            append(forest, root)
        blocks, segments = dict(forest.space.inline), list(forest.logs[root].view.index.segments)
        counts.append(work(forest.apply, c.Promote(fork)))
        assert forest.space.inline == blocks
        kept = forest.logs[root].view.index.segments[: runs // 100]
        assert all(segment is old for segment, old in zip(kept, segments, strict=False))
    few_runs, many_runs = counts
    assert many_runs < few_runs + 20 * (5_000 - 1_000) // 100  # a look at each kept segment, none at their runs


def test_promote_is_linear_in_what_follows_the_fork_point() -> None:
    counts = []
    for runs in (100, 200, 400):
        forest, root = with_runs(1)
        fork = cfork(forest, root, promotable=True)
        for _ in range(runs):
            append(forest, fork)
            append(forest, root)
        counts.append(work(forest.apply, c.Promote(fork)))
    assert counts[2] - counts[1] == pytest.approx(2 * (counts[1] - counts[0]), rel=0.1)


def test_squash_clears_a_fork_and_all_below_it_and_is_linear_in_them() -> None:
    counts = []
    for width in (200, 400, 800):
        forest, root = with_runs(1)
        fork = cfork(forest, root)
        for _ in range(width):
            append(forest, cfork(forest, fork))
        counts.append(work(forest.apply, c.Squash(fork)))
        assert set(forest.logs) == {root}
        assert forest.logs[root].children == {}
        result = forest.apply(c.Collect(0))
        assert isinstance(result, c.Collected)
        assert len(result.blocks) == width
    assert counts[2] - counts[1] == pytest.approx(2 * (counts[1] - counts[0]), rel=0.1)


def test_squashing_the_only_promotable_fork_unblocks_the_parent() -> None:
    stage = staged("create root", "cfork root live", "cfork root fork promotable", "append root a", "squash fork")
    assert stage.read("root") == "a"
    assert answer(stage, "append live x") == "at 1"


def test_an_index_entry_is_a_run_and_not_a_record() -> None:
    forest, root = with_runs(0)
    for _ in range(3):
        append(forest, root, 10_000)
    index = forest.logs[root].view.index
    assert index.totals()[0] == 30_000
    assert len(list(index.runs(0, 1 << 62))) == 3
    forest.apply(c.Register("object", 0, 1, 1, 0))
    forest.apply(c.Pack("object", [c.PackedBlock(root, 0, 1, 1, [1, 2, 3], [10_000] * 3)]))
    assert len(list(index.runs(0, 1 << 62))) == 1  # packed together, three batches are one run
    assert index.totals()[0] == 30_000

"""Uploads: how many may live, and that whoever has many leaves room for the others."""

from __future__ import annotations

import pytest

from braidlog import limits
from braidlog.errors import Unavailable
from braidlog.forest import commands as c
from braidlog.forest.machine import Forest
from braidlog.forest.state import freeze, thaw
from braidlog.forest.uploads import Living, Uploads


def begun(uploads: Uploads, root: int, log: int | None = None) -> bool:
    try:
        uploads.check_room(root)
    except Unavailable:
        return False
    uploads.begin(len(uploads.by_epoch), Living(root if log is None else log, 0, root))
    return True


def test_no_tree_takes_all_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UPLOADS_MAX", 60)
    uploads = Uploads()
    taken = {root: sum(begun(uploads, root, 100 + n) for n in range(100)) for root in (1, 2, 3)}
    assert taken == {1: 30, 2: 15, 3: 8}
    with pytest.raises(Unavailable, match="30 uploads of this log and its forks live, and 7 more may in all"):
        uploads.check_room(1)
    for root in range(4, 11):
        assert begun(uploads, root)
    with pytest.raises(Unavailable, match="as many as there may be"):
        uploads.check_room(11)
    uploads.end(10, 59)
    assert begun(uploads, 11)


def test_forks_share_the_room_of_their_root_and_a_snapshot_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UPLOADS_MAX", 8)
    forest = Forest()
    forest.apply(c.Create("root", 1))
    for log in range(2, 7):
        forest.apply(c.CFork(1, f"fork{log}", 1))
        if log < 6:
            assert isinstance(forest.apply(c.Upload(log, 1, 1)), c.Done)
    forest.apply(c.Squash(2))  # its upload lives until somebody ends it
    assert forest.space.uploads.of_root == {1: 4}
    for same in (forest, thaw(freeze(forest))):
        refused = same.apply(c.Upload(6, 1, 1))
        assert isinstance(refused, Unavailable)
        assert "this log and its forks" in str(refused)
        same.apply(c.Create("other", 1))
        assert isinstance(same.apply(c.Upload(7, 1, 1)), c.Done)
        same.apply(c.Discard(2, 1))
        assert same.space.uploads.of_root == {1: 3, 7: 1}


def test_one_publication_may_have_as_many_as_it_can_name() -> None:
    assert limits.PUBLISH_UPLOADS_MAX <= limits.UPLOADS_MAX // 2

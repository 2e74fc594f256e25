"""Uploads: how many may live, and that whoever has many leaves room for the others."""

from __future__ import annotations

import pytest

from braidlog import limits
from braidlog.errors import Unavailable
from braidlog.forest.uploads import Living, Uploads


def begun(uploads: Uploads, log: int) -> bool:
    try:
        uploads.check_room(log)
    except Unavailable:
        return False
    uploads.by_epoch[len(uploads.by_epoch)] = Living(log, 0)
    return True


def test_no_log_takes_all_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UPLOADS_MAX", 60)
    uploads = Uploads()
    taken = {log: sum(begun(uploads, log) for _ in range(100)) for log in (1, 2, 3)}
    assert taken == {1: 30, 2: 15, 3: 8}
    with pytest.raises(Unavailable, match="30 uploads of this log live, and 7 more may in all"):
        uploads.check_room(1)
    for log in range(4, 11):
        assert begun(uploads, log)
    with pytest.raises(Unavailable, match="as many as there may be"):
        uploads.check_room(11)


def test_one_publication_may_have_as_many_as_it_can_name() -> None:
    assert limits.PUBLISH_UPLOADS_MAX <= limits.UPLOADS_MAX // 2

"""What can be said of an object by its name: whether it is wanted, on its way out, on its way in, or nobody's."""

from __future__ import annotations

from braidlog.embedded.inventory import standings
from braidlog.forest import commands as c
from braidlog.forest.space import Space
from braidlog.objects.store import object_name


def test_each_object_has_its_standing() -> None:
    space = Space()
    space.open(1)
    space.register(c.Register(object_name(1, 1), 1, 10, 0, 5))
    space.register(c.Register(object_name(1, 2), 1, 10, 0, 5))
    space.objects[object_name(1, 2)].condemned = 7
    broker = space.admit(6)
    space.open(9)
    names = [object_name(epoch, seq) for epoch, seq in [(1, 1), (1, 2), (1, 3), (broker, 1), (9, 1), (10, 1), (4, 1)]]
    assert list(standings(space, names).values()) == [
        "kept",
        "condemned",
        "unknown",  # its epoch is over
        "pending",  # of an uploader that was admitted
        "pending",  # of the writer
        "pending",  # of one that came after all that is known here
        "unknown",
    ]

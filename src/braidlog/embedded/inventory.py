"""How the forest stands to each object of a store, for those who account for the space that is taken up.

An object is `kept` (registered, and not yet found to be unreachable), `condemned` (deleted once its grace is over),
`pending` (its epoch lives: it may yet be registered) or `unknown`: nobody registered it, and nobody ever can.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from braidlog.forest.commands import NONE
from braidlog.forest.space import Space
from braidlog.forest.uploads import epoch_of

Standing: TypeAlias = Literal["kept", "condemned", "pending", "unknown"]


def standings(space: Space, names: Iterable[str]) -> dict[str, Standing]:
    """The standing of each of these objects."""
    return {name: _standing(space, name) for name in names}


def _standing(space: Space, name: str) -> Standing:
    known = space.objects.get(name)
    if known is not None:
        return "kept" if known.condemned == NONE else "condemned"
    living = epoch_of(name) in space.current_epochs or epoch_of(name) > space.newest_epoch
    return "pending" if living else "unknown"

"""Objects in a store that nobody registered, and that nobody ever can.

Their names tell the epoch they were stored in. The present writer's epoch, those of admitted uploaders, and uploads
that live may still register theirs; all others are over.
"""

from __future__ import annotations

from braidlog.errors import InvalidArgument
from braidlog.forest.space import Space
from braidlog.forest.uploads import epoch_of
from braidlog.objects.store import Store


def sweep(space: Space, store: Store) -> None:
    """Remove what was left by everybody whose epoch is over. For a writer that has just opened, and stored nothing.

    What is of a later epoch than any that it knows of belongs to whoever took over since, and is left alone.
    """
    sweep_stored(space, store, space.newest_epoch, space.current_epochs)


def sweep_stored(space: Space, store: Store, newest: int, current: set[int]) -> None:
    """The same at any time: what is of a `current` epoch, or of one that begins while this lasts and so is above the
    `newest` that there was, stays. Puts of theirs may be under way."""

    def over(name: str) -> bool:
        return epoch_of(name) <= newest and epoch_of(name) not in current

    store.sweep_unfinished(over)
    for name in store.list(besides=space.objects):
        if over(name):
            store.delete(name)


def refuse_if_behind(space: Space, store: Store) -> None:
    """For a writer that is about to open. Objects of an epoch that the forest has not come to were stored by a later
    writer: so this forest is an old copy, and would sweep away what belongs to the present one."""
    later = [name for name in store.list(besides=space.objects) if epoch_of(name) > space.newest_epoch]
    if later:
        raise InvalidArgument(
            f"the store has objects of a later writer ({later[0]}) than this directory knows of (its last epoch is "
            f"{space.newest_epoch}): it is an old copy, and to write to it would destroy them; open the newest "
            "directory, or this one with read_only=True"
        )


def sweep_epoch(space: Space, store: Store, epoch: int) -> list[str]:
    """Remove what one uploader left that was retired; answers the names of the objects."""
    if epoch in space.current_epochs:
        raise InvalidArgument(f"epoch {epoch} is not over, and its objects may yet be registered: retire it first")
    left = [name for name in store.list() if epoch_of(name) == epoch and name not in space.objects]
    for name in left:
        store.delete(name)
    return left

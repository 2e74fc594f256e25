"""The same logs, to look at only: handles for those who must not change anything by accident, at a service too."""

from __future__ import annotations

from typing import Any, Final, NoReturn, cast

from braidlog.client.backend import Backend
from braidlog.client.braid import Braid
from braidlog.errors import NotPermitted

_CHANGES: Final = ("execute", "append", "submit", "wait_for_room")


class _Looking:
    """A backend without what changes something."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        for name in _CHANGES:
            setattr(self, name, _refuse)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


def _refuse(*_: object, **__: object) -> NoReturn:
    raise NotPermitted("this braid was opened to be looked at: nothing can be changed through it")


def looking(braid: Braid) -> Braid:
    """The braid without what changes something. To close it closes the other, which it stands for from now on."""
    backend = cast(Backend, _Looking(braid._session.backend))
    return Braid(backend, braid.url, read_only=True, stop=braid.close)

"""What several readers of texts have in common: how a word that is not known is told, and how a number of bytes is
written. PURE."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Final

_SIZE: Final = re.compile(r"([0-9]{1,15}) ?(KiB|MiB|GiB|)")
_UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def instead(word: str, allowed: Iterable[str]) -> str:
    """What to write in place of a word that is not known: the one that is nearest, else any of those there are."""
    known = list(allowed)
    near = difflib.get_close_matches(word, known, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"


def byte_count(text: str) -> int:
    """A whole number of bytes, or of units of 1024 of them; ValueError for anything else."""
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError("write 1000, '64KiB', '16MiB' or '1GiB'")
    return int(match[1]) * _UNITS[match[2]]

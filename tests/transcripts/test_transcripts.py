"""Stories of forks, holds, promotions and ends, word for word.

Each `.txt` file here is a story: a command, dashes, and everything that can be observed after it. `BRAIDLOG_REWRITE=1`
writes what is observed now into the files, to be reviewed as a diff.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transcripts.stage import Stage

STORIES = sorted(Path(__file__).parent.glob("*.txt"))
DASHES = "----"


def played(told: str) -> str:
    """The same story with what is observed now."""
    return "\n".join(_played(told)) + "\n"


def _played(told: str) -> Iterator[str]:
    stage = Stage()
    for paragraph in told.strip().split("\n\n"):
        lines = paragraph.split("\n")
        said = lines[: lines.index(DASHES)] if DASHES in lines else lines
        yield from said
        if not said[-1].startswith("#"):
            yield DASHES
            yield from stage.play(said[-1])
        yield ""


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_goes_as_it_was_told(path: Path) -> None:
    told = path.read_text()
    now = played(told).rstrip() + "\n"
    if os.environ.get("BRAIDLOG_REWRITE"):
        path.write_text(now)
    else:
        assert now == told


def test_a_story_that_goes_otherwise_is_noticed() -> None:
    told = played("create G\n\nappend G a\n")
    assert played(told) == told
    assert played(told.replace("append G a", "append G b")) != told
    assert played(told.replace("0:a", "0:b")) == told  # what is observed comes from the forest, never from the file

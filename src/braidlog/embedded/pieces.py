"""Pieces of a range: consecutive records that stand together, and how a plan tells somebody else of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from crc32c import crc32c

from braidlog import limits
from braidlog.errors import Corrupt
from braidlog.facts import PlanPart
from braidlog.forest import commands as c
from braidlog.forest.space import Place
from braidlog.objects.batch import Batch, cut, to_arrow


class Piece(NamedTuple):
    """Consecutive records, and where their bytes are: inline, or in an object."""

    position: int
    rows: int
    row: int
    block: int
    payload: c.Payload | None
    place: Place | None
    own: bool
    greatest: int

    @property
    def stop(self) -> int:
        return self.position + self.rows

    @property
    def home(self) -> tuple[str, int]:
        """What tells the block that it stands in from all others: where it is, or its number while it is inline."""
        return (self.place.object, self.place.offset) if self.place is not None else ("", self.block)

    def goes_on_as(self, behind: Piece) -> bool:
        """Whether that is the rest of it."""
        return (self.block, self.row + self.rows, self.own) == (behind.block, behind.row, behind.own)

    def check_rows(self, found: int) -> None:
        if found != self.rows:
            raise Corrupt(
                f"block {self.block} has {found} of the {self.rows} rows from {self.row} on: run `braid doctor`"
            )


def parts_of(pieces: list[Piece], inline: Callable[[Piece], Batch]) -> list[PlanPart]:
    """As a plan tells them. Neighbours that are in no object yet become one message: each alone has 500 bytes and more.
    `inline` finds the batch that such a piece stands in."""
    parts: list[PlanPart] = []
    together: list[Piece] = []
    size = rows = 0
    for piece in pieces:
        count = 0 if piece.payload is None else len(piece.payload)
        full = size + count > limits.PLAN_JOINED_BYTES_MAX or rows + piece.rows > limits.PLAN_JOINED_RECORDS_MAX
        if together and (full or piece.payload is None):
            parts.append(_inline_part(together, inline))
            together, size, rows = [], 0, 0
        if piece.place is not None:
            parts.append(_stored_part(piece, piece.place))
        else:
            together.append(piece)
            size += count
            rows += piece.rows
    if together:
        parts.append(_inline_part(together, inline))
    return parts


def _inline_part(pieces: list[Piece], inline: Callable[[Piece], Batch]) -> PlanPart:
    """Of neighbours."""
    batches = [cut(inline(piece), piece.row, piece.rows) for piece in pieces]
    for piece, batch in zip(pieces, batches, strict=True):
        piece.check_rows(batch.count)
    data = to_arrow(batches).serialize().to_pybytes()
    return PlanPart(
        start=pieces[0].position,
        stop=pieces[-1].stop,
        row=0,
        object=None,
        offset=0,
        length=len(data),
        crc=crc32c(data),
        data=data,
    )


def _stored_part(piece: Piece, place: Place) -> PlanPart:
    return PlanPart(
        start=piece.position,
        stop=piece.stop,
        row=piece.row,
        object=place.object,
        offset=place.offset,
        length=place.length,
        crc=place.crc,
    )

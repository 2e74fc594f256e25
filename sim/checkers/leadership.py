"""At most one leader binds: every slot of the log has one writer, and terms only ever grow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from braidlog.forest import commands as c
from braidlog.metadata.etcd.codec import Get, Put, Txn, after_prefix
from braidlog.metadata.etcd.keys import join_frame, parse_slot
from braidlog.metadata.frames import Kind
from sim.etcd import KEYS, Etcd
from sim.world import Violated


class Frame(NamedTuple):
    """What was put into a slot of the log, and by which term."""

    sequence: int
    term: int
    payload: bytes  # empty if it is only the mark of a clean end
    parts: int  # that did not fit into the slot


def frame_of(txn: Txn, etcd: Etcd) -> Frame | None:
    """The frame that a transaction binds, if it binds one. Its term is the one that its writer claims to have."""
    for op in txn.then:
        if isinstance(op, Put) and op.key.startswith(KEYS.slots):
            sequence = KEYS.sequence_of(op.key)
            slot = parse_slot(op.value, op.key)
            beginning = KEYS.parts_of(sequence, slot.id)
            parts = etcd.range(Get(beginning, after_prefix(beginning))).kvs
            frame = join_frame(sequence, op.key, slot, [part.value for part in parts])
            [term] = [compare.revision for compare in txn.compares if compare.key == KEYS.leader]
            return Frame(sequence, term, bytes(frame.payload) if frame.kind is Kind.DATA else b"", len(parts))
    return None


class Leadership:
    def __init__(self) -> None:
        self._slots: dict[int, Frame] = {}
        self._last: Frame | None = None
        self._epoch = 0
        self.terms = 0

    def bound(self, frame: Frame, answers: Sequence[tuple[c.Command, object]]) -> None:
        there = self._slots.get(frame.sequence)
        if there is not None:
            raise Violated(f"slot {frame.sequence} was bound by term {there.term}, then again by term {frame.term}")
        if frame.sequence != len(self._slots) + 1:
            raise Violated(f"slot {frame.sequence} was bound while {len(self._slots)} were")
        self._slots[frame.sequence] = frame
        last, self._last = self._last, frame
        if last is not None and frame.term < last.term:
            raise Violated(f"slot {frame.sequence} was bound by term {frame.term}, after one by term {last.term}")
        if last is None or frame.term > last.term:
            self._begins(frame, answers)

    def _begins(self, frame: Frame, answers: Sequence[tuple[c.Command, object]]) -> None:
        """A leader's first command makes an epoch of its own, above all others."""
        self.terms += 1
        command, answer = answers[0]
        if not isinstance(command, c.Opened) or not isinstance(answer, c.Done) or command.epoch <= self._epoch:
            raise Violated(f"term {frame.term} begins with {command!r}, after epoch {self._epoch}")
        self._epoch = command.epoch

"""A history that was put into a log is the same when it is taken out again, whatever its values and ids are."""

from __future__ import annotations

import json

import braidlog
from braidlog.testing.linearizability import Operation, Recorder, export, imported


def test_a_history_survives_a_log() -> None:
    recorder = Recorder()
    with braidlog.open("memory://") as braid:
        log = braid.create("orders")
        with recorder.call("a", "create", log.id) as call:
            call.answer(log.id)
        for value in (b"plain", b"\xff\xfe", b'"quoted"'):
            with recorder.call("a", "append", log.id, [value, value + b"!"]) as call:
                positions = log.append_many([value, value + b"!"])
                call.answer(None if positions is None else positions.start)
        with recorder.call("b", "cfork", log.id, promotable=True) as call:
            fork = log.cfork("try", promotable=True)
            call.answer(fork.id, fork.info().fork_point)
        with recorder.call("b", "read", fork.id, 1, 5) as call:
            call.answer(fork.read(1, 5))
        with recorder.call("b", "promote", fork.id) as call:
            call.answer(fork.promote())
        with recorder.call("c", "tail", log.id):
            pass  # never answered: unknown
        history = recorder.history()
        told = braid.create("history")
        assert export(history, told) == len(history) == told.tail()
        assert list(imported(told.read(0))) == history


def test_different_values_stay_different_as_texts() -> None:
    """For readers that know nothing but text: the number 1 is not the text 1."""
    history = [
        Operation(client="a", verb="append", log=log, invoked=at, values=values)
        for at, (log, values) in enumerate([(1, (1, "1")), ("1", ("\udcff", "\udcfe"))])
    ]
    with braidlog.open("memory://") as braid:
        log = braid.create("history")
        export(history, log)
        calls = [json.loads(record.value) for record in log.read(0)]
    assert len({call["log"] for call in calls}) == 2
    assert len({value.encode() for call in calls for value in call["values"]}) == 4

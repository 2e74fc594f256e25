"""Whether a service keeps its word under concurrency: record what its clients were told, then look for an explanation.

A history is **linearizable** if every operation can be given one moment between its invocation and its answer, such
that a single forkable log, asked one thing at a time in the order of those moments, would have answered the same.

    recorder = Recorder()
    with recorder.call("client 1", "append", "orders", [b"a"]) as call:
        call.answer(log.append(b"a"))
    verdict = check(recorder.history())
    assert verdict, str(verdict)

`check` is for real histories. It says no only with operations that contradict each other, or when every order was
tried; it says yes only with an order that explains everything. It may say neither (`verdict.linearizable is None`).
`check_exactly` tries orders until one fits, over the plainest specification there is: for a few dozen operations.
"""

from braidlog.testing.linearizability.checking import check, check_exactly
from braidlog.testing.linearizability.exporting import export, imported
from braidlog.testing.linearizability.history import Operation, load, write
from braidlog.testing.linearizability.recorder import Call, Recorder
from braidlog.testing.linearizability.verdict import Verdict, Violation

__all__ = [
    "Call",
    "Operation",
    "Recorder",
    "Verdict",
    "Violation",
    "check",
    "check_exactly",
    "export",
    "imported",
    "load",
    "write",
]

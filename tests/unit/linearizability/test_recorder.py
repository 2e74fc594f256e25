"""What is recorded is what happened: calls, answers, errors and times, in any thread, in files that can be merged."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import braidlog
from braidlog.errors import Blocked, InvalidArgument, OutcomeUnknown, Timeout, Unavailable
from braidlog.testing.linearizability import Operation, Recorder, check, load, write
from tests.unit.linearizability.generated import Taste, valid


def ticking() -> Recorder:
    return Recorder(clock=itertools.count(1).__next__)


def test_a_call_is_recorded_with_its_answer_and_its_moments() -> None:
    recorder = ticking()
    with recorder.call("ann", "append", "log", [b"a", "b"]) as call:
        call.answer(7)
    with recorder.call("bob", "read", "log", 7, 9) as call:
        call.answer([(7, b"a"), (8, "b")])
    with recorder.call("bob", "cfork", "log", promotable=True) as call:
        call.answer("fork", 9)
    with recorder.call("bob", "promote", "fork") as call:
        call.answer(True)
    assert recorder.history() == [
        Operation(
            client="ann",
            verb="append",
            log="log",
            invoked=1,
            answered=2,
            outcome="ok",
            values=("a", "b"),
            position=7,
        ),
        Operation(
            client="bob",
            verb="read",
            log="log",
            invoked=3,
            answered=4,
            outcome="ok",
            start=7,
            stop=9,
            records=((7, "a"), (8, "b")),
        ),
        Operation(
            client="bob",
            verb="cfork",
            log="log",
            invoked=5,
            answered=6,
            outcome="ok",
            promotable=True,
            child="fork",
            position=9,
        ),
        Operation(client="bob", verb="promote", log="fork", invoked=7, answered=8, outcome="ok", promoted=True),
    ]


def test_records_of_the_library_are_understood_and_bytes_stay_different() -> None:
    recorder = ticking()
    with braidlog.open("memory://") as braid:
        log = braid.create("log")
        log.append_many([b"\xff", "\xff".encode()])
        with recorder.call("ann", "read", "log", 0) as call:
            call.answer(log.read(0))
    (read,) = recorder.history()
    assert [position for position, _ in read.records] == [0, 1]
    assert len({value for _, value in read.records}) == 2


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Blocked("held"), "refused"),
        (Timeout("slow"), "refused"),
        (Unavailable("full"), "unknown"),
        (OutcomeUnknown("lost"), "unknown"),
        (ConnectionError("cut"), "unknown"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value,
)
def test_errors_are_refusals_unless_they_leave_it_open(error: Exception, outcome: str) -> None:
    recorder = Recorder(unsure=[Unavailable])
    with pytest.raises(type(error)), recorder.call("ann", "append", "log", "a"):
        raise error
    (append,) = recorder.history()
    assert append.outcome == outcome
    assert append.answered is not None


def test_the_caller_may_know_better() -> None:
    recorder = ticking()
    for say in ("unknown", "refused"):
        with recorder.call("ann", "append", "log", say) as call:
            getattr(call, say)()
    assert [one.outcome for one in recorder.history()] == ["unknown", "refused"]


def test_a_call_without_an_answer_is_unknown() -> None:
    recorder = ticking()
    with recorder.call("ann", "append", "log", "a"):
        pass
    assert recorder.history()[0].outcome == "unknown"


def test_an_answer_is_final() -> None:
    recorder = ticking()
    with recorder.call("ann", "tail", "log") as call:
        call.answer(0)
        with pytest.raises(InvalidArgument):
            call.answer(1)


def test_threads_record_side_by_side() -> None:
    recorder = Recorder()

    def work(client: str) -> None:
        for number in range(50):
            with recorder.call(client, "append", "log", f"{client} {number}") as call:
                call.answer(None)

    threads = [threading.Thread(target=work, args=[f"c{number}"]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    history = recorder.history()
    assert len(history) == 400
    assert [one.invoked for one in history] == sorted(one.invoked for one in history)


def test_files_of_several_recorders_make_one_history(tmp_path: Path) -> None:
    clock = itertools.count(1).__next__
    paths = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    with Recorder(paths[0], clock=clock) as one, Recorder(paths[1], clock=clock) as two:
        with one.call("ann", "create", "log") as call:
            call.answer()
        with two.call("bob", "append", "log", [b"a"]) as outer, one.call("ann", "read", "log", 0) as call:
            call.answer([(0, b"a")])
            outer.answer(0)
        merged = sorted(one.history() + two.history(), key=lambda operation: operation.invoked)
    assert load(*paths) == merged
    assert check(load(*paths))


def test_every_history_can_be_written_and_read(tmp_path: Path) -> None:
    for seed in range(20):
        history = sorted(valid(seed, Taste(operations=30)), key=lambda one: one.invoked)
        write(tmp_path / "history.jsonl", history)
        assert load(tmp_path / "history.jsonl") == history


def test_what_a_killed_process_had_begun_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "killed.jsonl"
    code = (
        "import os, signal, sys\n"
        "from braidlog.testing.linearizability import Recorder\n"
        "recorder = Recorder(sys.argv[1])\n"
        "with recorder.call('ann', 'tail', 'log') as call:\n"
        "    call.answer(0)\n"
        "with recorder.call('ann', 'append', 'log', 'a'):\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=False, timeout=60)
    with path.open("a") as file:
        file.write('{"n": 2, "client": "torn off')
    tail, append = load(path)
    assert (tail.outcome, tail.position) == ("ok", 0)
    assert (append.outcome, append.answered, append.values) == ("unknown", None, ("a",))


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_text('{"n": 1, "answered": 3}\n')
    with pytest.raises(InvalidArgument, match=r"line 1 of .*bad.jsonl"):
        load(tmp_path / "bad.jsonl")


def test_a_history_that_is_none_is_refused() -> None:
    append = Operation(client="ann", verb="append", log="log", invoked=5, answered=6, outcome="ok", values=("a",))
    with pytest.raises(InvalidArgument, match="appended twice"):
        check([append, append])
    with pytest.raises(InvalidArgument, match="before it was invoked"):
        check([Operation(client="ann", verb="tail", log="log", invoked=5, answered=4, outcome="ok", position=0)])
    with pytest.raises(InvalidArgument, match="must say a position"):
        check([Operation(client="ann", verb="tail", log="log", invoked=5, answered=6, outcome="ok")])
    with pytest.raises(InvalidArgument, match="verb must be one of"):
        Recorder().call("ann", "sing", "log")

"""Every verb of `braid`, on a directory and at a service: what it prints where, its JSON, the status it ends with."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import braidlog
from braidlog.broker.local import LocalService
from braidlog.broker.threaded import ServerThread
from braidlog.cli import asking, exit_codes
from braidlog.cli.main import cli
from tests.e2e.conformance import writer_of


class Command:
    """`braid` on one directory, in this process."""

    def __init__(self, place: Path | str) -> None:
        self.place = str(place)
        self._runner = CliRunner()

    def __call__(self, *args: str, feed: bytes | str = b"", code: int = 0) -> Result:
        """Run it and expect a status. Anything but an orderly end fails the test."""
        result = self._runner.invoke(cli, list(args), input=feed, env={"BRAIDLOG_URL": self.place, "NO_COLOR": "1"})
        assert isinstance(result.exception, SystemExit | None), (args, result.exception)
        assert result.exit_code == code, (args, result.stdout, result.stderr)
        return result

    def lines(self, *args: str, feed: bytes | str = b"", code: int = 0) -> list[str]:
        return self(*args, feed=feed, code=code).stdout.splitlines()

    def json(self, *args: str, feed: bytes | str = b"") -> Any:
        return json.loads(self("--json", *args, feed=feed).stdout)


@pytest.fixture
def directory(tmp_path: Path) -> Command:
    """A directory with an empty log named orders."""
    command = Command(tmp_path / "logs")
    command("create", "orders")
    return command


@pytest.fixture
def service() -> Iterator[Command]:
    """The same at a service."""
    with braidlog.open("memory://") as served:
        server = ServerThread(lambda: LocalService(writer_of(served)), "service")
        host, port = server.listen_tcp("127.0.0.1", 0)
        command = Command(f"braid://{host}:{port}")
        command("create", "orders")
        yield command
        server.close()


@pytest.fixture(params=["directory", "service"])
def braid(request: pytest.FixtureRequest) -> Command:
    """Each of the two."""
    command = request.getfixturevalue(request.param)
    assert isinstance(command, Command)
    return command


@pytest.fixture
def held(braid: Command) -> Command:
    """Two orders, a promotable fork with one record, and one order that came after it."""
    braid("append", "orders", "a", "b")
    braid("fork", "orders", "trial", "--promotable")
    braid("append", "trial", "own")
    braid("append", "orders", "late")
    return braid


# --- create, append, read, tail ------------------------------------------------------------------------------------


def test_create_prints_the_name_and_makes_the_directory(tmp_path: Path) -> None:
    braid = Command(tmp_path / "new" / "logs")
    assert braid.lines("create", "orders") == ["orders"]
    assert (tmp_path / "new" / "logs" / "FORMAT").is_file()


def test_create_takes_labels_and_retention(braid: Command) -> None:
    made = braid.json("create", "kept", "--label", "team=sea=salt", "--max-age", "2h", "--max-bytes", "1000")
    assert made["labels"] == {"team": "sea=salt"}
    assert made["retention"] == {"max_age": 7200.0, "max_bytes": 1000}


def test_append_prints_positions_and_read_shows_lines(braid: Command) -> None:
    assert braid.lines("append", "orders", "first") == ["0"]
    assert braid.lines("append", "orders", "second", "third", "--key", "k") == ["1-2"]
    assert braid.lines("read", "orders") == ["0\t\tfirst", "1\tk\tsecond", "2\tk\tthird"]
    assert braid.lines("read", "orders", "1", "2") == ["1\tk\tsecond"]
    assert braid.lines("read", "orders", "1", "--max", "1") == ["1\tk\tsecond"]


def test_append_takes_stdin_when_there_is_no_value_or_a_dash(braid: Command) -> None:
    assert braid.lines("append", "orders", feed="one\n\nthree") == ["0-2"]
    assert braid.lines("append", "orders", "-", feed=b"four\xff\n") == ["3"]
    assert braid("read", "orders", "--raw").stdout_bytes == b"one\n\nthree\nfour\xff\n"


def test_append_takes_files(braid: Command, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\nb\n")
    (tmp_path / "b.jsonl").write_text('{"c": 1}\n')
    arguments = ("--file", str(tmp_path / "a.txt"), "--file", str(tmp_path / "b.jsonl"))
    assert braid.lines("append", "orders", *arguments, "--key", "k") == ["0-2"]
    assert braid.lines("read", "orders") == ["0\tk\ta", "1\tk\tb", '2\tk\t{"c": 1}']
    braid("append", "orders", "value", *arguments, code=exit_codes.USAGE)


def test_append_of_nothing_appends_nothing(braid: Command) -> None:
    assert braid.lines("append", "orders") == []
    assert braid.json("append", "orders") == {"log": "orders", "records": 0, "first": None, "last": None}


def test_records_are_whole_in_json(braid: Command) -> None:
    braid("append", "orders", "v", "--key", "k", "--header", "h=x=y", "--timestamp", "2026-01-31T12:00:00Z")
    assert braid.json("read", "orders") == {
        "position": 0,
        "timestamp": "2026-01-31T12:00:00.000000Z",
        "key": "k",
        "value": "v",
        "headers": [["h", "x=y"]],
    }


def test_what_cannot_be_printed_is_escaped_for_people_only(braid: Command) -> None:
    braid("append", "orders", feed=b"\x1b[31m\tred\xff\n")
    assert braid.lines("read", "orders") == ["0\t\t\\x1b[31m\\tred\\xff"]
    assert braid.json("read", "orders")["value_base64"] == "G1szMW0JcmVk/w=="
    assert braid("read", "orders", "--raw").stdout_bytes == b"\x1b[31m\tred\xff\n"


def test_writer_and_sequence_append_once(braid: Command) -> None:
    once = ("append", "orders", "paid", "--writer", "w", "--sequence", "7")
    assert braid.lines(*once) == braid.lines(*once) == ["0"]
    assert braid.lines("append", "orders", "--writer", "w", "--sequence", "8", feed="x\ny\n") == ["1-2"]
    braid("append", "orders", "paid", "--writer", "w", code=exit_codes.USAGE)


def test_expected_tail_makes_an_append_conditional(braid: Command) -> None:
    assert braid.lines("append", "orders", "a", "--expected-tail", "0") == ["0"]
    braid("append", "orders", "b", "--expected-tail", "0", code=exit_codes.CONDITION_FAILED)


def test_durable_tells_no_position(braid: Command) -> None:
    assert braid("append", "orders", "a", "--ack", "durable").output == ""
    assert braid.json("info", "orders")["tail"] == 1


def test_tail_prints_the_last_records(braid: Command) -> None:
    braid("append", "orders", *"abcdefghijklm")
    assert braid.lines("tail", "orders", "-n", "2") == ["11\t\tl", "12\t\tm"]
    assert len(braid.lines("tail", "orders")) == 10
    assert braid.lines("tail", "orders", "-n", "0") == []


def test_a_long_log_is_read_to_its_end(braid: Command) -> None:
    braid("append", "orders", feed=b"x\n" * 10_000)
    assert len(braid.lines("read", "orders", "--raw")) == 10_000
    assert len(braid.lines("tail", "orders", "-n", "9999")) == 9_999


# --- forks -----------------------------------------------------------------------------------------------------------


def test_ls_draws_the_tree(held: Command) -> None:
    held("fork", "orders", "old", "--severed", "--at-position", "1")
    held("fork", "trial", "below", "--ttl", "1h")
    drawn = held.lines("ls")
    assert drawn[0] == "● orders  tail 3  held, readable up to 2"
    assert drawn[1].startswith("├── ◎ trial  tail 4  own 1, from 2  lease 4m ")
    assert drawn[2].startswith("│   └── ○ below  tail 4  own 0, from 4  lives 59m ")
    assert drawn[3] == "└── ✂ old  tail 1  own 0, from 1"
    assert [log["name"] for log in held.json("ls")] == ["orders", "trial", "old", "below"]


def test_ls_shows_who_is_blocked_by_whom(braid: Command) -> None:
    braid("fork", "orders", "plain")
    braid("fork", "orders", "trial", "--promotable")
    braid("append", "orders", "hidden")
    assert "○ plain  tail 1  own 0, from 0  blocked by the hold on orders, readable up to 0" in braid("ls").stdout


def test_ls_cuts_nothing_off_a_deep_tree(tmp_path: Path) -> None:
    with braidlog.open(tmp_path) as opened:
        log = opened.create("root")
        for number in range(120):
            log = log.cfork(f"fork-{number}")
    result = Command(tmp_path)("ls")
    assert result.stdout.splitlines()[-1].strip() == "└── ○ fork-99  tail 0  own 0, from 0"
    assert "20 forks lie too deep" in result.stderr


def test_ls_of_nothing_says_so(tmp_path: Path) -> None:
    braidlog.open(tmp_path).close()
    assert Command(tmp_path).json("ls") == []
    result = Command(tmp_path)("ls")
    assert (result.stdout, "braid create" in result.stderr) == ("", True)


def test_fork_prints_its_name(braid: Command) -> None:
    assert braid.lines("fork", "orders", "named", "--label", "a=b") == ["named"]
    (made_up,) = braid.lines("fork", "orders")
    assert braid.json("info", made_up)["parent"] == "orders"
    assert braid.json("info", "named")["labels"] == {"a": "b"}


def test_a_lease_can_be_set_or_left_out(braid: Command) -> None:
    assert braid.json("fork", "orders", "short", "--promotable", "--lease", "90s")["lease_expires"] is not None
    assert braid.json("fork", "orders", "endless", "--promotable", "--lease", "none")["lease_expires"] is None


@pytest.mark.parametrize(
    "options", [("--promotable", "--severed"), ("--at-position", "0"), ("--lease", "5m"), ("--ttl", "soon")]
)
def test_options_of_fork_that_contradict_each_other(braid: Command, options: tuple[str, ...]) -> None:
    braid("fork", "orders", "trial", *options, code=exit_codes.USAGE)
    assert len(braid.json("ls")) == 1


def test_a_hold_hides_what_came_after_it(held: Command) -> None:
    result = held("read", "orders")
    assert result.stdout.splitlines() == ["0\t\ta", "1\t\tb"]
    assert "held, readable up to 2" in result.stderr
    assert "positions" in held("append", "orders", "later").stderr
    held("read", "orders", "2", code=exit_codes.BLOCKED)
    assert held.lines("tail", "orders", "-n", "1") == ["1\t\tb"]


def test_a_hold_over_everything_leaves_tail_nothing_to_print(braid: Command) -> None:
    braid("fork", "orders", "trial", "--promotable")
    braid("append", "orders", "hidden")
    result = braid("tail", "orders")
    assert (result.stdout, "held" in result.stderr) == ("", True)


def test_diff_marks_what_is_own(held: Command) -> None:
    assert held.lines("diff", "trial") == ["+ 2\t\town", "  3\t\tlate"]
    found = held.json("diff", "trial")
    assert (found["fork_point"], found["own"], found["inherited"], found["truncated"]) == (2, 1, 1, False)
    assert [(entry["own"], entry["value"]) for entry in found["entries"]] == [(True, "own"), (False, "late")]
    assert held.json("diff", "trial", "--max", "1")["truncated"] is True


def test_promote_makes_the_fork_its_parent(held: Command) -> None:
    assert held.json("promote", "trial", "--yes", "--expected-own", "1") == {
        "log": "trial",
        "promoted": True,
        "into": "orders",
    }
    assert held.lines("read", "orders") == ["0\t\ta", "1\t\tb", "2\t\town", "3\t\tlate"]


@pytest.mark.parametrize("guard", [("--expected-own", "2"), ("--expected-tail", "9")])
def test_promote_leaves_the_fork_if_it_is_not_what_was_expected(held: Command, guard: tuple[str, str]) -> None:
    held("promote", "trial", "--yes", *guard, code=exit_codes.CONDITION_FAILED)
    assert held.json("info", "trial")["own"] == 1


def test_squash_lifts_the_hold(held: Command) -> None:
    assert held.json("squash", "trial", "--yes") == {"log": "trial", "squashed": True}
    assert held.lines("read", "orders") == ["0\t\ta", "1\t\tb", "2\t\tlate"]


def test_squash_can_take_severed_forks_along(held: Command) -> None:
    held("fork", "trial", "copy", "--severed")
    held("squash", "trial", "--yes", "--cascade-severed")
    assert [log["name"] for log in held.json("ls")] == ["orders"]


def test_renew_begins_the_lease_anew(held: Command) -> None:
    before = held.json("info", "trial")["lease_expires"]
    assert held.json("renew", "trial")["lease_expires"] > before
    assert held.lines("renew", "trial")[0].startswith("lease_expires 20")


def test_wait_gives_up_after_its_time(held: Command) -> None:
    held("fork", "orders", "plain")
    held("append", "plain", "x", "--wait", "10ms", code=exit_codes.BLOCKED)
    held("fork", "plain", "below", "--promotable", "--wait", "10ms", code=exit_codes.BLOCKED)


# --- info, trim, drop ------------------------------------------------------------------------------------------------


def test_info_tells_all(held: Command) -> None:
    told = held.json("info", "trial")
    assert (told["kind"], told["parent"], told["fork_point"], told["tail"]) == ("cfork", "orders", 2, 4)
    assert told["lineage"] == ["trial", "orders"]
    text = held("info", "trial").stdout
    assert "promotable cFork" in text
    assert "orders at 2" in text


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        (("--max-age", "1h"), "retention    3600 s"),
        (("--max-bytes", "5000"), "retention    5,000 bytes"),
        (("--max-age", "1h", "--max-bytes", "5000"), "retention    3600 s, 5,000 bytes"),
    ],
)
def test_info_tells_what_a_log_forgets(braid: Command, options: tuple[str, ...], shown: str) -> None:
    braid("create", "kept", *options)
    assert shown in braid.lines("info", "kept")


def test_trim_forgets_the_beginning(held: Command) -> None:
    assert held.lines("trim", "orders", "1", "--yes") == ["1"]
    assert held.lines("read", "orders") == ["1\t\tb"]
    assert held.lines("read", "trial", "0", "1") == ["0\t\ta"]
    held("read", "orders", "0", code=exit_codes.OUT_OF_RANGE)
    held("trim", "orders", "99", "--yes", code=exit_codes.OUT_OF_RANGE)


def test_drop_is_refused_while_forks_live_unless_cascade(held: Command) -> None:
    held("drop", "orders", "--yes", code=exit_codes.CONDITION_FAILED)
    assert held.json("drop", "orders", "--yes", "--cascade") == {"log": "orders", "dropped": True}
    assert held.json("ls") == []


# --- asking ----------------------------------------------------------------------------------------------------------

DESTRUCTIVE = [("promote", "trial"), ("squash", "trial"), ("trim", "orders", "1"), ("drop", "orders", "--cascade")]


@pytest.mark.parametrize("call", DESTRUCTIVE)
def test_without_a_terminal_nothing_is_destroyed_unless_yes(held: Command, call: tuple[str, ...]) -> None:
    before = held.json("ls")
    result = held(*call, feed="y\n", code=exit_codes.USAGE)
    assert "--yes" in result.stderr
    assert held.json("ls") == before
    held(*call, "--yes")
    assert held.json("ls") != before


@pytest.mark.parametrize("call", DESTRUCTIVE)
def test_on_a_terminal_it_asks(held: Command, call: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "on_terminal", lambda: True)
    before = held.json("ls")
    result = held(*call, feed="n\n", code=exit_codes.FAILED)
    assert "[y/N]" in result.stderr
    assert held.json("ls") == before
    held(*call, feed="y\n")
    assert held.json("ls") != before


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_without_a_place_it_says_what_to_do() -> None:
    result = CliRunner().invoke(cli, ["ls"], env={"BRAIDLOG_URL": None})
    assert result.exit_code == exit_codes.USAGE
    assert "--at URL" in result.stderr
    assert "BRAIDLOG_URL" in result.stderr


def test_at_stands_before_or_after_the_verb_and_counts_more_than_the_variable(tmp_path: Path) -> None:
    braid = Command(tmp_path / "elsewhere")
    place = f"file://{tmp_path}/here"
    braid("--at", place, "create", "orders")
    assert braid.lines("append", "orders", "x", "--at", place) == ["0"]
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (("read", "nowhere"), exit_codes.NOT_FOUND),
        (("create", "orders"), exit_codes.ALREADY_EXISTS),
        (("create", "a/b"), exit_codes.USAGE),
        (("read", "orders", "7"), exit_codes.OUT_OF_RANGE),
        (("read", "orders", "-1"), exit_codes.USAGE),
        (("read", "orders", str(2**63)), exit_codes.USAGE),
        (("promote", "orders", "--yes"), exit_codes.FAILED),
        (("squash", "orders", "--yes"), exit_codes.USAGE),
        (("diff", "orders"), exit_codes.USAGE),
        (("renew", "orders"), exit_codes.USAGE),
        (("append", "orders", "x", "--header", "nameless"), exit_codes.USAGE),
        (("append", "orders", "x", "--timestamp", "yesterday"), exit_codes.USAGE),
        (("import", "orders", "nofile.csv"), exit_codes.FAILED),
        (("import", "orders", "unknown.format"), exit_codes.USAGE),
        (("bench", "--dir", "nowhere"), exit_codes.FAILED),
        (("--at", "http://example.org", "ls"), exit_codes.USAGE),
        (("--at", "memory://", "read", "orders"), exit_codes.NOT_FOUND),
        (("nonsense",), exit_codes.USAGE),
        (("read",), exit_codes.USAGE),
    ],
)
def test_each_failure_has_its_status_and_says_why(braid: Command, call: tuple[str, ...], code: int) -> None:
    result = braid(*call, code=code)
    assert result.stdout == ""
    assert "braid: " in result.stderr
    assert "Traceback" not in result.stderr


def test_with_json_an_error_is_an_object(braid: Command) -> None:
    told = json.loads(braid("--json", "read", "nowhere", code=exit_codes.NOT_FOUND).stderr)
    assert (told["error"], told["exit_code"]) == ("NotFound", exit_codes.NOT_FOUND)
    assert "nowhere" in told["message"]


def test_a_second_writer_is_told_who_has_it_while_readers_go_on(directory: Command) -> None:
    with braidlog.open(directory.place, serve=False) as writer:
        writer.log("orders").append(b"x")
        assert "this process" in directory("append", "orders", "y", code=exit_codes.LOCKED).stderr
        assert directory.lines("read", "orders") == ["0\t\tx"]
        assert directory.json("info", "orders")["tail"] == 1
        assert directory("doctor").exit_code == 0


def test_a_service_that_is_not_there_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        place = f"braid://127.0.0.1:{nobody.getsockname()[1]}"
    told = Command(place)("ls", code=exit_codes.UNAVAILABLE).stderr
    assert place.removeprefix("braid://") in told
    assert Command("braid://")("ls", code=exit_codes.USAGE).stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [("append", "orders", "x"), ("ls",), ("import", "orders")])
def test_a_mistyped_directory_is_not_created(tmp_path: Path, verb: tuple[str, ...]) -> None:
    Command(tmp_path / "typo")(*verb, code=exit_codes.NOT_FOUND)
    assert not (tmp_path / "typo").exists()
    Command(tmp_path)(*verb, code=exit_codes.NOT_FOUND)
    assert list(tmp_path.iterdir()) == []


def test_every_error_of_the_library_has_a_documented_status() -> None:
    kinds = braidlog.BraidError.__subclasses__()
    assert {exit_codes.code_of(kind("x")) for kind in kinds} <= exit_codes.MEANINGS.keys()
    shown = CliRunner().invoke(cli, ["--help"]).stdout
    assert all(f"{code:>3}  {meaning}" in shown for code, meaning in exit_codes.MEANINGS.items())


# --- help, version, completion, bench --------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", [[], *([name] for name in cli.commands)])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_everywhere(verb: list[str], flag: str) -> None:
    result = CliRunner().invoke(cli, [*verb, flag])
    assert result.exit_code == 0
    assert "Usage: braid" in result.stdout
    assert "--at URL" in result.stdout


def test_version() -> None:
    assert CliRunner().invoke(cli, ["--version"]).stdout == f"braid, version {braidlog.__version__}\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    script = CliRunner().invoke(cli, ["completion", shell]).stdout
    assert f"_BRAID_COMPLETE={shell}_complete" in script


def test_names_of_logs_are_completed(braid: Command) -> None:
    braid("create", "other")
    env = {"_BRAID_COMPLETE": "bash_complete", "COMP_WORDS": "braid read or", "COMP_CWORD": "2"}
    result = CliRunner().invoke(cli, [], env=env | {"BRAIDLOG_URL": braid.place}, prog_name="braid")
    assert result.stdout == "plain,orders\n"
    nowhere = CliRunner().invoke(cli, [], env=env | {"BRAIDLOG_URL": "/dev/null"}, prog_name="braid")
    assert (nowhere.stdout.strip(), nowhere.stderr) == ("", "")


def test_bench_measures_and_leaves_nothing(tmp_path: Path) -> None:
    braid = Command(tmp_path)
    figures = braid.json("bench", "--dir", str(tmp_path), "--seconds", "10ms")
    assert {name: value for name, value in figures.items() if name != "directory" and not value > 0} == {}
    assert "records/s" in braid("bench", "--dir", str(tmp_path), "--seconds", "10ms").stdout
    assert list(tmp_path.iterdir()) == []

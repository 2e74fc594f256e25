"""What `braid` says to a mistake: what was wrong with the value, and what to do, in the words of the command line."""

from __future__ import annotations

import json
import shutil
import socket
from pathlib import Path
from typing import NoReturn

import pytest

import braidlog
from braidlog import limits
from braidlog.cli import exit_codes
from braidlog.cli.main import cli
from braidlog.errors import Corrupt, InvalidArgument, Unavailable
from braidlog.metadata.etcd.client import EtcdClient
from tests.e2e import test_cli
from tests.e2e.secured import Role
from tests.e2e.test_cli import Command
from tests.e2e.test_cli_formats import records_in

braid, directory, service = test_cli.braid, test_cli.directory, test_cli.service  # the fixtures


def told(command: Command, *args: str, code: int) -> str:
    """What stands on stderr; on stdout there must be nothing."""
    result = command(*args, code=code)
    assert result.stdout == ""
    return result.stderr


# --- options ---------------------------------------------------------------------------------------------------------


def test_a_flag_is_turned_off_as_it_is_spelt() -> None:
    shown = Command("memory://")("serve", "--help").stdout
    assert "--require-token / --no-require-token" in shown
    assert "token_" not in shown


def test_files_are_called_files() -> None:
    shown = Command("memory://")("metadata", "--help").stdout
    assert all(f"--etcd-{name} FILE" in shown for name in ("ca", "cert", "key"))


@pytest.mark.parametrize("verb", sorted(cli.commands.keys() - {"serve", "metadata", "broker"}))
def test_what_a_client_shows_may_stand_behind_every_verb(verb: str) -> None:
    shown = Command("memory://")(verb, "--help").stdout
    assert "--token-file FILE" in shown
    assert "--tls-ca FILE" in shown


@pytest.mark.parametrize("before", [True, False])
def test_a_token_file_is_read_before_and_behind_the_verb(service: Command, tmp_path: Path, before: bool) -> None:
    options = ("--token-file", str(tmp_path / "nofile"))
    call = (*options, "ls") if before else ("ls", *options)
    assert "token_file cannot be read" in told(service, *call, code=exit_codes.USAGE)


@pytest.mark.parametrize("option", ["--token-file", "--tls-ca"])
@pytest.mark.parametrize("verb", [("ls",), ("append", "orders", "x"), ("create", "more"), ("doctor",), ("top",)])
def test_a_directory_asks_nobody_who_they_are(
    directory: Command,
    verb: tuple[str, ...],
    option: str,
) -> None:
    assert "are for services" in told(directory, *verb, option, "nofile", code=exit_codes.USAGE)
    assert directory.json("info", "orders")["tail"] == 0


def test_a_role_is_not_given_what_clients_show(directory: Command) -> None:
    assert "are for clients" in told(directory, "--token-file", "x", "serve", "--show-config", code=exit_codes.USAGE)


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["lately", "99999999999d"])
def test_a_time_or_a_duration_is_asked_for(directory: Command, text: str) -> None:
    wanted = f"'{text}' is not a time or a duration: write 2026-01-31T12:00:00Z, 1h or 2d"
    assert wanted in told(directory, "audit", "--since", text, code=exit_codes.USAGE)


@pytest.mark.parametrize("call", [("read", "orders", "5", "2"), ("export", "orders", "--start", "5", "--stop", "2")])
def test_a_range_that_ends_before_it_begins_is_refused(braid: Command, call: tuple[str, ...]) -> None:
    assert "STOP 2 is below START 5" in told(braid, *call, code=exit_codes.USAGE)


def test_an_empty_range_is_none_that_is_refused(braid: Command) -> None:
    assert braid.lines("read", "orders", "0", "0") == []


def test_a_name_that_is_too_long_is_told_so(braid: Command) -> None:
    wanted = "has 300 characters: at most 249"
    assert wanted in (said := told(braid, "create", "a" * 300, code=exit_codes.USAGE))
    assert "a" * 30 not in said
    assert "A-Z" not in said


@pytest.mark.parametrize("call", [("read", "orders", "abc"), ("tail", "orders", "-n", "1e3"), ("trim", "orders", "x")])
def test_a_number_that_is_none_is_told_so(braid: Command, call: tuple[str, ...]) -> None:
    assert "is not a whole number" in told(braid, *call, code=exit_codes.USAGE)


def test_bytes_have_units(braid: Command) -> None:
    assert braid.json("create", "kept", "--max-bytes", "10MiB")["retention"]["max_bytes"] == 10 * limits.MIB
    wanted = "'10MB' is not a number of bytes: write 1000, 64KiB, 10MiB or 1GiB"
    assert wanted in told(braid, "create", "more", "--max-bytes", "10MB", code=exit_codes.USAGE)


@pytest.mark.parametrize(("unit", "factor"), [(None, 1), ("us", 1), ("ms", 1_000), ("s", 1_000_000)])
def test_times_that_are_numbers_count_in_a_unit(
    directory: Command,
    tmp_path: Path,
    unit: str | None,
    factor: int,
) -> None:
    (tmp_path / "in.csv").write_text("v,t\na,1700000000\nb,1970-01-01T00:00:01Z\n")
    options = () if unit is None else ("--timestamp-unit", unit)
    directory("import", "orders", str(tmp_path / "in.csv"), "--value-column", "v", "--timestamp-column", "t", *options)
    assert [one.timestamp for one in records_in(directory, "orders")] == [1_700_000_000 * factor, 1_000_000]


def test_a_unit_without_a_column_is_a_mistake(braid: Command) -> None:
    said = told(braid, "import", "orders", "--timestamp-unit", "ms", code=exit_codes.USAGE)
    assert "says what --timestamp-column counts" in said


# --- places ----------------------------------------------------------------------------------------------------------


def test_a_first_token_says_that_it_made_the_directory(tmp_path: Path) -> None:
    command = Command(tmp_path / "typo.braid")
    new = f"{tmp_path / 'typo.braid'} is new: there were no logs"
    assert new in command("token", "create", "--admin").stderr
    assert new not in command("token", "create", "second", "--admin").stderr


def test_an_import_of_a_file_that_is_not_there_creates_nothing(tmp_path: Path) -> None:
    command = Command(tmp_path / "logs")
    assert "missing.csv" in told(
        command, "import", "x", str(tmp_path / "missing.csv"), "--create", code=exit_codes.FAILED
    )
    assert not (tmp_path / "logs").exists()


def test_a_host_and_a_port_are_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    wanted = "for a service write braid://localhost:7411"
    assert wanted in told(Command("localhost:7411"), "ls", code=exit_codes.USAGE)
    with pytest.raises(InvalidArgument, match=wanted):
        braidlog.open("localhost:7411")
    with pytest.raises(InvalidArgument, match=r"braid://\[::1\]:7411"):
        braidlog.open("[::1]:7411")
    assert list(tmp_path.iterdir()) == []
    braidlog.open("./localhost:7411").close()  # whoever means it
    assert Command("localhost:7411").lines("ls") == []


@pytest.mark.parametrize("url", ["braid://user:secret@host", "braids://user:sec/ret@host", "http://user:secret@host"])
def test_a_password_in_a_url_is_refused_and_not_told(url: str) -> None:
    for verb in (("ls",), ("doctor",), ("serve",), ("top", "--once")):
        said = told(Command(url), *verb, code=exit_codes.USAGE)
        assert "a URL takes no user or password: give a token (BRAIDLOG_TOKEN_FILE)" in said
        assert "sec" not in said
    with pytest.raises(InvalidArgument, match="no user or password"):
        braidlog.open(url)


def test_an_at_in_a_path_is_no_password(tmp_path: Path) -> None:
    assert Command(f"file://{tmp_path}/a@b").lines("create", "orders") == ["orders"]


def test_where_nobody_listens_it_says_what_to_look_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        place = f"braid://127.0.0.1:{nobody.getsockname()[1]}"
    said = told(Command(place), "ls", code=exit_codes.UNAVAILABLE)
    assert "is `braid serve` running there, and is the port right?" in said


@pytest.mark.parametrize("lost", ["snapshots", "log"])
def test_files_that_nobody_can_have_dropped_are_damage(tmp_path: Path, lost: str) -> None:
    where = tmp_path / "logs"
    with braidlog.open(where) as opened:
        opened.create("orders").append(b"x")
    for path in (where / lost).glob("*.snap" if lost == "snapshots" else "*.log"):
        path.unlink()
    said = told(Command(where), "ls", code=exit_codes.CORRUPT)
    assert "nobody is writing" in said
    assert "tried again" not in said
    with pytest.raises(Corrupt):
        braidlog.open(where, read_only=True)
    with pytest.raises(Corrupt):  # as it is for a writer
        braidlog.open(where)


def test_while_somebody_writes_what_is_missing_may_be_on_its_way(tmp_path: Path) -> None:
    where = tmp_path / "logs"
    with braidlog.open(where) as opened:
        opened.create("orders").append(b"x")
    with braidlog.open(where):
        shutil.rmtree(where / "snapshots")
        assert "tried again by itself" in told(Command(where), "ls", code=exit_codes.UNAVAILABLE)


def test_memory_is_not_told_to_create_what_never_shows() -> None:
    said = Command("memory://")("ls").stderr
    assert "begins empty in each call: name a directory" in said
    assert "braid create" not in said


def test_a_folder_that_is_missing_is_named(directory: Command, tmp_path: Path) -> None:
    file = tmp_path / "nodir" / "x.jsonl"
    said = told(directory, "export", "orders", str(file), code=exit_codes.FAILED)
    assert f"cannot write {file}: there is no folder {file.parent}" in said
    assert "unfinished" not in said


# --- hints -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "code", "hint"),
    [
        (("read", "nowhere"), exit_codes.NOT_FOUND, "`braid create NAME` makes one"),
        (("create", "orders"), exit_codes.ALREADY_EXISTS, "`braid info LOG` shows it"),
        (("squash", "orders", "--yes"), exit_codes.USAGE, "`braid drop LOG` deletes a root"),
        (("drop", "trial", "--yes"), exit_codes.USAGE, "`braid squash FORK` deletes a fork"),
        (("drop", "orders", "--yes"), exit_codes.CONDITION_FAILED, "`braid drop LOG --cascade`"),
        (("consumers", "orders", "--forget", "nobody"), exit_codes.NOT_FOUND, "`braid consumers LOG` shows those"),
        (("promote", "plain", "--yes"), exit_codes.FAILED, "`braid fork LOG --promotable`"),
        (("fork", "plain", "nested", "--promotable"), exit_codes.BLOCKED, "can --wait"),
    ],
)
def test_hints_are_in_the_words_of_the_command_line(
    braid: Command,
    call: tuple[str, ...],
    code: int,
    hint: str,
) -> None:
    braid("fork", "orders", "trial", "--promotable")
    braid("fork", "orders", "plain")
    [line] = [line for line in told(braid, *call, code=code).splitlines() if line.startswith("hint: ")]
    assert hint in line
    assert json.loads(told(braid, "--json", *call, code=code))["hint"] == line.removeprefix("hint: ")


def test_whoever_is_asked_for_a_token_is_told_the_option(tmp_path: Path) -> None:
    log = tmp_path / "told"
    role = Role("serve", "--at", str(tmp_path / "logs"), "--require-token", told=log)
    try:
        said = told(Command(role.url), "ls", code=exit_codes.NOT_PERMITTED)
    finally:
        role.end()
    assert "--token-file FILE gives the token" in said


def test_a_directory_that_is_missing_is_not_looked_for_among_logs(tmp_path: Path) -> None:
    said = told(Command(tmp_path / "none"), "doctor", code=exit_codes.NOT_FOUND)
    assert "--at URL, or BRAIDLOG_URL, says which directory" in said
    assert "`braid ls`" not in said


def test_doctor_says_how_a_directory_is_examined(directory: Command) -> None:
    assert "`braid --at s.braid doctor`" in told(directory, "doctor", "s.braid", code=exit_codes.USAGE)
    assert "--at" not in told(directory, "doctor", "ftp://bucket/x", code=exit_codes.USAGE).splitlines()[0]


def test_without_a_verb_the_help_is_shown_once() -> None:
    said = told(Command("memory://"), code=exit_codes.USAGE)
    assert said.count("Usage:") == 1
    assert "braid: " not in said


# --- settings --------------------------------------------------------------------------------------------------------


def test_a_directory_and_etcd_exclude_each_other(directory: Command) -> None:
    said = told(directory, "metadata", "--at", directory.place, "--etcd", "127.0.0.1:1", code=exit_codes.USAGE)
    assert "--at and --etcd exclude each other" in said
    # The variable is what clients on the same machine go by, and says nothing of this process.
    assert "give --objects" in told(directory, "metadata", "--etcd", "127.0.0.1:1", code=exit_codes.USAGE)


def test_an_etcd_that_is_away_is_to_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> NoReturn:
        raise Unavailable("etcd at 127.0.0.1:1 did not answer")  # which takes it ten seconds to find out

    monkeypatch.setattr(EtcdClient, "read", away)
    options = ("--etcd", "127.0.0.1:1", "--objects", f"file://{tmp_path}/objects", "--listen", "127.0.0.1:0")
    said = told(Command(""), "metadata", *options, code=exit_codes.UNAVAILABLE)
    assert "did not answer; start it, or mend --etcd" in said


def test_serve_says_what_it_is() -> None:
    assert "Serve a directory to other processes over TCP" in Command("memory://")("serve", "--help").stdout

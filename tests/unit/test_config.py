"""Settings: where they come from, which counts most, and what is refused before anything begins."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from braidlog import config, limits
from braidlog.client.remote import opening
from braidlog.config import Address, Setting, resolve
from braidlog.errors import InvalidArgument

SECRET = (Setting("token", "What clients must know.", secret=True), Setting("name", "A name."))


def written(folder: Path, text: str) -> str:
    file = folder / "braid.toml"
    file.write_text(text)
    return str(file)


def test_arguments_count_more_than_variables_and_those_more_than_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, '[serve]\nat = "/logs"\nname = "file"\nlog_level = "debug"\nhttp = "127.0.0.1:1"\n')
    found = resolve("serve", {"name": "argument"}, {"BRAIDLOG_NAME": "x", "BRAIDLOG_LOG_LEVEL": "error"}, file)
    assert (found.text("name"), found.source("name")) == ("argument", "--name")
    assert (found.text("log_level"), found.source("log_level")) == ("error", "BRAIDLOG_LOG_LEVEL")
    assert (found.address("http"), found.source("http")) == (Address("127.0.0.1", 1), f"{file} [serve]")
    assert (found.seconds("shutdown_grace_s"), found.source("shutdown_grace_s")) == (limits.SHUTDOWN_GRACE_S, "default")


def test_the_place_is_set_by_the_variable_that_clients_know() -> None:
    assert resolve("serve", {}, {"BRAIDLOG_URL": "here"}).source("at") == "BRAIDLOG_URL"


def test_a_service_listens_where_clients_look_for_it() -> None:
    assert config.PORT == opening.PORT_DEFAULT
    assert resolve("serve", {"at": "x"}, {}).addresses("listen") == (Address("127.0.0.1", opening.PORT_DEFAULT),)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:0", Address("localhost", 0)),
        ("[::1]:7411", Address("::1", 7411)),
        ("a-b.c:65535", Address("a-b.c", 65535)),
    ],
)
def test_addresses_read_as_they_are_shown(text: str, address: Address) -> None:
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "host",
        "host:",
        ":1",
        "host:65536",
        "host:-1",
        "host:1 ",
        "::1:80",
        "[::1]",
        "[x]:1",
        "a b:1",
        "-:1",
        "a..b:1",
    ]
    + [".:1", f"{'a' * 64}:1"],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Address.parse(text)


def test_several_addresses_however_they_are_given(tmp_path: Path) -> None:
    both = (Address("127.0.0.1", 1), Address("::1", 2))
    file = written(tmp_path, '[serve]\nlisten = ["127.0.0.1:1", "[::1]:2"]\n')
    assert resolve("serve", {"at": "x"}, {}, file).addresses("listen") == both
    assert resolve("serve", {"at": "x"}, {"BRAIDLOG_LISTEN": "127.0.0.1:1, [::1]:2"}).addresses("listen") == both
    assert resolve("serve", {"at": "x", "listen": ("127.0.0.1:1", "[::1]:2")}, {}).addresses("listen") == both


def test_a_path_in_the_file_begins_where_the_file_is(tmp_path: Path) -> None:
    assert resolve("serve", {}, {}, written(tmp_path, '[serve]\nat = "logs"\n')).text("at") == str(tmp_path / "logs")
    assert resolve("serve", {}, {}, written(tmp_path, '[serve]\nat = "memory://"\n')).text("at") == "memory://"
    assert resolve("serve", {"at": "logs"}, {}).text("at") == "logs"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[serve]\nlistn = 1\n", "listn is no setting of [serve]: did you mean 'listen'?"),
        ("[serve]\nzzz = 1\n", "zzz is no setting of [serve]: there are at, listen, "),
        ("[broker]\nat = 'x'\n", "at is no setting of [broker]"),
        ("[sever]\n", "sever"),
        ("at = 'x'\n", "at"),
        ("serve = 1\n", "serve"),
        ("[serve]\nname = 7\n", "name in [serve]: a number where a text belongs"),
        ("[serve]\ninsecure = 'true'\n", "insecure in [serve]: a text where true or false belongs"),
        ("[serve]\nshutdown_grace_s = true\n", "shutdown_grace_s in [serve]: true or false where a number"),
        ("[serve]\nshutdown_grace_s = -1\n", "shutdown_grace_s in [serve]: -1 is not between 0"),
        ("[serve]\nshutdown_grace_s = nan\n", "shutdown_grace_s in [serve]: nan"),
        ("[serve]\nlisten = []\n", "listen in [serve]: a list where a list of HOST:PORT belongs"),
        ("[serve]\nlisten = [1]\n", "listen in [serve]"),
        ("[serve]\nlisten = 'here'\n", "listen in [serve]: 'here' is not HOST:PORT"),
        ("[serve]\nlog_level = 'loud'\n", "log_level in [serve]: 'loud' is none of debug"),
        ("[broker]\nmetadata = 'host:0'\n", "metadata in [broker]: 'host:0' is not HOST:PORT, with a port from 1"),
        ("[serve\n", "is not TOML"),
        ("\xff", "is not TOML"),
    ],
)
def test_what_is_wrong_in_the_file_is_named_with_the_file(tmp_path: Path, text: str, told: str) -> None:
    """Whichever role is asked for: all of the file is checked."""
    file = tmp_path / "braid.toml"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidArgument) as refused:
        resolve("metadata", {"at": "x"}, {}, str(file))
    assert str(refused.value).startswith(str(file))
    assert told in str(refused.value)


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"none\.toml"):
        resolve("serve", {"at": "x"}, {}, str(tmp_path / "none.toml"))


@pytest.mark.parametrize(
    ("given", "environment", "told"),
    [
        ({"http": "7"}, {}, "--http: '7' is not HOST:PORT"),
        ({"shutdown_grace_s": "1h"}, {}, "--shutdown-grace-s: '1h'"),
        ({}, {"BRAIDLOG_INSECURE": "maybe"}, "BRAIDLOG_INSECURE: 'maybe'"),
        ({}, {"BRAIDLOG_SHUTDOWN_GRACE_S": "inf"}, "BRAIDLOG_SHUTDOWN_GRACE_S: inf"),
        ({"name": "x" * 5_000}, {}, "--name"),
    ],
)
def test_what_is_wrong_elsewhere_is_named_too(given: dict[str, str], environment: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        resolve("serve", {"at": "x", **given}, environment)
    assert str(refused.value).startswith(told)


def test_what_is_needed_and_missing_is_told_with_every_way_to_give_it() -> None:
    with pytest.raises(InvalidArgument) as refused:
        resolve("broker", {}, {})
    assert all(way in str(refused.value) for way in ("--metadata", "BRAIDLOG_METADATA", "[broker]"))


@pytest.mark.parametrize(("text", "on"), [("1", True), ("true", True), ("Yes", True), ("0", False), ("off", False)])
def test_flags_in_variables(text: str, on: bool) -> None:
    assert resolve("serve", {"at": "x"}, {"BRAIDLOG_INSECURE": text}).flag("insecure") is on
    assert resolve("serve", {"at": "x", "insecure": False}, {"BRAIDLOG_INSECURE": text}).flag("insecure") is False


def test_a_secret_never_stands_on_the_command_line_and_is_never_shown(tmp_path: Path) -> None:
    file = written(tmp_path, '[serve]\ntoken = "hush"\n')
    assert SECRET[0].option is None
    with pytest.raises(InvalidArgument, match="never stands on a command line"):
        resolve("serve", {"token": "hush"}, {}, settings=SECRET)
    for found in (
        resolve("serve", {}, {"BRAIDLOG_TOKEN": "hush"}, settings=SECRET),
        resolve("serve", {}, {}, file, settings=SECRET),
    ):
        assert found.text("token") == "hush"
        assert "hush" not in "\n".join(found.lines()) + str(found.document())
        assert "token" in "\n".join(found.lines())


def test_a_secret_that_is_wrong_is_not_told_either(tmp_path: Path) -> None:
    file = written(tmp_path, '[serve]\ntoken = "hush\\u0007"\n')
    for environment, where in (({"BRAIDLOG_TOKEN": "hush\x07"}, None), ({}, file)):
        with pytest.raises(InvalidArgument) as refused:
            resolve("serve", {}, environment, where, settings=SECRET)
        assert "hush" not in str(refused.value)


def test_what_is_shown_is_a_file_that_sets_the_same(tmp_path: Path) -> None:
    given = {"at": 'a "b"', "listen": ("127.0.0.1:1", "[::1]:2"), "insecure": True, "shutdown_grace_s": "2.5"}
    shown = "\n".join(resolve("serve", given, {}).lines())
    assert tomllib.loads(shown)["serve"]["shutdown_grace_s"] == 2.5
    again = resolve("serve", {"at": given["at"]}, {}, written(tmp_path, shown))
    assert [line.partition("  #")[0] for line in again.lines()] == [
        line.partition("  #")[0] for line in shown.splitlines()
    ]


def test_variables_that_are_no_settings_are_told_and_no_error() -> None:
    """An orchestrator sets some of that name by itself."""
    environment = {"BRAIDLOG_LISTN": "x", "BRAIDLOG_SERVICE_HOST": "10.0.0.1", "BRAIDLOG_URL": "x", "OTHER": "y"}
    assert config.unknown_variables(environment) == ["BRAIDLOG_LISTN", "BRAIDLOG_SERVICE_HOST"]
    assert resolve("serve", {}, environment).text("at") == "x"


def test_variables_that_others_read_are_none_of_those() -> None:
    """`braid mcp`, `braid review`, the agents and every client have theirs, and may run on the same machine."""
    environment = {f"BRAIDLOG_{name}": "x" for name in ("OWNER", "POLICY", "MODEL", "CONFIG", "TOKEN")}
    assert config.unknown_variables(environment) == []


def test_every_setting_is_in_the_reference() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text()
    for setting in [one for known in config.ROLES.values() for one in known]:
        assert f"| `{setting.name}` | `{setting.option}`" in text or setting.option is None
        assert f"`{setting.environment}`" in text

"""The settings of a process that serves: what there is to set, and where each setting came from.

A setting comes from the command line, else from its `BRAIDLOG_*` variable, else from the table of the process's role in
one TOML file, else it is the default. Whatever is wrong (a key that nobody knows, another type, a value out of range)
is an InvalidArgument that names the key and where it stood, before anything is opened. A setting that is `secret` never
comes from the command line, where everybody on the machine could read it, and is never shown.

Nothing here opens a place, a port or anything else but the file of settings.
"""

from __future__ import annotations

import ipaddress
import json
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from braidlog import limits
from braidlog.errors import InvalidArgument
from braidlog.wording import instead

PREFIX: Final = "BRAIDLOG_"
FILE_VARIABLE: Final = "BRAIDLOG_CONFIG"
URL_VARIABLE: Final = "BRAIDLOG_URL"
PORT: Final = 7411  # where clients look for a service, unless they are told otherwise
METADATA_PORT: Final = 7410

_ELSEWHERE: Final = ("OWNER", "POLICY", "MODEL")  # variables that no role reads: clients, `braid mcp` and agents do
_DEFAULT: Final = "default"
_ON: Final = {"1", "true", "yes", "on"}
_OFF: Final = {"0", "false", "no", "off"}
_HOST: Final = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")


def is_host(text: str) -> bool:
    """Whether it could be the name of a host at all: what cannot be is no OSError to those who look it up."""
    try:
        return bool(text.encode("idna")) and text.isprintable()
    except UnicodeError:
        return False


class Address(NamedTuple):
    """Where to listen, or whom to ask."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str, port_min: int = 0) -> Address:
        """From HOST:PORT, or [HOST]:PORT for IPv6; ValueError for anything else."""
        host, colon, port = text.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = str(ipaddress.IPv6Address(host[1:-1]))
        elif not _HOST.fullmatch(host):
            raise ValueError(f"{text!r} is not HOST:PORT")
        elif not is_host(host):
            raise ValueError(f"{text!r} is not HOST:PORT, for {host} is not the name of a host")
        if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or not port_min <= int(port) <= 65535:
            raise ValueError(f"{text!r} is not HOST:PORT, with a port from {port_min} to 65535")
        return cls(host, int(port))


Value = str | float | bool | Address | tuple[Address, ...] | None


# --- what a setting may be. Each kind reads text, and what TOML has for it; ValueError for what it does not take -----


class Kind:
    """Any text of a sensible length."""

    many: bool = False  # may be given several times
    flag: bool = False
    metavar: str = "TEXT"

    def of_text(self, text: str) -> Value:
        if not 0 < len(text) <= limits.SETTING_CHARS_MAX or not text.isprintable():
            raise ValueError(f"{text[:80]!r} is not 1 to {limits.SETTING_CHARS_MAX:,} printable characters")
        return text

    def of_toml(self, value: object, folder: Path) -> Value:
        """`folder` is where the file is."""
        del folder
        if not isinstance(value, str):
            raise ValueError(f"{_shown_type(value)} where a text belongs")
        return self.of_text(value)

    def toml(self, value: Value) -> str:
        return json.dumps(value, ensure_ascii=False)


class Choice(Kind):
    def __init__(self, *choices: str) -> None:
        self._choices = choices
        self.metavar = "|".join(choices)

    def of_text(self, text: str) -> Value:
        if text not in self._choices:
            raise ValueError(f"{text[:80]!r} is none of {', '.join(self._choices)}")
        return text


class Flag(Kind):
    flag = True

    def of_text(self, text: str) -> Value:
        if text.lower() not in _ON | _OFF:
            raise ValueError(f"{text[:80]!r} is neither true nor false")
        return text.lower() in _ON

    def of_toml(self, value: object, folder: Path) -> Value:
        del folder
        if not isinstance(value, bool):
            raise ValueError(f"{_shown_type(value)} where true or false belongs")
        return value


class Seconds(Kind):
    metavar = "SECONDS"

    def __init__(self, least: float, most: float) -> None:
        self._least = least
        self._most = most

    def of_text(self, text: str) -> Value:
        try:
            number = float(text)
        except ValueError:
            raise ValueError(f"{text[:80]!r} is not a number of seconds") from None
        return self._checked(number)

    def of_toml(self, value: object, folder: Path) -> Value:
        del folder
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{_shown_type(value)} where a number of seconds belongs")
        return self._checked(float(value))

    def _checked(self, number: float) -> float:
        if math.isnan(number) or not self._least <= number <= self._most:
            raise ValueError(f"{number:g} is not between {self._least:g} and {self._most:g} seconds")
        return number


class Place(Kind):
    """A path, or a URL. In a file, a relative path begins where the file is."""

    metavar = "DIR"

    def of_toml(self, value: object, folder: Path) -> Value:
        text = super().of_toml(value, folder)
        assert isinstance(text, str)
        return text if "://" in text or text.startswith("~") else str(folder / text)


class ObjectPlace(Kind):
    """The URL of an object store."""

    metavar = "URL"

    def of_text(self, text: str) -> Value:
        if "://" not in text:
            raise ValueError("it is not a URL: write s3://BUCKET/PREFIX, gs://... or az://...")
        return text


class File(Place):
    metavar = "FILE"


class OneAddress(Kind):
    metavar = "HOST:PORT"

    def __init__(self, port_min: int = 0) -> None:
        self._port_min = port_min

    def of_text(self, text: str) -> Value:
        return Address.parse(text, self._port_min)

    def toml(self, value: Value) -> str:
        return json.dumps(str(value))


class Addresses(Kind):
    """One or more: commas between them in a text, a list in TOML."""

    many = True
    metavar = "HOST:PORT"

    def __init__(self, port_min: int = 0) -> None:
        self._port_min = port_min

    def of_text(self, text: str) -> Value:
        return tuple(Address.parse(part.strip(), self._port_min) for part in text.split(","))

    def of_toml(self, value: object, folder: Path) -> Value:
        del folder
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{_shown_type(value)} where a list of HOST:PORT belongs")
        return tuple(Address.parse(str(text), self._port_min) for text in texts)

    def toml(self, value: Value) -> str:
        assert isinstance(value, tuple)
        return json.dumps([str(address) for address in value])


def _shown_type(value: object) -> str:
    names = {str: "a text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a table"}
    return names.get(type(value), f"a {type(value).__name__}")


# --- what there is to set --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    name: str
    help: str
    kind: Kind = field(default_factory=Kind)
    default: Value = None
    required: bool = False
    secret: bool = False
    variable: str = ""

    @property
    def environment(self) -> str:
        """The variable that sets it."""
        return self.variable or PREFIX + self.name.upper()

    @property
    def option(self) -> str | None:
        """The option that sets it; a secret has none."""
        return None if self.secret else "--" + self.name.replace("_", "-")

    def ways(self, role: str) -> str:
        """How to give it, in words."""
        option = f"give {self.option}, " if self.option else ""
        return f"{option}set {self.environment}, or write {self.name} into [{role}] of the file of settings"


def _of_every_role(port: int) -> tuple[Setting, ...]:
    return (
        Setting(
            "listen",
            "Where to listen; port 0 takes a free one. May be repeated.",
            Addresses(),
            (Address("127.0.0.1", port),),
        ),
        Setting("http", "Where to answer /health and /metrics over HTTP.", OneAddress()),
        Setting(
            "insecure",
            "Listen also where other machines can connect, without TLS and without asking who they are: whoever "
            "reaches the port may read, write and drop every log.",
            Flag(),
            False,
        ),
        Setting("tls_cert", "The certificate of this process, as PEM: it speaks TLS.", File()),
        Setting("tls_key", "The key that belongs to it, as PEM.", File()),
        Setting(
            "tls_ca",
            "Who signs the certificates of those who connect: nobody gets in without one.",
            File(),
            variable=PREFIX + "TLS_CLIENT_CA",
        ),
        Setting(
            "require_token",
            "Ask everybody who connects over TCP for a token, even if there is none yet.",
            Flag(),
            False,
        ),
        Setting("audit_file", "Append a line of JSON for every decision and change of tokens, allowed or not.", File()),
        Setting("name", "What this process calls itself. [default: its role and process id]"),
        Setting(
            "shutdown_grace_s",
            "How long it may take to answer what was asked before it ends.",
            Seconds(0, limits.SHUTDOWN_GRACE_MAX_S),
            limits.SHUTDOWN_GRACE_S,
        ),
        Setting("log_format", "How to tell it.", Choice("text", "json"), "text"),
        Setting("log_level", "What to tell on stderr.", Choice("debug", "info", "warning", "error"), "info"),
    )


_SHOWN: Final = (
    Setting("token", "The token that says who this process is.", secret=True),
    Setting("token_file", "A file with that token in it.", File()),
)
_AT: Final = Setting("at", "The directory to serve, or memory://.", Place(), required=True, variable=URL_VARIABLE)

_OBJECTS: Final = Setting(
    "objects",
    "The object store that a new directory keeps its objects in, as s3://BUCKET/PREFIX, gs:// or az://. "
    "[default: the directory itself, or the store that it remembers]",
    ObjectPlace(),
)

ROLES: Final[Mapping[str, tuple[Setting, ...]]] = {
    "serve": (_AT, *_of_every_role(PORT), _OBJECTS),
    "metadata": (
        Setting("at", "The directory to keep it in, or memory://; without etcd.", Place(), variable=URL_VARIABLE),
        Setting(
            "etcd",
            "The members of etcd, commas between them. Several metadata processes keep it there together: one leads.",
        ),
        _OBJECTS,
        Setting("etcd_prefix", "What its keys in etcd begin with.", default="/braidlog"),
        Setting("etcd_ca", "A file of the authorities that vouch for etcd.", File()),
        Setting("etcd_cert", "A file of this process's certificate for etcd.", File()),
        Setting("etcd_key", "A file of the key that belongs to it.", File()),
        Setting("etcd_user", "Who this process is to etcd.", secret=True),
        Setting("etcd_password", "Its password.", secret=True),
        Setting("etcd_lease_s", "How long a leader may be silent.", Seconds(1, 60), limits.ETCD_LEASE_S),
        Setting("advertise", "Where brokers find this process, if not where it listens.", OneAddress(port_min=1)),
        *_of_every_role(METADATA_PORT),
    ),
    "broker": (
        Setting(
            "metadata", "The metadata process to ask; several, if there are any.", Addresses(port_min=1), required=True
        ),
        Setting(
            "objects",
            "The directory or store of the objects. [default: the one that the metadata process names]",
            Place(),
        ),
        *_SHOWN,
        Setting("metadata_tls_ca", "Speak TLS with the metadata process; this signs its certificate.", File()),
        Setting("advertise", "Where clients find this broker, if not where it listens.", OneAddress(port_min=1)),
        *_of_every_role(PORT),
    ),
    "client": (
        *_SHOWN,
        Setting("tls_ca", "Who signs the certificates of the services that are trusted.", File()),
        Setting("tls_cert", "The certificate of this client, for services that ask for one.", File()),
        Setting("tls_key", "The key that belongs to it.", File()),
    ),
}


def token_of(settings: Settings) -> str:
    """The token that is set, or stands in the file that is; empty if there is none."""
    if settings.text("token"):
        return checked_token(settings.text("token"), settings.source("token"))
    file = settings.text("token_file")
    if not file:
        return ""
    try:
        with Path(file).expanduser().open(encoding="utf-8") as opened:
            return checked_token(opened.read(limits.SETTING_CHARS_MAX).strip(), file)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"token_file cannot be read: {error}") from None


def checked_token(token: str, where: str) -> str:
    """InvalidArgument for what cannot be one, without telling it."""
    if not 0 < len(token) <= limits.TOKEN_CHARS_MAX or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidArgument(f"{where}: what stands there is no token: those that `braid token create` prints are")
    return token


# --- what is set -----------------------------------------------------------------------------------------------------


class Chosen(NamedTuple):
    value: Value
    source: str


class Settings:
    """The settings of a role, each with its source."""

    def __init__(self, role: str, settings: Sequence[Setting], chosen: Mapping[str, Chosen]) -> None:
        self.role = role
        self._settings = settings
        self._chosen = chosen

    def text(self, name: str) -> str:
        """A text; empty if it is not set."""
        value = self._chosen[name].value
        assert value is None or isinstance(value, str)
        return value or ""

    def flag(self, name: str) -> bool:
        return bool(self._chosen[name].value)

    def seconds(self, name: str) -> float:
        value = self._chosen[name].value
        assert isinstance(value, int | float)
        return float(value)

    def address(self, name: str) -> Address | None:
        value = self._chosen[name].value
        assert value is None or isinstance(value, Address)
        return value

    def addresses(self, name: str) -> tuple[Address, ...]:
        value = self._chosen[name].value
        assert isinstance(value, tuple)
        return tuple(address for address in value if isinstance(address, Address))

    def source(self, name: str) -> str:
        return self._chosen[name].source

    def lines(self) -> Iterator[str]:
        """All of them as TOML, with their sources as comments. What is secret is not told."""
        yield f"[{self.role}]"
        for setting in self._settings:
            value, source = self._chosen[setting.name]
            if value is None:
                yield f"# {setting.name} is not set"
            elif setting.secret:
                yield f"# {setting.name} is a secret  # {source}"
            else:
                yield f"{setting.name} = {setting.kind.toml(value)}  # {source}"

    def document(self) -> dict[str, dict[str, str | float | bool | list[str] | None]]:
        """The same for programs."""
        found: dict[str, dict[str, str | float | bool | list[str] | None]] = {}
        for setting in self._settings:
            value, source = self._chosen[setting.name]
            plain: str | float | bool | list[str] | None
            if isinstance(value, Address):
                plain = str(value)
            elif isinstance(value, tuple):
                plain = [str(address) for address in value]
            else:
                plain = value
            found[setting.name] = {
                "value": "secret" if setting.secret and value is not None else plain,
                "source": source,
            }
        return found


def refuse_password(url: str) -> None:
    """InvalidArgument for a URL that says who asks, without telling it."""
    scheme, _, rest = url.partition("://")
    if "@" in (rest.partition("/")[0] if scheme == "file" else rest):  # a path may have one, and a password a slash
        raise InvalidArgument(f"{scheme}://: a URL takes no user or password: give a token (BRAIDLOG_TOKEN_FILE)")


Given = Mapping[str, str | Sequence[str] | bool | None]


def resolve(
    role: str,
    given: Given,
    environment: Mapping[str, str],
    file: str | None = None,
    *,
    settings: Sequence[Setting] | None = None,
) -> Settings:
    """What is set for a role. `given` is the command line: texts by the settings' names; None is not given."""
    known = ROLES[role] if settings is None else settings
    tables = _read(file, {**ROLES, role: known}) if file is not None else {}
    chosen: dict[str, Chosen] = {}
    for setting in known:
        argument = given.get(setting.name)
        if setting.secret and argument is not None:
            raise InvalidArgument(f"{setting.name} is secret and never stands on a command line: {setting.ways(role)}")
        variable = environment.get(setting.environment)
        if argument is not None and argument != ():
            chosen[setting.name] = Chosen(_of_argument(setting, argument), str(setting.option))
        elif variable:
            chosen[setting.name] = Chosen(_of_text(setting, variable, setting.environment), setting.environment)
        elif setting.name in tables.get(role, {}):
            chosen[setting.name] = Chosen(tables[role][setting.name], f"{file} [{role}]")
        elif setting.required:
            raise InvalidArgument(f"braid {role} needs {setting.name}: {setting.ways(role)}")
        else:
            chosen[setting.name] = Chosen(setting.default, _DEFAULT)
    return Settings(role, known, chosen)


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables that look like settings and are none. No error: whatever runs processes may set some for itself."""
    known = {setting.environment for settings in ROLES.values() for setting in settings}
    known |= {FILE_VARIABLE, URL_VARIABLE, *(PREFIX + name for name in _ELSEWHERE)}
    return sorted(name for name in environment if name.startswith(PREFIX) and name not in known)


def _of_argument(setting: Setting, argument: str | Sequence[str] | bool) -> Value:
    if isinstance(argument, bool):
        return argument
    text = argument if isinstance(argument, str) else ",".join(argument)
    return _of_text(setting, text, str(setting.option))


def _of_text(setting: Setting, text: str, where: str) -> Value:
    try:
        return setting.kind.of_text(text)
    except ValueError as error:
        raise InvalidArgument(f"{where}: {_told(setting, error)}") from None


def _told(setting: Setting, error: ValueError) -> str:
    """What is wrong, without what is secret."""
    return "not a value that this secret can have" if setting.secret else str(error)


def _read(file: str, roles: Mapping[str, Iterable[Setting]]) -> dict[str, dict[str, Value]]:
    """Every table of the file, all of it checked, whichever role is asked for."""
    path = Path(file)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidArgument(f"the file of settings cannot be read: {error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{file} is not TOML: {error}") from None
    tables: dict[str, dict[str, Value]] = {}
    for role, table in document.items():
        if role not in roles or not isinstance(table, dict):
            raise InvalidArgument(f"{file}: {role} is not known: there is one table for each of {', '.join(roles)}")
        known = {setting.name: setting for setting in roles[role]}
        values = tables[role] = {}
        for key, value in table.items():
            if key not in known:
                raise InvalidArgument(f"{file}: {key} is no setting of [{role}]: {instead(key, known)}")
            try:
                values[key] = known[key].kind.of_toml(value, path.absolute().parent)
            except ValueError as error:
                raise InvalidArgument(f"{file}: {key} in [{role}]: {_told(known[key], error)}") from None
    return tables

"""What agents may do, and who decides about it: a TOML file that an operator writes.

    [default]                       # what holds where nothing else is said
    promotion = "review"            # "auto": the validators decide; "review": a person does; "never"

    [[log]]                         # the first whose pattern matches the parent's name holds
    pattern = "orders*"
    promotion = "auto"
    validators = ["restock"]

A name that is not known is an error at the start, not a rule that never holds. Without a file everything waits for a
person. Nothing is ever promoted into a system log, whatever the file says.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal, get_args

from msgspec import Struct, structs

from braidlog import limits
from braidlog.agents.names import is_system
from braidlog.errors import InvalidArgument
from braidlog.wording import byte_count, instead

Promotion = Literal["auto", "review", "never"]
OnFailure = Literal["keep", "squash"]

_DURATION: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?(ms|s|m|h|d|)")
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class Rule(Struct, frozen=True, kw_only=True):
    """What holds for agents that work on forks of a log, and for what is to be promoted into it."""

    pattern: str = "*"
    promotion: Promotion = "review"
    validators: tuple[str, ...] = ()  # names that have to pass, besides those that the registry puts before the log
    reviewers: tuple[str, ...] = ("*",)  # patterns over names; whoever proposed it is never among them
    on_failure: OnFailure = "keep"  # what becomes of a fork that did not pass: left for correction, or squashed
    hold: float = limits.HOLD_POLICY_S  # seconds that a promotable fork may hold its parent, at most
    review: float = limits.REVIEW_POLICY_S  # seconds that a proposal waits for a person before it expires
    proposals: int = limits.AGENT_PROPOSALS_MAX  # for this log that one agent may have open at a time; 0 is none
    fork_ttl: float = limits.FORK_TTL_POLICY_S  # seconds that a fork of an agent lives
    fork_idle: float | None = None  # seconds after which one that nobody uses is squashed; None is never
    fork_bytes: int = limits.FORK_POLICY_BYTES  # that an agent may write on one fork
    fork_bytes_per_s: int = limits.FORK_POLICY_BYTES_PER_S
    forks: int = limits.AGENT_FORKS_MAX  # that one agent may have of this log at a time; 0 is none
    fork_names: str = "{log}.{agent}."  # what the names of its forks begin with

    @property
    def promotable(self) -> bool:
        """Whether an agent's fork may hold its parent: not if a person is waited for."""
        return self.promotion == "auto"

    def fork_prefix(self, log: str, agent: str) -> str:
        """What the names of an agent's forks of a log begin with. An agent's name may have any character in it."""
        return self.fork_names.format(log=log, agent=re.sub(r"[^A-Za-z0-9_-]", "-", agent))

    def may_review(self, reviewer: str) -> bool:
        """Whether somebody of that name may decide."""
        return any(fnmatchcase(reviewer, pattern) for pattern in self.reviewers)


class Policy(Struct, frozen=True, kw_only=True):
    """All rules, the more particular first."""

    rules: tuple[Rule, ...] = ()
    otherwise: Rule = Rule()

    @classmethod
    def default(cls) -> Policy:
        """Without a file: a person decides about everything, and forks are small and short-lived."""
        return cls()

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Policy:
        """The policy in a file; InvalidArgument says what is wrong with it and where."""
        try:
            with open(path, "rb") as file:
                data = file.read(limits.POLICY_BYTES_MAX + 1)
        except OSError as error:
            raise InvalidArgument(f"the policy {path} cannot be read: {error}") from error
        if len(data) > limits.POLICY_BYTES_MAX:
            raise InvalidArgument(f"the policy {path} has more than {limits.POLICY_BYTES_MAX:,} bytes")
        try:
            return cls.parse(data.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InvalidArgument(f"the policy {Path(path)} is no TOML: {error}") from error
        except InvalidArgument as error:
            raise InvalidArgument(f"the policy {Path(path)}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> Policy:
        """The same from a text."""
        document = tomllib.loads(text)
        _known("", document, ("default", "log"))
        otherwise = _rule("[default]", document.get("default", {}), Rule(), pattern=False)
        tables = document.get("log", [])
        if not isinstance(tables, list):
            raise InvalidArgument("rules for logs are written [[log]], with two brackets")
        rules = [_rule(f"[[log]] number {n}", table, otherwise, pattern=True) for n, table in enumerate(tables, 1)]
        return cls(rules=tuple(rules), otherwise=otherwise)

    def rule(self, log: str) -> Rule:
        """What holds for a log, and for forks of it."""
        if is_system(log):
            return Rule(pattern=log, promotion="never", reviewers=(), forks=0)
        return next((rule for rule in self.rules if fnmatchcase(log, rule.pattern)), self.otherwise)

    @property
    def validators(self) -> list[str]:
        """Every validator that some rule names."""
        return sorted({name for rule in (*self.rules, self.otherwise) for name in rule.validators})


def _known(where: str, table: Any, names: Iterable[str]) -> None:
    if not isinstance(table, dict):
        raise InvalidArgument(f"{where} has to be a table")
    allowed = list(names)
    for name in table:
        if name not in allowed:
            raise InvalidArgument(f"{where}{': ' if where else ''}{name!r} is not known: {instead(name, allowed)}")


def _rule(where: str, table: Any, base: Rule, *, pattern: bool) -> Rule:
    names = [name for name in Rule.__struct_fields__ if pattern or name != "pattern"]
    _known(where, table, names)
    if pattern and "pattern" not in table:
        raise InvalidArgument(f"{where} has no pattern: say which logs it is for")
    values: dict[str, Any] = {}
    for name, value in table.items():
        try:
            values[name] = _READ[name](value)
        except (TypeError, ValueError) as error:
            raise InvalidArgument(f"{where}: {name} = {value!r} is not right: {error}") from None
    return structs.replace(base, **values)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("it has to be a text")
    return value


def _names(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise ValueError("it has to be a list of texts")
    return tuple(value)


def _seconds(value: object) -> float:
    match = _DURATION.fullmatch(str(value)) if isinstance(value, str | int | float) else None
    if match is None or isinstance(value, bool):
        raise ValueError("write 90, '90s', '500ms', '5m', '2h' or '1d'")
    found = float(match[1]) * _SECONDS[match[2]]
    if found <= 0:
        raise ValueError("it has to be more than nothing")
    return found


def _size(value: object) -> int:
    return byte_count(str(value) if isinstance(value, str | int) else "")


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("it has to be a number from 0 up")
    return value


def _template(value: object) -> str:
    text = _text(value)
    try:
        made = text.format(log="log", agent="agent")
    except (KeyError, IndexError, ValueError):
        raise ValueError("{log} and {agent} can stand in it") from None
    if not re.fullmatch(r"[A-Za-z0-9._-]+", made) or is_system(made):
        raise ValueError("names of logs have A-Z a-z 0-9 . _ - in them, and do not begin with braidlog.")
    return text


def _one_of(kind: Any) -> Any:
    choices: tuple[str, ...] = get_args(kind)

    def read(value: object) -> str:
        if value not in choices:
            raise ValueError(f"it is one of {', '.join(choices)}")
        return str(value)

    return read


_READ: Final[dict[str, Any]] = {
    "pattern": _text,
    "promotion": _one_of(Promotion),
    "validators": _names,
    "reviewers": _names,
    "on_failure": _one_of(OnFailure),
    "hold": _seconds,
    "review": _seconds,
    "proposals": _count,
    "fork_ttl": _seconds,
    "fork_idle": _seconds,
    "fork_bytes": _size,
    "fork_bytes_per_s": _size,
    "forks": _count,
    "fork_names": _template,
}

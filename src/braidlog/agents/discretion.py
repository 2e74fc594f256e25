"""What is written down of what somebody said: cut, and without what looks like a secret. PURE.

A value is hidden for its name (`token`, `password`, `api_key` ...) or for its form, wherever in a text it stands. What
has neither the name nor the form of a secret cannot be told from anything else, and stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from braidlog import limits

HIDDEN: Final = "(hidden)"
_NAMES: Final = r"token|secret|passw|authori[sz]ation|credential|api[_-]?key|access[_-]?key|private[_-]?key"
_SECRET_NAME: Final = re.compile(_NAMES, re.IGNORECASE)
_VALUE: Final = r"""\\?"[^"\\]*\\?"|\\?'[^'\\]*\\?'|[^\s"'&,;)}\]]+"""
_FORMS: Final = re.compile(
    r"braid_[A-Za-z0-9_-]{8,}"
    r"|-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY[A-Z ]{0,10}-----[\s\S]*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)"
    r"|(?i:\bbearer)\s+[A-Za-z0-9._~+/=-]{8,}"
    r"|(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"  # a JSON web token
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[opsur]_[A-Za-z0-9]{20,}|\bsk-[A-Za-z0-9_-]{16,}"
)
_HEADER: Final = re.compile(r"""(authorization\\?["']?\s{0,9}[:=]\s{0,9}\\?["']?)[^\r\n"'\\]+""", re.IGNORECASE)
_NAMED: Final = re.compile(rf"""((?:{_NAMES})[\w-]{{0,40}}\\?["']?\s{{0,9}}[:=]\s{{0,9}})(?:{_VALUE})""", re.IGNORECASE)
_IN_URL: Final = re.compile(r"(://[^/\s:@]{0,100}:)[^/\s@]{1,200}@")


def without_secrets(text: str) -> str:
    """The text, with what looks like a secret hidden."""
    text = _FORMS.sub(HIDDEN, text)
    text = _HEADER.sub(rf"\1{HIDDEN}", text)
    text = _NAMED.sub(rf"\1{HIDDEN}", text)
    return _IN_URL.sub(rf"\1{HIDDEN}@", text)


def told(text: str) -> str:
    """As much of a text as is written down."""
    most = limits.AUDIT_TEXT_CHARS_MAX
    shown = without_secrets(text[: most + limits.AUDIT_SECRET_CHARS_MAX]).encode("utf-8", "replace").decode()
    if len(shown) <= most and len(text) <= most + limits.AUDIT_SECRET_CHARS_MAX:
        return shown
    return f"{shown[:most]}... ({len(text):,} characters)"


def told_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a call was given, as JSON can have it, and not too much of it in all."""
    found = _Teller().told(arguments, 0)
    assert isinstance(found, dict)
    return found


class _Teller:
    """Tells until it has told enough."""

    def __init__(self) -> None:
        self._left = limits.AUDIT_ARGUMENTS_CHARS_MAX

    def told(self, value: Any, depth: int) -> Any:
        if isinstance(value, Mapping) and depth < limits.AUDIT_DEPTH_MAX:
            return self._mapping(value, depth)
        if isinstance(value, list | tuple | set | frozenset) and depth < limits.AUDIT_DEPTH_MAX:
            return self._rows(value, depth)
        shown = _single(value)
        self._left -= len(str(shown))
        return shown

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for number, (name, one) in enumerate(value.items()):
            if number == limits.AUDIT_ARGUMENTS_ROWS_MAX or self._left <= 0:
                shown["..."] = f"and {len(value) - number:,} more"
                break
            self._left -= len(key := told(str(name)))
            shown[key] = HIDDEN if _SECRET_NAME.search(str(name)) else self.told(one, depth + 1)
        return shown

    def _rows(self, value: Any, depth: int) -> list[Any]:
        shown: list[Any] = []
        for number, one in enumerate(value):
            if number == limits.AUDIT_ARGUMENTS_ROWS_MAX or self._left <= 0:
                shown.append(f"and {len(value) - number:,} more")
                break
            shown.append(self.told(one, depth + 1))
        return shown


def _single(value: Any) -> Any:
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int):
        return value if abs(value) < 2**63 else f"(a number of {value.bit_length():,} bits)"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"({len(value):,} bytes)"
    if isinstance(value, Mapping | list | tuple | set | frozenset):
        return type(value).__name__
    return told(str(value))

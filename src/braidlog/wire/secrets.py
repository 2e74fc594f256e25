"""Tokens as they are shown: how one is made, and the digest that is kept of it in its place."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

from braidlog import limits

PREFIX: Final = "braid_"  # so that people, and tools that look for leaked secrets, know one when they see it


def new_token() -> str:
    return PREFIX + secrets.token_urlsafe(limits.TOKEN_BYTES)


def digest_of(token: str) -> bytes:
    """A token is 256 bits of chance, so that a plain hash of it can be kept: there is no list of likely ones to try."""
    return hashlib.sha256(token[: limits.TOKEN_CHARS_MAX].encode("utf-8", "surrogatepass")).digest()

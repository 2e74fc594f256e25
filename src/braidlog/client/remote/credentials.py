"""What a client shows, and whom it trusts: its token, and TLS.

What is not given comes from the environment (`BRAIDLOG_TOKEN`, `BRAIDLOG_TOKEN_FILE`, `BRAIDLOG_TLS_CA`,
`BRAIDLOG_TLS_CERT`, `BRAIDLOG_TLS_KEY`), else from the table `[client]` of the file that `BRAIDLOG_CONFIG` names.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

from braidlog import config
from braidlog.wire import tls


@dataclass(frozen=True)
class Credentials:
    """`context` is None for a connection without TLS."""

    token: str = field(default="", repr=False)
    context: ssl.SSLContext | None = None


def credentials(
    *,
    secure: bool,
    token: str | None = None,
    token_file: str | os.PathLike[str] | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Credentials:
    """Of a client; `secure` if it speaks TLS. InvalidArgument for files that cannot be read."""
    given = {"token_file": _text(token_file), "tls_ca": _text(tls_ca)}
    settings = config.resolve("client", given, environment, environment.get(config.FILE_VARIABLE) or None)
    shown = config.checked_token(token, "token=") if token is not None else config.token_of(settings)
    if not secure:
        return Credentials(shown)
    context = tls.client_context(settings.text("tls_ca"), settings.text("tls_cert"), settings.text("tls_key"))
    return Credentials(shown, context)


def _text(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)

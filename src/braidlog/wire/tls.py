"""TLS for both ends of the wire: who is trusted, and what is said when that goes wrong.

TLS 1.2 and later. A client checks the server's certificate and that it is the host's that was asked for; a server
checks its clients' certificates if it was given the authority that signed them (mutual TLS).
"""

from __future__ import annotations

import ssl
from pathlib import Path

from braidlog.errors import InvalidArgument, NotPermitted, Unavailable


def server_context(certificate: str, key: str, client_ca: str = "") -> ssl.SSLContext:
    """For a server; with `client_ca` nobody gets in without a certificate that it signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _harden(context)
    _load_own(context, certificate, key)
    if client_ca:
        _load_ca(context, client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(ca: str = "", certificate: str = "", key: str = "") -> ssl.SSLContext:
    """For a client: `ca` signs the servers it trusts; without one, the authorities that this machine trusts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # checks certificate and host
    _harden(context)
    if ca:
        _load_ca(context, ca)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if certificate or key:
        _load_own(context, certificate, key)
    return context


def _harden(context: ssl.SSLContext) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION


def _load_own(context: ssl.SSLContext, certificate: str, key: str) -> None:
    if not certificate or not key:
        raise InvalidArgument("tls_cert and tls_key belong together: give both, or neither")
    for name, path in (("tls_cert", certificate), ("tls_key", key)):
        _check_readable(name, path)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (OSError, ValueError) as error:
        raise InvalidArgument(
            f"tls_cert {certificate} and tls_key {key} are not a certificate and its key, as PEM and without a "
            f"password: {_reason(error)}"
        ) from None


def _load_ca(context: ssl.SSLContext, ca: str) -> None:
    _check_readable("tls_ca", ca)
    try:
        context.load_verify_locations(ca)
    except (OSError, ValueError) as error:
        raise InvalidArgument(f"tls_ca {ca} has no certificates of authorities as PEM: {_reason(error)}") from None


def _check_readable(name: str, path: str) -> None:
    try:
        with Path(path).open("rb"):
            pass
    except OSError as error:
        raise InvalidArgument(f"{name} cannot be read: {error}") from None


def _no_password() -> str:
    raise ValueError("the key is protected by a password")


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)


def explained(error: Exception, address: str) -> Exception:
    """What a failed handshake means, in words that say what to do. What may pass by itself stays what it was."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return Unavailable(
            f"the certificate of {address} is not to be trusted: {error.verify_message.rstrip('.')}; check the host "
            "that is asked for, the server's certificate, and tls_ca (BRAIDLOG_TLS_CA), the authority that signed it"
        )
    if not isinstance(error, ssl.SSLError):
        return error
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if "wrong version" in reason or "record layer" in reason or "unknown protocol" in reason:
        return Unavailable(f"{address} does not speak TLS: write braid:// for it, or have it serve with tls_cert")
    if "certificate required" in reason or "handshake failure" in reason:
        return NotPermitted(
            f"{address} wants a certificate of its clients: give tls_cert and tls_key (BRAIDLOG_TLS_CERT, "
            "BRAIDLOG_TLS_KEY)"
        )
    if "alert" in reason and ("unknown ca" in reason or "certificate" in reason):
        return NotPermitted(f"{address} does not trust this client's certificate (tls_cert): {reason}")
    return error

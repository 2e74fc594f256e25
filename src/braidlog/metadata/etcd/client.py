"""Asking etcd, over gRPC: several members, one of which is asked until it fails; a deadline for every request.

A request that fails says what is known of it, which is what everything above rests on:
    NotSent    it never left: certainly not done, another member may do it
    Refused    etcd said no: certainly not done
    NoRoom     etcd said that it is full, which it may say after it did it; but nothing more will come of it
    Ambiguous  no answer, or none that could be read: it may have been done, or may yet be
All but the last are Unavailable. `call` tries once; what may be done twice is asked with `ask`, again and again.

Safe to use from several threads.
"""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from braidlog import limits
from braidlog.errors import InvalidArgument, Unavailable
from braidlog.metadata.etcd import codec
from braidlog.metadata.etcd.codec import (
    Delete,
    Found,
    Get,
    KeyValue,
    Lease,
    Malformed,
    MemberStatus,
    Txn,
    TxnAnswer,
    WatchAnswer,
)

T = TypeVar("T")

RANGE: Final = "/etcdserverpb.KV/Range"
TXN: Final = "/etcdserverpb.KV/Txn"
DELETE_RANGE: Final = "/etcdserverpb.KV/DeleteRange"
COMPACT: Final = "/etcdserverpb.KV/Compact"
WATCH: Final = "/etcdserverpb.Watch/Watch"
LEASE_GRANT: Final = "/etcdserverpb.Lease/LeaseGrant"
LEASE_REVOKE: Final = "/etcdserverpb.Lease/LeaseRevoke"
LEASE_KEEP_ALIVE: Final = "/etcdserverpb.Lease/LeaseKeepAlive"
STATUS: Final = "/etcdserverpb.Maintenance/Status"
AUTHENTICATE: Final = "/etcdserverpb.Auth/Authenticate"

ENVIRONMENT: Final = {  # what connects a process to an etcd that asks who it is
    "ca": "BRAIDLOG_ETCD_CA",
    "certificate": "BRAIDLOG_ETCD_CERT",
    "key": "BRAIDLOG_ETCD_KEY",
    "user": "BRAIDLOG_ETCD_USER",
    "password": "BRAIDLOG_ETCD_PASSWORD",
}

_ENDPOINT: Final = re.compile(r"(?:(https?)://)?([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})/?")
_CONNECTING: Final = "failed to connect to all addresses"  # gRPC says so only of what it did not send
_NO_LEADER: Final = (
    ("hasleader", "true"),
)  # end a stream when its member has lost the others, instead of being silent
# Codes that etcd itself answers, before or instead of doing something.
_REFUSALS: Final = {
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "FAILED_PRECONDITION",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "RESOURCE_EXHAUSTED",
}


class NotSent(Unavailable):
    """The request never reached a member."""


class Refused(Unavailable):
    """etcd said no, and did nothing."""


class Compacted(Refused):
    """What was asked for is older than what etcd still has."""


class NoRoom(Unavailable):
    """etcd is full. It looks before it does something, and says no; and again when it does it, and then does it."""


class Ambiguous(Exception):
    """It may have been done, or may yet be."""


class Tls(NamedTuple):
    """Paths of PEM files. Without `ca` the system's authorities are trusted."""

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None


class Read(NamedTuple):
    """Keys, or None for those that are not there, and the revision at which this was so."""

    kvs: tuple[KeyValue | None, ...]
    revision: int


class EtcdClient:
    """Connections to the members of one etcd."""

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        tls: Tls | None = None,
        user: str = "",
        password: str = "",
        timeout_s: float = limits.ETCD_TIMEOUT_S,
    ) -> None:
        if not endpoints:
            raise InvalidArgument("an etcd without endpoints: name at least one HOST:PORT")
        self._grpc = _import_grpc()
        self._timeout_s = timeout_s
        self._user, self._password = user, password
        self._token = ""
        self._lock = threading.Lock()
        self._current = 0
        self._closed = False
        if tls is None and any(endpoint.startswith("https://") for endpoint in endpoints):
            tls = Tls()
        credentials = self._credentials(tls) if tls is not None else None
        self._members = [_Member(self._grpc, *_parsed(endpoint, tls), credentials) for endpoint in endpoints]

    @classmethod
    def from_environment(cls, endpoints: Sequence[str], environment: Mapping[str, str] | None = None) -> EtcdClient:
        """With the certificates and the password that variables name; with TLS if an endpoint says https."""
        found = os.environ if environment is None else environment
        ca, certificate, key, user, password = (found.get(name) or "" for name in ENVIRONMENT.values())
        secure = bool(ca or certificate) or any(endpoint.startswith("https://") for endpoint in endpoints)
        tls = Tls(ca or None, certificate or None, key or None) if secure else None
        return cls(endpoints, tls=tls, user=user, password=password)

    @property
    def endpoints(self) -> list[str]:
        return [member.target for member in self._members]

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Let go of the connections; what is under way fails. Safe to call again."""
        self._closed = True
        for member in self._members:
            member.channel.close()

    # --- requests ------------------------------------------------------------------------------------------------

    def txn(self, txn: Txn) -> TxnAnswer:
        """Try a transaction once."""
        timeout = self._timeout_s + txn.payload_bytes / limits.ETCD_BYTES_PER_S
        return _read(codec.decode_txn, self.call(TXN, codec.encode_txn(txn), timeout))

    def read(self, *keys: bytes, timeout_s: float = limits.ETCD_READ_TIMEOUT_S) -> Read:
        """Several keys at one moment, as new as anything acknowledged before.

        Not a transaction: one that only reads is refused, too, when etcd is full.
        """
        while True:
            first = self.range(Get(keys[0]), timeout_s)
            try:
                others = [self.range(Get(key, revision=first.revision), timeout_s) for key in keys[1:]]
            except Compacted:  # in between
                continue
            return Read(tuple(found.kvs[0] if found.kvs else None for found in (first, *others)), first.revision)

    def range(self, get: Get, timeout_s: float = limits.ETCD_READ_TIMEOUT_S, *, large: bool = False) -> Found:
        """One read. `large`: its answer is, and may take longer. Raises Compacted if the revision is gone."""
        patience = self._timeout_s + (limits.ETCD_READ_BYTES / limits.ETCD_BYTES_PER_S if large else 0)
        return self.ask(RANGE, codec.encode_get(get), codec.decode_found, timeout_s, patience)

    def delete(self, key: bytes, end: bytes) -> int:
        """Delete the keys from one up to another; answers the revision. Taken even by an etcd that is full."""
        return self.ask(DELETE_RANGE, codec.encode_delete(Delete(key, end)), codec.decode_revision)

    def compact(self, revision: int) -> None:
        """Let etcd forget what was before a revision. That it forgot it already is fine."""
        try:
            self.ask(COMPACT, codec.encode_compact(revision), codec.decode_revision)
        except Compacted:
            pass

    def grant(self, ttl_s: int) -> Lease:
        """A lease; etcd may make it longer than asked. One whose answer was lost ends by itself."""
        lease = self.ask(LEASE_GRANT, codec.encode_grant(ttl_s), codec.decode_lease)
        if lease.error or lease.id == 0:
            raise Refused(f"etcd grants no lease: {lease.error or 'its answer names none'}")
        return lease

    def keep_alive(self, lease: int) -> Lease:
        """Renew a lease, with one try; its `ttl_s` is not above 0 if it has ended."""
        member = self._member()
        try:
            stream = member.stream(LEASE_KEEP_ALIVE)(
                iter((codec.encode_lease(lease),)), timeout=self._timeout_s, metadata=self._metadata()
            )
            try:
                return _read(codec.decode_lease, next(stream))
            finally:
                stream.cancel()
        except StopIteration:
            self._leave(member)
            raise Ambiguous(f"{member.target} ended the renewal of a lease without an answer") from None
        except (self._grpc.RpcError, ValueError) as error:
            raise self._failure(member, error) from error

    def revoke(self, lease: int, timeout_s: float = limits.ETCD_READ_TIMEOUT_S) -> None:
        """End a lease, and with it the keys that are bound to it. One that has ended is fine."""
        try:
            self.ask(LEASE_REVOKE, codec.encode_lease(lease), codec.decode_revision, timeout_s)
        except Refused as refusal:
            if "lease not found" not in str(refusal):
                raise

    def status(self, endpoint: str) -> MemberStatus:
        """What one member says of itself and its leader."""
        [member] = [member for member in self._members if member.target == _parsed(endpoint, None)[0]]
        try:
            answer = member.unary(STATUS)(b"", timeout=self._timeout_s, metadata=self._metadata())
        except (self._grpc.RpcError, ValueError) as error:
            raise Unavailable(str(self._failure(member, error))) from error
        return _read(codec.decode_status, answer)

    def ask(
        self,
        method: str,
        body: bytes,
        decode: Callable[[bytes], T],
        timeout_s: float = limits.ETCD_READ_TIMEOUT_S,
        patience_s: float | None = None,
    ) -> T:
        """Ask one member after the other until one answers. Only for what may be done twice."""
        deadline = time.monotonic() + timeout_s
        tries = 0
        while True:
            try:
                return _read(decode, self.call(method, body, patience_s))
            except (Refused, NoRoom):
                raise
            except (NotSent, Ambiguous) as failure:
                tries += 1
                if self._closed or time.monotonic() >= deadline:
                    raise Unavailable(
                        f"etcd at {', '.join(self.endpoints)} did not answer within {timeout_s:g} s: {failure}"
                    ) from failure
                self.pace(tries)

    def call(self, method: str, body: bytes, patience_s: float | None = None) -> bytes:
        """Ask the present member, once."""
        member = self._member()
        for last in (False, True):
            try:
                answer: bytes = member.unary(method)(
                    body, timeout=patience_s or self._timeout_s, metadata=self._metadata()
                )
                return answer
            except (self._grpc.RpcError, ValueError) as error:
                failure = self._failure(member, error)
                if last or not self.forget_token(str(failure)):
                    raise failure from error
        raise AssertionError

    def pace(self, tries: int) -> None:
        """Wait a little after each round of all members, so that a dead etcd is not asked without end."""
        if tries % len(self._members) == 0:
            time.sleep(limits.ETCD_RETRY_S)

    def open_watch(self, which: int, request: bytes) -> WatchStream:
        """A watch at one of the members, by any number."""
        self._check_open()
        member = self._members[which % len(self._members)]
        return WatchStream(member.target, member.stream(WATCH), request, self._metadata() + _NO_LEADER, self._grpc)

    def any_member(self) -> int:
        """The number of the one that answers at present."""
        return self._current

    # --- members -------------------------------------------------------------------------------------------------

    def _member(self) -> _Member:
        self._check_open()
        return self._members[self._current]

    def _check_open(self) -> None:
        if self._closed:
            raise NotSent("the connection to etcd is closed")

    def _leave(self, member: _Member) -> None:
        """It failed: the next one is asked, unless somebody else found that out already."""
        with self._lock:
            if self._members[self._current] is member:
                self._current = (self._current + 1) % len(self._members)

    def _failure(self, member: _Member, error: Exception) -> Unavailable | Ambiguous:
        if isinstance(error, ValueError):  # gRPC's way to say that the channel was closed
            return NotSent(f"the connection to etcd is closed: {error}")
        known: Any = error
        failure = failure_of(member.target, known.code().name, known.details() or "")
        if not isinstance(failure, Refused | NoRoom):
            self._leave(member)
        return failure

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        if not self._user:
            return ()
        if not self._token:
            member = self._member()
            body = codec.encode_authenticate(self._user, self._password)
            try:
                answer = member.unary(AUTHENTICATE)(body, timeout=limits.ETCD_LOGIN_TIMEOUT_S)
            except (self._grpc.RpcError, ValueError) as error:
                failure = self._failure(member, error)
                if isinstance(failure, Refused):
                    raise Refused(f"etcd does not let user {self._user!r} in: {failure}") from error
                raise NotSent(f"cannot log in: {failure}") from error
            self._token = _read(codec.decode_token, answer)
        return (("token", self._token),)

    def forget_token(self, reason: str) -> bool:
        """Ask for a new token next time, if that is what is wrong; says whether it was."""
        if not self._token or "invalid auth token" not in reason:
            return False
        self._token = ""
        return True

    def _credentials(self, tls: Tls) -> Any:
        if bool(tls.certificate) != bool(tls.key):
            raise InvalidArgument("a client certificate for etcd needs its key, and a key its certificate: name both")
        try:
            ca, key, certificate = (
                Path(path).read_bytes() if path else None for path in (tls.ca, tls.key, tls.certificate)
            )
        except OSError as error:
            raise InvalidArgument(f"a certificate for etcd cannot be read: {error}") from None
        return self._grpc.ssl_channel_credentials(ca, key, certificate)


class WatchStream:
    """One watch at one member. Asks for a sign of life when it is silent, and ends when there is none."""

    def __init__(self, target: str, open_stream: Any, request: bytes, metadata: Any, grpc: Any) -> None:
        self._target = target
        self._grpc = grpc
        self._ended = False
        self._asks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._asks.put(request)
        self._heard_s = time.monotonic()
        self._call = open_stream(self._requests(), metadata=metadata)

    def __iter__(self) -> Iterator[WatchAnswer]:
        """Until it ends, which is an exception: Ambiguous, Unavailable, or Compacted."""
        try:
            for answer in self._call:
                self._heard_s = time.monotonic()
                yield _read(codec.decode_watch, answer)
        except self._grpc.RpcError as error:
            known: Any = error
            raise failure_of(self._target, known.code().name, known.details() or "") from error
        finally:
            self.cancel()
        raise Ambiguous(f"{self._target} ended a watch")

    def cancel(self) -> None:
        """End it, from any thread. Safe to call again."""
        self._ended = True
        self._call.cancel()

    def _requests(self) -> Iterator[bytes]:
        """For gRPC's own thread, which sends what comes from here."""
        while not self._ended:
            try:
                yield self._asks.get(timeout=limits.ETCD_WATCH_PING_S)
                continue
            except queue.Empty:
                silent = time.monotonic() - self._heard_s
            if silent > limits.ETCD_WATCH_SILENCE_S:
                self.cancel()
            elif silent >= limits.ETCD_WATCH_PING_S:
                yield codec.WATCH_PROGRESS


class _Member:
    def __init__(self, grpc: Any, target: str, secure: bool, credentials: Any) -> None:
        self.target = target
        options = [
            ("grpc.enable_retries", 0),  # what is sent again is decided here
            ("grpc.service_config_disable_resolution", 1),
            ("grpc.initial_reconnect_backoff_ms", int(limits.ETCD_RETRY_S * 1000)),
            ("grpc.min_reconnect_backoff_ms", int(limits.ETCD_RETRY_S * 1000)),
            ("grpc.max_reconnect_backoff_ms", int(limits.ETCD_BACKOFF_MAX_S * 1000)),
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.enable_http_proxy", 0),
            ("grpc.use_local_subchannel_pool", 1),  # so that closing one client leaves the others' connections alone
        ]
        if secure:
            self.channel = grpc.secure_channel(target, credentials, options)
        else:
            self.channel = grpc.insecure_channel(target, options)
        self._unaries: dict[str, Any] = {}

    def unary(self, method: str) -> Any:
        found = self._unaries.get(method)
        if found is None:
            found = self._unaries[method] = self.channel.unary_unary(method)
        return found

    def stream(self, method: str) -> Any:
        return self.channel.stream_stream(method)


def failure_of(target: str, code: str, details: str) -> Unavailable | Ambiguous:
    """What is known of a request that ended with a gRPC code."""
    told = f"{target}: {details or code}"
    if code == "UNAVAILABLE" and details.startswith(_CONNECTING):
        return NotSent(told)
    if code == "OUT_OF_RANGE" and "compacted" in details:
        return Compacted(told)
    if code == "RESOURCE_EXHAUSTED" and not details.startswith("etcdserver:"):
        return Ambiguous(told)  # gRPC's own, of an answer that was too large
    if "database space exceeded" in details:
        return NoRoom(f"{told}; etcd is full: compact and defragment it or raise its quota, then disarm its alarm")
    if code in _REFUSALS:
        return Refused(told)
    return Ambiguous(told)


def _read(decode: Callable[[bytes], T], answer: bytes) -> T:
    try:
        return decode(answer)
    except Malformed as error:
        raise Ambiguous(f"etcd's answer cannot be read: {error}") from error


def _parsed(endpoint: str, tls: Tls | None) -> tuple[str, bool]:
    """(HOST:PORT, whether the connection is to be secure)."""
    match = _ENDPOINT.fullmatch(endpoint)
    if match is None or not 0 < int(match[3]) <= 65535:
        raise InvalidArgument(f"etcd endpoint {endpoint!r}: only [http://|https://]HOST:PORT is allowed")
    scheme = match[1] or ("https" if tls is not None else "http")
    return f"{match[2]}:{match[3]}", scheme == "https" and tls is not None


def _import_grpc() -> Any:
    try:
        import grpc
    except ImportError:
        raise Unavailable("metadata on etcd needs grpcio: pip install 'braidlog[cluster]'") from None
    return grpc

"""What is known of a request that failed, and how an etcd is named."""

from __future__ import annotations

import contextlib
import socket
import sys
from pathlib import Path

import pytest

from braidlog.errors import InvalidArgument, Unavailable
from braidlog.metadata.etcd.client import Ambiguous, Compacted, EtcdClient, NoRoom, NotSent, Refused, Tls, failure_of
from braidlog.metadata.etcd.codec import Put, Txn


@pytest.mark.parametrize(
    ("code", "details", "kind"),
    [
        ("UNAVAILABLE", "failed to connect to all addresses; last error: refused", NotSent),
        ("UNAVAILABLE", "Socket closed", Ambiguous),
        ("UNAVAILABLE", "etcdserver: leader changed", Ambiguous),
        ("UNAVAILABLE", "etcdserver: request timed out", Ambiguous),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", Ambiguous),
        ("CANCELLED", "", Ambiguous),
        ("UNKNOWN", "", Ambiguous),
        ("INTERNAL", "Received RST_STREAM", Ambiguous),
        ("RESOURCE_EXHAUSTED", "CLIENT: Received message larger than max", Ambiguous),
        ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded", NoRoom),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", Refused),
        ("INVALID_ARGUMENT", "etcdserver: request is too large", Refused),
        ("NOT_FOUND", "etcdserver: requested lease not found", Refused),
        ("PERMISSION_DENIED", "etcdserver: permission denied", Refused),
        ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted", Compacted),
    ],
)
def test_what_is_known_of_a_failure(code: str, details: str, kind: type[Exception]) -> None:
    failure = failure_of("host:1", code, details)
    assert type(failure) is kind
    assert "host:1" in str(failure)


def test_a_full_etcd_says_what_to_do() -> None:
    assert "disarm" in str(failure_of("host:1", "RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded"))


@pytest.mark.parametrize("endpoint", ["", "host", "host:0", "host:70000", "ftp://host:1", "host:1/path", "http://:1"])
def test_what_is_no_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(InvalidArgument, match="endpoint"):
        EtcdClient([endpoint])


def test_an_etcd_without_endpoints_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least one"):
        EtcdClient([])


@pytest.mark.parametrize("endpoint", ["localhost:2379", "http://localhost:2379/", "https://localhost:2379"])
def test_endpoints_are_named_as_etcd_names_them(endpoint: str) -> None:
    with contextlib.closing(EtcdClient([endpoint])) as client:
        assert client.endpoints == ["localhost:2379"]


def test_certificates_come_from_the_environment_and_are_checked(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be read"):
        EtcdClient.from_environment(["h:1"], {"BRAIDLOG_ETCD_CA": str(tmp_path / "nowhere.pem")})
    with pytest.raises(InvalidArgument, match="needs its key"):
        EtcdClient(["h:1"], tls=Tls(certificate="cert.pem"))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(Unavailable, match=r"braidlog\[cluster\]"):
        EtcdClient(["h:1"])


def test_nobody_listens_and_so_nothing_was_sent() -> None:
    with contextlib.closing(EtcdClient([f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"])) as client:
        with pytest.raises(NotSent):
            client.txn(Txn((), (Put(b"a", b"b"),)))
        with pytest.raises(Unavailable, match="did not answer"):
            client.read(b"a", timeout_s=0.2)


def test_one_who_listens_and_says_nothing_leaves_it_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"127.0.0.1:{silent.getsockname()[1]}"
        with contextlib.closing(EtcdClient([endpoint], timeout_s=0.1)) as client, pytest.raises((Ambiguous, NotSent)):
            client.txn(Txn((), (Put(b"a", b"b"),)))


def test_a_closed_client_sends_nothing() -> None:
    client = EtcdClient(["127.0.0.1:1"])
    client.close()
    client.close()
    with pytest.raises(NotSent, match="closed"):
        client.txn(Txn((), (Put(b"a", b"b"),)))


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])

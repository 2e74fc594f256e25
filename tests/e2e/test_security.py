"""TLS, tokens and audit lines, with real processes: who gets in, what they may do there, and what is told of it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import ssl
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import braidlog
from braidlog import aio, config, limits
from braidlog.cli.brokering import make_broker
from braidlog.cli.main import cli
from braidlog.client.remote.backend import RemoteBackend
from braidlog.client.remote.credentials import Credentials
from braidlog.client.remote.link import TcpAddress
from braidlog.client.remote.opening import addresses_of, connect
from braidlog.client.tokens import create_token, list_tokens, revoke_token
from braidlog.config import Address
from braidlog.errors import (
    AlreadyExists,
    BraidError,
    Gone,
    InvalidArgument,
    NotFound,
    NotPermitted,
    NotPromotable,
    Unavailable,
)
from braidlog.forest import commands as c
from braidlog.wire import frames
from braidlog.wire import messages as m
from braidlog.wire.frames import PREFACE, Kind, Parser
from braidlog.wire.tls import client_context
from tests.e2e.secured import DEADLINE_S, Authority, Role, Site, apart, serve, tls_options

LEASE_S = 60


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ca")


@pytest.fixture(scope="module", params=[serve, apart], ids=["serve", "apart"])
def site(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, authority: Authority
) -> Iterator[Site]:
    made: Site = request.param(tmp_path_factory.mktemp("site"), authority)
    with made.open() as braid:
        orders = braid.create("orders")
        orders.append(b"first")
        braid.create("payroll").append(b"secret")
    yield made
    made.close()
    told = made.told()
    assert told
    assert [token for token in made.tokens if token in told] == []  # whatever was logged, no secret was


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Site]:
    made = serve(tmp_path_factory.mktemp("served"), authority)
    yield made
    made.close()


def asked(braid: braidlog.Braid, request: m.Request, kind: type[Any]) -> Any:
    backend = braid._session.backend
    assert isinstance(backend, RemoteBackend)
    return backend.ask(request, kind)


# --- TLS -------------------------------------------------------------------------------------------------------------


def test_everything_works_over_tls(site: Site) -> None:
    """Small and large, many at once and pushed, with senders and receivers on one connection."""
    with site.open() as braid:
        log = braid.create("busy")
        following = braid.log("busy").subscribe(0)
        large = [os.urandom(64 * 1024) for _ in range(96)]  # 6 MiB: several frames' worth of TLS records
        log.append_many(large)
        tickets = [log.submit(str(number).encode()) for number in range(500)]
        for ticket in tickets:
            ticket.durable(DEADLINE_S)
        threads = [threading.Thread(target=lambda: [log.append(b"x" * 3000) for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        got = [next(following).value for _ in range(96 + 500 + 80)]
        for thread in threads:
            thread.join()
        assert got[:96] == large
        assert got[96:596] == [str(number).encode() for number in range(500)]
        assert [record.value for record in log.read(0, 96)] == large
        assert log.tail() == 676
        assert log.append(b"y" * (4 * limits.MIB)) == 676
        assert len(log.read(676)[0].value) == 4 * limits.MIB
        following.close()


def test_and_awaited(served: Site) -> None:
    async def work() -> bytes:
        async with await aio.open(served.url, tls_ca=served.authority.file, token=served.admin) as braid:
            log = await braid.create("awaited")
            await log.append(b"hello")
            return (await log.read(0))[0].value

    assert asyncio.run(work()) == b"hello"


def test_a_certificate_of_an_unknown_authority_is_refused(served: Site, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"certificate of .* is not to be trusted.*tls_ca"):
        braidlog.open(served.url, tls_ca=Authority(tmp_path / "other").file, token=served.admin)
    with pytest.raises(Unavailable, match="not to be trusted"):
        braidlog.open(served.url, token=served.admin)  # those that the machine trusts do not sign for it


@pytest.mark.parametrize(
    ("hosts", "expired", "told"), [(("other.example",), False, "127.0.0.1"), (("127.0.0.1",), True, "expired")]
)
def test_a_certificate_of_another_host_or_time_is_refused(
    authority: Authority, tmp_path: Path, hosts: tuple[str, ...], expired: bool, told: str
) -> None:
    pair = authority.certificate(*hosts, expired=expired, name=f"bad-{told}")
    role = Role("serve", "--at", "memory://", *tls_options(pair), told=tmp_path / "log")
    try:
        with pytest.raises(Unavailable, match=f"^the certificate of .*{told}"):  # at once, and not after a time
            braidlog.open(role.url, tls_ca=authority.file)
    finally:
        role.end()


def test_a_client_without_tls_at_a_port_with_it_is_told(served: Site) -> None:
    plain = served.url.replace("braids://", "braid://")
    with pytest.raises(Unavailable, match="braids://"):
        connect(addresses_of(plain), plain, connect_timeout=1.0)


def test_a_client_with_tls_at_a_port_without_it_is_told(authority: Authority, tmp_path: Path) -> None:
    role = Role("serve", "--at", "memory://", told=tmp_path / "log")
    try:
        with pytest.raises(Unavailable, match="does not speak TLS"):
            braidlog.open(role.url.replace("braid://", "braids://"), tls_ca=authority.file)
    finally:
        role.end()
    assert "this is TLS" in (tmp_path / "log").read_text()


def test_who_says_nothing_or_nonsense_does_not_stay(served: Site) -> None:
    with socket.create_connection(("127.0.0.1", served.roles[0].port), DEADLINE_S) as silent:
        with socket.create_connection(("127.0.0.1", served.roles[0].port), DEADLINE_S) as noisy:
            noisy.sendall(b"\0" * 4096)
            assert _hung_up(noisy)
        with served.open() as braid:
            braid.create("beside")  # nobody waits for the others
        assert _hung_up(silent)  # the handshake took too long


def _hung_up(peer: socket.socket) -> bool:
    try:
        while peer.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_spoken(served: Site, version: ssl.TLSVersion) -> None:
    context = ssl.create_default_context(cafile=served.authority.file)
    context.minimum_version = context.maximum_version = version
    shown = Credentials(served.admin, context)
    with connect(addresses_of(served.url, context), served.url, shown=shown) as braid:
        assert braid.create(f"of-{version.name}").append(b"x") == 0


def test_older_versions_are_not(served: Site) -> None:
    context = ssl.create_default_context(cafile=served.authority.file)
    with warnings.catch_warnings(action="ignore"):
        context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    with (
        socket.create_connection(("127.0.0.1", served.roles[0].port), DEADLINE_S) as raw,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        context.wrap_socket(raw, server_hostname="127.0.0.1")


def test_mutual_tls_lets_in_whom_the_authority_signed_for(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = authority.certificate("127.0.0.1", name="mutual")
    ours = authority.certificate("client.example", name="ours")
    theirs = Authority(tmp_path / "other").certificate("client.example", name="theirs")
    role = Role("serve", "--at", "memory://", *tls_options(pair), "--tls-ca", authority.file, told=tmp_path / "log")
    try:
        context = client_context(authority.file)
        with pytest.raises(Unavailable, match="asks its clients for certificates"):
            connect(addresses_of(role.url, context), role.url, connect_timeout=0.5)
        context = client_context(authority.file, *theirs)
        with pytest.raises(Unavailable, match="asks its clients for certificates"):
            connect(addresses_of(role.url, context), role.url, connect_timeout=0.5)
        monkeypatch.setenv("BRAIDLOG_TLS_CERT", ours[0])
        monkeypatch.setenv("BRAIDLOG_TLS_KEY", ours[1])
        with braidlog.open(role.url, tls_ca=authority.file) as braid:
            assert braid.create("a").append(b"x") == 0
    finally:
        role.end()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--tls-cert", "none.pem"], "belong together"),
        (["--tls-cert", "none.pem", "--tls-key", "none.key"], "tls_cert cannot be read"),
        (["--tls-ca", "none.pem"], "needs TLS"),
        (["--audit-file", "no/such/folder"], "audit_file cannot be written"),
        (["--listen", "0.0.0.0:0"], "without TLS nobody can safely say"),
    ],
)
def test_what_is_set_wrong_is_told_before_anything_begins(
    options: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = braid("serve", "--at", "memory://", *options, code=2)
    assert told in done.stderr


# --- who gets in -----------------------------------------------------------------------------------------------------


def test_without_a_token_or_with_a_wrong_one_nobody_gets_in(site: Site) -> None:
    for token, told in ((None, "asks for a token"), ("braid_" + "x" * 43, "not valid"), ("garbage", "not valid")):
        with pytest.raises(NotPermitted, match=told):
            braidlog.open(site.url, tls_ca=site.authority.file, token=token)


def test_what_cannot_be_a_token_is_not_even_sent(site: Site) -> None:
    for token in ("", "a b", "x" * 1000, "\x07", "ü"):
        with pytest.raises(InvalidArgument, match="no token"):
            braidlog.open(site.url, tls_ca=site.authority.file, token=token)


def test_guessing_takes_longer_and_longer_and_others_do_not_wait(served: Site) -> None:
    began = time.monotonic()
    for number in range(5):
        with pytest.raises(NotPermitted):
            braidlog.open(served.url, tls_ca=served.authority.file, token=f"braid_{number}")
    took = time.monotonic() - began
    assert took > sum(limits.TOKEN_PAUSE_S * 2**number for number in range(5)) * 0.9
    served.open().close()


def test_nothing_is_answered_before_it_is_known_who_asks(served: Site) -> None:
    """Requests that come right behind the greeting wait for it, and go nowhere if it is refused."""
    context = ssl.create_default_context(cafile=served.authority.file)
    with (
        socket.create_connection(("127.0.0.1", served.roles[0].port), DEADLINE_S) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as peer,
    ):
        said = [PREFACE, *frames.encode(Kind.REQUEST, 0, 0, m.encode(m.Hello(b"8 bytes.", token="braid_guess")))]
        said += frames.encode(Kind.REQUEST, 1, 0, m.encode(m.ListLogs()))
        said += frames.encode(
            Kind.REQUEST, 2, 0, m.encode(m.Execute(c.Create("sly", 0, request=b"8 bytes." + b"n" * 8)))
        )
        peer.sendall(b"".join(said))
        heard = b""
        while data := peer.recv(65536):
            heard += data
    assert heard.startswith(PREFACE)
    [only] = list(Parser().feed(heard[len(PREFACE) :]))
    fault = m.decode_answer(only.head)
    assert (only.kind, only.number) == (Kind.ERROR, 0)
    assert isinstance(fault, m.Fault)
    assert fault.kind == "NotPermitted"
    with served.open() as braid:
        assert "sly" not in braid


class Disclosing(TcpAddress):
    """An address that others can listen to."""

    def discloses(self, connected: object) -> bool:
        del connected
        return True


def test_a_token_is_not_sent_where_others_could_listen(served: Site) -> None:
    address = Disclosing("127.0.0.1", served.roles[0].port)
    with pytest.raises(NotPermitted, match="must not travel over the network without TLS"):
        connect([address], "braid://far", shown=Credentials(served.admin))


def test_from_the_first_token_on_those_without_one_are_shown_the_door(tmp_path: Path) -> None:
    """Those who came before, too; and revoking the last opens nothing again. The directory's own user stays in."""
    role = Role("serve", "--at", str(tmp_path / "d"), told=tmp_path / "log")
    try:
        with braidlog.open(role.url) as early, braidlog.open(tmp_path / "d") as local:
            early.create("orders")
            admin = create_token(local, "admin", ["admin:*"])
            with pytest.raises(NotPermitted, match="asks for a token"):
                _until_refused(lambda: early.log("orders"))
            revoke_token(local, "admin")
            with pytest.raises(NotPermitted):
                braidlog.open(role.url)
            with pytest.raises(NotPermitted):
                braidlog.open(role.url, token=admin)
            assert local.log("orders").append(b"x") == 0
    finally:
        role.end()


def _until_refused(work: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        work()


def test_a_service_can_ask_for_tokens_before_there_is_one(tmp_path: Path) -> None:
    role = Role("serve", "--at", str(tmp_path / "d"), "--require-token", told=tmp_path / "log")
    try:
        with pytest.raises(NotPermitted, match="asks for a token"):
            braidlog.open(role.url)
        with braidlog.open(tmp_path / "d") as local:
            admin = create_token(local, "admin", ["admin:*"])
        with braidlog.open(role.url, token=admin) as braid:
            assert [one.name for one in list_tokens(braid)] == ["admin"]
    finally:
        role.end()


# --- what they may do there ------------------------------------------------------------------------------------------


def test_an_agent_works_on_forks_of_its_own_and_on_nothing_else(site: Site) -> None:
    """The recipe of docs/security.md."""
    agent = site.token("agent", "own:orders*")
    rival = site.token("rival", "own:orders*")
    human = site.token("human", "read:orders*", "promote:orders", "squash:orders")
    with site.open(agent) as braid, site.open(rival) as other, site.open(human) as decides, site.open() as ops:
        root = braid.log("orders")
        tail = root.tail()
        for work in (
            lambda: root.append(b"no"),
            lambda: root.trim(1),
            lambda: root.commit("mail", 0),
            lambda: braid.drop("orders", cascade=True),
            lambda: braid.create("orders-2"),
            lambda: braid.log("payroll"),
            lambda: braid.log("nothing-there"),
            lambda: root.cfork("payroll-2"),
            lambda: list_tokens(braid),
            lambda: create_token(braid, "more", ["admin:*"]),
            lambda: revoke_token(braid, "human"),
        ):
            with pytest.raises(NotPermitted):
                work()
        assert {log.name for log in braid.logs()} == {log.name for log in ops.logs() if log.name.startswith("orders")}
        fork = root.cfork("orders.idea", promotable=True, lease=LEASE_S)
        assert fork.info().owner == "agent"
        fork.append(b"an idea")
        fork.renew()
        assert [record.value for record in fork.read(tail)] == [b"an idea"]
        with pytest.raises(NotPermitted, match="promote on 'orders'"):
            fork.promote()
        theirs = other.log("orders.idea")
        for work in (lambda: theirs.append(b"no"), lambda: theirs.squash(), lambda: theirs.trim(0)):
            with pytest.raises(NotPermitted, match="belongs to 'agent'"):
                work()
        deeper = fork.cfork("orders.idea.deeper", promotable=True, lease=LEASE_S)
        deeper.append(b"another")
        with pytest.raises(NotPermitted, match="belongs to 'agent'"):
            other.log("orders.idea.deeper").promote()
        assert deeper.promote()  # into a fork of its own
        with pytest.raises(NotPermitted):
            decides.log("orders").append(b"no")
        assert decides.log("orders.idea").promote()
        with pytest.raises(Gone) as gone:
            fork.append(b"too late")
        assert "orders" not in str(gone.value)
        assert [record.value for record in root.read(tail)] == [b"an idea", b"another"]
        mine = root.sfork()
        mine.append(b"x")
        mine.squash()


def test_nobody_can_say_that_a_fork_is_somebody_elses(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRAIDLOG_OWNER", "victim")
    mallory = site.token("mallory", "own:orders*")
    site.token("victim", "own:orders*")
    with site.open(mallory) as braid:
        fork = braid.log("orders").cfork()
        assert fork.info().owner == "mallory"
        fork.squash()


def test_a_fork_that_is_not_promotable_is_refused_for_that(site: Site) -> None:
    with site.open(site.token("plain", "own:orders*", "promote:orders")) as braid:
        fork = braid.log("orders").cfork()
        with pytest.raises(NotPromotable):
            fork.promote()
        fork.squash()


def test_readers_and_writers(site: Site) -> None:
    with site.open() as ops:
        ops.create("events")
    reader = site.token("reader", "read:events")
    writer = site.token("writer", "append:events")
    mailer = site.token("mailer", "consume:events")
    with site.open(reader) as reads, site.open(writer) as writes, site.open(mailer) as mails:
        position = writes.log("events").append(b"x")
        assert reads.log("events").read(position)[0].value == b"x"
        assert reads.log("events").plan(0).stop == 1
        assert [log.name for log in reads.logs()] == ["events"]
        assert list(writes.logs()) == []
        for work in (
            lambda: reads.log("events").append(b"no"),
            lambda: reads.log("events").cfork(),
            lambda: reads.log("events").commit("mail", 0),
            lambda: writes.log("events").read(0),
            lambda: writes.log("events").plan(0),
            lambda: writes.log("events").read_arrow(0),
            lambda: writes.log("events").consumers(),
            lambda: next(iter(writes.log("events").subscribe(0))),
            lambda: asked(reads, m.Status(), m.StatusReport),
        ):
            with pytest.raises(NotPermitted):
                work()
        mails.log("events").commit("mail", 1)
        assert reads.log("events").consumers()[0].position == 1
        with pytest.raises(NotFound):
            asked(reads, m.Tail(10_000), m.Number)


def test_only_brokers_are_brokers(site: Site) -> None:
    """Whoever is let in says what it likes: it is not taken for a broker, by anybody."""
    everything = site.token("everything", "admin:*")
    metadata = site.roles[0].url
    requests: list[m.Request] = [
        m.Join("evil", "127.0.0.1:1"),
        m.Bind([c.Drop(1, True)]),
        m.Identify([bytes(32)]),
        m.Await(1, 0, 0, 0, 0, 0),
    ]
    for url in {site.url, metadata}:
        with braidlog.open(url, tls_ca=site.authority.file, token=everything) as braid:
            for request in requests:
                with pytest.raises(NotPermitted, match="broker"):
                    asked(braid, request, m.Answer)  # type: ignore[arg-type]


def test_a_broker_without_a_brokers_token_does_not_join(authority: Authority, tmp_path: Path) -> None:
    site = apart(tmp_path, authority, brokers=0)
    try:
        metadata = site.roles[0]
        (tmp_path / "agent.token").write_text(_token_of(metadata.url, site, "agent"))
        unknown = Authority(tmp_path / "other").file
        for given, error, told in (
            ({"metadata_tls_ca": authority.file}, NotPermitted, "asks for a token"),
            (
                {"metadata_tls_ca": authority.file, "token_file": str(tmp_path / "agent.token")},
                NotPermitted,
                "no broker",
            ),
            ({"metadata_tls_ca": unknown}, Unavailable, "not to be trusted"),
        ):
            settings = config.resolve("broker", {"metadata": metadata.address, **given}, {})
            with pytest.raises(error, match=told):
                asyncio.run(make_broker(settings, Address("127.0.0.1", 1)))
    finally:
        site.close()


def test_a_broker_may_show_a_certificate_in_place_of_a_token(authority: Authority, tmp_path: Path) -> None:
    """To the metadata, where nobody else is let in with one."""
    brokers = Authority(tmp_path / "brokers")
    theirs = brokers.certificate("127.0.0.1", name="b1")
    pair = tls_options(authority.certificate("127.0.0.1", name="guarded"))
    place = str(tmp_path / "d")
    admin = braid("token", "create", "--admin", "--at", place).stdout.strip()
    metadata = Role("metadata", "--at", place, *pair, "--tls-ca", brokers.file, told=tmp_path / "metadata.log")
    options = ["--metadata", metadata.address, "--metadata-tls-ca", authority.file, *tls_options(theirs)]
    broker = Role("broker", *options, told=tmp_path / "broker.log")
    try:
        with braidlog.open(broker.url, tls_ca=brokers.file, token=admin) as found:
            assert found.create("orders").append(b"x") == 0
        with pytest.raises(NotPermitted):
            braidlog.open(broker.url, tls_ca=brokers.file)
    finally:
        broker.end()
        metadata.end()


def _token_of(url: str, site: Site, name: str) -> str:
    with braidlog.open(url, tls_ca=site.authority.file, token=site.admin) as braid:
        return create_token(braid, name, ["own:*"])


# --- until when ------------------------------------------------------------------------------------------------------


def test_a_token_that_is_revoked_is_worth_nothing_within_a_second(site: Site) -> None:
    token = site.token("leaver", "read:orders", "append:orders")
    with site.open(token) as braid, site.open() as ops:
        following = braid.log("orders").subscribe(0)
        next(following)
        revoke_token(ops, "leaver")
        began = time.monotonic()
        assert list(following) is not None  # until it ends
        assert following.end is not None
        assert isinstance(following.end.error, NotPermitted)
        assert time.monotonic() - began < 10  # on a busy machine; it is looked at every 0.4 s
        with pytest.raises(NotPermitted):
            braid.log("orders").append(b"no")
        with pytest.raises(NotPermitted):
            site.open(token)


def test_a_token_that_runs_out_is_too(site: Site) -> None:
    token = site.token("guest", "read:orders", expires_s=1.5)

    def use() -> None:
        with site.open(token) as braid:
            log = braid.log("orders")
            _until_refused(lambda: log.read(0))

    with pytest.raises(NotPermitted, match="not valid"):
        use()


def test_a_name_can_be_given_again_and_owns_what_it_owned(site: Site) -> None:
    first = site.token("rotated", "own:orders*")
    with site.open(first) as braid:
        braid.log("orders").cfork("orders.kept").append(b"x")
    with pytest.raises(AlreadyExists):
        site.token("rotated", "own:orders*")
    with site.open() as ops:
        revoke_token(ops, "rotated")
    with site.open(site.token("rotated", "own:orders*")) as braid:
        braid.log("orders.kept").append(b"y")
        braid.log("orders.kept").squash()


# --- what is told of it ----------------------------------------------------------------------------------------------


def lines(site: Site) -> list[dict[str, Any]]:
    return [json.loads(line) for line in site.audit.read_text().splitlines()]


def test_decisions_and_refusals_leave_a_line_each(site: Site) -> None:
    token = site.token("audited", "own:orders*")
    with site.open(token) as braid, site.open() as ops:
        root = braid.log("orders")
        fork = root.cfork("orders.audited", promotable=True, lease=LEASE_S)
        fork.append(b"not in any line")
        with pytest.raises(NotPermitted):
            fork.promote()
        fork.squash()
        for work in (lambda: root.trim(1), lambda: braid.drop("orders")):
            with pytest.raises(NotPermitted):
                work()
        ops.create("brief")
        ops.log("brief").append(b"x")
        ops.log("brief").trim(1)
        ops.drop("brief")
        revoke_token(ops, "audited")
    found = [line for line in lines(site) if line["event"] == "audit"]
    mine = [
        (line["action"], line["name"], line["result"].partition(":")[0])
        for line in found
        if line.get("principal") == "audited"
    ]
    assert mine == [
        ("promote", "orders.audited", "NotPermitted"),
        ("squash", "orders.audited", "ok"),
        ("trim", "orders", "NotPermitted"),
        ("drop", "orders", "NotPermitted"),
    ]
    theirs = {
        (line["action"], line.get("name", line.get("token")), line["result"])
        for line in found
        if line.get("principal") == "admin"
    }
    assert {
        ("create_token", "audited", "ok"),
        ("revoke_token", "audited", "ok"),
        ("trim", "brief", "ok"),
        ("drop", "brief", "ok"),
    } <= theirs
    one = next(line for line in found if line.get("principal") == "audited")
    assert one["address"].startswith("127.0.0.1:")
    assert {"time", "client", "log", "request"} <= one.keys()
    assert len(one["request"]) == 32
    assert "not in any line" not in site.told()
    assert oct(site.audit.stat().st_mode & 0o777) == "0o600"
    assert any(line["action"] == "enter" for line in found)


# --- the command line ------------------------------------------------------------------------------------------------


def braid(*args: str, code: int = 0, **env: str) -> Result:
    result = CliRunner().invoke(cli, list(args), env={"NO_COLOR": "1", **env})
    assert isinstance(result.exception, SystemExit | None), (args, result.exception)
    assert result.exit_code == code, (args, result.stdout, result.stderr)
    return result


def test_tokens_from_the_command_line(served: Site, tmp_path: Path) -> None:
    (tmp_path / "admin").write_text(served.admin + "\n")
    common = ("--tls-ca", served.authority.file, "--token-file", str(tmp_path / "admin"), "--at", served.url)
    made = braid(*common, "token", "create", "cli", "--scope", "own:orders*", "--scope", "read:x", "--expires", "30d")
    token = made.stdout.strip()
    assert token.startswith("braid_")
    assert token not in made.stderr
    [kept] = [one for one in json.loads(braid(*common, "--json", "token", "list").stdout) if one["name"] == "cli"]
    assert kept["scopes"] == ["own:orders*", "read:x"]
    assert kept["expires"] > kept["created"]
    assert "cli" in braid(*common, "token", "list").stdout
    (tmp_path / "braid.toml").write_text(f'[client]\ntoken = "{token}"\ntls_ca = "{served.authority.file}"\n')
    refused = braid("--at", served.url, "create", "mine", code=11, BRAIDLOG_CONFIG=str(tmp_path / "braid.toml"))
    assert refused.stdout == ""
    assert "admin:mine" in refused.stderr
    braid(*common, "token", "revoke", "cli")
    gone = braid("--at", served.url, "ls", code=11, BRAIDLOG_TOKEN=token, BRAIDLOG_TLS_CA=served.authority.file)
    assert token not in gone.stderr
    braid(*common, "token", "revoke", "cli", code=3)
    braid(*common, "token", "create", "x", "--scope", "write:y", code=2)


def test_the_command_line_tells_an_agent_which_scope_it_lacks(served: Site) -> None:
    """What docs/security.md shows."""
    with served.open() as ops:
        ops.create("scoped").cfork("scoped.idea", promotable=True)
    token = served.token("agent-7", "own:scoped*")
    for verb, args in (
        ("append", ("append", "scoped", "not mine")),
        ("promote", ("promote", "scoped.idea", "--yes")),
        ("admin", ("drop", "scoped", "--yes")),
    ):
        refused = braid("--at", served.url, *args, code=11, BRAIDLOG_TOKEN=token, BRAIDLOG_TLS_CA=served.authority.file)
        told = f"braid: 'agent-7' may not {verb} on 'scoped': it needs the scope {verb}:scoped\n"
        assert (refused.stdout, refused.stderr) == ("", told)
    with served.open() as ops:
        ops.drop("scoped", cascade=True)


def test_the_first_token_of_a_directory(tmp_path: Path) -> None:
    place = str(tmp_path / "new.braid")
    made = braid("token", "create", "--admin", "--at", place, "--json")
    document = json.loads(made.stdout)
    assert (document["name"], document["scopes"]) == ("admin", ["admin:*"])
    braid("token", "create", "--admin", "--at", place, code=4)
    assert [one["name"] for one in json.loads(braid("token", "list", "--at", place, "--json").stdout)] == ["admin"]
    stored = b"".join(path.read_bytes() for path in Path(place).rglob("*") if path.is_file())
    assert document["token"].encode() not in stored
    braid("token", "create", "--at", place, code=2)
    braid("token", "create", "nothing", "--at", place, code=2)


def test_a_token_is_for_services(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="for services"):
        braidlog.open(tmp_path / "d", token="braid_x")
    with pytest.raises(InvalidArgument, match="token_file cannot be read"):
        braidlog.open("braid://127.0.0.1:1", token_file=tmp_path / "none")
    with pytest.raises(BraidError):
        braidlog.open("braids://127.0.0.1:1", tls_ca=tmp_path / "none")

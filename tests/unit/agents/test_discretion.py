"""What is written down of arguments: no secret that can be known as one, and never too much."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest

from braidlog import limits
from braidlog.agents.discretion import HIDDEN, told, told_of, without_secrets
from braidlog.wire.secrets import new_token

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nq1w2e3r4\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        pytest.param(f"use {(token := new_token())} please", token, id="a token"),
        ("Authorization: Bearer abcdefghijkl please", "abcdefghijkl"),
        ("authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
        ('curl -H "Authorization: Token s3cr3t" please', "s3cr3t"),
        ("send bearer abcdefgh.ijkl", "abcdefgh"),
        ("api_key=k3y&please=1", "k3y"),
        ("APIKEY: k3y please", "k3y"),
        ("SELECT 1 WHERE api-key = 'k3y' -- please", "k3y"),
        ("PGPASSWORD=hunter2 psql please", "hunter2"),
        ('{"password": "two words", "please": 1}', "two words"),
        (json.dumps(json.dumps({"client_secret": "s3cr3t", "please": 1})), "s3cr3t"),
        ("aws_secret_access_key = s3cr3t/+x\nplease", "s3cr3t"),
        ("postgres://ann:hunter2@db/please", "hunter2"),
        (f"the key is {KEY} please", "q1w2e3r4"),
        (json.dumps({"file": KEY, "please": 1}), "q1w2e3r4"),
        (KEY.removesuffix("-----END RSA PRIVATE KEY-----"), "q1w2e3r4"),
        ("a cookie eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSM please", "SflKxwRJSM"),
        ("AKIAIOSFODNN7EXAMPLE please", "IOSFODNN7"),
        (f"ghp_{'a1' * 18} please", "a1a1"),
        (f"sk-{'b2' * 12} please", "b2b2"),
    ],
)
def test_a_secret_is_hidden_and_the_rest_is_not(text: str, secret: str) -> None:
    shown = without_secrets(text)
    assert secret in text
    assert secret not in shown
    assert HIDDEN in shown
    assert ("please" in text) == ("please" in shown) or text.lower().startswith("authorization")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT item, sum(n) FROM rows GROUP BY item",
        "restock 500 bolts: demand grows",
        "the token was refused",
        "https://logs.example:7411/orders?since=1h",
        "orders.bob.1 is held by orders.ann",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert without_secrets(text) == told(text) == text


def test_a_secret_is_hidden_wherever_a_text_is_cut() -> None:
    token = new_token()
    for before in range(limits.AUDIT_TEXT_CHARS_MAX - len(token) - 2, limits.AUDIT_TEXT_CHARS_MAX):
        assert token[:14] not in told("x" * before + " " + token + " y" * 100)


def nested(depth: int, leaf: Any) -> Any:
    return leaf if not depth else [nested(depth - 1, leaf) for _ in range(limits.AUDIT_ARGUMENTS_ROWS_MAX)]


def test_however_much_is_given_little_is_written_down() -> None:
    text = "\x00" * 1_000
    for arguments in (
        {"a": nested(2, {f"{n}{text}": text for n in range(100)})},
        {"a": nested(3, text)},
        {f"{n}{text}": text for n in range(200)},
    ):
        assert len(msgspec.json.encode(told_of(arguments))) < limits.MIB


def test_any_json_can_be_written_down() -> None:
    shown = told_of({"large": 2**70, "small": -(2**70), "most": 2**63 - 1, "nan": float("nan"), "none": None})
    assert msgspec.json.decode(msgspec.json.encode(shown))["large"] == "(a number of 71 bits)"
    assert shown["most"] == 2**63 - 1


@pytest.mark.parametrize(
    "part",
    [
        "a",
        "token",
        "://a:",
        "authorization ",
        "-----BEGIN PRIVATE KEY",
        "eyJaaaaaaaa.",
        "eyJ-",
        "-eyJ",
        "sk-",
        "bearer ",
        "secret='",
        '\\"',
    ],
)
def test_no_text_takes_long(part: str) -> None:
    began = time.process_time()
    told(part * (4 * limits.MIB // len(part)))
    without_secrets(part * (64 * limits.KIB // len(part)))  # with one that grows by the square this took seconds
    assert time.process_time() - began < 1

"""What a broker says of itself unless it is told: a name of its own, and an address that clients can reach."""

from __future__ import annotations

import pytest

from braidlog.cli.brokering import advertised_at, default_name
from braidlog.config import Address
from braidlog.errors import InvalidArgument


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "0"])
def test_all_addresses_are_none_that_clients_can_be_sent_to(host: str) -> None:
    with pytest.raises(InvalidArgument, match="give --advertise HOST:PORT"):
        advertised_at(Address(host, 7411))


@pytest.mark.parametrize("host", ["127.0.0.1", "broker-1", "::1"])
def test_others_are(host: str) -> None:
    assert advertised_at(Address(host, 7411)).host == host


def test_two_brokers_have_two_names() -> None:
    assert default_name() != default_name()

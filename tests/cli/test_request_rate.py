"""Rates of requests by address."""

import contextlib

import pytest

from tarry.errors import RateExceeded
from tarry.server.identity import request_rate
from tarry.server.identity.request_rate import AddressRates
from tests.cli.project import Project
from tests.cli.serving import open_socket, read_all, serve

SECOND = 1_000_000


def sent(rates: AddressRates, address: str, count: int, now: int) -> int:
    """How many of so many requests are allowed."""
    allowed = 0
    for _ in range(count):
        with contextlib.suppress(RateExceeded):
            rates.count(address, now)
            allowed += 1
    return allowed


def test_each_address_has_its_own_rate() -> None:
    # Requests are spread over the second: one at a time.
    rates = AddressRates("1/s")
    assert [sent(rates, address, 5, SECOND) for address in ("a", "b", "")] == [1, 1, 5]
    assert sent(rates, "a", 5, 3 * SECOND) == 1
    assert sent(AddressRates(None), "a", 50, SECOND) == 50


def test_addresses_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_rate, "MOST_ADDRESSES", 2)
    rates = AddressRates("1/s")
    for address in ("a", "b", "a", "c"):
        sent(rates, address, 1, SECOND)
    assert [sent(rates, address, 1, SECOND) for address in ("a", "c")] == [0, 0]
    assert len(rates._rates) == 2


def test_a_server_tells_an_address_that_sends_too_much(project: Project) -> None:
    port = serve(project, rate_per_address="1/h")
    told = []
    for _ in range(3):
        with open_socket(port) as connection:
            connection.sendall(b"GET /v1/queues HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            told.append(read_all(connection))
    assert [each.split()[1] for each in told] == [b"200", b"429", b"429"]
    assert b"retry-after: " in told[1].lower()

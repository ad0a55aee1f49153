"""Which addresses may be reached."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry import platform
from tarry.errors import ConfigError
from tarry.push.http import address_guard
from tarry.push.http.address_guard import AddressGuard, ForbiddenAddress

REFUSED = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "10.0.0.1": "private",
    "10.255.255.255": "private",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.168.1.1": "private",
    "100.64.0.1": "CGNAT",
    "100.127.255.255": "CGNAT",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "169.254.1.1": "link-local",
    "192.0.2.1": "documentation",
    "198.51.100.9": "documentation",
    "203.0.113.9": "documentation",
    "198.18.0.1": "benchmarks",
    "198.19.255.255": "benchmarks",
    "192.0.0.8": "reserved",
    "192.88.99.1": "reserved",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "169.254.169.254": "passwords",
    "169.254.170.2": "passwords",
    "100.100.100.200": "passwords",
    "168.63.129.16": "passwords",
    "fd00:ec2::254": "passwords",
    "fd20:ce::254": "passwords",
    "::": "unspecified",
    "::1": "loopback",
    "fc00::1": "private",
    "fd12:3456::1": "private",
    "fe80::1": "link-local",
    "fec0::1": "site-local",
    "ff02::1": "multicast",
    "2001:db8::1": "documentation",
    "3fff::1": "documentation",
    "2001:2::1": "benchmarks",
    "2001:10::1": "reserved",
    "100::1": "reserved",
    "4000::1": "reserved",
    "5f00::1": "reserved",
    "::ffff:127.0.0.1": "stands for 127.0.0.1, loopback",
    "::ffff:169.254.169.254": "stands for 169.254.169.254, where a cloud",
    "::127.0.0.1": "stands for 127.0.0.1, loopback",
    "::ffff:0:10.0.0.1": "stands for 10.0.0.1, private",
    "64:ff9b::10.0.0.1": "stands for 10.0.0.1, private",
    "64:ff9b::a9fe:a9fe": "stands for 169.254.169.254",
    "64:ff9b:1::8.8.8.8": "private",
    "2002:7f00:1::1": "stands for 127.0.0.1, loopback",
    "2002:a9fe:a9fe::1": "stands for 169.254.169.254",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2": "Teredo",
    "2606:4700::5efe:10.0.0.1": "stands for 10.0.0.1, private",
    "2606:4700::200:5efe:127.0.0.1": "stands for 127.0.0.1, loopback",
}


@pytest.mark.parametrize(("address", "kind"), REFUSED.items())
def test_what_is_refused_and_why(address: str, kind: str) -> None:
    with pytest.raises(ForbiddenAddress) as caught:
        AddressGuard().check(address, "hooks.example")
    assert str(caught.value).startswith(f"hooks.example is at {address}, ")
    assert kind in str(caught.value)
    assert 'unless [push] allow = ["' in str(caught.value)


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "192.0.1.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2606:4700::1111",
        "2a00:1450:4001:82a::200e",
        "2001:4860:4860::8888",
        "::ffff:8.8.8.8",
        "64:ff9b::8.8.8.8",
        "2002:808:808::1",
    ],
)
def test_public_addresses_are_reached(address: str) -> None:
    AddressGuard().check(address)


@pytest.mark.parametrize("address", [a for a in REFUSED if "2001:0:" not in a])
def test_what_the_refusal_says_would_allow_it_does(address: str) -> None:
    with pytest.raises(ForbiddenAddress) as caught:
        AddressGuard().check(address)
    allowing = str(caught.value).partition('allow = ["')[2].partition('"')[0]
    AddressGuard([allowing]).check(address)


def test_a_network_is_allowed_and_no_more() -> None:
    guard = AddressGuard(["10.1.0.0/16", "fd12::/16"])
    guard.check("10.1.2.3")
    guard.check("::ffff:10.1.2.3")
    guard.check("64:ff9b::10.1.2.3")
    guard.check("fd12::7")
    for other in ("10.2.0.1", "127.0.0.1", "fd13::1", "::ffff:10.2.0.1"):
        with pytest.raises(ForbiddenAddress):
            guard.check(other)


@pytest.mark.parametrize(
    ("around", "address"),
    [
        ("169.254.0.0/16", "169.254.169.254"),
        ("0.0.0.0/0", "169.254.169.254"),
        ("100.64.0.0/10", "100.100.100.200"),
        ("fc00::/7", "fd00:ec2::254"),
        ("::/0", "::ffff:169.254.169.254"),
    ],
)
def test_metadata_has_to_be_named_itself(around: str, address: str) -> None:
    with pytest.raises(ForbiddenAddress, match="passwords"):
        AddressGuard([around]).check(address)


def test_metadata_that_is_named_is_reached() -> None:
    AddressGuard(["169.254.169.254/32"]).check("169.254.169.254")
    AddressGuard(["169.254.169.254"]).check("::ffff:169.254.169.254")


@pytest.mark.parametrize("port", [22, 25, 6667, 0])
def test_ports_of_other_protocols_are_refused(port: int) -> None:
    with pytest.raises(ForbiddenAddress, match=f"1.1.1.1, port {port}, is another protocol's"):
        AddressGuard().check("1.1.1.1", port=port)


def test_in_a_network_that_is_allowed_the_ports_are_its_owners() -> None:
    AddressGuard(["10.0.0.0/8"]).check("10.0.0.1", port=25)
    with pytest.raises(ForbiddenAddress):
        AddressGuard(["10.0.0.0/8"]).check("10.0.0.1", port=0)


def test_a_refusal_is_one_line_that_names_host_address_and_setting() -> None:
    with pytest.raises(ForbiddenAddress) as caught:
        AddressGuard().check("10.0.0.7", "intranet.example", 443)
    assert str(caught.value) == (
        'intranet.example is at 10.0.0.7, private: not reached, unless [push] allow = ["10.0.0.7"] allows it'
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("10.0.0.1/8", r"'10\.0\.0\.1/8' is no network; you may mean 10\.0\.0\.0/8"),
        ("localhost", r"'localhost' is no network: write as in"),
        ("10.0.0.0/33", "is no network"),
        ("", "is no network"),
    ],
)
def test_what_is_no_network_is_told(text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        AddressGuard([text])


@given(st.ip_addresses())
def test_what_python_holds_for_private_is_never_reached(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    try:
        AddressGuard().check(str(address))
    except ForbiddenAddress:
        return
    assert not any((address.is_loopback, address.is_link_local, address.is_multicast, address.is_unspecified))
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    assert not (mapped or address).is_private


OURS = "1.2.3.4", "2606:4700::7"


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


def refusal(guard: AddressGuard, address: str) -> str:
    with pytest.raises(ForbiddenAddress) as caught:
        guard.check(address)
    return str(caught.value)


@pytest.mark.parametrize("address", [*OURS, "::ffff:1.2.3.4", "64:ff9b::102:304"])
def test_the_hosts_own_public_address_is_refused_unless_allowed(address: str) -> None:
    assert "an address of this host" in refusal(AddressGuard(own=lambda: OURS), address)
    AddressGuard([*OURS, address], own=lambda: OURS).check(address)
    AddressGuard(own=lambda: ()).check(address)


def test_an_address_that_the_host_gets_later_is_refused_from_then_on() -> None:
    ours: list[str] = []
    guard = AddressGuard(own=lambda: ours)
    guard.check("1.2.3.4")
    ours.append("1.2.3.4")
    assert "an address of this host" in refusal(guard, "1.2.3.4")


def test_the_addresses_of_this_hosts_interfaces_are_known() -> None:
    assert "127.0.0.1" in address_guard.own_addresses()


def test_they_are_read_anew_after_some_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = {"2606:4700::7"}
    monkeypatch.setattr(platform, "local_addresses", lambda: frozenset(now))
    monkeypatch.setattr(address_guard, "time", clock := Clock())
    known = address_guard.LocalAddresses()
    assert known() == {"2606:4700::7"}
    now.update(OURS)
    assert known() == {"2606:4700::7"}
    clock.now += address_guard.CACHE_TTL
    assert known() == set(OURS)

"""How addresses are written, and which of them only programs of this host can reach."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.model.values.listen_address import ListenAddress, listen_address


@pytest.mark.parametrize(
    ("written", "address", "shown", "private"),
    [
        ("127.0.0.1:7800", ListenAddress("127.0.0.1", 7800), "127.0.0.1:7800", True),
        ("127.9.9.9:1", ListenAddress("127.9.9.9", 1), "127.9.9.9:1", True),
        ("localhost:7800", ListenAddress("127.0.0.1", 7800), "127.0.0.1:7800", True),
        ("[::1]:65535", ListenAddress("::1", 65535), "[::1]:65535", True),
        ("[0:0::1]:80", ListenAddress("::1", 80), "[::1]:80", True),
        (":7800", ListenAddress("", 7800), ":7800", False),
        ("0.0.0.0:7800", ListenAddress("0.0.0.0", 7800), "0.0.0.0:7800", False),
        ("[::]:7800", ListenAddress("::", 7800), "[::]:7800", False),
        ("192.168.1.2:7800", ListenAddress("192.168.1.2", 7800), "192.168.1.2:7800", False),
        ("unix:/run/tarry.sock", ListenAddress(path="/run/tarry.sock"), "unix:/run/tarry.sock", True),
    ],
)
def test_each_form(written: str, address: ListenAddress, shown: str, private: bool) -> None:
    found = listen_address(written)
    assert (found, str(found), found.is_private) == (address, shown, private)


@pytest.mark.parametrize(
    "written",
    [
        "",
        ":",
        "7800",
        "127.0.0.1",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:80 ",
        "300.0.0.1:80",
        "::1:80",
        "[127.0.0.1]:80",
        "[::g]:80",
        "[]:80",
        "shop.example:80",
        "http://127.0.0.1:80",
        "unix:",
        "unix:/a\0b",
        "unix:/" + "a" * 107,
    ],
)
def test_what_is_no_address(written: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the setting says what was expected
        listen_address(written)


@given(st.text(max_size=20))
def test_any_text_is_an_address_or_a_value_error(written: str) -> None:
    try:
        address = listen_address(written)
    except ValueError:
        return
    assert listen_address(str(address)) == address

"""URLs and headers as they are sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.push.http.target import OURS, check_headers, parse_target


@pytest.mark.parametrize(
    ("text", "origin", "literal"),
    [
        ("http://hooks.example", "http://hooks.example:80", False),
        ("HTTPS://Hooks.Example:443/x", "https://hooks.example:443", False),
        ("https://bücher.example/", "https://xn--bcher-kva.example:443", False),
        ("http://hooks.example.:8080/", "http://hooks.example:8080", False),
        ("http://my_host.example/", "http://my_host.example:80", False),
        ("http://localhost./", "http://localhost:80", False),
        ("http://0x7f.1/", "http://127.0.0.1:80", True),
        ("http://2130706433/", "http://127.0.0.1:80", True),
        ("http://127.0.0.1./", "http://127.0.0.1:80", True),
        ("http://[::FFFF:127.0.0.1]:81/", "http://[::ffff:7f00:1]:81", True),
        ("https://[2606:4700:0::1111]/", "https://[2606:4700::1111]:443", True),
    ],
)
def test_what_a_url_says(text: str, origin: str, literal: bool) -> None:
    found = parse_target(text)
    assert (found.origin, found.literal) == (origin, literal)
    assert not found.host.startswith("[")


def test_a_fragment_stays_here() -> None:
    assert str(parse_target("https://hooks.example/a?b#c").url) == "https://hooks.example/a?b"


def test_the_way_of_a_url_is_not_changed() -> None:
    assert str(parse_target("https://hooks.example/a%2Fb/%2e%2e%2f?x=%zz&y=+").url).endswith("?x=%zz&y=+")


@given(st.text(max_size=60))
def test_whatever_is_no_url_is_told_in_one_line(text: str) -> None:
    for attempt in (text, f"http://{text}", f"https://{text}/", f"http://h/{text}"):
        found = refused = None
        try:
            found = parse_target(attempt)
        except ValueError as error:
            refused = str(error)
        if found is None:
            assert refused
            assert "\n" not in refused
            assert len(refused) < 200
        else:
            assert found.scheme in ("http", "https")
            assert found.host
            assert found.host.isascii()
            assert str(found.url).isascii()
            assert not any(letter in str(found.url) for letter in "\r\n\0 ")


@given(st.text(max_size=30))
def test_whatever_a_redirect_says(text: str) -> None:
    here = parse_target("https://hooks.example/a")
    try:
        there = here.join(text)
    except ValueError:
        return
    assert there.scheme in ("http", "https")
    assert there.host


@given(st.text(max_size=20), st.text(max_size=20))
def test_whatever_is_no_header_is_told(name: str, value: str) -> None:
    try:
        ((sent, content),) = check_headers([(name, value)])
    except ValueError as refused:
        told = str(refused)
        assert "\n" not in told
    else:
        assert sent == name.lower()
        assert content == value
        assert not set(sent + content) & set("\r\n\0")
        assert sent not in OURS

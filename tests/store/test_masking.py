"""No error about a URL has a part of its password in it, wherever a parser would have ended it."""

import pytest

from tarry.errors import TarryError
from tarry.store.opening import open_store
from tarry.store.shards.shard import public_url
from tarry.store.shared.masking import mask_password

PARTS = ("hush", "shhh")
SIGNS = ("[", "]", "/", "?", "#", "@", ":", "%", " ", "\\", "[::1]", "?a=", "#name=", ":1/", "\u2100", "%zz", "&=")
HOSTS = {
    "postgresql": "127.0.0.1:1/db?timeout=0.1", "mysql": "127.0.0.1:1/db?timeout=0.1", "redis": "127.0.0.1:1/x",
    "redis+cluster": "127.0.0.1:1,127.0.0.1:2/1", "redis+sentinel": "127.0.0.1:1", "redis+unix": "/no/socket",
    "redi": "127.0.0.1:1", "http": "127.0.0.1:port",
}  # fmt: skip


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("scheme", HOSTS)
def test_a_password_with_a_sign_in_it(scheme: str, sign: str) -> None:
    for secret in (sign.join(PARTS), f"{PARTS[0]}{sign}"):
        url = f"{scheme}://me:{secret}@{HOSTS[scheme]}"
        for urls in (url, [url, url]):
            with pytest.raises(TarryError) as raised:
                open_store(urls)
            assert not any(part in f"{raised.value} {public_url(url)}" for part in PARTS), str(raised.value)


def test_a_user_that_is_a_token() -> None:
    """Some services have no user, and some people write the password first."""
    for sign in ("/", "?", "#", "["):
        with pytest.raises(TarryError) as raised:
            open_store(f"postgresql://hush{sign}shhh@127.0.0.1:1/db")
        assert not any(part in str(raised.value) for part in PARTS)


@pytest.mark.parametrize("scheme", ["redis", "rediss", "redis+cluster", "redis+sentinel", "redis+unix", "mysql"])
@pytest.mark.parametrize(
    "rest",
    [":pa?hush", "u:pa?hush", ":1234?hush", "u:1?hush@h/0", "?hush", ":a?b=1hush@h/d", "u:p@ss?hush@h/0", ":1?a&hush"],
)
def test_a_password_that_ends_where_options_begin_is_not_quoted_as_one(scheme: str, rest: str) -> None:
    with pytest.raises(TarryError) as raised:
        open_store(f"{scheme}://{rest}")
    assert "hush" not in f"{raised.value} {public_url(f'{scheme}://{rest}')}"


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("redis://h:1/0?prefix=a&timeout=5s", "redis://h:1/0?prefix=a&timeout=5s"),
        ("redis://h:1/0?hush", "redis://h:1/0?***"),
        ("redis://:1234?hush", "redis://***"),
        ("postgresql://u:p@h/d", "postgresql://***@h/d"),
        ("mysql://u:p@a@h/d?tls=no", "mysql://***@h/d?tls=no"),
        ("redis+sentinel://h/s?sentinel_password=p&db=1", "redis+sentinel://h/s?sentinel_password=***"),
        ("postgresql://h/d?PASSWORD=p", "postgresql://h/d?PASSWORD=***"),
        ("redis:/u:p@h", "***"),
        ("sqlite:///a@b.db", "sqlite:///a@b.db"),
        ("", ""),
    ],
)
def test_what_is_left_of_a_url(url: str, seen: str) -> None:
    assert mask_password(url) == seen

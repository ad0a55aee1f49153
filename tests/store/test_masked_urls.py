"""No door of showing lets a part of a secret out, wherever the secret stands in a URL and whatever signs it has."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry import Client
from tarry.config.config import load
from tarry.store.mysql.link.address import parse as parse_mysql
from tarry.store.opening import open_store
from tarry.store.postgres.link.url import parse_url as parse_postgres
from tarry.store.redis.url import parse_url as parse_redis
from tarry.store.shards.shard import parse_shard_url, public_url
from tarry.store.shared.masking import mask_password

MARK = "hush"
SIGNS = "/?#@:=[]%&;,\\ .é0"
SCHEMES = ("postgresql", "mysql", "redis", "rediss", "redis+cluster", "redis+sentinel", "http", "https", "nosuch")
OPTIONS = (
    "password",
    "sslpassword",
    "sentinel_password",
    "PASSWORD",
    "pass%77ord",
    "access_token",
    "api_key",
    "secret",
)
HOSTS = st.sampled_from(("h", "127.0.0.1:1", "a:1,b:2", "[::1]:1", ""))
TAILS = st.sampled_from(("", "/db", "/db?timeout=1s", "/0?prefix=p", "/db?application_name=a"))

# A mark on each side of every sign: whatever a parser takes for the end of the secret, a mark is behind it.
secrets = st.lists(st.sampled_from(SIGNS), max_size=4).map(lambda signs: MARK + "".join(sign + MARK for sign in signs))
within_value = secrets.filter(lambda text: "&" not in text and ";" not in text)
users = st.sampled_from(("", "me"))


@st.composite
def urls(draw: st.DrawFn) -> str:
    scheme, host, tail = draw(st.sampled_from(SCHEMES)), draw(HOSTS), draw(TAILS)
    if draw(st.booleans()):
        return f"{scheme}://{draw(users)}:{draw(secrets)}@{host}{tail}"
    joint = "&" if "?" in tail else "?"
    start = draw(st.sampled_from(("", "me@", f"me:{MARK}@")))
    return f"{scheme}://{start}{host}{tail}{joint}{draw(st.sampled_from(OPTIONS))}={draw(within_value)}"


def _opens_no_server(url: str) -> None:
    # Only the others are refused before anything is looked up.
    if url.startswith(("nosuch", "http")):
        open_store(url)


def _repr_of(read: Callable[[str], object]) -> Callable[[str], str]:
    return lambda url: repr(read(url))


DOORS: dict[str, Callable[[str], object]] = {
    "mask_password": mask_password,
    "public_url": public_url,
    "shard": lambda url: public_url(parse_shard_url(url)[0]),
    "redis": lambda url: parse_redis(url).url if url.startswith("redis") else "",
    "postgresql": _repr_of(lambda url: parse_postgres(url) if url.startswith("postgresql") else ""),
    "mysql": lambda url: parse_mysql(url).shown if url.startswith("mysql") else "",
    "store": _opens_no_server,
    "client": _repr_of(Client),
    "settings": lambda url: load(environ={"TARRY_STORE": url.replace("://", ":")}, directory=Path("/nowhere")),
}


def _shown(door: Callable[[str], object], url: str) -> Iterator[str]:
    try:
        yield str(door(url))
    except Exception as error:
        yield f"{error} {error!r}"
        # As a traceback shows it.
        for cause in (error.__cause__, None if error.__suppress_context__ else error.__context__):
            with contextlib.suppress(AttributeError):
                yield f"{cause} {cause!r}"


def _nothing_is_shown(url: str) -> None:
    for name, door in DOORS.items():
        for text in _shown(door, url):
            assert MARK not in text, (name, url, text)


@settings(max_examples=400, deadline=None)
@given(urls())
def test_no_part_of_a_secret_is_shown(url: str) -> None:
    # All doors at each URL, since to draw one takes longer than most of them.
    _nothing_is_shown(url)


@pytest.mark.parametrize(
    "url", ["redis://:hush", "redis://me:hush", "postgresql://me:hu/hush", "mysql://me:hush?a=b", "http://me:hush"]
)
def test_a_password_without_its_sign_is_not_taken_for_a_host(url: str) -> None:
    _nothing_is_shown(url)

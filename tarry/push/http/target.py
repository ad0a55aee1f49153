"""Parses URLs and checks headers of requests.

The parser is the HTTP client's own, so that the address that is checked and the one that is connected to cannot differ:
`http://0x7f.1/` is 127.0.0.1 to both.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address

from msgspec import Struct
from pyreqwest.http import Url

from tarry.push.http.response import Headers

LONGEST_URL = 8192
MOST_HEADERS, MOST_HEADER_BYTES = 100, 64 * 1024

_DEFAULT = {"http": 80, "https": 443}
# URL parsers drop control characters and read a backslash as a slash: the URL would not be what it looks like.
_NOT_IN_URLS = re.compile(r"[\x00-\x20\x7f\\]")
_HOST = re.compile(r"(?=.{1,253}$)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*")
_IPV4 = re.compile(r"[0-9.]+")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e]*")

_CONNECTION = """
    accept-encoding connection content-length expect host http2-settings keep-alive proxy-authenticate
    proxy-authorization proxy-connection te trailer transfer-encoding upgrade
"""
# To set them would allow request smuggling.
OURS = frozenset(_CONNECTION.split())
"""Headers of the connection, which may not be set."""


class RequestTarget(Struct, frozen=True):
    """Where a request goes."""

    url: Url
    scheme: str
    host: str
    """Lower case ASCII, without a final dot and without brackets."""
    port: int
    literal: bool
    """The host is an IP address."""
    path: str
    """With the query, as it is sent."""
    authority: str
    """The value of the header `host`."""

    @property
    def origin(self) -> str:
        """`https://hooks.example:443`."""
        return f"{self.scheme}://{self.url.host_str}:{self.port}"

    def join(self, location: str) -> "RequestTarget":
        """The target of a redirect from here; ValueError if the location is no valid URL."""
        if _NOT_IN_URLS.search(location) or len(location) > LONGEST_URL:
            raise ValueError("it is no URL")
        return _target(self.url.join(location))


@lru_cache(4096)
def parse_target(text: str) -> RequestTarget:
    """The target of a URL; ValueError if it is invalid."""
    # The message does not repeat the URL, which may hold secrets.
    if len(text) > LONGEST_URL:
        raise ValueError(f"the URL has {len(text)} characters: {LONGEST_URL} at most")
    if found := _NOT_IN_URLS.search(text):
        raise ValueError(f"the URL has {found[0]!r} at {found.start()}: write %{ord(found[0]):02X} if it is meant")
    try:
        url = Url(text)
    except ValueError as error:
        raise ValueError(f"the URL is none: {error}") from None
    return _target(url)


def _target(url: Url) -> RequestTarget:
    if url.scheme not in _DEFAULT:
        raise ValueError(f"the URL begins with {url.scheme}: write http:// or https://")
    if url.username or url.password is not None:
        raise ValueError("the URL has a user or a password in it: send them in a header, authorization")
    host = (url.host_str or "").removesuffix(".")
    if host != url.host_str:
        url = url.with_host(host)
    if url.fragment is not None:
        url = url.with_fragment(None)
    # The parser has turned each spelling of an IPv4 address into this form: 0x7f.1 is 127.0.0.1 here.
    literal = host.startswith("[") or bool(_IPV4.fullmatch(host))
    if not (_is_address(host) if literal else _HOST.fullmatch(host)):
        raise ValueError("the URL has a host that is no name of one")
    path = url.path if url.query_string is None else f"{url.path}?{url.query_string}"
    authority = host if url.port is None else f"{host}:{url.port}"
    return RequestTarget(url, url.scheme, host.strip("[]"), url.port_or_known_default or 0, literal, path, authority)


def _is_address(host: str) -> bool:
    try:
        ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def check_headers(headers: Iterable[tuple[str, str]]) -> Headers:
    """The headers, names in lower case; ValueError if one cannot be sent. The message does not repeat its value."""
    made = tuple([(_check_name(name), value) for name, value in headers])
    whole = "".join([name + value for name, value in made])
    # One check of all texts, since hardly ever one is wrong.
    if not (whole.isascii() and whole.isprintable()):
        for name, value in made:
            _check_value(name, value)
    if len(made) > MOST_HEADERS or len(whole) > MOST_HEADER_BYTES:
        raise ValueError(f"there are too many headers: {MOST_HEADERS} at most, and {MOST_HEADER_BYTES // 1024} KiB")
    return made


@lru_cache(1024)
def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"header {name[:80]!r} is no name of one: letters, digits and - make one")
    if name.lower() in OURS:
        raise ValueError(f"header {name} is the connection's own, and not to be set")
    return name.lower()


def _check_value(name: str, value: str) -> None:
    if not _VALUE.fullmatch(value):
        raise ValueError(f"header {name} has a character that headers cannot carry: printable ASCII is what they can")

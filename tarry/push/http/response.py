"""The answer of an endpoint, as far as it is read."""

from msgspec import Struct

MOST_BODY = 64 * 1024
"""Bytes of a body that are read. If there are more, the connection is dropped."""
MOST_HEAD = 64 * 1024
"""Bytes of header names and values in an answer."""
KEPT = 8 * 1024
"""Characters of a body that the record of an attempt keeps, at most."""

Headers = tuple[tuple[str, str], ...]
"""Pairs of name and value, in their order. A name may occur more than once."""


class HttpResponse(Struct, frozen=True):
    """The head and the start of the body. tarry neither asks for compression nor decompresses."""

    status: int
    headers: Headers = ()
    """Names in lower case, at most 100 of them."""
    body: bytes = b""
    cut: bool = False
    """The body is longer than what was read."""
    elapsed: float = 0.0
    """Seconds from the start of the request to the end of reading, redirects included."""
    connect: float = 0.0
    """Seconds of these until the request was sent: the time to connect, close to 0 on a kept connection. 0: not known,
    with TLS and without a body."""
    address: str = ""
    """Address and port that answered: `192.0.2.7:443`, `[2001:db8::7]:443`."""
    version: str = ""
    """Of HTTP: `1.0`, `1.1` or `2`."""
    url: str = ""
    """The URL that answered, without its query, if redirects led elsewhere."""

    def header(self, name: str) -> str:
        """All values of that name (lower case), joined by `, `; empty if there is none."""
        return ", ".join(value for key, value in self.headers if key == name)

    def excerpt(self) -> str:
        """The start of the body as text, for the record. Bytes that are no UTF-8 are replaced."""
        # A character takes at most 4 bytes.
        return self.body[: 4 * KEPT].decode("utf-8", "replace")[:KEPT]

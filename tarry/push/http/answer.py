"""What an endpoint answered, as far as it is read."""

from msgspec import Struct

MOST_BODY = 64 * 1024
"""Bytes of a body that are read; the connection is dropped when more is left."""
KEPT = 8 * 1024
"""Characters of a body that the record of an attempt keeps, at most."""

Headers = tuple[tuple[str, str], ...]
"""Pairs of a name and a value, in their order; a name may come more than once."""


class Answer(Struct, frozen=True):
    """A whole head, and the start of a body. `body` is as it came: tarry asks for no compression and undoes none."""

    status: int
    headers: Headers = ()
    """Names in lower case, at most 100 of them."""
    body: bytes = b""
    cut: bool = False
    """There was more of the body than was read."""
    elapsed: float = 0.0
    """Seconds from the first thing done for the request to the end of reading, redirects included."""
    connect: float = 0.0
    """Seconds of these until the body began to go out: what it took to connect, next to nothing on a connection that
    was kept; 0: it is not known, since there was no body."""
    address: str = ""
    """IP address and port that answered: `192.0.2.7:443`, `[2001:db8::7]:443`."""
    version: str = ""
    """Of HTTP: `1.0`, `1.1` or `2`."""
    url: str = ""
    """Who answered, without its query, if redirects led to another place than was asked."""

    def header(self, name: str) -> str:
        """All values of that name (lower case), joined by `, `; empty if there is none."""
        return ", ".join(value for key, value in self.headers if key == name)

    def kept(self) -> str:
        """The start of the body, for the record: what is no UTF-8 is replaced."""
        return self.body[: 4 * KEPT].decode("utf-8", "replace")[:KEPT]

"""Why there is no answer, and whether the endpoint may still have received the request."""

from enum import StrEnum

from msgspec import Struct

from tarry.errors import TarryError


class FailureKind(StrEnum):
    """What went wrong, in the order of a request's phases."""

    REQUEST = "request"
    """The request cannot be sent: its URL or a header is invalid."""
    FORBIDDEN = "forbidden"
    """The guard refuses the address, or the port."""
    NO_HOST = "no_host"
    """The host name does not exist."""
    LOOKUP = "lookup"
    """The name lookup failed or timed out."""
    REFUSED = "refused"
    """The connection was refused."""
    UNREACHABLE = "unreachable"
    """No route, or the connection broke before it was established."""
    CONNECT_TIMEOUT = "connect_timeout"
    """TCP and TLS together took longer than the connect timeout."""
    TLS = "tls"
    """The certificate is not valid, or the TLS handshake failed."""
    LOCAL = "local"
    """This machine ran out of something, such as file descriptors; or the sender is closed."""
    TIMEOUT = "timeout"
    """The total timeout passed before anything was sent."""
    UNANSWERED = "unanswered"
    """It was sent, and no head of an answer came within the total timeout."""
    CLOSED = "closed"
    """It was sent, and the connection closed without an answer."""
    MALFORMED = "malformed"
    """The answer is no HTTP."""
    HEAD_TOO_LARGE = "head_too_large"
    """The head has more than 100 headers, or more bytes than are read."""
    BROKEN = "broken"
    """The head came, with `status`; the body was cut off or timed out."""
    REDIRECT = "redirect"
    """A redirect that is not followed: too many, from HTTPS to HTTP, or to no valid URL."""


class Failure(Struct, frozen=True):
    """No complete answer came. `reason` is one line for people, without secrets."""

    kind: FailureKind
    reason: str
    sent: bool = False
    """The endpoint may have received and processed the request: maybe delivered."""
    elapsed: float = 0.0
    """Seconds, redirects included."""
    address: str = ""
    """Address and port of the last try; empty if there was none."""
    status: int = 0
    """The status, if a head came."""
    connect: float = 0.0
    """As in HttpResponse."""


class RequestFailed(TarryError):
    """Raised inside the sender, which turns it into a Failure."""

    def __init__(self, kind: FailureKind, reason: str, sent: bool = False) -> None:
        super().__init__(reason)
        self.kind, self.sent = kind, sent

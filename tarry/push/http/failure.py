"""Why there is no answer, and whether the endpoint may have had the request all the same."""

from enum import StrEnum

from msgspec import Struct

from tarry.errors import TarryError


class FailureKind(StrEnum):
    """What went wrong. In the order of a request's life."""

    REQUEST = "request"
    """The request itself cannot be sent: its URL or a header is none."""
    FORBIDDEN = "forbidden"
    """The guard refuses the address, or the port."""
    NO_HOST = "no_host"
    """Nobody has that name."""
    LOOKUP = "lookup"
    """The name could not be looked up, now or within the time."""
    REFUSED = "refused"
    """Nothing listens there."""
    UNREACHABLE = "unreachable"
    """No way there, or the way broke before the connection stood."""
    CONNECT_TIMEOUT = "connect_timeout"
    """TCP and TLS together took longer than the time to connect."""
    TLS = "tls"
    """The certificate is not good, or there is no common ground for TLS."""
    LOCAL = "local"
    """Something of this machine's own has run out, as file descriptors do; or the sender is closed."""
    TIMEOUT = "timeout"
    """The whole time was over before anything was sent."""
    UNANSWERED = "unanswered"
    """It was sent, and within the whole time no head of an answer came."""
    CLOSED = "closed"
    """It was sent, and the connection ended without an answer."""
    MALFORMED = "malformed"
    """What came is no HTTP."""
    HEAD_TOO_LARGE = "head_too_large"
    """The head has more than 100 headers, or more bytes than are read."""
    BROKEN = "broken"
    """The head came, `status` has it; the body ended, or stood still, in its middle."""
    REDIRECT = "redirect"
    """It leads to where we do not go: too far, out of HTTPS, or nowhere."""


class Failure(Struct, frozen=True):
    """No whole answer came. `reason` is one line for people and holds no secret."""

    kind: FailureKind
    reason: str
    sent: bool = False
    """Some of the request may have arrived, so it may have been acted on: maybe delivered."""
    elapsed: float = 0.0
    """Seconds, redirects included."""
    address: str = ""
    """IP address and port that was tried last, if it came to that."""
    status: int = 0
    """Of the head, where one came."""
    connect: float = 0.0
    """As in Answer."""


class RequestFailed(TarryError):
    """On its way to becoming a Failure."""

    def __init__(self, kind: FailureKind, reason: str, sent: bool = False) -> None:
        super().__init__(reason)
        self.kind, self.sent = kind, sent

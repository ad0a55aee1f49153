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


_SENT = {
    FailureKind.CLOSED: "{name}: the connection ended without an answer: {cause}",
    FailureKind.MALFORMED: "{name}: the answer is no HTTP: {cause}",
    FailureKind.HEAD_TOO_LARGE: "{name}: the head of the answer {cause}",
    FailureKind.BROKEN: "{name} answered {status}, and the body broke off: {cause}",
}
# This machine ran out of something.
_LOCAL = ("Too many open files", "Cannot assign requested address", "Cannot allocate memory")


def sent_failure(kind: FailureKind, name: str, cause: str, status: int = 0) -> RequestFailed:
    """No complete answer to a request that was sent. name: of the server. status: if its head came."""
    return RequestFailed(kind, _SENT.get(kind, "{cause}").format(name=name, cause=cause, status=status), sent=True)


def late_failure(name: str, limit: float, status: int) -> RequestFailed:
    """No complete answer came in time. limit: seconds that were left."""
    if status:
        reason = f"{name} answered {status}, and the body did not end in time"
        return RequestFailed(FailureKind.BROKEN, reason, sent=True)
    return RequestFailed(FailureKind.UNANSWERED, f"{name}: no answer within {limit:.3g} s", sent=True)


def unsent_failure(name: str, limit: float) -> RequestFailed:
    """The total timeout ended before anything was sent. limit: seconds that were left."""
    return RequestFailed(FailureKind.TIMEOUT, f"{name}: nothing could be sent within {limit:.3g} s")


def unconnected_failure(name: str) -> RequestFailed:
    """The connect timeout ended."""
    return RequestFailed(FailureKind.CONNECT_TIMEOUT, f"{name}: not connected in time")


def connect_failure(name: str, cause: str) -> RequestFailed:
    """There is no connection. cause: the system's words."""
    if "Connection refused" in cause:
        return RequestFailed(FailureKind.REFUSED, f"{name} refuses the connection")
    if any(word in cause for word in _LOCAL):
        return RequestFailed(FailureKind.LOCAL, f"{name}: no connection can be made here: {cause}")
    return RequestFailed(FailureKind.UNREACHABLE, f"{name} is not reached: {cause}")

"""Translates the HTTP library's errors.

Its classes do not tell connecting from sending, so the chain of causes has to.
"""

from pyreqwest.exceptions import (
    ClientClosedError,
    DecodeError,
    DetailedPyreqwestError,
    PyreqwestError,
    RequestTimeoutError,
)

from tarry.push.http.failure import (
    FailureKind,
    RequestFailed,
    connect_failure,
    late_failure,
    sent_failure,
    unconnected_failure,
    unsent_failure,
)

_CONNECTING = "client error (Connect)"  # hyper's text for errors before the first byte of the request is written.
# HTTP/2: the server promises that it did nothing. The h2 library uses the second text for streams after the last one of
# a GOAWAY, and for no others: earlier streams end as broken pipes.
_NOT_BEGUN = ("refused stream before processing", "connection error received: ")
_LONGEST = 200
_TLS = ("certificate", "tls", "handshake", "alert")
_CERTIFICATE = "invalid peer certificate: "
_CERTIFICATE_ERRORS = {
    "UnknownIssuer": "its certificate is signed by nobody who is trusted here",
    "CaUsedAsEndEntity": "its certificate is self-signed, and trusted by nobody here",
    "certificate expired": "its certificate has expired",
    "not valid yet": "its certificate is not valid yet",
    "not valid for name": "its certificate is for another name",
}


def no_answer_error(error: PyreqwestError, limit: float, name: str, sent: bool) -> RequestFailed:
    """The error when no head came. limit: seconds that were left. name: of the server. sent: it may have been sent."""
    causes = _causes(error)
    # First, since nothing was sent, also if it was a timeout.
    if _CONNECTING in causes:
        return _connect_error(error, causes[-1], name)
    if isinstance(error, ClientClosedError):
        return RequestFailed(FailureKind.LOCAL, "the sender was closed while the request was under way", sent)
    if isinstance(error, RequestTimeoutError):
        return late_failure(name, limit, 0) if sent else unsent_failure(name, limit)
    if "too large" in causes[-1] or "too big" in causes[-1]:
        return sent_failure(FailureKind.HEAD_TOO_LARGE, name, "is too large")
    if isinstance(error, DecodeError):
        return sent_failure(FailureKind.MALFORMED, name, causes[-1])
    failed = sent_failure(FailureKind.CLOSED, name, causes[-1])
    failed.sent = sent and not any(words in causes[-1] for words in _NOT_BEGUN)
    return failed


def broken_body_error(error: PyreqwestError, status: int, name: str) -> RequestFailed:
    """The error when the head came and the body did not."""
    if isinstance(error, RequestTimeoutError):
        return late_failure(name, 0, status)
    return sent_failure(FailureKind.BROKEN, name, _causes(error)[-1], status)


def _connect_error(error: PyreqwestError, cause: str, name: str) -> RequestFailed:
    if isinstance(error, RequestTimeoutError):
        return unconnected_failure(name)
    if cause.startswith(_CERTIFICATE):
        text = cause.removeprefix(_CERTIFICATE)
        spoken = next(
            (said for word, said in _CERTIFICATE_ERRORS.items() if word in text), "its certificate is not good"
        )
        return RequestFailed(FailureKind.TLS, f"{name}: {spoken} ({text})")
    failed = connect_failure(name, cause)
    if failed.kind is FailureKind.UNREACHABLE and any(word in cause for word in _TLS):
        return RequestFailed(FailureKind.TLS, f"{name}: no TLS: {cause}")
    return failed


def _causes(error: PyreqwestError) -> list[str]:
    """The messages of the causes, outermost first. Never empty."""
    details = error.details if isinstance(error, DetailedPyreqwestError) else {"causes": None}
    causes = [_line(cause["message"]) for cause in details["causes"] or []]
    # Without the first one: it has the URL, which may be secret.
    return causes[1:] or [type(error).__name__]


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]

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

from tarry.push.http.failure import FailureKind, RequestFailed

_CONNECTING = "client error (Connect)"  # hyper's text for errors before the first byte of the request is written.
# HTTP/2: the server promises that it did nothing. The h2 library uses the second text for streams after the last one of
# a GOAWAY, and for no others: earlier streams end as broken pipes.
_NOT_BEGUN = ("refused stream before processing", "connection error received: ")
_LONGEST = 200
_TLS = ("certificate", "tls", "handshake", "alert")
_LOCAL = ("Too many open files", "Cannot assign requested address", "Cannot allocate memory")
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
        why, what = (FailureKind.UNANSWERED, "no answer") if sent else (FailureKind.TIMEOUT, "nothing could be sent")
        return RequestFailed(why, f"{name}: {what} within {limit:.3g} s", sent)
    if "too large" in causes[-1] or "too big" in causes[-1]:
        return RequestFailed(FailureKind.HEAD_TOO_LARGE, f"{name}: the head of the answer is too large", sent=True)
    if isinstance(error, DecodeError):
        return RequestFailed(FailureKind.MALFORMED, f"{name}: the answer is no HTTP: {causes[-1]}", sent=True)
    sent = sent and not any(words in causes[-1] for words in _NOT_BEGUN)
    return RequestFailed(FailureKind.CLOSED, f"{name}: the connection ended without an answer: {causes[-1]}", sent)


def broken_body_error(error: PyreqwestError, status: int, name: str) -> RequestFailed:
    """The error when the head came and the body did not."""
    if isinstance(error, RequestTimeoutError):
        return RequestFailed(
            FailureKind.BROKEN, f"{name} answered {status}, and the body did not end in time", sent=True
        )
    return RequestFailed(
        FailureKind.BROKEN, f"{name} answered {status}, and the body broke off: {_causes(error)[-1]}", sent=True
    )


def _connect_error(error: PyreqwestError, cause: str, name: str) -> RequestFailed:
    if isinstance(error, RequestTimeoutError):
        return RequestFailed(FailureKind.CONNECT_TIMEOUT, f"{name}: not connected in time")
    if "Connection refused" in cause:
        return RequestFailed(FailureKind.REFUSED, f"{name} refuses the connection")
    if any(word in cause for word in _LOCAL):
        return RequestFailed(FailureKind.LOCAL, f"{name}: no connection can be made here: {cause}")
    if cause.startswith(_CERTIFICATE):
        text = cause.removeprefix(_CERTIFICATE)
        spoken = next(
            (said for word, said in _CERTIFICATE_ERRORS.items() if word in text), "its certificate is not good"
        )
        return RequestFailed(FailureKind.TLS, f"{name}: {spoken} ({text})")
    if any(word in cause for word in _TLS):
        return RequestFailed(FailureKind.TLS, f"{name}: no TLS: {cause}")
    return RequestFailed(FailureKind.UNREACHABLE, f"{name} is not reached: {cause}")


def _causes(error: PyreqwestError) -> list[str]:
    """The messages of the causes, outermost first. Never empty."""
    details = error.details if isinstance(error, DetailedPyreqwestError) else {"causes": None}
    causes = [_line(cause["message"]) for cause in details["causes"] or []]
    # Without the first one: it has the URL, which may be secret.
    return causes[1:] or [type(error).__name__]


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]

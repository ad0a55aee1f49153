"""Translation of HTTP library errors that the test server cannot cause."""

import pytest
from pyreqwest.exceptions import ClientClosedError, ConnectError, ConnectTimeoutError, PyreqwestError, RequestError

from tarry.push.http.failure import FailureKind
from tarry.push.http.tls_client import broken_body_error, no_answer_error

OUTER = "error sending request for url (https://hooks.example/?token=hunter2)"


def error(kind: type[RequestError], *causes: str) -> RequestError:
    return kind("connection error", {"causes": [{"message": cause} for cause in (OUTER, *causes)]})


CONNECTING = "client error (Connect)"
SENDING = "client error (SendRequest)"


@pytest.mark.parametrize(
    ("raised", "why", "sent"),
    [
        (
            error(ConnectError, CONNECTING, "tcp connect error", "Connection refused (os error 111)"),
            FailureKind.REFUSED,
            False,
        ),
        (
            error(ConnectError, CONNECTING, "tcp open error", "Too many open files (os error 24)"),
            FailureKind.LOCAL,
            False,
        ),
        (error(ConnectError, CONNECTING, "Cannot assign requested address (os error 99)"), FailureKind.LOCAL, False),
        (error(ConnectError, CONNECTING, "No route to host (os error 113)"), FailureKind.UNREACHABLE, False),
        (error(ConnectError, CONNECTING, "Network is unreachable (os error 101)"), FailureKind.UNREACHABLE, False),
        (error(ConnectError, CONNECTING, "Connection reset by peer (os error 104)"), FailureKind.UNREACHABLE, False),
        (error(ConnectError, CONNECTING, "tls handshake eof"), FailureKind.TLS, False),
        (error(ConnectError, CONNECTING, "received fatal alert: ProtocolVersion"), FailureKind.TLS, False),
        (error(ConnectError, CONNECTING, "invalid peer certificate: BadSignature"), FailureKind.TLS, False),
        (error(ConnectTimeoutError, CONNECTING, "operation timed out"), FailureKind.CONNECT_TIMEOUT, False),
        (error(ConnectTimeoutError, "operation timed out"), FailureKind.UNANSWERED, True),
        (error(ClientClosedError), FailureKind.LOCAL, True),
        (error(ConnectError, SENDING, "connection closed before message completed"), FailureKind.CLOSED, True),
        (
            error(RequestError, SENDING, "http2 error", "connection error detected: not a result"),
            FailureKind.CLOSED,
            True,
        ),
        (
            error(RequestError, SENDING, "http2 error", "connection error received: not a result"),
            FailureKind.CLOSED,
            False,
        ),
        (error(RequestError, SENDING, "stream error: refused stream before processing any"), FailureKind.CLOSED, False),
        (error(RequestError), FailureKind.CLOSED, True),
        (RequestError("whatever", {"causes": None}), FailureKind.CLOSED, True),
        (PyreqwestError("whatever"), FailureKind.CLOSED, True),
    ],
)
def test_without_an_answer(raised: PyreqwestError, why: FailureKind, sent: bool) -> None:
    failed = no_answer_error(raised, 3.0, "hooks.example at 192.0.2.1:443", sent=True)
    assert (failed.kind, failed.sent) == (why, sent)
    assert "hunter2" not in str(failed)


def test_what_did_not_pass_the_gate_was_not_sent() -> None:
    over = no_answer_error(error(ConnectTimeoutError, "operation timed out"), 3.0, "x", sent=False)
    assert (over.kind, over.sent, str(over)) == (FailureKind.TIMEOUT, False, "x: nothing could be sent within 3 s")
    ended = no_answer_error(error(ConnectError, SENDING, "connection closed"), 3.0, "x", sent=False)
    assert (ended.kind, ended.sent) == (FailureKind.CLOSED, False)


def test_a_reason_is_one_short_line() -> None:
    failed = broken_body_error(error(RequestError, "a\r\n b " + "c" * 5000), 200, "hooks.example")
    assert str(failed).startswith("hooks.example answered 200, and the body broke off: a b ccc")
    assert len(str(failed)) < 300

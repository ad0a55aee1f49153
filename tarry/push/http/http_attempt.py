"""What the clients of the sender are given: one request of a chain of redirects, and the state of the chain."""

import time

from msgspec import Struct

from tarry.push.http.failure import Failure, FailureKind, RequestFailed
from tarry.push.http.response import Headers
from tarry.push.http.target import RequestTarget


class Hop(Struct, frozen=True):
    """One request in a chain of redirects."""

    method: str
    to: RequestTarget
    headers: Headers
    body: bytes


class SendState:
    """The state of one `send`, over all redirects."""

    def __init__(self, total: float, connect: float) -> None:
        """Timeouts in seconds."""
        self.total = total
        self.began = time.monotonic()
        self.connect_timeout = min(connect, 0.9 * total)
        self.address = self.url = ""
        self.status, self.connect = 0, 0.0
        self.sent = False
        """Some of it may have been sent. Read only after a cancel; else the answer or the failure says."""
        self.received = False
        """A server that redirected had the request, and may have processed it."""

    def left(self) -> float:
        """Seconds until the total timeout; RequestFailed if it has passed."""
        left = self.began + self.total - time.monotonic()
        if left <= 0:
            raise RequestFailed(FailureKind.TIMEOUT, f"the {self.total:.3g} s were over before anything was sent")
        return left

    def elapsed(self) -> float:
        return time.monotonic() - self.began

    def describe(self, to: RequestTarget) -> str:
        return self.address if to.literal else f"{to.host} at {self.address}"

    def failure(self, why: FailureKind, reason: str, sent: bool = False) -> Failure:
        sent = sent or self.received
        return Failure(why, reason, sent, self.elapsed(), self.address, self.status, self.connect)

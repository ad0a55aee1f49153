"""The body of a request, which is asked for once the connection stands: so it is known when that was, whether anything
can have been sent, and a request that nobody wants any more stays here."""

import time
from collections.abc import Iterator


class BodyGate:
    """Read by the HTTP library's thread; the other methods are for the loop's. Which of two threads was first is known
    since each writes its own mark before it reads the other's."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._closed = False
        self.sent_at = 0.0
        """When the body went out, by the monotonic clock; 0: it has not."""

    def read(self) -> Iterator[bytes]:
        """The body, in one piece."""
        self.sent_at = time.monotonic()
        if self._closed:
            self.sent_at = 0.0
            raise InterruptedError("it is not wanted any more")
        yield self._body

    def close(self) -> None:
        """What has not gone out by now never does."""
        self._closed = True

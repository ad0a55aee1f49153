"""The body of a request. The HTTP library reads it once it is connected.

So it is known when that was and whether anything can have been sent. A request that is cancelled before is not sent.
"""

import time
from collections.abc import Iterator


class BodyGate:
    """The HTTP library's thread calls `read`, the event loop's thread the rest."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._closed = False
        self.sent_at = 0.0
        """When the body was handed over, by the monotonic clock; 0: it was not."""

    def read(self) -> Iterator[bytes]:
        """The body, in one piece."""
        # No lock is needed: each thread sets its own flag before it reads that of the other, so at least one sees the
        # other.
        self.sent_at = time.monotonic()
        if self._closed:
            self.sent_at = 0.0
            raise InterruptedError("it is not wanted any more")
        yield self._body

    def close(self) -> None:
        """From now on `read` refuses: a body that was not sent yet never is."""
        self._closed = True

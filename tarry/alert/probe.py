"""Asks a store whether it is available, in a separate thread, so that a store that hangs blocks nobody."""

import logging
import threading
import time
from collections.abc import Callable

from tarry.errors import StoreError

log = logging.getLogger("tarry.alerts")


class Probe:
    """One question at a time: `ask`, then `wait`. `error` and `took` are the result of the last answered question."""

    def __init__(self, question: Callable[[], None]) -> None:
        self.error: StoreError | None = None
        self.took = 0.0
        """Seconds that the last good answer took."""
        self._question = question
        self._began = 0.0
        self._closed = False
        self._asked, self._answered = threading.Event(), threading.Event()
        self._answered.set()
        # daemon: a question that hangs must not delay the end of the process.
        threading.Thread(target=self._serve, name="tarry-alert-probe", daemon=True).start()

    def close(self) -> None:
        """Ends the thread once the current question is answered."""
        self._closed = True
        self._asked.set()

    def ask(self) -> None:
        """Asks, unless the last question is still open."""
        if self._answered.is_set():
            self._began = time.monotonic()
            self._answered.clear()
            self._asked.set()

    def wait(self, seconds: float) -> bool:
        """Waits until `seconds` after the question; whether there is an answer by then."""
        return self._answered.wait(max(0.0, self._began + seconds - time.monotonic()))

    @property
    def elapsed(self) -> float:
        """Seconds since the question."""
        return time.monotonic() - self._began

    def _serve(self) -> None:
        while self._asked.wait() and not self._closed:
            self._asked.clear()
            began, error = time.monotonic(), None
            try:
                self._question()
            except StoreError as why:
                error = why
            except Exception as why:
                # A fault of ours, or of a driver. Without an answer the store would count as one that hangs.
                log.exception("a store could not be asked whether it is available")
                error = StoreError(f"{type(why).__name__}: {why}")
            self.error = error
            if error is None:
                self.took = time.monotonic() - began
            # Last: the caller reads `error` and `took` after it.
            self._answered.set()

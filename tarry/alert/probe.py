"""Asks a store whether it is there, in a thread of its own, so that one that does not answer holds up nobody."""

import threading
import time
from collections.abc import Callable

from tarry.errors import StoreError


class Probe:
    """One question at a time: `ask`, then `wait`; `error` and `took` are what came of the last that was answered."""

    def __init__(self, question: Callable[[], None]) -> None:
        self.error: StoreError | None = None
        self.took = 0.0
        """Seconds until the last good answer."""
        self._question = question
        self._began = 0.0
        self._closed = False
        self._asked, self._answered = threading.Event(), threading.Event()
        self._answered.set()
        threading.Thread(target=self._serve, name="tarry-alert-probe", daemon=True).start()

    def close(self) -> None:
        """Nothing more is asked: the thread ends, after the question that is on its way."""
        self._closed = True
        self._asked.set()

    def ask(self) -> None:
        """Asks, unless the last question is still on its way."""
        if self._answered.is_set():
            self._began = time.monotonic()
            self._answered.clear()
            self._asked.set()

    def wait(self, seconds: float) -> bool:
        """Whether the answer has come so many seconds after the question at the latest."""
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
            self.error = error
            if error is None:
                self.took = time.monotonic() - began
            self._answered.set()

"""Calls that may hang, as the place of large payloads does: whoever makes others, too, does not wait for them."""

import threading
from collections.abc import Callable

WITHIN = 0.2
"""Seconds for which a call is waited for."""


class Aside:
    """One call after the other, each in a thread. name: of the call, for logs."""

    def __init__(self, call: Callable[[], bool | None], name: str) -> None:
        self._call, self.__name__ = call, name
        self._thread: threading.Thread | None = None
        self._answer: bool | None = None
        self._error: Exception | None = None

    def __call__(self) -> bool | None:
        """What the call answers or raises; True while it goes on: then the next call waits for that one."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="tarry-payloads", daemon=True)
            self._thread.start()
        self._thread.join(WITHIN)
        if self._thread.is_alive():
            return True
        self._thread, error, self._error = None, self._error, None
        if error is not None:
            raise error
        return self._answer

    def _run(self) -> None:
        try:
            self._answer = self._call()
        except Exception as error:
            self._error = error

"""How long requests gather before the next call of the store, while they come faster than calls."""

import threading

GATHER = 0.002
"""Seconds at most."""
GATHER_FROM = 4
"""Answers of one call from which on requests gather."""


class BatchWindow:
    """Waits for those who were answered to ask again: one call for all costs little more than for some.

    `expect` and `note` are called under one lock, `wait` without it.
    """

    def __init__(self) -> None:
        self._missing = 0
        self._all_came = threading.Event()

    def expect(self, answered: int) -> None:
        """So many are about to be answered."""
        self._missing = answered
        self._all_came.clear()

    def note(self, count: int) -> None:
        """So many ask."""
        if self._missing > 0:
            self._missing -= count
            if self._missing <= 0:
                self._all_came.set()

    def wait(self) -> bool:
        """Until as many asked as were to be answered at the last `expect`, GATHER seconds at most; whether they did."""
        return self._all_came.wait(GATHER)

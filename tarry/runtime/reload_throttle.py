"""When a change of the files is followed by a reload: at once, and ever later where each reload brings the next."""

import math

FREE = 5
"""So many in a row are free: somebody types fast."""
IN_A_ROW = 5.0
"""Seconds after the one before, within which one counts as in a row."""
LONGEST = 60.0


class Pace:
    """Times are of the monotonic clock. An app that writes files of its own as it is imported would else reload, and
    write, for ever."""

    def __init__(self) -> None:
        self.due = math.inf
        """When a reload is wanted."""
        self._row = 0
        self._last = -math.inf

    def changed(self, now: float) -> float:
        """Something has; answers in how many seconds a reload is due."""
        if self.due < math.inf:
            return max(0.0, self.due - now)
        self._row = self._row + 1 if now - self._last < IN_A_ROW else 1
        pause = 0.0 if self._row <= FREE else min(LONGEST, 2.0 ** min(self._row - FREE, 20))
        self.due = self._last = now + pause
        return pause

    def take(self, now: float) -> bool:
        """Whether one is due, once."""
        if now < self.due:
            return False
        self.due = math.inf
        return True

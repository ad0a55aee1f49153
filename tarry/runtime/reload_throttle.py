"""When a change of the files is followed by a reload: at once, and ever later where each reload brings the next."""

import math

FREE_RELOADS = 5
"""So many in a row are free: somebody types fast."""
ROW_GAP = 5.0
"""Seconds after the one before, within which one counts as in a row."""
MAX_DELAY = 60.0


class ReloadThrottle:
    """Times are of the monotonic clock. An app that writes files of its own as it is imported would else reload, and
    write, for ever."""

    def __init__(self) -> None:
        self.due_at = math.inf
        """When a reload is wanted."""
        self._in_a_row = 0
        self._last = -math.inf

    def note_change(self, now: float) -> float:
        """Something has; answers in how many seconds a reload is due."""
        if self.due_at < math.inf:
            return max(0.0, self.due_at - now)
        self._in_a_row = self._in_a_row + 1 if now - self._last < ROW_GAP else 1
        pause = 0.0 if self._in_a_row <= FREE_RELOADS else min(MAX_DELAY, 2.0 ** min(self._in_a_row - FREE_RELOADS, 20))
        self.due_at = self._last = now + pause
        return pause

    def take_due(self, now: float) -> bool:
        """Whether one is due, once."""
        if now < self.due_at:
            return False
        self.due_at = math.inf
        return True

"""When a change of files triggers a reload: at once, or after growing pauses if each reload causes the next."""

import math

FREE_RELOADS = 5
"""So many reloads in a row come without a pause: somebody may save often."""
ROW_GAP = 5.0
"""A change within so many seconds of the last reload counts as in a row."""
MAX_DELAY = 60.0


class ReloadThrottle:
    """Delays reloads that follow each other fast. Without this, an app that writes to its own files when it is imported
    would reload for ever. Times are of the monotonic clock."""

    def __init__(self) -> None:
        self.due_at = math.inf
        """When the next reload is due."""
        self._in_a_row = 0
        self._last = -math.inf

    def note_change(self, now: float) -> float:
        """A file has changed. Returns in how many seconds a reload is due."""
        if self.due_at < math.inf:
            return max(0.0, self.due_at - now)
        self._in_a_row = self._in_a_row + 1 if now - self._last < ROW_GAP else 1
        pause = 0.0 if self._in_a_row <= FREE_RELOADS else min(MAX_DELAY, 2.0 ** min(self._in_a_row - FREE_RELOADS, 20))
        self.due_at = self._last = now + pause
        return pause

    def take_due(self, now: float) -> bool:
        """True once, when a reload is due."""
        if now < self.due_at:
            return False
        self.due_at = math.inf
        return True

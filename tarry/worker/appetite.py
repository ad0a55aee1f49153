"""How many jobs a worker should hold: as many as it can run at once, and so many more as it will have finished
before the next ones could be here. A worker of short jobs brings them by the hundred; one of long jobs, none ahead,
so that no job waits behind a long one while another worker is idle."""

HORIZON = 0.025
"""Seconds of work to have in line."""
MOST_AHEAD = 1000
STALLED_AFTER = 0.25
"""Seconds without an end after which those in line are given back."""
_SMOOTH = 0.3


class Appetite:
    """For one runner: watches how fast jobs end, and says how many to hold."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._rate = 0.0
        self._since = 0.0
        self._last_end = 0.0

    def ended(self, count: int, now: float) -> None:
        """So many ended since the last call; `now` by time.monotonic()."""
        spell = max(now - max(self._since, self._last_end), 1e-4)
        self._rate += _SMOOTH * (count / spell - self._rate)
        self._last_end = now

    def idle(self, now: float) -> None:
        """Nothing was there to run: the time up to now tells nothing of how fast jobs end."""
        self._since = now

    def ahead(self) -> int:
        """How many to have in line."""
        return min(MOST_AHEAD, int(self._rate * HORIZON))

    def target(self) -> int:
        """How many to hold in all, running and in line."""
        return self._slots + self.ahead() if self._slots else 0

    def stalled(self, now: float) -> bool:
        """Nothing ended for long: what is in line would be better off elsewhere."""
        return now - max(self._last_end, self._since) > STALLED_AFTER

    def forget(self) -> None:
        """After a stall: start anew from what the slots hold."""
        self._rate = 0.0

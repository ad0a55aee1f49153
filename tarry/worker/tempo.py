"""How fast what a worker holds comes to its end, so that it is not settled one by one where it may as well be by the
dozen."""

WINDOW = 0.2
"""Seconds over which it is measured."""
LEAST, MOST = 0.001, 0.02
"""Seconds, of a pause."""
WORTH = 10
"""Ends that are worth one."""


class Tempo:
    """Ends a second, of late. Times are those of time.monotonic()."""

    def __init__(self) -> None:
        self._rate, self._count, self._since = 0.0, 0, 0.0

    def ended(self, count: int, now: float) -> None:
        """So many since the last call."""
        self._count += count
        if now - self._since >= WINDOW:
            self._rate = self._count / (now - self._since)
            self._count, self._since = 0, now

    def pause(self, held: int, ended: int) -> float:
        """Seconds to wait for others where so many are held and so many have ended: until it is a quarter, so that none
        waits for more than a quarter of the time that a job takes here. 0.0: too few would come, or it is too soon."""
        pause = min((held / 4 - ended) / self._rate, MOST) if self._rate else 0.0
        return pause if pause >= LEAST and self._rate * pause >= WORTH else 0.0

"""What a command that waits says meanwhile: what it waits for, and after a while how the wait can be ended."""

from collections.abc import Callable, Iterable
from time import monotonic

Tell = Callable[[str], None]

TELL_EVERY = 1.0
"""Seconds between two notes of what is awaited."""
WAY_OUT_AFTER = 10.0
"""Seconds after which the way out is told, once."""


class WaitNotes:
    """The notes of one wait. tell: prints a line. way_out: a sentence that names the commands which end the wait."""

    def __init__(self, tell: Tell, way_out: str, clock: Callable[[], float] = monotonic) -> None:
        self._tell, self._way_out, self._clock = tell, way_out, clock
        self._began = self._told = clock()

    def note(self, awaited: Callable[[], Iterable[str]]) -> None:
        """To be called again and again while it waits; tells what is due. awaited: what it waits for, a line each."""
        now = self._clock()
        if now - self._told < TELL_EVERY:
            return
        self._told = now
        for line in awaited():
            self._tell(line)
        if self._way_out and now - self._began >= WAY_OUT_AFTER:
            self._tell(self._way_out)
            self._way_out = ""

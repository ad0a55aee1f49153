"""Forgets finished jobs, a few with each script."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tarry.store.redis.link.base import Word

# The server does nothing else while a script runs, and a job takes some 15 microseconds.
EXAMINED_AT_ONCE = 100
"""Jobs whose records one script looks at."""
MAX_EXAMINED = 5000
"""Jobs that one call looks at where a queue keeps too much; the next call goes on from there."""
_ANY = 2**53
"""Bytes that no queue keeps more of: then only jobs whose time has come are forgotten."""


class RedisPruner:
    """Prunes one store, for one thread at a time; a call goes on where the last one stopped.

    run: the script `prune`, which answers how many jobs it has forgotten, and where to go on.
    """

    def __init__(self, run: Callable[..., Sequence[Any]]) -> None:
        self._run = run
        self._settings: tuple[int, Mapping[str, int]] = (0, {})
        self._after = b""

    def prune(self, now: int, most_bytes: int, limit: int, by_queue: Mapping[str, int]) -> int:
        """As `Store.prune`."""
        # With new settings, jobs that were passed over may have to go: it begins from the first.
        if self._settings != (most_bytes, by_queue):
            self._settings, self._after = (most_bytes, dict(by_queue)), b""
        # First the jobs whose time has come, always from the first one: they are at the front of their lines.
        gone, after = 0, b""
        while gone < limit:
            count, after = self._step(now, limit - gone, after, _ANY)
            gone += count
            if not after:
                break
        return gone + self._lighten(now, limit - gone)

    def _lighten(self, now: int, limit: int) -> int:
        """Forgets jobs of queues that keep too many bytes."""
        most_bytes, by_queue = self._settings
        words: list[Word] = [word for queue, most in by_queue.items() for word in (queue, most)]
        gone = looked = 0
        while gone < limit and looked < MAX_EXAMINED:
            count, self._after = self._step(now, limit - gone, self._after, most_bytes, *words)
            gone, looked = gone + count, looked + EXAMINED_AT_ONCE
            if not self._after:
                break
        return gone

    def _step(self, now: int, limit: int, after: bytes, *kept: Word) -> tuple[int, bytes]:
        count, last = self._run(now, min(limit, EXAMINED_AT_ONCE), EXAMINED_AT_ONCE, after, *kept)
        return int(count), bytes(last)

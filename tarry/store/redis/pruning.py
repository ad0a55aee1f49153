"""Forgetting finished jobs, a script for every few of them: nobody else is served while one runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tarry.store.redis.link import Word

LOOKED_AT_ONCE = 100
"""Jobs of which a script looks at the records; a job takes some 15 microseconds."""
LOOKED_AT = 5000
"""Jobs that one call looks at where a queue keeps too much: the next call goes on from there."""
_ANY = 2**53


class Pruning:
    """Of one store in one process; where it is lasts from call to call. For one thread at a time.

    run: the script `prune`, which answers how many it has forgotten, and where to go on.
    """

    def __init__(self, run: Callable[..., Sequence[Any]]) -> None:
        self._run = run
        self._asked: tuple[int, Mapping[str, int]] = (0, {})
        self._after = b""

    def prune(self, now: int, most_bytes: int, limit: int, by_queue: Mapping[str, int]) -> int:
        """As `Store.prune`."""
        if self._asked != (most_bytes, by_queue):
            self._asked, self._after = (most_bytes, dict(by_queue)), b""
        gone, after = 0, b""
        while gone < limit:
            count, after = self._step(now, limit - gone, after, _ANY)
            gone += count
            if not after:
                break
        return gone + self._lighten(now, limit - gone)

    def _lighten(self, now: int, limit: int) -> int:
        most_bytes, by_queue = self._asked
        words: list[Word] = [word for queue, most in by_queue.items() for word in (queue, most)]
        gone = looked = 0
        while gone < limit and looked < LOOKED_AT:
            count, self._after = self._step(now, limit - gone, self._after, most_bytes, *words)
            gone, looked = gone + count, looked + LOOKED_AT_ONCE
            if not self._after:
                break
        return gone

    def _step(self, now: int, limit: int, after: bytes, *kept: Word) -> tuple[int, bytes]:
        count, last = self._run(now, min(limit, LOOKED_AT_ONCE), LOOKED_AT_ONCE, after, *kept)
        return int(count), bytes(last)

"""Who is served first: the shares of queues and of bands of priority, as a plan for each claim.

Smooth weighted round robin: what a line could not be given this time, because a plan deals in whole jobs, is owed to
it the next time. So shares hold for claims of one as for claims of a thousand. What empty lines leave over is shared
out by the same weights among the others.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from tarry.model.job import Job
from tarry.store.base import BANDS, Want, band

BandShares = Sequence[int] | Literal["strict"]
BY_DEFAULT = (5, 3, 2)
Queues = str | Sequence[str] | Mapping[str, int]
"""The queues that a worker serves: one name, several names, or weights by name."""


class Shares:
    """Plans claims over queues, weighted, times bands, 5:3:2 or strict."""

    def __init__(self, bands: BandShares = BY_DEFAULT) -> None:
        self._strict = bands == "strict"
        self._bands = dict(zip(BANDS, (1, 1, 1) if isinstance(bands, str) else bands, strict=True))
        self._weights: dict[tuple[str, int], float] = {}
        self._owed: dict[tuple[str, int], float] = {}
        self._owed_more: dict[tuple[str, int], float] = {}
        self._empty: set[tuple[str, int]] = set()

    def serve(self, queues: Mapping[str, int]) -> None:
        """The queues to plan for, and their weights."""
        total = sum(queues.values()) * sum(self._bands.values())
        self._weights = {
            (queue, band): weight * share / total
            for band, share in self._bands.items()
            for queue, weight in queues.items()
        }
        self._owed = {line: self._owed.get(line, 0.0) for line in self._weights}
        self._owed_more = dict.fromkeys(self._weights, 0.0)
        self._empty &= self._weights.keys()

    def plan(self, limit: int) -> list[Want]:
        """What to wish for when there is room for `limit` jobs."""
        if self._strict:
            return [Want(queue, band, limit) for queue, band in self._weights]
        counts = _split(limit, self._weights, self._owed)
        left = sum(counts[line] for line in self._empty)
        full = {line: weight for line, weight in self._weights.items() if line not in self._empty}
        more = _split(left, full, self._owed_more) if left and full else {}
        return [Want(*line, count) for line, count in (*counts.items(), *more.items())]

    def given(self, wants: Sequence[Want], jobs: Sequence[Job]) -> None:
        """What came of a plan: a line that gave less than was wished for is empty for now."""
        if self._strict or len(self._weights) == len(BANDS):
            # Between the bands of one queue it does not matter enough to count every job.
            return
        got = Counter((job.queue, band(job.priority)) for job in jobs)
        wished = Counter[tuple[str, int]]()
        for want in wants:
            wished[want.queue, want.band] += want.count
        for line in self._weights:
            if got[line] > wished[line] or got[line] == wished[line] > 0:
                self._empty.discard(line)
            elif wished[line]:
                self._empty.add(line)


def _split(
    limit: int, weights: Mapping[tuple[str, int], float], owed: dict[tuple[str, int], float]
) -> dict[tuple[str, int], int]:
    """So many whole jobs to each line, the one that is owed most first."""
    total = sum(weights.values())
    counts = {}
    for line, weight in weights.items():
        owed[line] += weight / total * limit
        counts[line] = max(0, int(owed[line]))
        owed[line] -= counts[line]
    order = sorted(weights, key=lambda line: -owed[line])
    over = sum(counts.values()) - limit
    for line in order[:-over] if over < 0 else ():
        owed[line] -= 1
        counts[line] += 1
    # Some had more than they were owed before, so that the whole jobs of the others are too many: the last waits.
    for line in [line for line in reversed(order) if counts[line]][: max(over, 0)]:
        owed[line] += 1
        counts[line] -= 1
    return {line: counts[line] for line in order}

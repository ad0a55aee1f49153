"""Who is served first: the shares of queues and of bands of priority, as a plan for each claim.

Smooth weighted round robin: what a line could not be given this time, because a plan deals in whole jobs, is owed to
it the next time. So shares hold for claims of one as for claims of a thousand, and an empty line is owed nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from tarry.store.base import BANDS, Want

BandShares = Sequence[int] | Literal["strict"]
BY_DEFAULT = (5, 3, 2)


class Shares:
    """Plans claims over queues, weighted, times bands, 5:3:2 or strict."""

    def __init__(self, bands: BandShares = BY_DEFAULT) -> None:
        self._strict = bands == "strict"
        self._bands = dict(zip(BANDS, (1, 1, 1) if isinstance(bands, str) else bands, strict=True))
        self._weights: dict[tuple[str, int], float] = {}
        self._owed: dict[tuple[str, int], float] = {}

    def serve(self, queues: Mapping[str, int]) -> None:
        """The queues to plan for, and their weights."""
        total = sum(queues.values()) * sum(self._bands.values())
        self._weights = {
            (queue, band): weight * share / total
            for band, share in self._bands.items()
            for queue, weight in queues.items()
        }
        self._owed = {line: self._owed.get(line, 0.0) for line in self._weights}

    def plan(self, limit: int) -> list[Want]:
        """What to wish for when there is room for `limit` jobs."""
        if self._strict:
            return [Want(queue, band, limit) for queue, band in self._weights]
        counts = {line: self._whole(line, limit) for line in self._weights}
        order = sorted(self._weights, key=lambda line: -self._owed[line])
        for line in order[: limit - sum(counts.values())]:
            self._owed[line] -= 1
            counts[line] += 1
        return [Want(queue, band, counts[queue, band]) for queue, band in order]

    def _whole(self, line: tuple[str, int], limit: int) -> int:
        self._owed[line] += self._weights[line] * limit
        whole = max(0, int(self._owed[line]))
        self._owed[line] -= whole
        return whole

"""The open line of a queue and band has two halves: late jobs, and those on time. They take turns, so a claim asks for
the first of both."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tarry.store.base import BANDS
from tarry.store.mysql import sql

Line = tuple[str, int]
"""A queue and a band."""
Half = tuple[str, int, bool]
"""Of a line the late jobs (True), or those on time: each in the order of priority, due and id."""


def halves(queue: str, band: int) -> tuple[Half, Half]:
    """Those of one line: the late jobs, those on time."""
    return (queue, band, True), (queue, band, False)


def exists(halves: Sequence[Half]) -> str:
    """An expression: whether there are any jobs. halves: one, or all bands of a queue that are as late."""
    queue, band, late = halves[0]
    where = f"queue = {sql.text(queue)} AND late = {late:d}"
    one_band = f" AND {sql.BANDS[band]}" if len(halves) < len(BANDS) else ""
    return f"EXISTS(SELECT 1 FROM tarry_ready WHERE {where}{one_band})"


def together(halves: Iterable[Half]) -> Iterator[Sequence[Half]]:
    """Groups for `exists`, as few as there may be. To ask for two bands of three at once would not be cheap: a planner
    might read the third to its end."""
    kinds: defaultdict[tuple[str, bool], dict[Half, None]] = defaultdict(dict)
    for queue, band, late in halves:
        kinds[queue, late][queue, band, late] = None
    for group in map(tuple, kinds.values()):
        yield from [group] if len(group) == len(BANDS) else [(half,) for half in group]

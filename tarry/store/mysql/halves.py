"""The two halves of the open line of a queue and band: late jobs, and jobs on time. They take turns, so a claim reads
the first jobs of both."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tarry.store.base import BANDS
from tarry.store.mysql import sql

LatenessLine = tuple[str, int, bool]
"""Queue, band, and whether it has the late jobs. The jobs' order: priority, due, id."""


def halves(queue: str, band: int) -> tuple[LatenessLine, LatenessLine]:
    """The halves of one line: the late jobs, the jobs on time."""
    return (queue, band, True), (queue, band, False)


def exists(halves: Sequence[LatenessLine]) -> str:
    """A SQL expression: whether there are any jobs. halves: one half, or the halves of all bands of a queue, either all
    late or all on time."""
    queue, band, late = halves[0]
    where = f"queue = {sql.text(queue)} AND late = {late:d}"
    one_band = f" AND {sql.BANDS[band]}" if len(halves) < len(BANDS) else ""
    return f"EXISTS(SELECT 1 FROM tarry_ready WHERE {where}{one_band})"


def group_halves(halves: Iterable[LatenessLine]) -> Iterator[Sequence[LatenessLine]]:
    """The halves in as few groups as `exists` can take."""
    # Two bands of three in one group are not cheap: the planner might read all jobs of the third.
    groups: defaultdict[tuple[str, bool], dict[LatenessLine, None]] = defaultdict(dict)
    for queue, band, late in halves:
        groups[queue, late][queue, band, late] = None
    for group in map(tuple, groups.values()):
        yield from [group] if len(group) == len(BANDS) else [(half,) for half in group]

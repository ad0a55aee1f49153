"""What was ever counted, as counters and histograms. The store's history has it: a scrape counts nothing itself."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import accumulate

from prometheus_client.core import Metric

from tarry.metrics.families import gauges, histogram
from tarry.metrics.names import OTHER
from tarry.model.change import CANCELLED, DEAD, DONE, EXPIRED, FAILED, PUT
from tarry.model.duration import SECOND
from tarry.model.history.buckets import LAST, middle_of
from tarry.model.history.counting import KINDS
from tarry.store.history.sums import OTHERS, Place, Sums, decode

_OUTCOMES = (DONE, DEAD, CANCELLED, EXPIRED)
_LIMITS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0)
"""Seconds that jobs wait or run."""
_NAMES = (*map(str, _LIMITS), "+Inf")
# Once for all scrapes: of hundreds of histograms each has up to 142 buckets.
_SECONDS = [middle_of(bucket) / SECOND for bucket in range(LAST + 1)]
_LIMIT_OF = [bisect_left(_LIMITS, seconds) for seconds in _SECONDS]

Named = Mapping[tuple[str, str], Sums]


def history_families(totals: Mapping[Place, bytes], allows: Callable[[str], bool]) -> Iterator[Metric]:
    """The store bounds how many pairs of queue and task have sums of their own: `sums.MOST_NAMES`."""
    cells = _by_names(totals, allows)
    yield from _counters(cells)
    waited = _together((queue, sums) for (queue, _), sums in cells.items())
    yield histogram(
        "tarry_job_wait_seconds", {(queue,): _limits_and_sum(sums.waited) for queue, sums in waited.items()}
    )
    ran = {names: _limits_and_sum(sums.ran) for names, sums in cells.items()}
    yield histogram("tarry_job_duration_seconds", ran)
    pushed = _together((task, sums) for (_, task), sums in cells.items() if sums.statuses)
    attempts = {(task, status): number for task, sums in pushed.items() for status, number in _classes(sums).items()}
    yield from gauges({"tarry_push_attempts_total": attempts})


def _by_names(totals: Mapping[Place, bytes], allows: Callable[[str], bool]) -> Named:
    """The sums by queue and task, as labels have them."""
    found = defaultdict[tuple[str, str], Sums](Sums)
    for place, cell in sorted(totals.items()):
        if allows(place.queue) and (place.task or place.queue == OTHERS):
            # A queue or a task may really be named so: then these are added up.
            found[place.queue or OTHER, place.task or OTHER].add(decode(cell))
    return found


def _counters(cells: Named) -> Iterator[Metric]:
    def of(kind: int) -> dict[tuple[str, ...], float]:
        return {names: sums.kinds.get(kind, 0) for names, sums in cells.items()}

    outcomes = {(*names, KINDS[kind]): number for kind in _OUTCOMES for names, number in of(kind).items()}
    yield from gauges(
        {
            "tarry_jobs_enqueued_total": of(PUT),
            "tarry_jobs_total": outcomes,
            "tarry_job_retries_total": of(FAILED),
        }
    )


def _together(named: Iterable[tuple[str, Sums]]) -> Mapping[str, Sums]:
    found = defaultdict[str, Sums](Sums)
    for name, sums in named:
        found[name].add(sums)
    return found


def _classes(sums: Sums) -> Mapping[str, int]:
    """How many answers there were of each class of status. Those that often come are there from the start, so that
    the first failure is an increase, too."""
    found = dict.fromkeys(("2xx", "4xx", "5xx"), 0)
    for status, number in sums.statuses.items():
        name = f"{status // 100}xx" if 100 <= status < 600 else OTHER
        found[name] = found.get(name, 0) + number
    return found


def _limits_and_sum(buckets: Mapping[int, int]) -> tuple[list[tuple[str, float]], float]:
    """How many durations are within each of _LIMITS, and their sum in seconds; both to within an eighth."""
    counts = [0] * (len(_LIMITS) + 1)
    for bucket, number in buckets.items():
        counts[_LIMIT_OF[bucket]] += number
    return list(zip(_NAMES, accumulate(counts), strict=True)), sum(
        _SECONDS[bucket] * number for bucket, number in buckets.items()
    )

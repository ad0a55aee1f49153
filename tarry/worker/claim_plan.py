"""What to claim from each queue and band of priority, by their weights.

`WeightedQueues` is a smooth weighted round robin. What empty queues leave over is shared among the others by the same
weights.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec.structs import replace

from tarry.errors import StoreError
from tarry.model.duration import SECOND
from tarry.model.flow.own_queues import is_own_queue
from tarry.model.job import Job
from tarry.store.rules.base import BANDS, NORMAL, Store, Want, band
from tarry.store.rules.partial_result import reachable_part
from tarry.worker.external_queues import find_external

BandShares = Sequence[int] | Literal["strict"]
DEFAULT_SHARES = (5, 3, 2)
Queues = str | Sequence[str] | Mapping[str, int]
"""The queues that a worker serves: one name, several names, or weights by name."""

FIND_QUEUES_EVERY = 1.0
"""Seconds. A busy worker looks for new queues so often; an idle one looks at each turn."""
FIND_EXTERNAL_EVERY = 5.0
"""Seconds between two looks for queues that other programs serve. Before a new queue is served there is one, too."""
OWN_EVERY = 0.75
"""Seconds between two looks into a worker's own queues, at least. Less than the second after which an idle worker looks
at all, so that each such look is one."""
NO_JOBS = Want("", NORMAL, 0)
"""Asks for nothing: no queue has this name."""
OVERDUE_PAUSE, AT_ONCE_PAUSE = 0.02, 0.001
"""Seconds before the next claim while jobs are overdue; the second one if the store has not looked at all of them."""


class ClaimPlan:
    """The wants of each claim: for the configured queues with their weights, or for "*" all queues that have jobs.

    With "*", queues that programs other than tarry's workers serve, and those of single hosts and workers, are left
    out, unless they are named as well. A weight of 0: the worker's own queues, for broadcasts. They are asked for once
    a second: in between, claims cost no more than without them.
    """

    def __init__(self, store: Store, queues: Mapping[str, int], shares: BandShares) -> None:
        self._store = store
        self._serves_all = "*" in queues
        self._own = [Want(queue, band, 0) for queue, weight in queues.items() if not weight for band in BANDS]
        self._own_at = -OWN_EVERY
        weighted = {queue: weight for queue, weight in queues.items() if weight}
        self._queues: Mapping[str, int] = {} if self._serves_all else weighted
        self._weighted = WeightedQueues(shares)
        self._weighted.set_queues(self._queues)
        self._named = queues.keys() - {"*"}
        self._external: frozenset[str] = frozenset()
        self._searched_at = 0.0
        self._had_jobs = False
        """Whether the last claim brought any."""
        self._external_found_at = -FIND_EXTERNAL_EVERY

    def wants(self, limit: int, due: bool, *, may_search: bool = True) -> Sequence[Want]:
        """What to claim, at most `limit` jobs. due: the store has scheduled jobs to make ready. may_search: whether to
        look for queues if none is known, or if that was long ago."""
        # Who finds no job looks for queues after the claim anyway: it may have made jobs of new ones ready.
        is_old = self._had_jobs and time.monotonic() - self._searched_at >= FIND_QUEUES_EVERY
        if may_search and self._serves_all and (is_old or not self._queues):
            self.find_new_queues()
        wants = self._weighted.plan(limit) if self._queues else []
        if self._own:
            wants = [*self._own_wants(limit), *wants]
        # A claim makes due jobs ready, also those of queues that are not known yet. Without any want there is no claim.
        return [*wants, NO_JOBS] if due else wants

    def _own_wants(self, limit: int) -> Sequence[Want]:
        now = time.monotonic()
        if now - self._own_at < OWN_EVERY:
            return ()
        self._own_at = now
        return [replace(want, count=limit) for want in self._own]

    def record(self, wants: Sequence[Want], jobs: Sequence[Job]) -> None:
        """Records what a claim with these wants brought."""
        self._had_jobs = bool(jobs)
        self._weighted.record(wants, jobs)

    def find_new_queues(self) -> bool:
        """Whether there are new queues to serve; always False if the queues are configured."""
        if not self._serves_all:
            return False
        self._searched_at = time.monotonic()
        try:
            queues = reachable_part(self._store.queues)
            served = [queue for queue, paused in queues.items() if not (paused or self._is_left_out(queue))]
            self._find_external(bool(set(served) - self._queues.keys() - self._external))
        except StoreError:
            return False
        found = {queue: 1 for queue in served if queue not in self._external}
        has_new = bool(found.keys() - self._queues.keys())
        if has_new or not self._external.isdisjoint(self._queues):
            self._queues = found
            self._weighted.set_queues(found)
        return has_new

    def _is_left_out(self, queue: str) -> bool:
        return is_own_queue(queue) and queue not in self._named

    def _find_external(self, has_new: bool) -> None:
        if has_new or self._searched_at - self._external_found_at >= FIND_EXTERNAL_EVERY:
            self._external_found_at = self._searched_at
            self._external = find_external(self._store) - self._named


class WeightedQueues:
    """Shares claims among queues by weight, and in each queue among the bands, 5:3:2 or strict."""

    def __init__(self, bands: BandShares = DEFAULT_SHARES) -> None:
        self._strict = bands == "strict"
        self._bands = dict(zip(BANDS, (1, 1, 1) if isinstance(bands, str) else bands, strict=True))
        self._weights: dict[tuple[str, int], float] = {}
        # A claim is for whole jobs: what a queue was not given this time is owed to it next time. So the weights hold
        # for claims of one job as for claims of a thousand.
        self._owed: dict[tuple[str, int], float] = {}
        self._owed_more: dict[tuple[str, int], float] = {}
        """As `_owed`, for what empty queues leave over."""
        self._empty: set[tuple[str, int]] = set()

    def set_queues(self, queues: Mapping[str, int]) -> None:
        """Sets the queues and their weights."""
        total = sum(queues.values()) * sum(self._bands.values())
        self._weights = {
            (queue, band): weight * share / total
            for band, share in self._bands.items()
            for queue, weight in queues.items()
        }
        # What is owed stays: a queue must not lose its turn because another queue is new.
        self._owed = {line: self._owed.get(line, 0.0) for line in self._weights}
        self._owed_more = dict.fromkeys(self._weights, 0.0)
        self._empty &= self._weights.keys()

    def plan(self, limit: int) -> list[Want]:
        """The wants for a claim of `limit` jobs."""
        if self._strict:
            return [Want(queue, band, limit) for queue, band in self._weights]
        counts = _split(limit, self._weights, self._owed)
        left = sum(counts[line] for line in self._empty)
        full = {line: weight for line, weight in self._weights.items() if line not in self._empty}
        more = _split(left, full, self._owed_more) if left and full else {}
        return [Want(*line, count) for line, count in (*counts.items(), *more.items())]

    def record(self, wants: Sequence[Want], jobs: Sequence[Job]) -> None:
        """Records what a claim brought: a queue and band that gave less than wanted counts as empty for now."""
        if self._strict or len(self._weights) == len(BANDS):
            # Between the bands of one queue it does not matter enough to count every job.
            return
        got = Counter((job.queue, band(job.priority)) for job in jobs)
        wanted = Counter[tuple[str, int]]()
        for want in wants:
            wanted[want.queue, want.band] += want.count
        for line in self._weights:
            if got[line] > wanted[line] or got[line] == wanted[line] > 0:
                self._empty.discard(line)
            elif wanted[line]:
                self._empty.add(line)


def _split(
    limit: int, weights: Mapping[tuple[str, int], float], owed: dict[tuple[str, int], float]
) -> dict[tuple[str, int], int]:
    """Splits `limit` into whole numbers by weight, in the order of what is owed; updates `owed`."""
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
    # Where some were given more than they were owed before, the whole numbers add up to too many: the last one waits.
    for line in [line for line in reversed(order) if counts[line]][: max(over, 0)]:
        owed[line] += 1
        counts[line] -= 1
    return {line: counts[line] for line in order}


def seconds_until_due(next_due: int, claimed_at: int, now: int) -> float:
    """Seconds before the next claim. next_due: when the next scheduled job is due, as a claim at `claimed_at` saw."""
    if next_due > claimed_at:
        return (next_due - now) / SECOND
    # Due at that claim, and still not ready: there are more than one claim makes ready, or this one may not.
    return OVERDUE_PAUSE if next_due else AT_ONCE_PAUSE

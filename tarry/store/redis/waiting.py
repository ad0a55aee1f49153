"""The counts of waiting jobs in a Redis server: see `lua/waiting.lua`."""

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from tarry.model.job import Job
from tarry.store.redis import scripts
from tarry.store.redis.link.base import Word
from tarry.store.redis.record import TIME, claim_order_bytes
from tarry.store.rules.base import HIGH, LOW, NORMAL, band
from tarry.store.rules.waiting import CappedCount, ReadyBefore, WaitingCounts, WaitingLane, capped, merge_tasks

_LETTERS = {HIGH: "h", NORMAL: "n", LOW: "l"}


class RedisWaiting(WaitingCounts):
    """The waiting jobs of one store. run, run_all: run a script once, and with several lists of arguments."""

    def __init__(self, run: Callable[..., Any], run_all: Callable[..., list[Any]]) -> None:
        self._run, self._run_all = run, run_all

    def due(self, bounds: Sequence[int], queues: Collection[str] | None, most: int) -> list[CappedCount]:
        # A script for each part, so that other calls get their turn between.
        ends = ["", *bounds, ""]
        names: Iterable[Word] = () if queues is None else queues
        asked = [[start, end, most, int(queues is None), *names] for start, end in itertools.pairwise(ends)]
        return [CappedCount(int(count), int(seen) >= most) for count, seen in self._run_all(scripts.WAITING_DUE, asked)]

    def bands(self, queue: str, most: int) -> dict[int, CappedCount]:
        counts = self._run(scripts.WAITING_BANDS, queue, most, *_LETTERS.values())
        return {which: capped(int(count), most) for which, count in zip(_LETTERS, counts, strict=True)}

    def lane(self, queue: str, task: str, lane: str, most: int) -> WaitingLane:
        count, oldest = self._run(scripts.WAITING_LANE, queue, task, lane, most, *_LETTERS.values())
        return WaitingLane(capped(int(count), most), int(oldest) if int(count) else None)

    def tasks(self, queue: str, after: str, most: int) -> list[str]:
        parts = self._run(scripts.WAITING_TASKS, queue, after, most, *_LETTERS.values())
        return merge_tasks(([task.decode() for task in part] for part in parts), most)

    def _before(self, job: Job, most: int) -> ReadyBefore:
        own = band(job.priority)
        claim_order = claim_order_bytes(job.priority) if own else b""
        following = claim_order_bytes(job.priority - 1) if own else b""
        place = TIME.pack(job.due) + job.id
        higher = [letter for which, letter in _LETTERS.items() if which > own]
        found = self._run(
            scripts.WAITING_BEFORE, job.queue, most, _LETTERS[own], claim_order, following, place, *higher
        )
        numbers = [min(most, int(number)) for number in found]
        return ReadyBefore(numbers[0], (numbers[1], numbers[2]), (numbers[3], numbers[4]), numbers[5], numbers[6])

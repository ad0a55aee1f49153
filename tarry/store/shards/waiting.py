"""The counts of waiting jobs of several stores: the sums of what each counts."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from tarry.model.job import Job
from tarry.store.rules.waiting import CappedCount, ReadyBefore, WaitingCounts, WaitingLane, merge_lanes, merge_tasks
from tarry.store.shards.answers import ask_shards, present
from tarry.store.shards.shard import Shard

T = TypeVar("T")


class ShardedWaiting(WaitingCounts):
    """The waiting jobs of all shards; PartlyUnavailable, with those of the others, while one is away."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    def due(self, bounds: Sequence[int], queues: Collection[str] | None, most: int) -> list[CappedCount]:
        return self._ask(
            lambda waiting: waiting.due(bounds, queues, most),
            lambda parts: [_sum_counts(part, most) for part in zip(*parts, strict=True)],
        )

    def bands(self, queue: str, most: int) -> dict[int, CappedCount]:
        return self._ask(lambda waiting: waiting.bands(queue, most), lambda parts: _summed_bands(parts, most))

    def lane(self, queue: str, task: str, lane: str, most: int) -> WaitingLane:
        return self._ask(lambda waiting: waiting.lane(queue, task, lane, most), lambda parts: merge_lanes(parts, most))

    def tasks(self, queue: str, after: str, most: int) -> list[str]:
        return self._ask(lambda waiting: waiting.tasks(queue, after, most), lambda parts: merge_tasks(parts, most))

    def before(self, job: Job, most: int) -> CappedCount:
        return self._ask(lambda waiting: waiting.before(job, most), lambda parts: _sum_counts(parts, most))

    def _before(self, job: Job, most: int) -> ReadyBefore:
        raise NotImplementedError("each shard counts by itself: see `before`")

    def _ask(self, ask: Callable[[WaitingCounts], T], merge: Callable[[Sequence[T]], T]) -> T:
        numbers = present(self._shards)
        answers = ask_shards(self._shards, numbers, lambda number, store: ask(store.waiting))
        return answers.result(merge([*answers.values()]))


def _sum_counts(parts: Sequence[CappedCount], most: int) -> CappedCount:
    """The counts of several stores as one."""
    return CappedCount(
        min(most, sum(part.count for part in parts)),
        any(part.at_least for part in parts) or sum(part.count for part in parts) >= most,
    )


def _summed_bands(parts: Sequence[Mapping[int, CappedCount]], most: int) -> dict[int, CappedCount]:
    """The bands of several stores as one."""
    bands = dict.fromkeys(band for part in parts for band in part)
    return {band: _sum_counts([part[band] for part in parts], most) for band in bands}

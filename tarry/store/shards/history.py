"""The history of several stores: each counts what it keeps, and reading adds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tarry.store.rules.history.gauges import QueueSample, side_by_side
from tarry.store.rules.history.history import TAKEN_AT_ONCE, StoreHistory
from tarry.store.rules.history.sums import ERRORS, Place, Sums, decode, encode
from tarry.store.shards.answers import ShardAnswers, ask_shards, present
from tarry.store.shards.shard import Shard


class ShardedHistory(StoreHistory):
    """The histories of all shards; PartlyUnavailable, with those of the others, while one is away."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards

    @property
    def _numbers(self) -> list[int]:
        return present(self._shards)

    def sum_up(self, now: int, limit: int = TAKEN_AT_ONCE) -> int:
        answers = ask_shards(self._shards, self._numbers, lambda _, store: store.history.sum_up(now, limit))
        return answers.result(sum(answers.values()))

    def sample(self, now: int, store: Any, read: Callable[[Any], Mapping[str, QueueSample]]) -> None:
        answers = ask_shards(self._shards, self._numbers, lambda _, store: store.history.sample(now, store, read))
        answers.result(None)

    def read(self, resolution: int, start: int, end: int) -> dict[Place, bytes]:
        answers = ask_shards(self._shards, self._numbers, lambda _, store: store.history.read(resolution, start, end))
        return answers.result(_merge(answers))

    def unsummed(self, limit: int) -> list[bytes]:
        answers = ask_shards(self._shards, self._numbers, lambda _, store: store.history.unsummed(limit))
        return answers.result([record for records in answers.values() for record in records][:limit])

    def change_errors(self, change: Callable[[Mapping[Place, bytes]], Mapping[Place, bytes]]) -> bool:
        answers = ask_shards(self._shards, self._numbers, lambda _, store: store.history.change_errors(change))
        return answers.result(all(answers.values()))

    def drop(self, resolution: int, before: int) -> int:
        answers = ask_shards(self._shards, self._numbers, lambda _, store: store.history.drop(resolution, before))
        return answers.result(sum(answers.values()))


def _merge(parts: ShardAnswers[dict[Place, bytes]]) -> dict[Place, bytes]:
    cells: dict[Place, list[bytes]] = {}
    for part in parts.values():
        for place, cell in part.items():
            cells.setdefault(place, []).append(cell)
    # Mostly a cell is on one shard only.
    return {place: found[0] if len(found) == 1 else _sum(place, found) for place, found in sorted(cells.items())}


def _sum(place: Place, cells: list[bytes]) -> bytes:
    if place.resolution == ERRORS:
        from tarry.store.rules.history.error_groups import sum_cells  # noqa: PLC0415 - few ask for them

        return sum_cells(cells)
    total = Sums()
    parts = [decode(cell) for cell in cells]
    for part in parts:
        total.add(part)
    total.gauge = side_by_side(part.gauge for part in parts)
    return encode(total)

"""The history in a Redis server: see `lua/history.lua`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tarry.store.redis import scripts
from tarry.store.redis.link.base import Word
from tarry.store.redis.record import join_names, split_names
from tarry.store.rules.history.history import JournalHistory, Taken
from tarry.store.rules.history.sums import Place

_PAGE = 100
"""The most starts that one script reads or deletes, so that other calls get their turn between."""


class RedisHistory(JournalHistory):
    """The history of one store. run: runs a script with its arguments."""

    def __init__(self, run: Callable[..., Any]) -> None:
        self._run = run

    def number(self) -> int:
        return self.take(1).number

    def take(self, limit: int) -> Taken:
        number, records = self._run(scripts.TAKE_JOURNAL, limit)
        return Taken(int(number), (), records)

    def fold(self, taken: Taken, cells: Mapping[Place, bytes]) -> bool:
        words: list[Word] = []
        for place, cell in cells.items():
            words += (_start(place.resolution, place.start), join_names(place.queue, place.task), cell)
        return bool(self._run(scripts.FOLD_JOURNAL, taken.number, len(taken.records), *words))

    def read(self, resolution: int, start: int, end: int) -> dict[Place, bytes]:
        return dict(self._read(resolution, b"[" + _start(resolution, start), b"(" + _start(resolution, end)))

    def _read(self, resolution: int, begin: bytes, end: bytes) -> Iterator[tuple[Place, bytes]]:
        while True:
            found = self._run(scripts.READ_SUMS, begin, end)
            for start, flat in zip(found[::2], found[1::2], strict=True):
                cells = {split_names(names): cell for names, cell in zip(flat[::2], flat[1::2], strict=True)}
                for queue, task in sorted(cells):
                    yield Place(resolution, int.from_bytes(start[1:], "big"), queue, task), cells[queue, task]
            if len(found) < 2 * _PAGE:
                return
            begin = b"(" + found[-2]

    def drop(self, resolution: int, before: int) -> int:
        dropped = 0
        while True:
            starts, count = self._run(
                scripts.DROP_SUMS, b"[" + _start(resolution, 0), b"(" + _start(resolution, before)
            )
            dropped += int(count)
            if int(starts) < _PAGE:
                return dropped


def _start(resolution: int, start: int) -> bytes:
    return resolution.to_bytes(1, "big") + max(start, 0).to_bytes(8, "big")

"""The reference: a history in the simplest correct form."""

import threading
from collections.abc import Mapping

from tarry.store.rules.history.history import JournalHistory, Taken
from tarry.store.rules.history.sums import Place


class MemoryHistory(JournalHistory):
    """A history that ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._journal: list[bytes] = []
        self._cells: dict[Place, bytes] = {}

    def append(self, record: bytes) -> None:
        """Adds a record to the journal, unless it is empty."""
        if record:
            with self._lock:
                self._journal.append(record)

    def number(self) -> int:
        return self._number

    def take(self, limit: int) -> Taken:
        with self._lock:
            return Taken(self._number, (), self._journal[:limit])

    def fold(self, taken: Taken, cells: Mapping[Place, bytes]) -> bool:
        with self._lock:
            if taken.number != self._number:
                return False
            self._number += 1
            del self._journal[: len(taken.records)]
            self._cells = {place: cell for place, cell in {**self._cells, **cells}.items() if cell}
            return True

    def read(self, resolution: int, start: int, end: int) -> dict[Place, bytes]:
        with self._lock:
            return {
                place: cell
                for place, cell in sorted(self._cells.items())
                if place.resolution == resolution and start <= place.start < end
            }

    def drop(self, resolution: int, before: int) -> int:
        old = self.read(resolution, 0, before)
        with self._lock:
            self._cells = {place: cell for place, cell in self._cells.items() if place not in old}
        return len(old)

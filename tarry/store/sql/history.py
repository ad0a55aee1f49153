"""The history in an SQL database: a table for the journal, and one for the sums.

The table of sums has one row more, in place of a resolution -1: its start says how often the journal was summed up. Who
sums up raises it first; so of two at once the second finds another number, and does nothing.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tarry.store.rules.history.history import JournalHistory, Taken
from tarry.store.rules.history.sums import Place

NUMBER = -1
# One statement, so that number and records are of one moment.
_TAKE = """SELECT n, record, (SELECT start FROM {0}history WHERE resolution = -1) FROM {0}journal ORDER BY n LIMIT ?1"""
_NUMBER = "SELECT start FROM {0}history WHERE resolution = -1"
_READ = """SELECT resolution, start, queue, task, value FROM {0}history
    WHERE resolution = ?1 AND start >= ?2 AND start < ?3 ORDER BY start, queue, task"""
_DROP = "DELETE FROM {0}history WHERE resolution = ?1 AND start < ?2"
RAISE = "UPDATE {0}history SET start = start + 1 WHERE resolution = -1 AND start = ?1"


class Tables(Protocol):
    """What it needs of an SQL store: see `SqlStore`."""

    def _rows(self, statement: str, values: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]: ...

    def _change_each(self, statement: str, rows: Sequence[Sequence[Any]]) -> int: ...


class SqlHistory(JournalHistory):
    """The history of one SQL store. tables: the prefix of its tables' names."""

    def __init__(self, store: Tables, tables: str) -> None:
        self._rows, self._change_each, self._tables = store._rows, store._change_each, tables

    def number(self) -> int:
        ((number,),) = self._rows(_NUMBER.format(self._tables))
        return int(number)

    def take(self, limit: int) -> Taken:
        rows = self._rows(_TAKE.format(self._tables), (limit,))
        return Taken(rows[0][2] if rows else 0, [row[0] for row in rows], [bytes(row[1]) for row in rows])

    def fold(self, taken: Taken, cells: Mapping[Place, bytes]) -> bool:
        # In the order of the key: two who write the same cells wait for each other, but never in a circle.
        written = [(*place, cell) for place, cell in sorted(cells.items()) if cell]
        return self._fold(taken, written, sorted(place for place, cell in cells.items() if not cell))

    @abstractmethod
    def _fold(self, taken: Taken, rows: Sequence[tuple[Any, ...]], gone: Sequence[Place]) -> bool:
        """In one transaction: raises the number if it is still that of `taken`, deletes these records, writes these
        rows and deletes those of these places; returns whether it did."""

    def read(self, resolution: int, start: int, end: int) -> dict[Place, bytes]:
        rows = self._rows(_READ.format(self._tables), (resolution, start, end))
        return {Place(which, at, _text(queue), _text(task)): bytes(cell) for which, at, queue, task, cell in rows}

    def drop(self, resolution: int, before: int) -> int:
        return self._change_each(_DROP.format(self._tables), [(resolution, before)])


def _text(name: str | bytes) -> str:
    # Where names are kept as bytes.
    return name.decode() if isinstance(name, bytes) else name

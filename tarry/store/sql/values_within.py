"""Named values through a caller's own connection."""

from collections.abc import Callable, Sequence
from typing import Any

from tarry.store.sql.columns import Row

RunWithin = Callable[[str, Sequence[Any]], Sequence[Row]]
"""Runs a statement on the caller's connection; the rows that it finds."""


class CallerValues:
    """`ValuesWithin` in SQL.

    cell: the table. name, value: what stands for a value of these columns in a statement; values are given in the order
    in which they stand there. insert_new: an INSERT that leaves alone what is there.
    """

    def __init__(self, run: RunWithin, cell: str, name: str, value: str, insert_new: str) -> None:
        self._run, self._cell, self._insert_new = run, cell, insert_new
        self._name, self._value = name, value

    def kv_get(self, name: str) -> bytes | None:
        """As promised."""
        rows = self._run(f"SELECT value FROM {self._cell} WHERE name = {self._name}", (name,))
        return bytes(rows[0][0]) if rows else None

    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        """As promised."""
        if value != was:
            self._run(*self._statement(name, value, was))
        # Not the number of rows: not every driver tells it. A transaction sees what it has written itself.
        return self.kv_get(name) == value

    def _statement(self, name: str, value: bytes | None, was: bytes | None) -> tuple[str, tuple[Any, ...]]:
        if was is None:
            return self._insert_new.format(f"{self._cell} VALUES ({self._name}, {self._value})"), (name, value)
        where = f"WHERE name = {self._name} AND value = {self._value}"
        if value is None:
            return f"DELETE FROM {self._cell} {where}", (name, was)
        return f"UPDATE {self._cell} SET value = {self._value} {where}", (value, name, was)

"""The shares of limits in one of several SQL databases, in a transaction of the caller."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import msgspec

from tarry.model.limit import Level
from tarry.store.rules.base import ShareChange
from tarry.store.rules.lanes import decode_limit
from tarry.store.sql.columns import name_text
from tarry.store.sql.key_limits import SqlKeyLimits


class SqlLimitShares(SqlKeyLimits):
    """Changes of shares, beside what `sql.limits` does with limits."""

    @property
    @abstractmethod
    def _limit_table(self) -> str:
        """The table of limits."""

    @abstractmethod
    def levels(self, names: Sequence[str]) -> list[Level]:
        """As `Store.levels`."""

    @abstractmethod
    def set_next(self, levels: Mapping[str, Level]) -> None:
        """Sets the times of the rates of these levels."""

    def change_shares(self, changes: Sequence[ShareChange], now: int) -> list[bool]:
        """As `Store.change_shares`."""
        rows = self.named_rows(f"name, value FROM {self._limit_table}", [change.name for change in changes])
        stored = {name_text(name): bytes(value) for name, value in rows}
        update = f"UPDATE {self._limit_table} SET value = ?2 WHERE name = ?1 AND value = ?3"
        made = []
        for change in changes:
            was = stored.get(change.name)
            is_as_it_was = was is not None and decode_limit(was) == change.was
            row = (change.name, msgspec.json.encode(change.limit), was)
            made.append(is_as_it_was and self.change(update, row) > 0)
        self._count_used([change for change, is_made in zip(changes, made, strict=True) if is_made], now)
        return made

    def _count_used(self, changes: Sequence[ShareChange], now: int) -> None:
        used = {change.name: change for change in changes if change.used}
        if used:
            levels = zip(used.values(), self.levels([*used]), strict=True)
            self.set_next({change.name: level.with_moved(change.limit, change.used, now) for change, level in levels})

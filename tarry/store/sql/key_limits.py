"""The limits of single keys in an SQL database: named values, in a transaction of the caller."""

from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tarry.model.limit import EACH, KeyLimit, Limit
from tarry.store.rules import key_limits
from tarry.store.rules.lanes import JobKey, lane_level
from tarry.store.sql.columns import Row, name_text
from tarry.store.sql.lane_reader import Lane
from tarry.store.sql.prefix import prefix_end
from tarry.store.sql.transaction import SqlTransaction


class SqlKeyLimits(SqlTransaction):
    """What keys of tasks have of their own, beside the limits of `sql.limits`."""

    @property
    @abstractmethod
    def _tables(self) -> str:
        """The prefix of the tables' names."""

    @abstractmethod
    def change(self, statement: str, values: Sequence[Any]) -> int:
        """Runs a statement; how many rows it was about."""

    @abstractmethod
    def read_some(self, key: JobKey) -> dict[str, Limit]:
        """Those limits that may count jobs with this key."""

    @abstractmethod
    def change_limit(self, name: str, limit: Limit) -> bool:
        """Changes a limit that is set; False if it is not set."""

    @abstractmethod
    def set_limit(self, name: str, limit: Limit | None) -> bool:
        """Sets or lifts a limit, and counts what runs under it; whether it was not set before."""

    @abstractmethod
    def reopen(self, lanes: Collection[Lane]) -> None:
        """Opens these lanes, in all queues and bands."""

    def _kept(self, name: str, limit: Limit | None) -> Limit | None:
        """What is kept as the limit of that name, of which `limit` is asked for."""
        if not name.startswith(EACH):
            return limit
        task = name.removeprefix(EACH)
        first = key_limits.prefix_of(task)
        look = f"SELECT 1 FROM {self._tables}cell WHERE name >= ?1 AND name < ?2 LIMIT 1"
        has_key_limits = bool(self.rows(look, (first, prefix_end(first))))
        return key_limits.for_each(limit, has_key_limits, has_key_limits and bool(self.weights(task)))

    def weights(self, task: str) -> Mapping[str, int]:
        """The weights that keys of the task have, by lane."""
        return key_limits.decode_weights(self._cell(key_limits.WEIGHTS + task))

    def _cell(self, name: str) -> bytes | None:
        rows = self.rows(f"SELECT value FROM {self._tables}cell WHERE name = ?1", (name,))
        return bytes(rows[0][0]) if rows else None

    def _set_cell(self, name: str, value: bytes | None) -> None:
        self.change(f"DELETE FROM {self._tables}cell WHERE name = ?1", (name,))
        if value is not None:
            self.change(f"INSERT INTO {self._tables}cell VALUES (?1, ?2)", (name, value))

    def key_limits(self, limits: Mapping[str, Limit], names: Sequence[str]) -> dict[str, Limit]:
        """The limits of single keys that hold for levels of these names. limits: with those for each key."""
        rows = self.named_rows(f"name, value FROM {self._tables}cell", [key_limits.PREFIX + name for name in names])
        return key_limits.effective(((name_text(name), bytes(value)) for name, value in rows), limits)

    @abstractmethod
    def named_rows(self, source: str, names: Sequence[str]) -> Sequence[Row]:
        """The rows with these names. source: columns, and a table: `name, value FROM cell`."""

    def _all_key_limits(self, limits: Mapping[str, Limit]) -> dict[str, Limit]:
        """All that single keys have."""
        if not any(limit.has_key_limits for limit in limits.values()):
            return {}
        first = key_limits.PREFIX
        look = f"SELECT name, value FROM {self._tables}cell WHERE name >= ?1 AND name < ?2"
        rows = self.rows(look, (first, prefix_end(first)))
        return key_limits.effective(((name_text(name), bytes(value)) for name, value in rows), limits)

    def limit_key(self, task: str, lane: str, limit: KeyLimit | None) -> bool:
        """As `Store.limit_key`; whether the task had no limit for each key before."""
        each, weights = EACH + task, key_limits.WEIGHTS + task
        self._set_cell(key_limits.value_name(task, lane), None if limit is None else key_limits.encode(limit))
        self._set_cell(weights, key_limits.changed_weights(self._cell(weights), lane, limit))
        was = self.read_some(("", task, None)).get(each)
        wanted = self._kept(each, was and was.without_keys)
        if was is not None and wanted is not None and was != wanted:
            self.change_limit(each, wanted)
        elif was != wanted:
            return self.set_limit(each, wanted)
        self._reopen_lane(task, lane)
        return False

    def _reopen_lane(self, task: str, lane: str) -> None:
        """Opens a lane if it is closed."""
        self.reopen([(task, lane)])

    def _key_limit_of(self, key: JobKey, limits: Mapping[str, Limit]) -> dict[str, Limit]:
        _, task, lane = key
        each = limits.get(EACH + task)
        if lane is None or each is None or not each.has_key_limits:
            return {}
        return self.key_limits(limits, [lane_level(task, lane)])

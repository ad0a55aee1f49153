"""Signals in an SQL database, within a transaction.

The row of an address with the number 0 is no signal: it has the number of the last one. Who sends a signal and who
begins to wait for one lock that row, so that neither misses the other. It outlives the signals of its address, so that
their numbers do not begin anew while a job may still know an old one.
"""

from collections.abc import Sequence

from tarry.model.change import Change
from tarry.model.duration import DAY
from tarry.model.flow.signal import MOST_KEPT, Awaited, Signal, SignalWait
from tarry.store.rules import flows
from tarry.store.sql.columns import Row, name_text
from tarry.store.sql.flow_tables import FlowSql, SqlFlowTables, upserting

_ADDRESS = ("name", "key", "n")
LAST_KEPT = 366 * DAY
"""How long after its last signal the last number of an address is kept."""
WAKING = -1
"""The number of the row that an address has while a signal has not woken all who wait: its id is that of the job woken
last, its `newest` the number of the signal, and its time is 0."""
LOOKED_AT = 100
"""How many jobs that wait one call checks."""


class SqlSignals:
    """The signals and who awaits them, in the transaction of `tables`."""

    def __init__(self, tables: SqlFlowTables) -> None:
        self._tables, self._sql = tables, tables.sql
        self._signals, self._awaiting = f"{self._sql.tables}signal", f"{self._sql.tables}awaiting"
        self._key = self._sql.column.format("key")
        self._of_address = f"name = ?1 AND {self._key} = ?2"

    def send(self, signal: Signal, now: int) -> tuple[int, bool]:
        """How many jobs it woke, and whether there may be more; (0, False) if the address has this id already."""
        where = self._of_address
        last = self._lock(signal.name, signal.key, signal.until + LAST_KEPT)
        address = signal.name, signal.key
        known = f"SELECT n FROM {self._signals} WHERE {where} AND n > 0 AND id = ?3"
        if self._tables.rows(known, (*address, signal.id)):
            return 0, False
        columns = ("id", "value", "until", "newest")
        write = upserting(self._sql, "signal", _ADDRESS, columns, ids=0)
        self._tables.each(write, [(*address, last + 1, signal.id, signal.value, signal.until, 0)])
        self._tables.each(f"UPDATE {self._signals} SET newest = ?3 WHERE {where} AND n = 0", [(*address, last + 1)])
        oldest = f"DELETE FROM {self._signals} WHERE {where} AND n > 0 AND n <= ?3"
        self._tables.each(oldest, [(*address, last + 1 - MOST_KEPT)])
        return self._wake_some(*address, bytes(16), last + 1, now)

    def wake_more(self, name: str, key: str, now: int) -> tuple[int, bool]:
        """The next piece, as `send`."""
        self._lock(name, key, 0)
        where = f"{self._of_address} AND n = ?3"
        address = name, key, WAKING
        found = self._tables.rows(f"SELECT id, newest FROM {self._signals} WHERE {where}", address)
        if not found:
            return 0, False
        ((last, number),) = found
        woken, more = self._wake_some(name, key, bytes(last), number, now)
        if not more:
            self._tables.each(f"DELETE FROM {self._signals} WHERE {where}", [address])
        return woken, more

    def _wake_some(self, name: str, key: str, last: bytes, number: int, now: int) -> tuple[int, bool]:
        """Wakes some jobs behind the last one that do not know the signal of this number, and notes how far it came."""
        job, most = self._sql.bytes_of.format("job"), flows.WOKEN_AT_ONCE
        where = f"{self._of_address} AND job > {self._sql.given(3)} AND seen < ?4"
        statement = f"SELECT {job}, epoch FROM {self._awaiting} WHERE {where} ORDER BY job LIMIT {most}"
        rows = [(bytes(job), epoch) for job, epoch in self._tables.rows(statement, (name, key, last, number))]
        if more := len(rows) == most:
            write = upserting(self._sql, "signal", _ADDRESS, ("id", "value", "until", "newest"), ids=0)
            self._tables.each(write, [(name, key, WAKING, rows[-1][0], b"", 0, number)])
        self.forget(rows)
        return self._tables.wake(rows, now) if rows else 0, more

    def wait(self, change: Change) -> None:
        """Notes that the job of a change, which was made, sleeps for a signal; wakes it if that has come by now."""
        awaits = change.awaits
        assert awaits is not None
        self._lock(awaits.name, awaits.key, change.state_since + DAY)
        if self._is_there(awaits):
            # It came between the look of the task and this suspension.
            self.forget([(change.id, change.epoch)])
            self._tables.wake([(change.id, change.epoch)], change.state_since)
        else:
            write = upserting(self._sql, "awaiting", ("job",), ("name", "key", "epoch", "seen"))
            self._tables.each(write, [(change.id, awaits.name, awaits.key, change.epoch, awaits.after)])

    def _is_there(self, awaits: Awaited) -> bool:
        """Whether the task would find a signal. Not the last number tells: its signal may have been deleted since, and
        a job that was woken for it would find nothing and wait anew, without end."""
        later = f"SELECT 1 FROM {self._signals} WHERE {self._of_address} AND n > ?3 LIMIT 1"
        return bool(self._tables.rows(later, (awaits.name, awaits.key, max(0, awaits.after))))

    def _lock(self, name: str, key: str, until: int) -> int:
        """Locks an address; the number of its last signal."""
        address = f"name, {self._key}, n"
        made = f"INSERT INTO {self._signals} ({address}, id, value, until, newest) VALUES (?1, ?2, 0, ?3, ?4, ?5, 0)"
        later = f"until = {self._sql.greatest}({self._signals}.until, {self._sql.new.format('until')})"
        self._tables.each(made + self._sql.upsert.format(address, later), [(name, key, b"", b"", until)])
        statement = f"SELECT newest FROM {self._signals} WHERE {self._of_address} AND n = 0{self._sql.lock}"
        ((last,),) = self._tables.rows(statement, (name, key))
        return int(last)

    def forget(self, rows: Sequence[Row]) -> None:
        """Forgets that jobs, each with its epoch, wait."""
        if rows:
            self._tables.each(f"DELETE FROM {self._awaiting} WHERE job = {self._sql.given(1)} AND epoch = ?2", rows)

    def drop_old(self, now: int, limit: int) -> bool:
        """Deletes signals whose time is over, at most `limit`; whether there may be more."""
        old = self._tables.rows(
            f"""SELECT name, {self._key}, n FROM {self._signals}
            WHERE until > 0 AND until <= ?1 ORDER BY until LIMIT {limit}""",
            (now,),
        )
        drop = f"DELETE FROM {self._signals} WHERE {self._of_address} AND n = ?3 AND until <= ?4"
        if old:
            self._tables.each(drop, [(*place, now) for place in old])
        return len(old) == limit


def asleep_after(sql: FlowSql) -> str:
    """The statement for the next jobs after an id that are said to wait, with the epoch of each; `is_over` reads it."""
    job = sql.bytes_of.format("a.job")
    return f"""SELECT {job}, a.epoch, j.epoch FROM {sql.tables}awaiting a
        LEFT JOIN {sql.tables}job j ON j.id = a.job WHERE a.job > {sql.given(1)} ORDER BY a.job LIMIT {LOOKED_AT}"""


def is_over(row: Row) -> bool:
    """Whether the job of such a row has been called since, or is gone: then it will not sleep in that epoch again."""
    # Not its state: a job whose time has come, or that a person ran, may be put off again before it is called.
    _, epoch, now = row
    return bool(now != epoch)


def next_waking(sql: FlowSql) -> str:
    """The statement for the address of a signal that has not woken all who wait."""
    return f"SELECT name, {sql.column.format('key')} FROM {sql.tables}signal WHERE until = 0 AND n = {WAKING} LIMIT 1"


def signal_row(name: str, key: str, row: Row) -> Signal:
    """The signal of a row: n, id, value, until."""
    n, id, value, until = row
    return Signal(name, key, bytes(id), bytes(value), until, n)


def awaiting_row(row: Row) -> SignalWait:
    """Who waits: name, key, job, epoch, seen."""
    name, key, job, epoch, seen = row
    return SignalWait(name_text(name), name_text(key), bytes(job), epoch, seen)

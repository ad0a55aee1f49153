"""The history in a MySQL or MariaDB database."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.link.literals import bind, bounded_statements, literal, raw, text
from tarry.store.rules.history.history import Taken
from tarry.store.rules.history.sums import Place
from tarry.store.sql.history import RAISE, SqlHistory, Tables

_WRITE = "INSERT INTO tarry_history (resolution, start, queue, task, value) VALUES "
_DELETE = "DELETE FROM tarry_history WHERE (resolution, start, queue, task) IN ("
_ANEW = " ON DUPLICATE KEY UPDATE value = VALUES(value)"


def to_journal(record: bytes) -> Iterator[str]:
    """The statement that adds a record to the journal; none if it is empty."""
    if record:
        yield f"INSERT INTO tarry_journal (record) VALUES ({raw(record)})"


class MysqlHistory(SqlHistory):
    """The history of one database. write: runs what it is given within a transaction."""

    def __init__(self, store: Tables, write: Callable[[Callable[[MysqlConnection], bool]], bool]) -> None:
        super().__init__(store, "tarry_")
        self._write = write

    def _fold(self, taken: Taken, rows: Sequence[tuple[Any, ...]], gone: Sequence[Place]) -> bool:
        forget = [f"DELETE FROM tarry_journal WHERE n IN ({','.join(map(str, taken.places))})"] if taken.places else []
        statements = [*forget, *bounded_statements(_WRITE, map(_row, rows), _ANEW)]
        statements += bounded_statements(_DELETE, map(_row, gone), ")")

        def work(link: MysqlConnection) -> bool:
            # Who waits here for another who sums up finds another number then.
            (raised,) = link.run(bind(RAISE.format("tarry_"), (taken.number,)))
            if raised.changed:
                link.run(*statements)
            return bool(raised.changed)

        return self._write(work)


def _row(values: Sequence[Any]) -> str:
    return f"({','.join(text(value) if isinstance(value, str) else literal(value) for value in values)})"

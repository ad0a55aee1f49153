"""How much could run now, without reading what waits behind that."""

from collections.abc import Collection
from typing import Any

from tarry.store.base import Backlog
from tarry.store.sqlite import sql
from tarry.store.sqlite.database import Database


def backlog(database: Database, queues: Collection[str] | None, now: int, most: int) -> Backlog:
    """As `Store.backlog`."""
    paused = {queue for (queue,) in database.execute("SELECT queue FROM tarry_paused")}
    scheduled: list[Any] = database.execute(sql.DUE, (now, most)).fetchall()
    dues: list[int] = [due for queue, due in scheduled if queue not in paused and (queues is None or queue in queues)]
    if queues is None:
        rows: list[Any] = [*database.execute(sql.READY_QUEUES), *database.execute(sql.LANED_QUEUES)]
        queues = sorted({queue for (queue,) in rows})
    for queue in (queue for queue in queues if queue not in paused):
        for statement in (sql.FIRST_LATE, sql.FIRST_ON_TIME, sql.FIRST_LANED):
            if len(dues) < most:
                dues += [due for (due,) in _rows(database, statement, queue, most - len(dues))]
    return Backlog(len(dues), min(dues, default=now))


def _rows(database: Database, statement: str, *values: Any) -> list[Any]:
    return database.execute(statement, values).fetchall()

"""The finished jobs of the embedded store, for `tarry.store.shared.pruning`."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tarry.store.shared.pruning import Finished, Place
from tarry.store.sqlite import sql
from tarry.store.sqlite.database import Database
from tarry.store.sqlite.file import mapped, transaction


class SqliteFinished:
    """Reads without the write lock, which a worker or a producer may want; what is to go is looked up by its id."""

    def __init__(self, db: Database, lock: threading.Lock, path: Path) -> None:
        self._db, self._lock, self._path = db, lock, path

    def bound(self) -> int:
        with self._lock, mapped(self._path):
            if not self._db.execute(sql.ANY_FINISHED).get:
                return 0
            pages: int = self._db.pragma("page_count") - self._db.pragma("freelist_count")
            return pages * int(self._db.pragma("page_size"))

    def after(self, place: Place, now: int, count: int) -> Sequence[Finished]:
        with self._lock, mapped(self._path):
            rows = self._rows(sql.FINISHED, *place, now, count)
        return [Finished(until, id, queue, size, bool(free)) for until, id, queue, size, free in rows]

    def weights(self, place: Place, count: int) -> tuple[Mapping[str, int], Place | None]:
        with self._lock, mapped(self._path):
            weights = dict(self._rows(sql.WEIGHTS, *place, count))
            last = self._rows(sql.LAST_WEIGHED, *place, count)
        return weights, (last[0][0], last[0][1]) if last else None

    def forget(self, jobs: Sequence[Finished]) -> int:
        with self._lock, mapped(self._path), transaction(self._db):
            rows = self._db.executemany(sql.FORGET_FINISHED, [(job.id, job.until) for job in jobs]).fetchall()
            return len(rows)

    def drop_levels(self, name: str, now: int, count: int) -> str | None:
        with self._lock, mapped(self._path):
            rows = self._rows(sql.SOME_LEVELS, name, now, count)
            if unused := [(name, now) for name, is_unused in rows if is_unused]:
                with transaction(self._db):
                    self._db.executemany(sql.DROP_LEVEL, unused)
        return rows[-1][0] if len(rows) == count else None

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._db.execute(statement, values).fetchall()

"""The embedded store's own statements, on its own schema."""

import os
import time
from array import array
from pathlib import Path
from typing import Any, cast

from bench.app import noop
from bench.raw.limit import CONTENT
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.store.rules.base import NORMAL, PROMOTED_AT_ONCE
from tarry.store.rules.ids import uuid7
from tarry.store.shared.state_codes import CODE
from tarry.store.sql.columns import stored_values
from tarry.store.sqlite import sql
from tarry.store.sqlite.apply import new_values
from tarry.store.sqlite.file import open_database as opened_file
from tarry.store.sqlite.open_line import ON_TIME

_LONG_LEASE = 3_600_000_000
_QUEUE = "default"


class SqliteRaw:
    """One connection to the file."""

    def __init__(self, path: str, durable: bool) -> None:
        self._db = opened_file(Path(path), durable=durable)
        self._owner = f"raw:{os.getpid()}"

    def batch(self, size: int) -> list[tuple[Any, ...]]:
        """Rows of the jobs' table."""
        now = time.time_ns() // 1000
        return [stored_values(Job(uuid7(), noop.name, CONTENT, _QUEUE, due=now, state_since=now)) for _ in range(size)]

    def insert(self, batch: list[tuple[Any, ...]]) -> None:
        """One transaction."""
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(sql.INSERT, batch)
        self._db.execute("COMMIT")

    def exchange(self, finished: list[bytes], size: int) -> list[bytes]:
        """One transaction: finish, promote, claim, ask when to come again."""
        execute, now = self._db.execute, time.time_ns() // 1000
        execute("BEGIN IMMEDIATE")
        if finished:
            done = Change(finished[0], State.RUNNING, 1, State.DONE, now, keep_until=now + _LONG_LEASE, note=b"null")
            these = self._db.array(tuple(finished))
            execute(sql.CHANGE_GROUP, (*new_values(done), these, CODE[done.was], done.epoch, self._owner)).fetchall()
        execute(sql.PROMOTE, (now, PROMOTED_AT_ONCE))
        rows: list[tuple[Any, ...]] = execute(sql.READY[NORMAL], (_QUEUE, ON_TIME, size, 0)).fetchall()
        if rows:
            execute(sql.CLAIM, (self._owner, now, self._db.array(array("q", [row[0] for row in rows]))))
            execute(sql.LEASE, (self._owner, now + _LONG_LEASE, now + _LONG_LEASE // 2))
        execute(sql.NEXT_DUE).fetchall()
        execute("COMMIT")
        return cast("list[bytes]", [row[1] for row in rows])

    def close(self) -> None:
        """Closes the file."""
        self._db.close(True)


def opened(target: str, durable: bool) -> SqliteRaw:
    """A connection to that file, made if it is not there."""
    return SqliteRaw(target, durable)


def emptied(target: str) -> None:
    """The file is new each time."""


def removed(target: str) -> None:
    """The file goes with its directory."""

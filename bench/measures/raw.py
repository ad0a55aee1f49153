"""The raw limit of the embedded store: its own statements, on its own schema, with nothing of tarry around them."""

import contextlib
import os
import tempfile
import time
from array import array
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from multiprocessing.queues import SimpleQueue
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any, cast

from bench.app import BODY, noop
from bench.measure import Figure, measure, rate
from bench.place import Bench
from bench.waiting import until
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.store import sqlite
from tarry.store import sqlite_sql as sql
from tarry.store.base import NORMAL, PROMOTED_AT_ONCE
from tarry.store.ids import uuid7
from tarry.store.sqlite_connection import Database
from tarry.store.sqlite_file import opened

ONE, HUNDRED, THOUSAND = "raw: insert, one by one, FULL", "raw: insert by 100, FULL", "raw: insert by 1000, FULL"
_JOBS = 200_000
_LONG_LEASE = 3_600_000_000
_QUEUE = "default"


def moved(size: int, processes: int) -> str:
    """The name of that figure."""
    return f"raw: claim and finish by {size}, NORMAL, {processes} process{'es' if processes > 1 else ''}"


@measure("raw-insert", limit=60)
def inserting(bench: Bench) -> Iterator[Figure]:
    for name, size, count in ((ONE, 1, 10_000), (HUNDRED, 100, 100_000), (THOUSAND, 1000, _JOBS)):
        batches = [_rows(size) for _ in range(bench.scaled(count) // size)]
        with _file(bench) as path, contextlib.closing(opened(path, durable=True)) as connection:
            yield rate(name, size * len(batches), lambda: _insert(connection, batches))  # noqa: B023


@measure("raw-move", limit=120)
def moving(bench: Bench) -> Iterator[Figure]:
    for size in (100, 1000):
        for processes in (1, 2):
            with _file(bench) as path:
                with contextlib.closing(opened(path, durable=False)) as connection:
                    _insert(connection, [_rows(1000) for _ in range(bench.scaled(_JOBS) // 1000)])
                yield Figure(moved(size, processes), _move_rate(path, size, processes), "/s")


@contextlib.contextmanager
def _file(bench: Bench) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=bench.directory) as home:
        yield Path(home) / "raw.db"


def _rows(count: int) -> list[tuple[Any, ...]]:
    now = time.time_ns() // 1000
    body = f'[123456,"{BODY}"]'.encode()
    return [sqlite._row(Job(uuid7(), noop.name, body, _QUEUE, due=now, since=now)) for _ in range(count)]


def _insert(connection: Database, batches: list[list[tuple[Any, ...]]]) -> None:
    for rows in batches:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(sql.INSERT, rows)
        connection.execute("COMMIT")


def _move_rate(path: Path, size: int, processes: int) -> float:
    """Jobs over the time from the first claim to the last commit."""
    context = get_context("spawn")
    start, answers = context.Barrier(processes), context.SimpleQueue()
    movers = [context.Process(target=_mover, args=(path, size, start, answers)) for _ in range(processes)]
    try:
        for mover in movers:
            mover.start()
        until(lambda: None not in _statuses(movers) or any(_statuses(movers)), 60)
        if _statuses(movers) != [0] * processes:
            raise RuntimeError(f"the processes ended with {_statuses(movers)}: see above")
        told = [answers.get() for _ in movers]
    finally:
        for mover in movers:
            mover.kill()
            mover.join()
    counts, begins, ends = zip(*told, strict=True)
    return float(sum(counts) / (max(ends) - min(begins)))


def _statuses(processes: Sequence[BaseProcess]) -> list[int | None]:
    return [process.exitcode for process in processes]


def _mover(path: Path, size: int, start: Barrier, answers: "SimpleQueue[tuple[int, float, float]]") -> None:
    connection, owner = opened(path, durable=False), f"raw:{os.getpid()}"
    start.wait(30)
    begin, count = time.monotonic(), 0
    ids: list[bytes] = []
    while claimed := _exchange(connection, owner, ids, size):
        ids = claimed
        count += len(ids)
    answers.put((count, begin, time.monotonic()))


def _exchange(connection: Database, owner: str, finished: list[bytes], size: int) -> list[bytes]:
    """One turn of a worker: finish what it had, claim the next, ask when to come again."""
    execute, now = connection.execute, time.time_ns() // 1000
    execute("BEGIN IMMEDIATE")
    if finished:
        done = Change(finished[0], State.RUNNING, 1, State.DONE, now, until=now + _LONG_LEASE, note=b"null")
        these = connection.array(tuple(finished))
        execute(sql.CHANGE_GROUP, (*sqlite._values(done), these, sqlite.CODE[done.was], done.epoch)).fetchall()
    execute(sql.PROMOTE, (now, PROMOTED_AT_ONCE))
    rows: list[tuple[Any, ...]] = execute(sql.READY[NORMAL], (_QUEUE, size, 0)).fetchall()
    if rows:
        execute(sql.CLAIM, (owner, now, connection.array(array("q", [row[0] for row in rows]))))
        execute(sql.LEASE, (owner, now + _LONG_LEASE, now + _LONG_LEASE // 2))
    execute(sql.NEXT_DUE).fetchall()
    execute("COMMIT")
    return cast("list[bytes]", [row[1] for row in rows])

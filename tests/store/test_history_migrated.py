"""Stores of the schema before there was a history: their jobs stay, and what happens from then on is counted."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pymysql
from msgspec.structs import replace

from tarry.model.change import CANCELLED, DONE, PUT
from tarry.model.duration import HOUR
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT, cancel
from tarry.model.outcome import Returned
from tarry.store.base import Query
from tarry.store.conformance.cases import NOW, in_state, outcomes, put
from tarry.store.conformance.counting import kinds
from tarry.store.opening import open_store
from tarry.store.postgres.url import parse_url
from tarry.store.shared import migrating

LATER = ("journal", "history", "flow", "gate", "signal", "awaiting")
"""Tables that the versions since then have added."""


def age_sqlite(url: str) -> None:
    """Makes of the file what version 3 had made."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file:
        drops = "".join(f"DROP TABLE tarry_{name}; " for name in LATER)
        file.executescript(f"{drops}ALTER TABLE tarry_job DROP COLUMN attempts; PRAGMA user_version = 3;")


def age_postgres(url: str) -> None:
    """Makes of the schema what version 1 had made, but for the bodies of functions."""
    schema = parse_url(url).schema
    with psycopg.connect(url.partition("?")[0], autocommit=True) as link:
        # With the functions that take their rows.
        link.execute(f"DROP TABLE {', '.join(f'{schema}.{name}' for name in LATER)} CASCADE")
        link.execute(f"ALTER TABLE {schema}.job DROP COLUMN attempts")
        link.execute(f"DROP FUNCTION {schema}.insert_v2, {schema}.exchange_v2, {schema}.apply_v2")
        link.execute(f"UPDATE {schema}.about SET value = '1' WHERE name = 'schema'")
        link.execute(f"DELETE FROM {schema}.about WHERE name = 'functions'")


def age_mysql(url: str) -> None:
    """Makes of the database what version 1 had made."""
    place, _, database = url.rpartition("/")
    port = int(place.rpartition(":")[2])
    link = pymysql.connect(host="127.0.0.1", port=port, user="root", database=database, autocommit=True)
    with closing(link), link.cursor() as cursor:
        cursor.execute(f"DROP TABLE {', '.join(f'tarry_{name}' for name in LATER)}")
        cursor.execute("ALTER TABLE tarry_job DROP COLUMN attempts")
        cursor.execute("UPDATE tarry_about SET value = 1 WHERE name = 'schema'")


def check(url: str, age: Callable[[str], None]) -> None:
    """Puts jobs in all states into the store, makes it an older one, and brings it up to date."""
    with closing(open_store(url)) as store:
        # The ready one last, or a claim for the others would take it.
        before = {state: in_state(store, state) for state in sorted(State, key=lambda state: state is State.READY)}
        # Older stores kept no record of attempts.
        all_before = [replace(job, attempts=b"") for job in store.find(Query(limit=100))]
    age(url)
    migrating.migrate(url)
    assert migrating.pending(url) == []
    with closing(open_store(url)) as store:
        assert store.find(Query(limit=100)) == all_before
        assert kinds(store) == {}
        runs = found(all_before, before[State.RUNNING])
        assert outcomes(store, [runs], Returned()) == [True]
        waits = found(all_before, before[State.SCHEDULED])
        assert store.apply([cancel(waits, DEFAULT, NOW)], NOW) == [True]
        put(store, 1)
        put(store, 3)
        assert kinds(store) == {PUT: 4, DONE: 1, CANCELLED: 1}
        store.history.prune(NOW + HOUR)


def found(jobs: list[Job], like: Job) -> Job:
    return next(job for job in jobs if job.id == like.id)


def test_sqlite(tmp_path: Path) -> None:
    check(f"sqlite:///{tmp_path}/jobs.db", age_sqlite)


def test_postgres(new_postgres_url: str) -> None:
    check(new_postgres_url, age_postgres)


def test_mysql(new_mariadb_url: str) -> None:
    check(new_mariadb_url, age_mysql)

"""A flow that is stored through the caller's own connection is there, whole, if and only if the caller commits."""

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pymysql
import pytest
import sqlalchemy

from tarry.errors import OtherDatabase, StoreError
from tarry.store.conformance.cases.flows import flow_of, numbers, root, run, states
from tarry.store.conformance.cases.jobs import NOW
from tarry.store.memory.store import MemoryStore
from tarry.store.mysql.store import MysqlStore
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules.base import Store
from tarry.store.sqlite.store import SqliteStore

DIAMOND = [[], [1], [1], [2, 3]]


class Theirs:
    """A store, and a caller's connection to its database."""

    def __init__(self, store: Store, connection: Any, commit: Any, rollback: Any) -> None:
        self.store, self.connection, self.commit, self.rollback = store, connection, commit, rollback


@pytest.fixture
def close() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(params=["sqlite3", "apsw", "psycopg", "pymysql", "alchemy-sqlite", "alchemy-postgresql"])
def theirs(request: pytest.FixtureRequest, close: ExitStack, tmp_path: Path) -> Theirs:
    kind = request.param
    if kind in ("psycopg", "alchemy-postgresql"):
        return of_postgres(kind, request, close)
    if kind == "pymysql":
        store = MysqlStore(request.getfixturevalue("mariadb_url"))
        close.callback(store.close)
        to = store.address
        link = close.enter_context(
            closing(pymysql.connect(host=to.host, port=to.port, user=to.user, database=to.database))
        )
        return Theirs(store, link, link.commit, link.rollback)
    return of_sqlite(kind, close, tmp_path / "app.db")


def of_postgres(kind: str, request: pytest.FixtureRequest, close: ExitStack) -> Theirs:
    store = PostgresStore(request.getfixturevalue("postgres_url"))
    close.callback(store.close)
    url = request.getfixturevalue("postgres_server").url
    if kind == "alchemy-postgresql":
        return of_alchemy(store, url.replace("postgresql:", "postgresql+psycopg:"), close)
    link = close.enter_context(closing(psycopg.connect(url)))
    return Theirs(store, link, link.commit, link.rollback)


def of_sqlite(kind: str, close: ExitStack, path: Path) -> Theirs:
    store = SqliteStore(path, shared="" if kind == "apsw" else "yes")
    close.callback(store.close)
    if kind == "alchemy-sqlite":
        return of_alchemy(store, f"sqlite:///{path}", close)
    if kind == "sqlite3":
        link = close.enter_context(closing(sqlite3.connect(path, timeout=0)))
        return Theirs(store, link, link.commit, link.rollback)
    db = close.enter_context(closing(apsw.Connection(str(path))))
    db.execute("BEGIN")
    return Theirs(store, db, lambda: db.execute("COMMIT"), lambda: db.execute("ROLLBACK"))


def of_alchemy(store: Store, url: str, close: ExitStack) -> Theirs:
    engine = sqlalchemy.create_engine(url)
    close.callback(engine.dispose)
    link = close.enter_context(closing(engine.connect()))
    return Theirs(store, link, link.commit, link.rollback)


def test_it_is_there_once_they_commit(theirs: Theirs) -> None:
    store, new = theirs.store, flow_of(theirs.store, DIAMOND)
    flow = new.root.id
    assert store.flows.insert_within(theirs.connection, new, NOW) == flow
    assert store.flows.get(flow) is None
    theirs.commit()
    assert (store.flows.get(flow), states(store, flow), root(store, flow)) == (new.flow, "rbbb", new.root)
    run(store, flow, 1)
    run(store, flow, 2, 3)
    assert states(store, flow) == "dddr"


def test_nothing_is_there_once_they_roll_back(theirs: Theirs) -> None:
    store, new = theirs.store, flow_of(theirs.store, DIAMOND, key="7")
    store.flows.insert_within(theirs.connection, new, NOW)
    theirs.rollback()
    assert (store.flows.get(new.root.id), store.counts()) == (None, [])
    assert store.flows.insert(flow_of(store, DIAMOND, key="7"), NOW) != new.root.id


def test_a_large_one_is_whole_too(theirs: Theirs) -> None:
    """It is their transaction."""
    store, new = theirs.store, flow_of(theirs.store, [[], *([1] for _ in range(1500)), list(range(2, 1502))])
    store.flows.insert_within(theirs.connection, new, NOW)
    theirs.commit()
    assert numbers(store, new.root.id) == (new.flow.phase, 1, 1501, 0)
    assert len(store.flows.nodes(new.root.id, 0, 9999)) == 1502


def test_sent_twice_or_with_a_key_that_is_held_it_is_one(theirs: Theirs) -> None:
    store, new = theirs.store, flow_of(theirs.store, DIAMOND, key="7")
    assert store.flows.insert_within(theirs.connection, new, NOW) == new.root.id
    for again in (new, flow_of(store, DIAMOND, key="7")):
        assert store.flows.insert_within(theirs.connection, again, NOW) == new.root.id
    theirs.commit()
    assert len(store.counts()) == 3
    assert sum(tally.count for tally in store.counts()) == 5


def test_another_database_is_refused(theirs: Theirs, tmp_path: Path) -> None:
    new = flow_of(theirs.store, DIAMOND)
    with (
        closing(sqlite3.connect(tmp_path / "other.db")) as other,
        pytest.raises((OtherDatabase, StoreError, TypeError)),
    ):
        theirs.store.flows.insert_within(other, new, NOW)
    assert theirs.store.flows.get(new.root.id) is None
    with pytest.raises(OtherDatabase):
        MemoryStore().flows.insert_within(theirs.connection, new, NOW)

"""Inserting through the caller's own connection, on the database that is the store: the PostgreSQL store's side."""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest
import sqlalchemy
from psycopg.rows import dict_row
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tarry import App, errors
from tarry.model.bound import Bound
from tarry.model.job import HELD, Job
from tarry.model.limit import TASK, Limit
from tarry.store.conformance.cases.jobs import NOW
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules.base import BANDS, Want
from tarry.store.rules.ids import uuid7
from tarry.store.rules.sleeper import WORK
from tests.servers.postgres import PostgresServer
from tests.store import django_story
from tests.worker.bench import LIMIT

WANTS = [Want("default", band, 10) for band in BANDS]


def job(key: str | None = None, **more: Any) -> Job:
    return Job(uuid7(), "t", b"\0[]", due=1, key=key, key_held_until=HELD if key else 0, **more)


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    with closing(PostgresStore(postgres_url)) as store:
        yield store


@pytest.fixture
def theirs(postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    with closing(psycopg.connect(postgres_server.url)) as connection:
        yield connection


@pytest.fixture
def engine(postgres_server: PostgresServer) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(postgres_server.url.replace("postgresql:", "postgresql+psycopg:"))
    yield engine
    engine.dispose()


def count(store: PostgresStore) -> int:
    return sum(tally.count for tally in store.counts())


def test_it_is_there_once_they_commit(store: PostgresStore, theirs: psycopg.Connection) -> None:
    full = job(
        headers=b'{"a":"b"}', queue="q", priority=-7, expires=10**16, lane="k\xe4se", progress=b"[1]", state_since=9
    )
    jobs = [job(), full, job()]
    assert store.insert_within(theirs, jobs) == [one.id for one in jobs]
    assert count(store) == 0
    theirs.commit()
    assert store.get([one.id for one in jobs]) == jobs
    store.insert_within(theirs, [job()])
    theirs.rollback()
    assert count(store) == 3


def test_savepoints(store: PostgresStore, theirs: psycopg.Connection) -> None:
    first, second = job(), job()
    store.insert_within(theirs, [first])
    with theirs.transaction() as savepoint:
        store.insert_within(theirs.cursor(), [second])
        raise psycopg.Rollback(savepoint)
    theirs.commit()
    assert store.get([first.id, second.id]) == [first, None]


def test_a_full_queue_refuses_all_of_them(store: PostgresStore, theirs: psycopg.Connection) -> None:
    bounds = {"default": Bound(2)}
    with pytest.raises(errors.QueueFull):
        store.insert_within(theirs, [job(), job(), job()], bounds, NOW)
    # Their transaction is as good as before, and other producers do not wait for its end.
    store.insert_within(theirs, [job()], bounds, NOW)
    assert isinstance(store.insert_bounded([job()], bounds, NOW)[0], bytes)
    theirs.commit()
    assert count(store) == 2
    assert isinstance(store.insert_bounded([job()], bounds, NOW)[0], errors.QueueFull)


def test_no_jobs(store: PostgresStore, theirs: psycopg.Connection) -> None:
    assert store.insert_within(theirs, []) == []


def test_keys_are_held_as_ever(store: PostgresStore, theirs: psycopg.Connection) -> None:
    (first,) = store.insert([job("a")])
    second = job("b")
    assert store.insert_within(theirs, [job("a"), second, job("b")]) == [first, second.id, second.id]
    assert store.insert_within(theirs, [second]) == [second.id]
    theirs.commit()
    assert count(store) == 2


def test_a_limited_task_gets_its_lane(store: PostgresStore, theirs: psycopg.Connection) -> None:
    store.limit(TASK + "t", Limit(most=1))
    limited = job()
    store.insert_within(theirs, [limited])
    theirs.commit()
    (kept,) = store.get([limited.id])
    assert kept is not None
    assert kept.lane == ""


@pytest.mark.parametrize("limit", [Limit(most=1), None])
def test_a_new_limit_that_waits_for_them_holds_up_nobody(
    store: PostgresStore, theirs: psycopg.Connection, limit: Limit | None
) -> None:
    """It is set once they have committed, and counts what they enqueued too."""
    if limit is None:
        store.limit(TASK + "t", Limit(most=9))
    store.insert_within(theirs, [job(), job()])
    setting = threading.Thread(target=store.limit, args=(TASK + "t", limit))
    setting.start()
    start = time.monotonic()
    for _ in range(20):
        store.insert([Job(uuid7(), "other", b"", due=1)])
        assert len(store.claim(WANTS, 9, "ann", 10**6, 2)) == 1
    assert time.monotonic() - start < 4, "each waited for a moment at most"
    assert setting.is_alive()
    theirs.commit()
    setting.join(LIMIT)
    assert not setting.is_alive()
    assert len(store.claim(WANTS, 9, "ann", 10**6, 2)) == (1 if limit else 2)


def test_a_limit_that_waits_for_too_long_says_for_what(
    store: PostgresStore, theirs: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.insert_within(theirs, [job()])
    monkeypatch.setattr("tarry.store.postgres.limits.LONG_TIMEOUT", 1)
    with pytest.raises(
        errors.StoreBusy, match=f"the limit {TASK}t is not set: a transaction that enqueued has been open"
    ):
        store.limit(TASK + "t", Limit(most=1))
    assert store.limits() == {}


def test_it_is_found_however_late_they_commit(store: PostgresStore, theirs: psycopg.Connection) -> None:
    """Although workers have claimed what came after it, and looked where nothing was."""
    first, later = (Job(uuid7(), "t", b"", due=store.time()) for _ in range(2))
    store.insert_within(theirs, [first])
    store.insert([later])
    far = store.time() + 10**9
    assert [one.id for one in store.claim(WANTS, 9, "ann", 10**6, far)] == [later.id]
    store._scan_starts._ready = dict.fromkeys(store._scan_starts._ready, (far, far))
    theirs.commit()
    assert [one.id for one in store.claim(WANTS, 9, "ann", 10**6, far)] == [first.id]


def test_it_wakes_once_they_commit(store: PostgresStore, theirs: psycopg.Connection) -> None:
    with closing(store.wakeup()) as sleeper:
        sleeper.listen(WORK)
        store.insert_within(theirs, [job()])
        assert not sleeper.clear()
        timer = threading.Timer(0.05, theirs.commit)
        timer.start()
        sleeper.wait(LIMIT)
        timer.join()
        assert len(store.claim(WANTS, 9, "ann", 10**6, store.time())) == 1


def test_rows_of_any_shape(store: PostgresStore, theirs: psycopg.Connection) -> None:
    theirs.row_factory = dict_row  # type: ignore[assignment]
    (first,) = store.insert_within(theirs, [job("a")])
    assert store.insert_within(theirs.cursor(), [job("a")]) == [first]
    assert str(theirs.row_factory) == str(dict_row)


def test_where_each_statement_is_committed_at_once(store: PostgresStore, theirs: psycopg.Connection) -> None:
    theirs.autocommit = True
    with pytest.raises(errors.StoreError, match=r"no transaction open.*begin one first"):
        store.insert_within(theirs, [job()])
    with theirs.transaction():
        store.insert_within(theirs, [job()])
    assert count(store) == 1


def test_their_error_is_theirs(store: PostgresStore, theirs: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.DivisionByZero):
        theirs.execute("SELECT 1/0")
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        store.insert_within(theirs, [job()])


def test_another_database(postgres_server: PostgresServer, store: PostgresStore) -> None:
    postgres_server.call("CREATE DATABASE other")
    try:
        url = f"postgresql://postgres@127.0.0.1:{postgres_server.port}/other"
        with closing(psycopg.connect(url)) as other:
            with pytest.raises(errors.OtherDatabase, match="another database than"):
                store.insert_within(other, [job()])
            other.rollback()
            with closing(PostgresStore(f"{url}?schema={store._schema}")):
                pass
            with pytest.raises(errors.OtherDatabase, match="another database than"):
                store.insert_within(other, [job()])
    finally:
        postgres_server.call("DROP DATABASE other WITH (FORCE)")


def test_another_schema_is_another_store(
    postgres_server: PostgresServer, store: PostgresStore, theirs: psycopg.Connection
) -> None:
    postgres_server.call("CREATE SCHEMA IF NOT EXISTS theirs")
    theirs.execute("SET search_path = theirs")
    store.insert_within(theirs, [job()])
    theirs.commit()
    assert count(store) == 1


@pytest.mark.parametrize("part", [lambda connection: connection, sqlite3.Connection.cursor])
def test_another_kind_of_database(store: PostgresStore, part: Callable[[sqlite3.Connection], Any]) -> None:
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(errors.OtherDatabase, match="to a sqlite database, and the jobs are kept in P"),
    ):
        store.insert_within(part(connection), [job()])


def test_no_connection_at_all(store: PostgresStore) -> None:
    with pytest.raises(TypeError, match=r"connection='x': give a connection or cursor of psycopg"):
        store.insert_within("x", [job()])


# SQLAlchemy, and the whole way


def test_a_connection_of_sqlalchemy(store: PostgresStore, engine: sqlalchemy.Engine) -> None:
    with engine.begin() as connection:
        lives = store.insert_within(connection, [job("%s"), job("%s")])
        assert lives[0] == lives[1]
        assert count(store) == 0
    assert count(store) == 1
    with engine.connect() as connection:
        store.insert_within(connection, [job()])
    assert count(store) == 1


def test_a_session_of_sqlalchemy(store: PostgresStore, engine: sqlalchemy.Engine) -> None:
    with orm.Session(engine) as session:
        store.insert_within(session, [job()])
        session.commit()
        store.insert_within(session, [job()])
        session.rollback()
    assert count(store) == 1


def test_sqlalchemy_that_commits_each_statement(store: PostgresStore, engine: sqlalchemy.Engine) -> None:
    with (
        engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection,
        pytest.raises(errors.StoreError, match="no transaction open"),
    ):
        store.insert_within(connection, [job()])


def test_sqlalchemy_on_another_database(store: PostgresStore) -> None:
    engine = sqlalchemy.create_engine("sqlite://")
    with orm.Session(engine) as session, pytest.raises(errors.OtherDatabase, match="to a sqlite database"):
        store.insert_within(session, [job()])
    with pytest.raises(errors.OtherDatabase, match="Session without a database"):
        store.insert_within(orm.Session(), [job()])
    engine.dispose()


def test_enqueued_within_a_transaction(postgres_url: str, engine: sqlalchemy.Engine) -> None:
    app = App(postgres_url, closures=True)

    @app.task(name="tests.within")
    def task(n: int) -> None: ...

    with orm.Session(engine) as session:
        handle = task.using(connection=session).enqueue(1)
        session.commit()
    assert handle.state == "ready"
    app.close()


def test_enqueued_within_an_asynchronous_session(postgres_url: str, postgres_server: PostgresServer) -> None:
    app = App(postgres_url, closures=True)

    @app.task(name="tests.within")
    def task(n: int) -> None: ...

    async def both() -> None:
        engine = create_async_engine(postgres_server.url.replace("postgresql:", "postgresql+psycopg:"))
        async with AsyncSession(engine) as session:
            handle = await task.using(connection=session).aenqueue(1)
            assert app.client.store.counts() == []
            await session.commit()
        assert handle.state == "ready"
        await engine.dispose()

    asyncio.run(both())
    app.close()


# Django


DJANGO = """
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": "postgres",
    "USER": "postgres", "HOST": "127.0.0.1", "PORT": sys.argv[1]}})
"""


def test_django(postgres_server: PostgresServer, postgres_url: str) -> None:
    *said, refused = django_story.told(DJANGO, str(postgres_server.port), postgres_url)
    assert said == ["[]", "ready", "1"]
    assert "no transaction open" in refused

"""Schedules put within the caller's transaction: there if, and only if, the caller commits."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pymysql
import pytest
import sqlalchemy
from sqlalchemy.ext import asyncio as alchemy_async

from tarry import App
from tarry.client.tasks.task import Task
from tarry.errors import OtherDatabase
from tarry.store.mysql.link.address import parse
from tarry.tasks.lazy_asyncio import asyncio
from tests.servers.postgres import PostgresServer

Connect = Callable[[], Any]


@pytest.fixture(params=["sqlite", "postgres", "mariadb"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[App, Connect]]:
    """An app, and connections to its database."""
    match request.param:
        case "sqlite":
            path = tmp_path / "app.db"
            app = App(f"sqlite:///{path}?shared=yes", closures=True)
            connect: Connect = lambda: sqlite3.connect(path, timeout=0)  # noqa: E731
        case "postgres":
            app = App(request.getfixturevalue("postgres_url"), closures=True)
            postgres: PostgresServer = request.getfixturevalue("postgres_server")
            connect = lambda: psycopg.connect(postgres.url)  # noqa: E731
        case _:
            app = App(request.getfixturevalue("mariadb_url"), closures=True)
            where = parse(request.getfixturevalue("mariadb_url"))
            connect = lambda: pymysql.connect(  # noqa: E731
                host=where.host, port=where.port, user=where.user, database=where.database
            )
    app.client.store.kv_list("")
    yield app, connect
    app.close()


@pytest.fixture
def report(place: tuple[App, Connect]) -> Task[[int], None]:
    @place[0].task(name="report")
    def report(customer: int) -> None: ...

    return report


def test_it_is_there_once_they_commit(place: tuple[App, Connect], report: Task[[int], None]) -> None:
    app, connect = place
    with closing(connect()) as theirs:
        app.schedules.put("a", report.call(1), every="1h", connection=theirs)
        assert app.schedules.get("a") is None
        theirs.rollback()
        assert app.schedules.get("a") is None
        app.schedules.put("a", report.call(1), every="1h", connection=theirs)
        theirs.commit()
        first = app.schedules.get("a")
        assert first is not None
        app.schedules.put("a", report.call(1), every="2h", connection=theirs)
        theirs.commit()
        second = app.schedules.get("a")
        assert second is not None
        assert (first.cron, second.cron) == ("@every 1h", "@every 2h")
        assert len(app.client.store.kv_list("schedule")) == 2, "the schedule, and one entry by time"
        assert app.schedules.delete("a", connection=theirs)
        theirs.rollback()
        assert app.schedules.get("a") == second
        assert app.schedules.delete("a", connection=theirs)
        theirs.commit()
        assert app.client.store.kv_list("schedule") == {}


def test_somebody_else_changes_it_meanwhile(place: tuple[App, Connect], report: Task[[int], None]) -> None:
    app, connect = place
    if "sqlite" in str(app.store_url):
        pytest.skip("SQLite has one writer at a time")
    app.schedules.put("a", report.call(1), every="1h")
    with closing(connect()) as theirs:
        # Its snapshot, where the database has one, is from before the other change.
        with closing(theirs.cursor()) as cursor:
            cursor.execute("SELECT 1")
        app.schedules.put("a", report.call(1), every="3h", connection=theirs)
        theirs.rollback()
        app.schedules.put("a", report.call(1), every="2h")
        app.schedules.put("a", report.call(1), every="4h", connection=theirs)
        theirs.commit()
    found = app.schedules.get("a")
    assert found is not None
    assert found.cron == "@every 4h"


def test_another_database(place: tuple[App, Connect], report: Task[[int], None], tmp_path: Path) -> None:
    app, _ = place
    with (
        closing(sqlite3.connect(tmp_path / "other.db")) as other,
        pytest.raises(OtherDatabase, match="put the schedule without connection=, once you have committed"),
    ):
        app.schedules.put("a", report.call(1), every="1h", connection=other)
    assert app.schedules.get("a") is None


def test_an_asynchronous_session(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/app.db?shared=yes", closures=True)

    @app.task(name="report")
    def report(customer: int) -> None: ...

    app.client.store.kv_list("")
    engine = alchemy_async.create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/app.db")

    async def put() -> None:
        async with alchemy_async.AsyncSession(engine) as session:
            await app.schedules.aput("a", report.call(1), every="1h", connection=session)
            with pytest.raises(TypeError, match=r"is asynchronous: await aput"):
                app.schedules.put("a", report.call(1), every="1h", connection=session)
            await session.rollback()
            assert await app.schedules.aget("a") is None
            await app.schedules.aput("a", report.call(1), every="1h", connection=session)
            await session.commit()
        assert [one.name async for one in app.schedules.alist()] == ["a"]
        assert (await app.schedules.apause("a")).is_paused
        assert not (await app.schedules.aresume("a")).is_paused
        assert await app.schedules.adelete("a")
        await engine.dispose()

    asyncio.run(put())
    app.close()


def test_an_engine_is_no_connection(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/app.db?shared=yes", closures=True)

    @app.task(name="report")
    def report(customer: int) -> None: ...

    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/app.db")
    with pytest.raises(TypeError, match="makes connections"):
        app.schedules.put("a", report.call(1), every="1h", connection=engine)
    app.close()

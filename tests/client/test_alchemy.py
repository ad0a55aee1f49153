"""Enqueueing within sessions of SQLAlchemy and SQLModel, on each database that can be the store: how it may fail."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sqlalchemy
import sqlmodel
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as alchemy_async

from tarry import App, JobNotFound
from tarry.errors import OtherDatabase, StoreError
from tarry.store.rules.base import Query
from tests.servers.fixtures import started
from tests.servers.postgres import PostgresServer


class Database(NamedTuple):
    """One database: as a store, and as SQLAlchemy's."""

    store: str
    url: str
    async_urls: tuple[str, ...]


def sqlite(request: pytest.FixtureRequest, directory: Path) -> Database:
    file = f"{directory}/shop.db"
    return Database(f"sqlite:///{file}?shared=yes", f"sqlite:///{file}", (f"sqlite+aiosqlite:///{file}",))


def postgres(request: pytest.FixtureRequest, directory: Path) -> Database:
    url = request.getfixturevalue("postgres_url")
    at = url.partition("?")[0].removeprefix("postgresql")
    return Database(url, f"postgresql+psycopg{at}", (f"postgresql+psycopg{at}", f"postgresql+asyncpg{at}"))


def mariadb(request: pytest.FixtureRequest, directory: Path) -> Database:
    url = request.getfixturevalue("mariadb_url")
    at = url.removeprefix("mysql")
    return Database(url, f"mysql+pymysql{at}", (f"mysql+aiomysql{at}",))


@pytest.fixture(params=[sqlite, postgres, mariadb], ids=lambda kind: kind.__name__)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    made: Database = request.param(request, tmp_path)
    return made


@pytest.fixture
def app(database: Database) -> Iterator[App]:
    app = App(database.store, closures=True)
    assert app.client
    yield app
    app.close()


@pytest.fixture
def mail(app: App) -> Any:
    @app.task(name="mail")
    def mail(order: int) -> None: ...

    return mail


@pytest.fixture
def engine(database: Database) -> Iterator[sqlalchemy.Engine]:
    engine = sqlalchemy.create_engine(database.url)
    yield engine
    engine.dispose()


def kept(app: App) -> list[bytes]:
    return sorted(job.body for job in app.client.store.find(Query()) if job.task == "mail")


def test_a_session_of_sqlmodel(app: App, mail: Any, engine: sqlalchemy.Engine) -> None:
    with sqlmodel.Session(engine) as session:
        mail.using(connection=session).enqueue(1)
        assert kept(app) == []
        session.commit()
        mail.using(connection=session).enqueue(2)
        session.rollback()
        mail.using(connection=session).enqueue(3)
    assert kept(app) == [b"[1]"], "closed without a commit is rolled back"


def test_a_savepoint_that_is_rolled_back(app: App, mail: Any, engine: sqlalchemy.Engine) -> None:
    with orm.Session(engine) as session:
        mail.using(connection=session).enqueue(1)
        savepoint = session.begin_nested()
        mail.using(connection=session).enqueue(2)
        savepoint.rollback()
        with session.begin_nested():
            mail.using(connection=session).enqueue(3)
        assert kept(app) == []
        session.commit()
    assert kept(app) == [b"[1]", b"[3]"]


def test_asynchronous_sessions_on_every_driver(app: App, mail: Any, database: Database) -> None:
    async def main(url: str) -> None:
        engine = alchemy_async.create_async_engine(url)
        async with alchemy_async.AsyncSession(engine) as session:
            one = await mail.using(connection=session).aenqueue(1)
            savepoint = await session.begin_nested()
            await mail.using(connection=session).aenqueue(2)
            await savepoint.rollback()
            (again,) = await mail.using(connection=session, key=url).aenqueue_many([(3,)])
            assert again.is_new
            with pytest.raises(JobNotFound):
                await one.astate()
            await session.commit()
            assert await one.astate() == "ready"
            assert await mail.using(connection=session, key=url).aenqueue(4) == again
            await mail.using(connection=session).aenqueue(5)
            await session.rollback()
            async with app.flow("sale", connection=session) as flow:
                flow.add(mail.call(6))
            await session.rollback()
            with pytest.raises(TypeError, match=r"is asynchronous: await aenqueue"):
                mail.using(connection=session).enqueue(7)
        await engine.dispose()

    for url in database.async_urls:
        asyncio.run(main(url))
    assert kept(app) == sorted([b"[1]", b"[3]"] * len(database.async_urls))


def test_asynchronous_connections_that_commit_each_statement(mail: Any, database: Database) -> None:
    async def main(url: str) -> None:
        engine = alchemy_async.create_async_engine(url, isolation_level="AUTOCOMMIT")
        async with engine.connect() as connection:
            with pytest.raises(StoreError, match="no transaction open"):
                await mail.using(connection=connection).aenqueue(1)
        await engine.dispose()

    for url in database.async_urls:
        asyncio.run(main(url))


def test_a_commit_whose_answer_is_lost(
    app: App, mail: Any, engine: sqlalchemy.Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program cannot know. The job tells: it is there if and only if the order is."""

    def commit_and_break(connection: Any) -> None:
        commit(connection)
        raise ConnectionResetError

    with orm.Session(engine) as session:
        job = mail.using(connection=session).enqueue(1)
        commit = engine.dialect.do_commit
        monkeypatch.setattr(engine.dialect, "do_commit", commit_and_break)
        with pytest.raises(ConnectionResetError):
            session.commit()
    monkeypatch.undo()
    assert app.get(job.id).state == "ready"


def test_a_commit_that_fails(app: App, mail: Any, engine: sqlalchemy.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(connection: Any) -> None:
        raise ConnectionResetError

    with orm.Session(engine) as session:
        job = mail.using(connection=session).enqueue(1)
        monkeypatch.setattr(engine.dialect, "do_commit", fail)
        with pytest.raises(ConnectionResetError):
            session.commit()
    monkeypatch.undo()
    with pytest.raises(JobNotFound):
        app.get(job.id).record()


def test_its_result_before_the_commit(mail: Any, engine: sqlalchemy.Engine) -> None:
    with orm.Session(engine) as session:
        job = mail.using(connection=session).enqueue(1)
        with pytest.raises(JobNotFound):
            job.result(timeout=5)


def test_what_is_closed(mail: Any, engine: sqlalchemy.Engine) -> None:
    session = orm.Session(engine, close_resets_only=False)
    session.close()
    with pytest.raises(sqlalchemy.exc.InvalidRequestError, match="permanently closed"):
        mail.using(connection=session).enqueue(1)
    connection = engine.connect()
    connection.close()
    with pytest.raises(sqlalchemy.exc.ResourceClosedError, match="is closed"):
        mail.using(connection=connection).enqueue(1)


@pytest.mark.parametrize("factory", [lambda engine: engine, orm.sessionmaker])
def test_what_makes_connections_is_none(mail: Any, engine: sqlalchemy.Engine, factory: Any) -> None:
    with pytest.raises(TypeError, match="makes connections: give the Connection or Session"):
        mail.using(connection=factory(engine)).enqueue(1)


def test_a_session_of_tests_within_a_transaction_of_their_own(
    app: App, mail: Any, engine: sqlalchemy.Engine, database: Database
) -> None:
    """The session commits a savepoint only; the test rolls back all of it."""
    if database.url.startswith("sqlite"):
        _begin_really(engine)
    with engine.connect() as connection:
        outer = connection.begin()
        with orm.Session(connection, join_transaction_mode="create_savepoint") as session:
            mail.using(connection=session).enqueue(1)
            session.commit()
        outer.rollback()
    assert kept(app) == []


def _begin_really(engine: sqlalchemy.Engine) -> None:
    @sqlalchemy.event.listens_for(engine, "connect")
    def connected(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")


class Base(orm.DeclarativeBase):
    """Of the caller's tables."""


class Order(Base):
    __tablename__ = "order_of_test_alchemy"
    id: orm.Mapped[int] = orm.mapped_column(primary_key=True)


def test_a_session_with_several_databases(app: App, mail: Any, engine: sqlalchemy.Engine) -> None:
    """Which of them is meant is to be said; else the job waits in this process until the commit."""
    with orm.Session(binds={Order: engine}) as session:
        held = mail.using(connection=session).enqueue(1)
        assert held.is_new is None
        named = session.connection(bind_arguments={"mapper": Order})
        assert mail.using(connection=named).enqueue(2).is_new
        session.rollback()
        mail.using(connection=session.connection(bind_arguments={"mapper": Order})).enqueue(3)
        session.commit()
    assert kept(app) == [b"[3]"]


def test_a_database_that_is_not_the_stores(app: App, mail: Any, tmp_path: Path) -> None:
    other = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/other.db")
    with other.connect() as connection, pytest.raises(OtherDatabase, match="cannot commit as one"):
        mail.using(connection=connection).enqueue(1)
    with orm.Session(other) as session:
        job = mail.using(connection=session).enqueue(2)
        assert (job.is_new, kept(app)) == (None, [])
        session.commit()
        assert job.is_new
    other.dispose()
    assert kept(app) == [b"[2]"]


@pytest.fixture(scope="module")
def preparing_postgres(servers_directory: Path) -> Iterator[PostgresServer]:
    """PostgreSQL refuses prepared transactions unless it is set up for them."""
    settings = ("fsync=off", "max_prepared_transactions=4")
    yield from started(PostgresServer(servers_directory / "preparing", *settings))


def test_two_phases_on_postgresql(preparing_postgres: PostgresServer) -> None:
    two_phases(preparing_postgres.url, preparing_postgres.url.replace("postgresql:", "postgresql+psycopg:"))


def test_two_phases_on_mariadb(mariadb_url: str) -> None:
    two_phases(mariadb_url, mariadb_url.replace("mysql:", "mysql+pymysql:"))


def two_phases(store: str, url: str) -> None:
    app = App(store, closures=True)
    task = app.task(name="mail")(lambda: None)
    assert app.client
    engine = sqlalchemy.create_engine(url)
    with orm.Session(engine, twophase=True) as session:
        job = task.using(connection=session).enqueue()
        session.prepare()
        with pytest.raises(JobNotFound):
            job.record()
        session.commit()
        assert job.state == "ready"
        task.using(connection=session).enqueue()
        session.prepare()
        session.rollback()
    engine.dispose()
    assert len(kept(app)) == 1
    app.close()

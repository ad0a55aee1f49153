"""Enqueueing within a transaction on another database: held until its library tells of the commit. And Django, on
either."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as alchemy_async

from tarry import App, State, errors
from tarry.model.job import Job
from tarry.store.flaky import FlakyStore
from tarry.store.memory.store import MemoryStore
from tests.client.callers import (
    ORDER,
    Caller,
    by_core,
    by_cursor,
    by_sqlite3,
    database,
    declared,
    fails_after,
    kept,
    orders,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of the caller's, with a table."""
    return database(tmp_path / "app.db")


@pytest.fixture(params=["sqlite", "memory"])
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An app whose jobs are not kept in the caller's database."""
    app = App(MemoryStore() if request.param == "memory" else f"sqlite:///{tmp_path}/tarry.db", closures=True)
    yield app
    app.close()


@pytest.fixture
def session(path: Path) -> Iterator[orm.Session]:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with orm.Session(engine) as session:
        yield session
    engine.dispose()


def test_a_session_holds_it_until_the_commit(elsewhere: App, session: orm.Session) -> None:
    mail = declared(elsewhere)
    session.execute(sqlalchemy.text(ORDER))
    one = mail.using(connection=session).enqueue("one")
    two, _ = mail.using(connection=session).enqueue_many([("two",), ("three",)])
    assert (one.is_new, two.is_new) == (None, None)
    assert kept(elsewhere) == []
    id = one.id
    session.commit()
    assert sorted(kept(elsewhere)) == ["one", "three", "two"]
    assert (one.id, one.is_new, one.state) == (id, True, State.READY)


def test_what_is_rolled_back_or_left_is_dropped(elsewhere: App, session: orm.Session) -> None:
    mail = declared(elsewhere)
    mail.using(connection=session).enqueue("gone")
    session.rollback()
    session.commit()
    mail.using(connection=session).enqueue("gone")
    session.close()
    session.commit()
    mail.using(connection=session).enqueue("one")
    session.commit()
    session.commit()
    assert kept(elsewhere) == ["one"]


def test_a_transaction_that_fails_to_commit(elsewhere: App, session: orm.Session) -> None:
    mail = declared(elsewhere)
    sqlalchemy.event.listen(session, "before_commit", lambda session: 1 / 0)
    mail.using(connection=session).enqueue("gone")
    with pytest.raises(ZeroDivisionError):
        session.commit()
    session.close()
    assert kept(elsewhere) == []


def test_savepoints_hold_and_drop(elsewhere: App, session: orm.Session) -> None:
    mail = declared(elsewhere)
    mail.using(connection=session).enqueue("1")
    with session.begin_nested():
        mail.using(connection=session).enqueue("2")
        with pytest.raises(ZeroDivisionError), session.begin_nested():
            fails_after(mail, session)
    assert kept(elsewhere) == []
    outer = session.begin_nested()
    with session.begin_nested():
        mail.using(connection=session).enqueue("gone with the outer one")
    outer.rollback()
    assert kept(elsewhere) == []
    session.commit()
    assert sorted(kept(elsewhere)) == ["1", "2"]


def test_a_session_as_a_context(elsewhere: App, path: Path) -> None:
    mail = declared(elsewhere)
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    make = orm.sessionmaker(engine)
    with make.begin() as session:
        mail.using(connection=session).enqueue("one")
    with pytest.raises(ZeroDivisionError), make.begin() as session:
        fails_after(mail, session)
    engine.dispose()
    assert kept(elsewhere) == ["one"]


def test_a_held_job_whose_key_is_taken(elsewhere: App, session: orm.Session) -> None:
    mail = declared(elsewhere)
    held = mail.using(key="k", connection=session).enqueue("second")
    first = mail.using(key="k").enqueue("first")
    assert held != first
    session.commit()
    assert (held.id, held.is_new) == (first.id, False)
    assert kept(elsewhere) == ["first"]


def test_held_by_an_asynchronous_session(elsewhere: App, path: Path) -> None:
    mail = declared(elsewhere)

    async def main() -> None:
        engine = alchemy_async.create_async_engine(f"sqlite+aiosqlite:///{path}")
        async with alchemy_async.AsyncSession(engine) as session:
            job = await mail.using(connection=session).aenqueue("one")
            assert job.is_new is None
            await session.commit()
            await mail.using(connection=session).aenqueue("gone")
        await engine.dispose()

    asyncio.run(main())
    assert kept(elsewhere) == ["one"]


def test_a_session_without_a_database_of_its_own(app: App) -> None:
    mail = declared(app)
    with orm.Session() as session:
        mail.using(connection=session).enqueue("one")
        session.commit()
    assert kept(app) == ["one"]


class _NoInsert(FlakyStore):
    """Fails by the verb: which call is the insert depends on what the client's own threads have read before."""

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        raise errors.StoreUnavailable(f"{self.url}: it is away")


def test_a_commit_that_stands_though_the_job_is_lost(
    session: orm.Session, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    inner = MemoryStore()
    app = App(_NoInsert(inner, fail_at=0, after=False), closures=True)
    mail = declared(app)
    session.execute(sqlalchemy.text(ORDER))
    job = mail.using(connection=session).enqueue("lost")
    with caplog.at_level(logging.ERROR, "tarry.client"):
        session.commit()
    assert orders(path) == 1
    assert inner.counts() == []
    (record,) = caplog.records
    assert record.getMessage().endswith(f"could not be stored: mail {job.id}")
    assert record.exc_info


@pytest.mark.parametrize("by", [by_sqlite3, by_cursor, by_core], ids=lambda by: by.__name__)
def test_who_does_not_tell_of_commits_is_refused(
    elsewhere: App, path: Path, by: Callable[[Path, ExitStack], Caller]
) -> None:
    mail = declared(elsewhere)
    with ExitStack() as stack:
        caller = by(path, stack)
        with pytest.raises(errors.OtherDatabase, match=r"cannot commit as one.*Session of SQLAlchemy"):
            mail.using(connection=caller.connection).enqueue("one")


def test_a_database_that_is_not_sqlite(app: App) -> None:
    mail = declared(app)
    engine = sqlalchemy.create_mock_engine("postgresql://", lambda *_: None)
    with orm.Session(bind=engine) as session:  # type: ignore[arg-type]
        job = mail.using(connection=session).enqueue("one")
        assert job.is_new is None
    assert kept(app) == []


def test_what_is_no_connection(app: App) -> None:
    with pytest.raises(TypeError, match="give a connection or cursor of sqlite3 or apsw"):
        declared(app).using(connection=object()).enqueue("one")


# Django


DJANGO = """
import sys
from django.conf import settings
settings.configure(DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": sys.argv[1]}})
from django.db import connection, connections, transaction
from tarry import App, errors
from tarry.store.rules.base import Query
app = App(sys.argv[2])
app.open_store().close()
@app.task(name="mail")
def mail(to: str) -> None: ...
def tell() -> None:
    print([job.body.decode() for job in app.client.store.find(Query())])
with transaction.atomic():
    connection.cursor().execute("INSERT INTO orders DEFAULT VALUES")
    job = mail.using(connection=connection).enqueue("one")
    print(job.is_new)
    try:
        with transaction.atomic():
            mail.using(connection=connections["default"]).enqueue("gone")
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass
    tell()
print(job.is_new)
tell()
try:
    mail.using(connection=connection).enqueue("two")
except errors.StoreError as error:
    print(error)
tell()
"""


def run_django(path: Path, url: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DJANGO, str(path), url],
        timeout=60,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_django_on_the_same_database(path: Path) -> None:
    one = """['["one"]']"""
    told = run_django(path, f"sqlite:///{path}?shared=yes")
    assert told[:4] == ["True", "[]", "True", one]
    assert "no transaction open" in told[4]
    assert told[5:] == [one]


def test_django_on_another_database(path: Path, tmp_path: Path) -> None:
    one, both = """['["one"]']""", """['["one"]', '["two"]']"""
    assert run_django(path, f"sqlite:///{tmp_path}/tarry.db") == ["None", "[]", "True", one, both]

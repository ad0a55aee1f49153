"""Enqueueing within the caller's transaction on the store's own database: `using(connection=...)`."""

import asyncio
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import apsw
import pytest
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as alchemy_async

from tarry import App, IdempotencyError, JobNotFound, State, errors
from tarry.store.sqlite.store import SqliteStore
from tarry.worker import pump
from tests.client.callers import (
    BY,
    ORDER,
    Caller,
    Mail,
    by_core,
    by_session,
    by_sqlite3,
    database,
    declared,
    fails_after,
    kept,
    orders,
)
from tests.worker.bench import LIMIT, Bench


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A database of the caller's, with a table."""
    return database(tmp_path / "app.db")


@pytest.fixture
def shared(path: Path) -> Iterator[App]:
    """An app that keeps its jobs in that database, where tarry's tables are already."""
    SqliteStore(path, shared="yes").close()
    app = App(f"sqlite:///{path}?shared=yes", closures=True)
    yield app
    app.close()


@pytest.fixture
def mail(shared: App) -> Mail:
    return declared(shared)


@pytest.fixture(params=BY, ids=lambda by: by.__name__)
def caller(request: pytest.FixtureRequest, path: Path) -> Iterator[Caller]:
    with ExitStack() as stack:
        yield request.param(path, stack)


def test_the_job_is_there_if_and_only_if_the_caller_commits(
    shared: App, mail: Mail, caller: Caller, path: Path
) -> None:
    caller.write()
    one = mail.using(connection=caller.connection).enqueue("one")
    two, three = mail.using(connection=caller.connection).enqueue_many([("two",), ("three",)])
    assert one.is_new
    assert (kept(shared), orders(path)) == ([], 0)
    caller.commit()
    assert (kept(shared), orders(path)) == (["one", "two", "three"], 1)
    assert [job.state for job in (one, two, three)] == [State.READY] * 3

    caller.write()
    gone = mail.using(connection=caller.connection).enqueue("gone")
    caller.rollback()
    assert (kept(shared), orders(path)) == (["one", "two", "three"], 1)
    with pytest.raises(JobNotFound):
        gone.record()


@pytest.mark.parametrize("by", [by_sqlite3, by_core, by_session], ids=lambda by: by.__name__)
def test_it_may_be_the_first_thing_in_the_transaction(
    shared: App, mail: Mail, path: Path, by: Callable[[Path, ExitStack], Caller]
) -> None:
    with ExitStack() as stack:
        caller = by(path, stack)
        mail.using(connection=caller.connection).enqueue("one")
        caller.commit()
        mail.using(connection=caller.connection).enqueue("gone")
        caller.rollback()
    assert kept(shared) == ["one"]


def test_left_without_a_word_it_is_not_there(shared: App, mail: Mail, path: Path) -> None:
    for by in BY:
        with ExitStack() as stack:
            caller = by(path, stack)
            caller.write()
            mail.using(connection=caller.connection).enqueue("gone")
    assert kept(shared) == []


def test_apsw_in_a_file_that_both_share(path: Path) -> None:
    app = App(f"sqlite:///{path}?shared=apsw", closures=True)
    mail = declared(app)
    mail.enqueue("first")
    with closing(apsw.Connection(str(path))) as db:
        with db:
            db.execute(ORDER)
            mail.using(connection=db).enqueue("one")
        with pytest.raises(ZeroDivisionError), db:
            fails_after(mail, db.cursor())
    assert kept(app) == ["first", "one"]
    app.close()


def test_apsw_in_tarrys_own_file(app: App, tmp_path: Path) -> None:
    mail = declared(app)
    mail.enqueue("first")
    with closing(apsw.Connection(str(tmp_path / "tarry.db"))) as db, db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        mail.using(connection=db).enqueue("one")
        assert kept(app) == ["first"]
    assert kept(app) == ["first", "one"]


def test_sessions_savepoints(shared: App, mail: Mail, path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    with orm.Session(engine) as session:
        session.execute(sqlalchemy.text(ORDER))
        with session.begin_nested():
            mail.using(connection=session).enqueue("one")
        with pytest.raises(ZeroDivisionError), session.begin_nested():
            fails_after(mail, session)
        session.commit()
    engine.dispose()
    assert kept(shared) == ["one"]


def test_a_key_that_is_held(shared: App, mail: Mail, caller: Caller) -> None:
    first = mail.using(key="k").enqueue("first")
    caller.write()
    within = mail.using(key="k", connection=caller.connection).enqueue("second")
    new = mail.using(key="l", connection=caller.connection).enqueue("third")
    again = mail.using(key="l", connection=caller.connection).enqueue("fourth")
    assert (within, within.is_new) == (first, False)
    assert (again, new.is_new, again.is_new) == (new, True, False)
    caller.commit()
    assert kept(shared) == ["first", "third"]


def test_the_name_of_a_request(shared: App, mail: Mail, caller: Caller) -> None:
    first = mail.using(idempotency="r").enqueue("first")
    caller.write()
    assert mail.using(idempotency="r", connection=caller.connection).enqueue("first") == first
    with pytest.raises(IdempotencyError):
        mail.using(idempotency="r", connection=caller.connection).enqueue("other")


@pytest.mark.parametrize("what", ["replace", "postpone"])
def test_what_would_change_another_job_is_refused(mail: Mail, caller: Caller, what: Any) -> None:
    with pytest.raises(ValueError, match=f'on_duplicate="{what}" .* leave one of them out'):
        mail.using(key="k", on_duplicate=what, connection=caller.connection).enqueue("one")
    with pytest.raises(ValueError, match=r'running="cancel" .* leave one of them out'):
        mail.using(key="k", running="cancel", connection=caller.connection).enqueue("one")


def test_errors_of_the_transaction_are_the_callers(shared: App, mail: Mail, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as other, ExitStack() as stack:
        other.execute("BEGIN IMMEDIATE")
        db = stack.enter_context(closing(sqlite3.connect(path, timeout=0)))
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            mail.using(connection=db).enqueue("one")
        engine = sqlalchemy.create_engine(f"sqlite:///{path}", connect_args={"timeout": 0})
        stack.callback(engine.dispose)
        with engine.connect() as connection, pytest.raises(sqlalchemy.exc.OperationalError, match="locked"):
            mail.using(connection=connection).enqueue("one")


def test_alchemy_where_each_statement_is_committed_at_once(mail: Mail, path: Path) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(errors.StoreError, match="no transaction open"):
        mail.using(connection=connection).enqueue("one")
    engine.dispose()


def test_alchemy_that_begins_by_itself(shared: App, mail: Mail, path: Path) -> None:
    """The way that SQLAlchemy's documentation tells to have real savepoints with."""
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")

    @sqlalchemy.event.listens_for(engine, "connect")
    def connected(connection: Any, record: Any) -> None:
        connection.isolation_level = None

    @sqlalchemy.event.listens_for(engine, "begin")
    def begun(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN")

    with orm.Session(engine) as session:
        mail.using(connection=session).enqueue("one")
        with pytest.raises(ZeroDivisionError), session.begin_nested():
            fails_after(mail, session)
        session.commit()
    engine.dispose()
    assert kept(shared) == ["one"]


def test_awaited(shared: App, mail: Mail, path: Path) -> None:
    async def main() -> None:
        engine = alchemy_async.create_async_engine(f"sqlite+aiosqlite:///{path}")
        async with engine.begin() as connection:
            job = await mail.using(connection=connection).aenqueue("one")
            assert job.is_new
            assert kept(shared) == []
        async with alchemy_async.AsyncSession(engine) as session:
            await mail.using(connection=session).aenqueue_many([("two",), ("three",)])
            await session.commit()
            await mail.using(connection=session).aenqueue("gone")
            await session.rollback()
            with pytest.raises(TypeError, match="await aenqueue"):
                mail.using(connection=session).enqueue("gone")
        await engine.dispose()

    asyncio.run(main())
    assert kept(shared) == ["one", "two", "three"]


def test_awaited_with_a_connection_of_this_thread(shared: App, mail: Mail, caller: Caller) -> None:
    async def main() -> None:
        caller.write()
        await mail.using(connection=caller.connection).aenqueue("one")
        await mail.using(connection=caller.connection).aenqueue_many([("two",)])
        caller.commit()

    asyncio.run(main())
    assert kept(shared) == ["one", "two"]


# Waking workers


@pytest.fixture
def bench(shared: App, path: Path) -> Iterator[Bench]:
    bench = Bench(shared, lambda: SqliteStore(path, durable=False, shared="yes"))
    yield bench
    bench.close()


def test_a_worker_is_woken_by_the_commit(
    bench: Bench, caller: Caller, mail: Mail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pump, "LOOK_ANYWAY", 3600.0)
    bench.work()
    mail.enqueue("first").result(LIMIT)
    for n in range(5):
        caller.write()
        job = mail.using(connection=caller.connection).enqueue(str(n))
        caller.commit()
        assert job.result(LIMIT) is None


def test_a_worker_is_woken_by_the_commit_of_apsw(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "LOOK_ANYWAY", 3600.0)
    mail = declared(app)
    bench = Bench(app, lambda: SqliteStore(tmp_path / "tarry.db", durable=False))
    bench.work()
    mail.enqueue("first").result(LIMIT)
    with closing(apsw.Connection(str(tmp_path / "tarry.db"))) as db:
        with db:
            job = mail.using(connection=db).enqueue("one")
        assert job.result(LIMIT) is None
    bench.close()


# Death


DYING = """
import os, signal, sqlite3, sys
from tarry import App
app = App(f"sqlite:///{sys.argv[1]}?shared=yes")
@app.task(name="mail")
def mail(to: str) -> None: ...
db = sqlite3.connect(sys.argv[1])
mail.using(connection=db).enqueue("one")
db.execute("INSERT INTO orders DEFAULT VALUES")
if sys.argv[2] == "after":
    db.commit()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("when", "left"), [("before", []), ("after", ["one"])])
def test_killed_around_the_commit(shared: App, path: Path, when: str, left: list[str]) -> None:
    dying = subprocess.run([sys.executable, "-c", DYING, str(path), when], timeout=250, check=False)
    assert dying.returncode == -signal.SIGKILL
    assert kept(shared) == left
    assert orders(path) == len(left)


def test_the_very_first_enqueue_cannot_be_within(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.store.sqlite.file.BUSY_LIMIT", 0.05)
    app = App(f"sqlite:///{path}?shared=yes", closures=True)
    mail = declared(app)
    with closing(sqlite3.connect(path)) as db:
        db.execute(ORDER)
        with pytest.raises(errors.StoreBusy, match="enqueue once outside of any"):
            mail.using(connection=db).enqueue("one")
        db.commit()
        mail.using(connection=db).enqueue("one")
        db.commit()
    assert kept(app) == ["one"]
    app.close()


def test_neither_library_is_loaded_by_tarry() -> None:
    code = "import sys, tarry; print({'sqlite3', 'sqlalchemy', 'django'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], timeout=250, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"

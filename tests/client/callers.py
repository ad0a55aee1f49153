"""Somebody who has a transaction open on a database of his own, by one library or another."""

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import sqlalchemy
from sqlalchemy import orm

from tarry import App
from tarry.client.tasks.task import Task
from tarry.store.rules.base import Query

Mail = Task[[str], None]


def declared(app: App) -> Mail:
    @app.task(name="mail")
    def mail(to: str) -> None:
        pass

    return mail


def database(path: Path) -> Path:
    """One with a table for orders."""
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    return path


def fails_after(mail: Mail, connection: Any) -> None:
    mail.using(connection=connection).enqueue("gone")
    raise ZeroDivisionError


def kept(app: App) -> list[str]:
    """The arguments of the jobs that are in the store."""
    return [job.body.decode().strip("[]").split('"')[1] for job in app.client.store.find(Query())]


class Caller:
    """Somebody with a transaction, by one library or another."""

    def __init__(self, connection: Any, write: Callable[[], Any], commit: Callable[[], Any], rollback: Any) -> None:
        self.connection, self.write, self.commit, self.rollback = connection, write, commit, rollback


ORDER = "INSERT INTO orders DEFAULT VALUES"


def by_sqlite3(path: Path, stack: ExitStack) -> Caller:
    db = stack.enter_context(closing(sqlite3.connect(path)))
    return Caller(db, lambda: db.execute(ORDER), db.commit, db.rollback)


def by_cursor(path: Path, stack: ExitStack) -> Caller:
    db = stack.enter_context(closing(sqlite3.connect(path)))
    cursor = db.cursor()
    return Caller(cursor, lambda: cursor.execute(ORDER), db.commit, db.rollback)


def by_begin(path: Path, stack: ExitStack) -> Caller:
    db = stack.enter_context(closing(sqlite3.connect(path, isolation_level=None)))

    def write() -> None:
        if not db.in_transaction:
            db.execute("BEGIN")
        db.execute(ORDER)

    return Caller(db, write, db.commit, db.rollback)


def by_core(path: Path, stack: ExitStack) -> Caller:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    stack.callback(engine.dispose)
    return _alchemist(stack.enter_context(engine.connect()))


def by_session(path: Path, stack: ExitStack) -> Caller:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    stack.callback(engine.dispose)
    return _alchemist(stack.enter_context(orm.Session(engine)))


def by_scoped_session(path: Path, stack: ExitStack) -> Caller:
    engine = sqlalchemy.create_engine(f"sqlite:///{path}")
    stack.callback(engine.dispose)
    session = orm.scoped_session(orm.sessionmaker(engine))
    stack.callback(session.remove)
    return _alchemist(session)


def _alchemist(db: Any) -> Caller:
    return Caller(db, lambda: db.execute(sqlalchemy.text(ORDER)), db.commit, db.rollback)


BY = [by_sqlite3, by_cursor, by_begin, by_core, by_session, by_scoped_session]


def orders(path: Path) -> int:
    with closing(sqlite3.connect(path)) as db:
        return int(db.execute("SELECT count(*) FROM orders").fetchone()[0])

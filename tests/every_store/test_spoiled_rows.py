"""Rows that another program has written past tarry: of each table, each column with the worst that its type allows."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tarry import App, Cron, Retry, step, wait_for
from tarry.client.tasks.task import Task
from tarry.errors import StoreCorrupt
from tarry.store.mysql.store import MysqlStore
from tarry.store.postgres.store import PostgresStore
from tarry.store.redis.store import RedisStore
from tarry.store.sqlite.store import SqliteStore
from tests.every_store.test_garbage import paths
from tests.server.http.calling import api, run

Write = Callable[[str, str, Any], None]
"""Sets a column of a table, in all its rows, to a value; nothing is changed if the type does not allow it."""

NUMBERS = (-(2**62), 2**62, 255, -1)
TEXTS = ("", "x" * 150, "<b>%s{{7*7}}", "a\x1fb")
BYTES = (b"", b"\xff\xfe\x00" * 9, b"[" * 3000, b'{"a":' + b"9" * 4400 + b"}", b"null")
OWN = ("about", "tarry_about")
"""Whoever spoils the version of the tables gets an error at the opening."""


def tables_of(app: App) -> list[tuple[str, str, Sequence[Any]]]:
    """Table, column, and the worst values of its type."""
    store = app.client.store
    if isinstance(store, SqliteStore):
        with store.lend() as db:
            names = [str(name) for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
            found = [
                (table, row[1], row[2])
                for table in names
                if table.startswith("tarry_")
                for row in db.execute(f"PRAGMA table_info({table})")
            ]
    else:
        schema = "DATABASE()" if isinstance(store, MysqlStore) else f"'{store._schema}'"  # type: ignore[attr-defined]
        found = store._rows(  # type: ignore[attr-defined]
            "SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE FROM information_schema.columns"
            f" WHERE TABLE_SCHEMA = {schema} ORDER BY 1, 2"
        )
    shaped = [(_text(table), _text(column), _values(_text(kind).lower())) for table, column, kind in found]
    return [one for one in shaped if one[0] not in OWN]


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _values(kind: str) -> Sequence[Any]:
    if "int" in kind:
        return NUMBERS
    if kind in ("blob", "bytea", "longblob", "mediumblob", "varbinary", "binary"):
        return BYTES
    return () if kind == "boolean" else TEXTS


def spoil(app: App, table: str, column: str, value: Any) -> None:
    store = app.client.store
    name = table if not isinstance(store, PostgresStore) else f"{store._schema}.{table}"
    with contextlib.suppress(Exception):  # what the type or a unique index does not allow
        if isinstance(store, SqliteStore):
            with store.lend() as db:
                db.execute(f"UPDATE OR IGNORE {table} SET {column} = ?", (value,))
        elif isinstance(store, PostgresStore):
            store._pool.call(lambda connection: connection.rows(f"UPDATE {name} SET {column} = %s", (value,)))
        else:
            _mysql(store, f"UPDATE IGNORE {table} SET {column} = {_literal(value)}")


def _mysql(store: Any, statement: str) -> None:
    store._calls.write(lambda link: link.run(statement))


def _literal(value: Any) -> str:
    raw = value if isinstance(value, bytes) else str(value).encode()
    return str(value) if isinstance(value, int) else f"x'{raw.hex()}'"


def declare(app: App) -> tuple[Task[Any, Any], Callable[[], None]]:
    """The task of the good job, and what fills the tables."""

    @app.task(name="fine", queue="good")
    def fine(number: int) -> int:
        return number + 1

    @app.task(name="eat", queue="q", retry=Retry(1, base=0), limit=3,
              cron=Cron("* * * * *", name="tick"))  # fmt: skip
    def eat(one: int = 0) -> int:
        if one == 13:
            raise ValueError("no")
        return one

    @app.task(name="slow", queue="q")
    def slow(one: int) -> Any:
        return step(abs, one), wait_for("review", key=str(one))

    def fill() -> None:
        eat.enqueue_many([(1,), (13,), (2,)])
        eat.using(key="k", delay="1d").enqueue(3)
        slow.enqueue(7)
        app.group([eat.call(1), eat.call(2), slow.call(5)])
        app.drain(timeout=20)
        eat.enqueue_many([(1,), (13,)])
        app.signal("review", key="nobody", value=1)

    return fine, fill


def chores(app: App) -> None:
    keeper = app.keeper(app.client.store)
    for chore in keeper._chores:
        keeper._run_chore(chore)
    keeper.tick()
    keeper.close()


def look(app: App) -> None:
    async def story() -> None:
        async with api(app) as client:
            for path in paths([]):
                answer = await client.get(path)
                assert answer.status_code < 500, (path, answer.text[-300:])

    run(story)


@pytest.mark.parametrize("app", ["sqlite", "postgres", "mariadb"], indirect=True)
def test_all_go_on_beside_rows_that_are_spoiled(app: App) -> None:
    fine, fill = declare(app)
    fill()
    is_embedded = isinstance(app.client.store, SqliteStore)
    # On a server each takes longer, and what a value does to the code is the same.
    found = [one for one in tables_of(app) if is_embedded or one[0].removeprefix("tarry_") in ("job", "flow", "limits")]
    for count, (table, column, values) in enumerate(found):
        for value in values[:3] if is_embedded else values[1:2]:
            spoil(app, table, column, value)
            good = fine.enqueue(1)
            app.drain(timeout=20)
            assert good.result(timeout=60) == 2, (table, column, value)
        chores(app)
        if count % 15 == 0:
            look(app)
            fill()


def spoil_redis(app: App, key: bytes, value: bytes) -> None:
    """Gives all fields of a hash that value."""
    link = app.client.store._link  # type: ignore[attr-defined]
    for field in link.command("HKEYS", key):
        link.command("HSET", key, field, value)


@pytest.mark.parametrize("app", ["redis"], indirect=True)
@pytest.mark.parametrize("value", [b"\xff\xfe\x00" * 9, b"", b"9" * 400])
def test_all_go_on_beside_spoiled_keys_of_redis(app: App, value: bytes) -> None:
    fine, fill = declare(app)
    fill()
    store = app.client.store
    assert isinstance(store, RedisStore)
    for part in (b"cells", b"limits", b"flows", b"gates", b"jobs"):
        for key in store._link.command("KEYS", b"*:" + part):
            spoil_redis(app, key, value)
            good = fine.enqueue(1)
            app.drain(timeout=20)
            assert good.result(timeout=60) == 2, key
        chores(app)
        if part != b"jobs":
            # A list of jobs fails over a record that is none: the scripts read them all.
            look(app)


def test_a_name_in_sqlite_that_is_no_text_is_named(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
    fine, _ = declare(app)
    fine.enqueue(1)
    store = app.client.store
    assert isinstance(store, SqliteStore)
    with store.lend() as db:
        db.execute("UPDATE tarry_job SET queue = CAST(x'fffe' AS TEXT)")
    with pytest.raises(StoreCorrupt, match="a name in it is no UTF-8"):
        app.jobs().first()
    app.close()

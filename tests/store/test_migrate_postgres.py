"""Versions of the PostgreSQL store's schema: made where there is none, brought up to date on demand, never back."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from msgspec.structs import replace

from tarry import errors
from tarry.model.job import Job
from tarry.model.limit import Limit
from tarry.store import migrating
from tarry.store.postgres import migrate as postgres_migrate
from tarry.store.postgres.link.pool import PostgresPool
from tarry.store.postgres.link.url import parse_url
from tarry.store.postgres.migrate import migrate, pending
from tarry.store.postgres.schema import MIGRATIONS, SCHEMA_VERSION
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules.base import BANDS, Want
from tarry.store.rules.ids import uuid7
from tarry.store.rules.sleeper import WORK
from tarry.store.shared.schema_steps import SchemaStep
from tests.servers.kept_tables import remove_postgres_board
from tests.servers.postgres import PostgresServer
from tests.worker.bench import LIMIT, until

LATER = (
    *MIGRATIONS,
    SchemaStep("adds a column to the jobs", ("ALTER TABLE {s}.job ADD COLUMN weight integer NOT NULL DEFAULT 0",)),
    SchemaStep("adds an index by weight", ("CREATE INDEX job_weight ON {s}.job (weight)", "ANALYZE {s}.job")),
)
NEXT, NEWEST = SCHEMA_VERSION + 1, SCHEMA_VERSION + 2
WANTS = [Want("default", band, 10) for band in BANDS]


@pytest.fixture
def link(postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    with closing(psycopg.connect(postgres_server.url, autocommit=True)) as link:
        yield link


def schema_of(url: str) -> str:
    return parse_url(url).schema


def version(link: psycopg.Connection, url: str) -> str:
    row = link.execute(f"SELECT value FROM {schema_of(url)}.about WHERE name = 'schema'").fetchone()
    assert row is not None
    return str(row[0])


def columns(link: psycopg.Connection, url: str) -> set[str]:
    rows = link.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(%s)", (f"{schema_of(url)}.job",)
    ).fetchall()
    return {row[0] for row in rows}


def test_an_empty_database_gets_its_tables(new_postgres_url: str, link: psycopg.Connection) -> None:
    assert pending(new_postgres_url) == ["schema 1: makes the tables, indexes and functions"]
    assert columns(link, new_postgres_url) == set()
    PostgresStore(new_postgres_url).close()
    assert version(link, new_postgres_url) == str(SCHEMA_VERSION)
    assert pending(new_postgres_url) == migrate(new_postgres_url) == []


def test_the_command_knows_the_way(new_postgres_url: str) -> None:
    assert len(migrating.pending(new_postgres_url)) == SCHEMA_VERSION
    assert len(migrating.migrate(new_postgres_url)) == SCHEMA_VERSION
    assert migrating.pending(new_postgres_url) == []


def test_several_hosts_start_at_once(new_postgres_url: str, link: psycopg.Connection) -> None:
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: PostgresStore(new_postgres_url), range(6)))
    for store in stores:
        store.insert([Job(uuid7(), "t", b"", due=1)])
        store.close()
    assert version(link, new_postgres_url) == str(SCHEMA_VERSION)


def test_a_process_that_starts_while_another_makes_the_tables_waits(
    new_postgres_url: str, link: psycopg.Connection
) -> None:
    """It never sees the version of an earlier step, which it would take for tables that nobody has migrated."""
    slow = (*MIGRATIONS, SchemaStep("waits", ("SELECT pg_sleep(0.5)",)))

    def start() -> None:
        with closing(PostgresPool(parse_url(new_postgres_url))) as pool:
            postgres_migrate.create_or_check(pool, slow)

    with ThreadPoolExecutor(1) as executor:
        first = executor.submit(start)
        until(lambda: first.done() or bool(columns(link, new_postgres_url)))
        start()
        first.result(LIMIT)


def test_an_older_schema_is_left_alone_until_somebody_says_so(
    new_postgres_url: str, link: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker of the version before goes on through it."""
    older = PostgresStore(new_postgres_url)
    older.insert([Job(uuid7(), "t", b"", due=1)])
    with pytest.raises(errors.StoreError, match=f"has schema {SCHEMA_VERSION}, and this tarry needs {NEWEST}: run"):
        opened(new_postgres_url, LATER)
    says = [f"schema {NEXT}: adds a column to the jobs", f"schema {NEWEST}: adds an index by weight"]
    assert pending(new_postgres_url, LATER) == says
    assert version(link, new_postgres_url) == str(SCHEMA_VERSION)
    assert migrate(new_postgres_url, LATER) == says
    assert version(link, new_postgres_url) == str(NEWEST)
    assert pending(new_postgres_url, LATER) == migrate(new_postgres_url, LATER) == []
    opened(new_postgres_url, LATER)
    older.insert([Job(uuid7(), "t", b"", due=1)])
    assert len(older.claim(WANTS, 9, "ann", 10**6, older.time())) == 2
    older.close()


def opened(url: str, steps: tuple[SchemaStep, ...]) -> None:
    with closing(PostgresPool(parse_url(url))) as connections:
        postgres_migrate.create_or_check(connections, steps)


def test_a_newer_schema_is_refused(new_postgres_url: str, link: psycopg.Connection) -> None:
    migrate(new_postgres_url, (*LATER[:-1], replace(LATER[-1], older_go_on=False)))
    before = columns(link, new_postgres_url)
    for use in (PostgresStore, pending, migrate):
        with pytest.raises(errors.StoreNewer, match=f"has schema {NEWEST}, .* knows {SCHEMA_VERSION}: upgrade"):
            use(new_postgres_url)
    assert (version(link, new_postgres_url), columns(link, new_postgres_url)) == (str(NEWEST), before)


def test_somebody_elses_tables(new_postgres_url: str, link: psycopg.Connection) -> None:
    schema = schema_of(new_postgres_url)
    link.execute(f"CREATE SCHEMA {schema}")
    link.execute(f"CREATE TABLE {schema}.job (id integer)")
    with pytest.raises(
        errors.StoreForeign, match=rf"schema {schema} has a table job that is not tarry's; name another"
    ):
        PostgresStore(new_postgres_url)
    link.execute(f"CREATE TABLE {schema}.about (name text, value text)")
    with pytest.raises(errors.StoreForeign, match="has a table about that is not tarry's"):
        PostgresStore(new_postgres_url)
    assert columns(link, new_postgres_url) >= {"id"}


def test_a_step_that_fails_leaves_nothing(new_postgres_url: str, link: psycopg.Connection) -> None:
    PostgresStore(new_postgres_url).close()
    broken = (*MIGRATIONS, SchemaStep("breaks", ("ALTER TABLE {s}.job ADD COLUMN weight integer", "SELECT 1/0")))
    with pytest.raises(errors.StoreError, match="division by zero"):
        migrate(new_postgres_url, broken)
    assert version(link, new_postgres_url) == str(SCHEMA_VERSION)
    assert "weight" not in columns(link, new_postgres_url)


def test_a_lock_is_waited_for_and_not_for_ever(
    new_postgres_url: str, link: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a step waits for a lock it lets the others by, every so often."""
    monkeypatch.setattr(postgres_migrate, "LOCK_WITHIN", 0.05)
    PostgresStore(new_postgres_url).close()
    with link.transaction():
        link.execute(f"SELECT 1 FROM {schema_of(new_postgres_url)}.job")
        with pytest.raises(errors.StoreUnavailable, match=f"step {NEXT} found the tables locked"):
            migrate(new_postgres_url, LATER)
    assert len(migrate(new_postgres_url, LATER)) == 2


def test_two_at_once(new_postgres_url: str, postgres_server: PostgresServer, link: psycopg.Connection) -> None:
    """One does each step, the other is told that there was nothing left."""
    PostgresStore(new_postgres_url).close()
    with ThreadPoolExecutor(2) as pool:
        with link.transaction():
            link.execute(f"LOCK TABLE {schema_of(new_postgres_url)}.job IN ROW EXCLUSIVE MODE")
            both: list[Future[list[str]]] = [pool.submit(migrate, new_postgres_url, LATER) for _ in range(2)]
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            until(lambda: int(postgres_server.call(waiting)) >= 2)
        done = [each.result(LIMIT) for each in both]
    assert sorted(line for part in done for line in part) == [
        f"schema {n}: {LATER[n - 1].says}" for n in (NEXT, NEWEST)
    ]


def test_a_schema_may_be_named_with_a_word_of_sql(postgres_server: PostgresServer, link: psycopg.Connection) -> None:
    url = f"{postgres_server.url}?schema=full"
    try:
        with closing(PostgresStore(url)) as store, closing(store.wakeup()) as wakeup:
            wakeup.listen(WORK)
            store.limit("task:t", Limit(most=1))
            jobs = [Job(uuid7(), "t", b"", due=1) for _ in range(2)]
            store.insert(jobs[:1])
            assert wakeup.wait(LIMIT)
            with link.transaction():
                assert store.insert_within(link, jobs[1:]) == [jobs[1].id]
            claimed = store.claim(WANTS, 9, "ann", 10**6, store.time())
            assert len(claimed) == 1
            assert store.extend("ann", [(job.id, job.epoch) for job in claimed], 10**7, store.time()) == []
            assert store.recount(store.time()) == 0
            assert store.queues() == {"default": False}
            assert "full" in {fact.name: fact.value for fact in store.diagnostics()}["schema"]
        assert pending(url) == []
    finally:
        link.execute('DROP SCHEMA IF EXISTS "full" CASCADE')
        remove_postgres_board(url)

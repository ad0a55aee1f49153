"""The functions of a PostgreSQL schema: an older schema gets those of this tarry at its opening, a newer one keeps
its own."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.resources import files

import psycopg
import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.job import HELD, Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Returned
from tarry.store.postgres.link.pool import PostgresPool
from tarry.store.postgres.link.url import parse_url
from tarry.store.postgres.migrate import create_or_check, migrate, pending
from tarry.store.postgres.store import PostgresStore
from tarry.store.postgres.stored_functions import FUNCTIONS, REVISION, FunctionSet, replace_functions
from tarry.store.rules.base import BANDS, Want
from tarry.store.rules.ids import uuid7
from tests.servers.postgres import PostgresServer

WANTS = [Want("default", band, 10) for band in BANDS]
UPDATES = ["functions: makes them anew, as this tarry has them"]
DIGESTS = {
    1: "dcf0f0df3e1afa07e6865dfa89d97bcb70b671f123c015f56959ebdea7c01358",
    2: "71e3d52917982b5d8f40f032c1ed82ae744e81b5fdd19618acc47408602e7af9",
    3: "c2d679f64fa5a13de684e37a8a9a17c04eeb0ca4a0a5f503b7976f377bb2d491",
    4: "27c87d8b32e40fda169d460b22f5a4ff7134d9fbf5d983353d039ae77bf339ae",
    5: "3c42dbd745e6baa9cbba4e2c2363ad1238aeab58f02fc87eea9f292e769548d0",
    6: "767a7f9ffc51eefc933e35057f0bd6a2bd4ef25cc692e5f4c4c851221468dfd1",
    7: "c821470d687c20597c14230438223407c7ca313774510d8e2b9ed228146b7d7a",
    8: "39b9f4a35116dd42bf4d8e691445380e7ba8b072a7522ec73c70bae8b37a07fc",
    9: "2623faa0ecdd8d63babc588bfb0d7b14c644038983e5c335c700b46ef9015d58",
}
"""The digest of the functions of each revision. Who changes a function raises REVISION and adds a line."""

HEADS = "e8ee1143d56a125fad27d19977f39e268682b247aee98d11837b44a286519978"


@pytest.fixture
def link(postgres_server: PostgresServer) -> Iterator[psycopg.Connection]:
    with closing(psycopg.connect(postgres_server.url, autocommit=True)) as link:
        yield link


def schema_of(url: str) -> str:
    return parse_url(url).schema


def sources(link: psycopg.Connection, url: str) -> dict[str, str]:
    rows = link.execute(
        "SELECT proname, prosrc FROM pg_proc WHERE pronamespace = %s::regnamespace", (schema_of(url),)
    ).fetchall()
    return dict(rows)


def mark(link: psycopg.Connection, url: str) -> str | None:
    row = link.execute(f"SELECT value FROM {schema_of(url)}.about WHERE name = 'functions'").fetchone()
    return None if row is None else str(row[0])


def make_and_run_jobs(store: PostgresStore) -> None:
    now = store.time()
    jobs = [Job(uuid7(), "t", b"", due=now - late) for late in (0, 10**7)]
    jobs += [replace(job, id=uuid7(), key=f"{job.due}", key_held_until=HELD) for job in jobs]
    assert store.insert(jobs) == store.insert(jobs) == [job.id for job in jobs]
    claimed = store.claim(WANTS, 9, "ann", 10**6, now)
    assert {job.id for job in claimed} == {job.id for job in jobs}
    assert store.apply([lifecycle.after(job, Returned(), DEFAULT, now) for job in claimed], now) == [True] * 4
    assert store.queues() == {}


def changed(revision: int) -> FunctionSet:
    """Of another tarry: queues_v1 has a comment more."""
    statements = [
        text.replace("BEGIN\n", "BEGIN -- changed\n", 1) if "FUNCTION {s}.queues_v1" in text else text
        for text in FUNCTIONS.statements
    ]
    return FunctionSet(revision, tuple(statements))


OLDER, NEWER = changed(REVISION - 1), changed(REVISION + 1)


def make_older(url: str) -> None:
    """A schema as a tarry of before made it."""
    with closing(PostgresPool(parse_url(url))) as pool:
        create_or_check(pool)
        pool.call(lambda connection: replace_functions(connection, pool.url.schema, OLDER))


def open_with(url: str, functions: FunctionSet) -> None:
    with closing(PostgresPool(parse_url(url))) as pool:
        create_or_check(pool, functions=functions)


def test_who_changes_a_function_raises_the_revision() -> None:
    assert max(DIGESTS) == REVISION
    assert FUNCTIONS.digest == DIGESTS[REVISION]


def test_names_and_types_of_arguments_and_answers_stay() -> None:
    """Else PostgreSQL would not replace the function, or refuse the statements that callers have prepared. A function
    that needs others is a new one, with the next version in its name."""
    heads = [" ".join(text.partition("CREATE OR")[2].partition("LANGUAGE")[0].split()) for text in FUNCTIONS.statements]
    assert hashlib.sha256("\0".join(heads).encode()).hexdigest() == HEADS


def test_every_function_is_made_and_says_what_it_costs() -> None:
    listed = {
        path.read_text() for path in files("tarry.store.postgres.functions").iterdir() if path.name.endswith(".sql")
    }
    assert len(FUNCTIONS.statements) == len(listed)
    for text in listed:
        head, _, _ = text.partition("CREATE OR REPLACE FUNCTION")
        assert "-- Arguments" in head
        assert "-- Cost" in head
    for made in FUNCTIONS.statements:
        # {s} is the schema, {} an empty array, and {"type" begins a note; no constant is left out.
        assert "{" not in made.replace("{s}", "").replace("{}", "").replace('{"type"', "")


def test_a_new_schema_is_marked(new_postgres_url: str, link: psycopg.Connection) -> None:
    PostgresStore(new_postgres_url).close()
    assert mark(link, new_postgres_url) == f"{REVISION} {FUNCTIONS.digest}"
    assert len(sources(link, new_postgres_url)) == len(FUNCTIONS.statements)


def test_older_functions_are_replaced(new_postgres_url: str, link: psycopg.Connection) -> None:
    """Also while a worker calls them."""
    make_older(new_postgres_url)
    assert "-- changed" in sources(link, new_postgres_url)["queues_v1"]
    assert pending(new_postgres_url) == UPDATES
    with closing(PostgresStore(new_postgres_url)) as worker:
        make_and_run_jobs(worker)
        make_older(new_postgres_url)
        with closing(PostgresStore(new_postgres_url)) as store:
            assert mark(link, new_postgres_url) == FUNCTIONS.mark
            make_and_run_jobs(store)
        make_and_run_jobs(worker)
    replaced = sources(link, new_postgres_url)
    link.execute(f"DROP SCHEMA {schema_of(new_postgres_url)} CASCADE")
    PostgresStore(new_postgres_url).close()
    assert replaced == sources(link, new_postgres_url)


def test_the_command_replaces_them_too(new_postgres_url: str, link: psycopg.Connection) -> None:
    make_older(new_postgres_url)
    assert pending(new_postgres_url) == migrate(new_postgres_url) == UPDATES
    assert mark(link, new_postgres_url) == FUNCTIONS.mark
    assert pending(new_postgres_url) == migrate(new_postgres_url) == []


def test_an_older_tarry_leaves_newer_functions_alone(new_postgres_url: str, link: psycopg.Connection) -> None:
    open_with(new_postgres_url, NEWER)
    assert "-- changed" in sources(link, new_postgres_url)["queues_v1"]
    with closing(PostgresStore(new_postgres_url)) as store:
        make_and_run_jobs(store)
    assert "-- changed" in sources(link, new_postgres_url)["queues_v1"]
    assert pending(new_postgres_url) == []
    assert mark(link, new_postgres_url) == NEWER.mark


def test_two_processes_at_once(new_postgres_url: str, link: psycopg.Connection) -> None:
    make_older(new_postgres_url)
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: PostgresStore(new_postgres_url), range(6)))
    for store in stores:
        make_and_run_jobs(store)
        store.close()
    assert mark(link, new_postgres_url) == FUNCTIONS.mark


def test_nobody_waits_for_a_long_migration(new_postgres_url: str, link: psycopg.Connection) -> None:
    make_older(new_postgres_url)
    with link.transaction():
        link.execute("SELECT pg_advisory_xact_lock(hashtext('tarry'), hashtext(%s))", (schema_of(new_postgres_url),))
        PostgresStore(new_postgres_url).close()
    assert mark(link, new_postgres_url) == OLDER.mark
    PostgresStore(new_postgres_url).close()
    assert mark(link, new_postgres_url) == FUNCTIONS.mark


def test_who_may_not_replace_them_goes_on_with_the_old_ones(
    new_postgres_url: str, postgres_server: PostgresServer, link: psycopg.Connection
) -> None:
    make_older(new_postgres_url)
    schema, role = schema_of(new_postgres_url), f"{schema_of(new_postgres_url)}_user"
    link.execute(f"CREATE ROLE {role} LOGIN")
    link.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    link.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
    try:
        with closing(PostgresStore(new_postgres_url.replace("postgres@", f"{role}@"))) as store:
            make_and_run_jobs(store)
        assert mark(link, new_postgres_url) == OLDER.mark
    finally:
        link.execute(f"DROP OWNED BY {role}")
        link.execute(f"DROP ROLE {role}")

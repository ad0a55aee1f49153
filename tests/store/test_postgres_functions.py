"""The functions of a PostgreSQL schema: an older schema gets those of this tarry at its opening, a newer one keeps
its own."""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib.resources import files
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import DAY
from tarry.model.job import HELD, Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Returned
from tarry.store.base import BANDS, Want
from tarry.store.conformance.cases import NOW, seen, taken
from tarry.store.conformance.flows.flow_cases import end, states, stored
from tarry.store.conformance.flows.signalling import asleep
from tarry.store.flows import flows
from tarry.store.ids import uuid7
from tarry.store.postgres.functions.stored import FUNCTIONS, REVISION, FunctionSet
from tarry.store.postgres.migrate import create_or_check, migrate, pending
from tarry.store.postgres.pool import PostgresPool
from tarry.store.postgres.store import PostgresStore
from tarry.store.postgres.url import parse_url
from tests.servers.postgres import PostgresServer

FIRST = Path(__file__).with_name("postgres_schema_1.sql")
WANTS = [Want("default", band, 10) for band in BANDS]
UPDATES = ["functions: makes them anew, as this tarry has them"]
DIGESTS = {
    1: "cc2a6e6ad250ca0394b17581109fd9d4419c42b6293f6cec2ce05d570024102f",
    2: "a8c25470d2f815eaa2bfd9b5a9615a9f8e5874b6e20795eeb72d2b01e2668946",
    3: "03ad39cb9ed200ff93015610e9bb1ee60e7a9ed05ca91d28f33fa8d5bacc7be1",
    4: "d850a0a85dcaf5e78c20c5555834bd8a7e6ba21fc00ff46e5a50dfa06dd54fa2",
    5: "1198ec31c9961457b69bf83f993139fd9b15a298dc1a78a8a3e32134fb9afe72",
    6: "1e3bb78f9cf070b959d3abc7cbd9754402b6d5e171e03b1d8ecc4affeef27a21",
    7: "249beb80cb11486def2070522b8adc2a5f736aada7868c1f0289801481926370",
    8: "d41cc149c0483b407c669ea4c608ba67843d7dd4b9507618d7d25bb5465b4262",
    9: "b9a2e00a37ef837527238aac7b6e4b464744706a02a456edf988371b9bf77f34",
}
"""The digest of the functions of each revision. Who changes a function raises REVISION and adds a line."""

HEADS = "58a0bf4b0c6f2f4c9703175b73e3a90a0b6e72573d2208ec445d2414365eb1bc"
OTHER_NAMES = ("insert_v1", "promote_v1", "exchange_v1", "queues_v1")
"""Functions of the first tarry whose arguments had other names: these stay, since workers have prepared their call."""


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


def set_mark(link: psycopg.Connection, url: str, value: str) -> None:
    link.execute(f"DELETE FROM {schema_of(url)}.about WHERE name = 'functions'")
    link.execute(f"INSERT INTO {schema_of(url)}.about VALUES ('functions', %s)", (value,))


def make_first(link: psycopg.Connection, url: str) -> None:
    """The schema as the first tarry made it."""
    link.execute(f"CREATE SCHEMA {schema_of(url)}")
    link.execute(FIRST.read_text().replace("{s}", schema_of(url)).encode())
    link.execute(f"UPDATE {schema_of(url)}.about SET value = '1' WHERE name = 'schema'")


def make_first_and_migrate(link: psycopg.Connection, url: str) -> None:
    """The same, with the tables of this tarry, and the functions of the first."""
    make_first(link, url)
    # As if a newer tarry had been here, so that the migration leaves the functions alone.
    set_mark(link, url, f"{REVISION + 1} abc")
    migrate(url)
    link.execute(f"DELETE FROM {schema_of(url)}.about WHERE name = 'functions'")


def make_and_run_jobs(store: PostgresStore) -> None:
    now = store.time()
    jobs = [Job(uuid7(), "t", b"", due=now - late) for late in (0, 10**7)]
    jobs += [replace(job, id=uuid7(), key=f"{job.due}", key_held_until=HELD) for job in jobs]
    assert store.insert(jobs) == store.insert(jobs) == [job.id for job in jobs]
    claimed = store.claim(WANTS, 9, "ann", 10**6, now)
    assert {job.id for job in claimed} == {job.id for job in jobs}
    assert store.apply([lifecycle.after(job, Returned(), DEFAULT, now) for job in claimed], now) == [True] * 4
    assert store.queues() == {}


def newer() -> FunctionSet:
    """Of a later tarry: queues_v1 has a comment more."""
    *others, last = FUNCTIONS.statements
    return FunctionSet(REVISION + 1, (*others, last.replace("BEGIN\n", "BEGIN -- changed\n", 1)))


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


def test_this_tarry_works_with_the_functions_of_the_first(new_postgres_url: str, link: psycopg.Connection) -> None:
    """So each must be called as the first one was."""
    make_first_and_migrate(link, new_postgres_url)
    set_mark(link, new_postgres_url, f"{REVISION + 1} abc")
    before = sources(link, new_postgres_url)
    with closing(PostgresStore(new_postgres_url)) as store:
        make_and_run_jobs(store)
    assert sources(link, new_postgres_url) == before


def test_the_functions_of_the_first_tarry_are_replaced(new_postgres_url: str, link: psycopg.Connection) -> None:
    """Also while a worker calls them."""
    make_first_and_migrate(link, new_postgres_url)
    first = sources(link, new_postgres_url)
    set_mark(link, new_postgres_url, f"{REVISION + 1} abc")
    with closing(PostgresStore(new_postgres_url)) as worker:
        make_and_run_jobs(worker)
        link.execute(f"DELETE FROM {schema_of(new_postgres_url)}.about WHERE name = 'functions'")
        assert pending(new_postgres_url) == UPDATES
        with closing(PostgresStore(new_postgres_url)) as store:
            assert mark(link, new_postgres_url) == FUNCTIONS.mark
            make_and_run_jobs(store)
        make_and_run_jobs(worker)
    replaced = sources(link, new_postgres_url)
    link.execute(f"DROP SCHEMA {schema_of(new_postgres_url)} CASCADE")
    PostgresStore(new_postgres_url).close()
    made = sources(link, new_postgres_url)
    assert replaced == made | {name: first[name] for name in OTHER_NAMES}


def test_the_command_replaces_them_too(new_postgres_url: str, link: psycopg.Connection) -> None:
    make_first(link, new_postgres_url)
    history = (
        "schema 2: makes the tables of the history, a column for the attempts of jobs, and the functions that count",
        "schema 3: makes the tables and functions of flows and signals",
    )
    assert pending(new_postgres_url) == migrate(new_postgres_url) == [*history, *UPDATES]
    assert mark(link, new_postgres_url) == FUNCTIONS.mark
    assert pending(new_postgres_url) == migrate(new_postgres_url) == []


def test_an_older_tarry_leaves_newer_functions_alone(new_postgres_url: str, link: psycopg.Connection) -> None:
    open_with(new_postgres_url, newer())
    assert "-- changed" in sources(link, new_postgres_url)["queues_v1"]
    with closing(PostgresStore(new_postgres_url)) as store:
        make_and_run_jobs(store)
    assert "-- changed" in sources(link, new_postgres_url)["queues_v1"]
    assert pending(new_postgres_url) == []
    assert mark(link, new_postgres_url) == newer().mark


def test_two_processes_at_once(new_postgres_url: str, link: psycopg.Connection) -> None:
    make_first_and_migrate(link, new_postgres_url)
    with ThreadPoolExecutor(6) as pool:
        stores = list(pool.map(lambda _: PostgresStore(new_postgres_url), range(6)))
    for store in stores:
        make_and_run_jobs(store)
        store.close()
    assert mark(link, new_postgres_url) == FUNCTIONS.mark


def test_nobody_waits_for_a_long_migration(new_postgres_url: str, link: psycopg.Connection) -> None:
    make_first_and_migrate(link, new_postgres_url)
    with link.transaction():
        link.execute("SELECT pg_advisory_xact_lock(hashtext('tarry'), hashtext(%s))", (schema_of(new_postgres_url),))
        PostgresStore(new_postgres_url).close()
    assert mark(link, new_postgres_url) is None
    PostgresStore(new_postgres_url).close()
    assert mark(link, new_postgres_url) == FUNCTIONS.mark


def test_who_may_not_replace_them_goes_on_with_the_old_ones(
    new_postgres_url: str, postgres_server: PostgresServer, link: psycopg.Connection
) -> None:
    make_first_and_migrate(link, new_postgres_url)
    schema, role = schema_of(new_postgres_url), f"{schema_of(new_postgres_url)}_user"
    link.execute(f"CREATE ROLE {role} LOGIN")
    link.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    link.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {role}")
    try:
        with closing(PostgresStore(new_postgres_url.replace("postgres@", f"{role}@"))) as store:
            make_and_run_jobs(store)
        assert mark(link, new_postgres_url) is None
    finally:
        link.execute(f"DROP OWNED BY {role}")
        link.execute(f"DROP ROLE {role}")


def test_workers_of_an_earlier_version_send_signals_and_release_nodes(
    new_postgres_url: str, link: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the functions that they know."""
    monkeypatch.setattr(flows, "RELEASED_AT_ONCE", 1)
    schema = schema_of(new_postgres_url)
    with closing(PostgresStore(new_postgres_url)) as store:
        job = asleep(store, "paid", "7")
        call = f"SELECT {schema}.signal_v1('paid', '7', %s, '1', %s, %s, 100, %s)"
        times = NOW + DAY, NOW + 2 * DAY, NOW
        assert [link.execute(call, (bytes(16), *times)).fetchone() for _ in range(2)] == [(job.id,), (b"",)]
        assert (seen(store, job).state, store.flows._wake_more("paid", "7", NOW)) == (State.READY, (0, False))
        taken(store)
        flow = stored(store, [[], *([1] for _ in range(4))])
        end(store, taken(store))
        gate = f"SELECT found_one, released FROM {schema}.release_gate_v1(2, %s)"
        assert [link.execute(gate, (NOW,)).fetchone() for _ in range(3)] == [(True, 2), (True, 1), (False, 0)]
        assert "b" not in states(store, flow)

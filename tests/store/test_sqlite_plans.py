"""Whatever stands in the file, a statement on the way of a job goes to its rows by an index."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import WAITING, Job
from tarry.model.limit import Limit
from tarry.model.outcome import Cancelled, Outcome, Released, Returned, Snoozed
from tarry.store.conformance.cases.jobs import EVERYTHING, LEASE, NOW, RETRY, made, put
from tarry.store.rules.base import BANDS, Want
from tarry.store.sqlite.store import SqliteStore

RULES = RETRY
SMALL = ("tarry_paused", "tarry_limit", "tarry_hold", "tarry_owner", "found", "carray", "json_each")
"""Tables that do not grow with the jobs, and what a statement brings with it."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(tmp_path / "plans.db", durable=False)) as store:
        yield store


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("analysed", [False, True])
def test_every_statement_searches(store: SqliteStore, limited: bool, analysed: bool, tmp_path: Path) -> None:
    """Also where the file had statistics of a few jobs when it was opened."""
    if limited:
        for name in ("queue:default", "task:mail", "each:lined"):
            store.limit(name, Limit(10**6))
    if analysed:
        put(store, 50)
        store._db.execute("ANALYZE")
        store.close()
        store = SqliteStore(tmp_path / "plans.db", durable=False)
    statements = dict[str, Any]()

    def note(cursor: object, statement: str, values: Any) -> bool:
        statements[statement] = values
        return True

    database = store._db
    assert isinstance(database, apsw.Connection)
    database.exec_trace = note
    way(store)
    database.exec_trace = None
    assert len(statements) > 40
    with closing(store):
        plans = {statement: scans(database, statement, values) for statement, values in statements.items()}
    assert {statement: steps for statement, steps in plans.items() if steps} == {}


def test_a_limit_reads_no_finished_jobs(store: SqliteStore, tmp_path: Path) -> None:
    """Each of its statements about jobs goes by an index of one state, also where there are statistics."""
    put(store, 50)
    store._db.execute("ANALYZE")
    store.close()
    with closing(SqliteStore(tmp_path / "plans.db", durable=False)) as again:
        statements = dict[str, Any]()
        database = again._db
        assert isinstance(database, apsw.Connection)
        database.exec_trace = lambda cursor, statement, values: not statements.update({statement: values})
        again.limit("task:mail", Limit(1))
        database.exec_trace = None
        read = [detail for each in statements.items() for detail in plan(database, *each) if "tarry_job" in detail]
    assert len(read) >= 3
    assert [detail for detail in read if not re.search(r"INDEX tarry_(scheduled|ready|running)\b", detail)] == []


def test_no_statement_is_prepared_again_for_its_values(store: SqliteStore) -> None:
    """That would take several times as long as the statement itself."""
    for name in ("task:mail", "each:lined"):
        store.limit(name, Limit(10**6))
    database, prepared = store._db, list[tuple[object, ...]]()
    assert isinstance(database, apsw.Connection)

    # SQLite asks while it prepares a statement.
    def note(*asked: object) -> int:
        prepared.append(asked)
        return apsw.SQLITE_OK

    database.authorizer = note
    for _ in range(3):
        prepared.clear()
        for lane in (None, "a"):
            put(store, 5, task="lined", lane=lane)
        put(store, 5, task="mail")
        claimed = store.exchange((), EVERYTHING, 20, "ann", LEASE, NOW + 9).jobs
        store.apply([lifecycle.after(job, Returned(), RULES, NOW + 9) for job in claimed], NOW + 9)
        assert len(claimed) == 15
    database.authorizer = None
    assert prepared == []


def way(store: SqliteStore) -> None:
    """Every hot verb, with jobs of every kind."""
    plain, late = put(store, 20), put(store, 5, due=NOW + 5)
    high, low = put(store, 5, priority=3), put(store, 5, priority=-3)
    lined = put(store, 6, task="lined", lane="a") + put(store, 6, task="lined", lane="b")
    keyed = [put(store, key=f"k{n}", key_ttl=unique)[0] for n, unique in enumerate([HOUR, WAITING, 0] * 2)]
    store.insert([replace(made(store, key="k0")[0], state_since=NOW + 2 * HOUR)])
    store.get([job.id for job in (*plain, *high, *low, *lined, *keyed)])
    store.queues()
    store.backlog(None, NOW + 9, 100)
    store.backlog(["default"], NOW + 9, 100)
    jobs = store.exchange((), EVERYTHING, 1000, "ann", LEASE, NOW + 9).jobs
    assert {job.id for job in late} & {job.id for job in jobs}
    store.extend("ann", [(job.id, job.epoch) for job in jobs], LEASE, NOW + LEASE)
    store.save_progress("ann", [(job.id, job.epoch, b"[1]") for job in jobs])
    store.owners()
    store.reclaim(NOW + 9 * HOUR)
    store.reclaim(NOW, "ann")
    settle(store, jobs)
    store.expiring(0, NOW + 9 * HOUR, 10)
    store.hold("chore", "ann", NOW + 10, NOW)
    store.kv_cas("cell", b"1", None), store.kv_cas("cell", b"2", b"1"), store.kv_cas("cell", None, b"2")
    store.kv_list("c")
    store.next_due()
    store.limits()
    while store.prune(NOW + 9 * HOUR, 0):
        pass


def settle(store: SqliteStore, jobs: list[Job]) -> None:
    """All the ways there are, by the dozen and one by one."""
    outcomes: list[Outcome] = [*[Returned()] * 8, Returned(b"1"), Released(), Snoozed(SECOND), Cancelled("no")]
    ends = [lifecycle.after(job, outcomes[n % 12], RULES, NOW) for n, job in enumerate(jobs)]
    store.exchange(ends, [Want("default", band, 1) for band in BANDS], 3, "ann", LEASE, NOW + 9)
    found = [job for job in store.get([job.id for job in jobs]) if job is not None]
    done = [job for job in found if job.state.finished]
    again = [lifecycle.run_now(job, NOW + HOUR) for job in done[:20]]
    store.apply([*again, *[lifecycle.forget(job) for job in done[20:24]]], NOW + HOUR)
    store.apply(again[:2], NOW + HOUR)


def scans(database: apsw.Connection, statement: str, values: Any) -> list[str]:
    """The steps of its plan that look through jobs or levels as a whole, or sort them."""
    if re.match(r"(BEGIN|COMMIT|ROLLBACK|PRAGMA|INSERT INTO tarry_job)", statement):
        return []
    return [line for line in plan(database, statement, values) if is_scan(line, statement)]


def plan(database: apsw.Connection, statement: str, values: Any) -> list[str]:
    """The steps of the statement's plan."""
    return [detail for *_, detail in database.execute(f"EXPLAIN QUERY PLAN {statement}", values)]


def is_scan(line: str, statement: str) -> bool:
    if line.startswith("USE TEMP B-TREE"):
        # A few are sorted: what dead owners held, one step of pruning.
        return "owner =" not in statement and "owner IN" not in statement and "FROM (SELECT" not in statement
    if not line.startswith("SCAN") or line in ("SCAN CONSTANT ROW", "SCAN VALUES"):
        return False
    # The first entry of an index that holds only what waits.
    return line.split()[1] not in SMALL and "LIMIT 1" not in statement

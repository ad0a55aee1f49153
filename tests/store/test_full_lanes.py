"""What many full lanes cost: a claim that finds nothing costs the same beside two of them and beside thousands."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tarry.model import lifecycle
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Limit
from tarry.store.conformance.cases.jobs import EVERYTHING, LEASE, NOW, made
from tarry.store.conformance.limits.limiting import started
from tarry.store.mysql.store import MysqlStore
from tarry.store.opening import open_store
from tarry.store.postgres.store import PostgresStore
from tarry.store.rules.base import Query, Store
from tarry.store.sql import pruning
from tarry.store.sqlite.store import SqliteStore

MANY, FEW = 2000, 2
KINDS = {"redis": "redis_server", "sqlite": "", "postgres": "new_postgres_url", "mariadb": "new_mariadb_url"}


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    if fixture := KINDS[request.param]:
        server = request.getfixturevalue(fixture)
        url = getattr(server, "url", server)
        if request.param == "redis":
            server.empty()
    with ExitStack() as stack:
        store = open_store(url, durable=False)
        stack.callback(store.close)
        yield store


def fill(store: Store, lanes: int, task: str) -> None:
    """So many lanes, in each of which one job runs and another waits."""
    jobs = [job for number in range(lanes) for job in made(store, 2, task=task, lane=f"{number:05}")]
    for start in range(0, len(jobs), 1000):
        store.insert(jobs[start : start + 1000])
    assert len(started(store, lanes)) == lanes
    assert started(store, 1) == []


def time_empty_claim(store: Store) -> float:
    """Milliseconds that a claim takes that finds nothing, at best of several."""
    times = []
    for _ in range(60):
        start = time.perf_counter()
        answer = store.exchange((), EVERYTHING, 100, "ann", LEASE, NOW)
        times.append(time.perf_counter() - start)
        assert (answer.jobs, answer.next_due) == ([], None)
    return min(times) * 1000


def test_an_empty_claim_costs_no_more_beside_thousands_of_full_lanes(store: Store) -> None:
    store.limit("each:mail", Limit(1))
    fill(store, FEW, "mail")
    usual = time_empty_claim(store)
    store.limit("each:post", Limit(1))
    fill(store, MANY, "post")
    beside_many = time_empty_claim(store)
    print(f"{usual:.2f} ms beside {FEW}, {beside_many:.2f} ms beside {MANY}")
    assert beside_many < 3 * usual + 3, "it took 70 to 700 when each of them was looked at"


def open_lanes(store: Store) -> int | None:
    """How many rows of open lanes there are; None: the store keeps none."""
    if isinstance(store, PostgresStore):
        ((count,),) = store._rows("SELECT count(*) FROM {s}.lane WHERE again IS NULL")
    elif isinstance(store, MysqlStore):
        ((count,),) = store._rows("SELECT COUNT(*) FROM tarry_open")
    elif isinstance(store, SqliteStore):
        ((count,),) = store._rows("SELECT count(*) FROM tarry_lane WHERE again IS NULL")
    else:
        return None
    return int(count)


def users(store: Store, count: int) -> list[Job]:
    """So many lanes with a job each, in two bands; one of them has no key."""
    jobs = [
        job
        for n in range(count)
        for job in made(store, task="mail", lane=f"user {n:05}" if n else "", priority=5 * (n % 2))
    ]
    store.insert(jobs)
    return jobs


def test_a_lane_is_gone_with_its_last_job(store: Store) -> None:
    store.limit("each:mail", Limit(3))
    users(store, 50)
    store.insert(made(store, 2, task="mail", lane="user 00007", priority=5))
    while started(store, 7):
        pass
    assert open_lanes(store) in (0, None)
    assert store.find(Query(states=(State.READY,))) == []
    store.insert(made(store, task="mail", lane="user 00008"))
    assert len(started(store, 7)) == 1


def test_lanes_whose_jobs_were_cancelled_are_gone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims remove them, of many at once, and the keeper does without a claim."""
    monkeypatch.setattr(pruning, "LOOKED_AT_ONCE", 7)
    store.limit("each:mail", Limit(1))
    kept, *jobs = users(store, 100)
    assert all(store.apply([lifecycle.cancel(job, DEFAULT, NOW) for job in jobs], NOW))
    for _ in range(2):
        store.prune(NOW, 2**40)
    assert open_lanes(store) in (1, None)
    assert [job.id for job in started(store, 1)] == [kept.id]
    assert open_lanes(store) in (0, None)


def test_a_claim_passes_by_many_empty_lanes(store: Store) -> None:
    store.limit("each:mail", Limit(1))
    *jobs, last = users(store, 800)
    assert all(store.apply([lifecycle.cancel(job, DEFAULT, NOW) for job in jobs], NOW))
    answers = [store.exchange((), EVERYTHING, 200, "ann", LEASE, NOW)]
    while not answers[-1].jobs and len(answers) < 8:
        assert answers[-1].next_due == 0
        answers.append(store.exchange((), EVERYTHING, 200, "ann", LEASE, NOW))
    assert [job.id for job in answers[-1].jobs] == [last.id]

"""What many full lanes cost: a claim that finds nothing costs the same beside two of them and beside thousands."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tarry.model.limit import Limit
from tarry.store.base import Store
from tarry.store.conformance.cases import EVERYTHING, LEASE, NOW, made
from tarry.store.conformance.limiting import started
from tarry.store.opening import open_store

MANY, FEW = 2000, 2
KINDS = {"redis": "redis_server", "sqlite": "", "postgres": "postgres_url", "mariadb": "mariadb_url"}


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

"""A store that comes back as it was a moment ago, as after a failover or a power cut: the claims of that moment are
lost, and the jobs are given again, with the same epochs, while the first workers go on."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from tarry.model import lifecycle
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Outcome, Raised, Returned
from tarry.store.conformance.cases.jobs import NOW, ids, put, taken
from tarry.store.opening import open_store
from tarry.store.rules.base import Store
from tarry.store.sqlite.store import SqliteStore
from tests.servers.redis import RedisServer

OUTCOMES: list[Outcome] = [Returned(b'"mine"'), Raised(b'"bad"', ("ValueError",))]


def settled(store: Store, jobs: Sequence[Job], outcome: Outcome) -> list[bool]:
    return store.apply([lifecycle.after(job, outcome, DEFAULT, NOW) for job in jobs], NOW)


def only_the_second_counts(store: Store, first: Sequence[Job]) -> None:
    second = taken(store, owner="bob")
    assert [(job.id, job.epoch) for job in second] == [(job.id, job.epoch) for job in first]
    for outcome in OUTCOMES:
        assert settled(store, first, outcome) == [False] * len(first)
        assert settled(store, first[:1], outcome) == [False]
    assert store.get(ids(second)) == second
    assert settled(store, second, Returned(b'"yours"')) == [True] * len(second)


@pytest.mark.parametrize("count", [1, 50])
def test_a_redis_that_lost_its_last_second(tmp_path: Path, count: int) -> None:
    server = RedisServer(tmp_path / "redis")
    server.start()
    try:
        store = open_store(f"{server.url}?timeout=15s")
        put(store, count)
        server.call("SAVE")
        first = taken(store)
        server.kill()
        server.start()
        only_the_second_counts(store, first)
        store.close()
    finally:
        server.kill()


@pytest.mark.parametrize("count", [1, 50])
def test_a_sqlite_file_as_it_was_before(tmp_path: Path, count: int) -> None:
    """Without fsync at every commit, a power cut leaves the last ones out."""
    with_jobs = SqliteStore(tmp_path / "jobs.db", durable=False)
    put(with_jobs, count)
    with_jobs.close()
    shutil.copy(tmp_path / "jobs.db", tmp_path / "before.db")
    cut = SqliteStore(tmp_path / "jobs.db", durable=False)
    first = taken(cut)
    cut.close()
    store = SqliteStore(tmp_path / "before.db", durable=False)
    only_the_second_counts(store, first)
    store.close()

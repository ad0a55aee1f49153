"""A search for jobs of a rare state does not read all jobs where the store knows which there are."""

from typing import Any

import pytest

from tarry.model.job import State
from tarry.store.conformance.cases.jobs import LEASE, NOW, put
from tarry.store.redis.link.base import Script, Word
from tarry.store.redis.store import RedisStore
from tarry.store.rules.base import NORMAL, Query, Want

RUNNING = (State.RUNNING,)


@pytest.fixture
def store(redis_store: RedisStore) -> RedisStore:
    return redis_store


def calls(store: RedisStore, query: Query) -> tuple[int, int]:
    """How many jobs it finds, and with how many calls."""
    run, ran = store._run, list[Script]()

    def counted(script: Script, *args: Word) -> Any:
        ran.append(script)
        return run(script, *args)

    store._run = counted  # type: ignore[method-assign]
    found = store.find(query)
    store._run = run  # type: ignore[method-assign]
    return len(found), len(ran)


def take(store: RedisStore, count: int) -> list[bytes]:
    return sorted(job.id for job in store.claim([Want("default", NORMAL, count)], count, "ann", LEASE, NOW))


def test_few_that_run_are_found_at_once(store: RedisStore) -> None:
    put(store, 10_000)
    put(store, 1, queue="urgent")
    store.claim([Want("urgent", NORMAL, 1)], 1, "ann", LEASE, NOW)
    assert calls(store, Query(states=RUNNING)) == (1, 1)
    assert calls(store, Query(states=RUNNING, queue="urgent")) == (1, 1)
    assert calls(store, Query(states=RUNNING, queue="default")) == (0, 1)
    assert calls(store, Query(states=(*RUNNING, State.DEAD)))[0] == 1


@pytest.mark.parametrize("query", [Query(states=(State.DEAD,)), Query(queue="none"), Query(task="none")])
def test_that_there_are_none_is_known_at_once(store: RedisStore, query: Query) -> None:
    put(store, 10_000)
    assert calls(store, query) == (0, 1)


@pytest.mark.parametrize("count", [4500, 6000])
def test_what_runs_is_found_page_by_page(store: RedisStore, count: int) -> None:
    """Also where a call looks at a part of it, and where so much runs that all jobs are looked at."""
    put(store, 7000)
    jobs = take(store, count)
    assert [job.id for job in store.find(Query(states=RUNNING, limit=10_000))] == jobs
    assert [job.id for job in store.find(Query(states=RUNNING, limit=700, after=jobs[1000]))] == jobs[1001:1701]
    assert [job.id for job in store.find(Query(states=RUNNING, until=jobs[2500], limit=10_000))] == jobs[:2501]
    assert store.find(Query(states=RUNNING, before=NOW - 1)) == []

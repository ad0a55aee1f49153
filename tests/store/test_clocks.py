"""The time is the store's: a host whose own clock is an hour off asks it, and runs by it."""

import time
from collections.abc import Iterator

import pytest

from tarry.client.clock import Clock
from tarry.model.duration import HOUR, MINUTE
from tarry.model.job import Job
from tarry.model.lifecycle import initial_state
from tarry.store.opening import open_store
from tarry.store.rules import ids
from tarry.store.rules.base import BANDS, Store, Want
from tests.servers.redis import RedisServer


@pytest.fixture(params=["redis", "postgres", "mariadb"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.empty()
        store = open_store(server.url)
    else:
        store = open_store(request.getfixturevalue(f"{request.param}_url"))
    yield store
    store.close()


@pytest.mark.parametrize("off", [-HOUR, HOUR])
def test_a_clock_that_is_an_hour_off_is_not_asked(store: Store, monkeypatch: pytest.MonkeyPatch, off: int) -> None:
    true_ns, true = time.time_ns, time.time
    monkeypatch.setattr(time, "time_ns", lambda: true_ns() + off * 1000)
    monkeypatch.setattr(time, "time", lambda: true() + off / 1e6)
    # Ids only grow: without this, those of later tests in this process would stay an hour ahead.
    monkeypatch.setattr(ids, "_last_ms", 0)
    now = true_ns() // 1000
    assert abs(store.time() - now) < MINUTE
    clock = Clock(store.time)
    assert abs(clock.now() - now) < MINUTE
    wants = [Want("default", band, 10) for band in BANDS]
    soon, late = now - MINUTE, now + 10 * MINUTE
    jobs = [
        Job(ids.uuid7(), "mail", b"[]", due=due, state_since=now, state=initial_state(due, now)) for due in (soon, late)
    ]
    store.insert(jobs)
    assert [job.id for job in store.claim(wants, 10, "ann", MINUTE, clock.now())] == [jobs[0].id]
    assert store.next_due() == late
    assert store.reclaim(clock.now()) == []
    assert store.hold("chores", "ann", clock.now() + MINUTE, clock.now())
    assert not store.hold("chores", "bob", clock.now() + MINUTE, clock.now())
    assert [job.id for job in store.reclaim(clock.now() + 2 * MINUTE)] == [jobs[0].id]

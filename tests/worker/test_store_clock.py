"""The engine goes by the store's clock: here it is an hour off from that of the process."""

import time
from collections.abc import Iterator

import pytest

from tarry.client.client import Client
from tarry.keeper.backlog import BacklogReporter
from tarry.keeper.chores import Keeper
from tarry.keeper.hosts import HostEntry
from tarry.keeper.lease_renewer import LeaseRenewer
from tarry.model import lifecycle
from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Returned
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import NORMAL, Want
from tarry.tasks.arguments.options import Options
from tarry.worker.pump import Pump
from tests.worker.manual_pump import TASKS, ManualRunner, Monotonic

LEASE = 30 * SECOND


@pytest.fixture(params=[-HOUR, HOUR], ids=["behind", "ahead"])
def store(request: pytest.FixtureRequest) -> MemoryStore:
    return MemoryStore(lambda: time.time_ns() // 1000 + request.param)


@pytest.fixture
def pump(store: MemoryStore) -> Iterator[Pump]:
    pump = Pump(store, TASKS, owner="ann", lease=LEASE)
    pump.attach(ManualRunner(3, pump.outcomes, Monotonic()), ManualRunner(0, pump.outcomes, Monotonic()))
    yield pump
    pump.wakeup.close()


def put(store: MemoryStore, due: int) -> Job:
    job = Job(
        store.new_id("sync"), "sync", b"[]", due=due, state_since=due, state=lifecycle.initial_state(due, store.time())
    )
    store.insert([job])
    return job


def seen(store: MemoryStore, job: Job) -> Job:
    (found,) = store.get([job.id])
    assert found is not None
    return found


def near(moment: int, other: int) -> bool:
    return abs(moment - other) < MINUTE


@pytest.mark.parametrize("delay", [None, 300.0])
def test_a_new_job(store: MemoryStore, delay: float | None) -> None:
    job = Client(store, {}).make_job("mail", b"[]", Options(delay=delay, expires=60))
    assert near(job.state_since, store.time())
    assert near(job.due, store.time() + int((delay or 0) * SECOND))
    assert job.expires == job.due + 60 * SECOND
    assert job.state == (State.SCHEDULED if delay else State.READY)


def test_a_change_by_hand(store: MemoryStore) -> None:
    job, client = put(store, store.time() + MINUTE), Client(store, {})
    assert client.retry(job.id)
    assert near(seen(store, job).due, store.time())
    assert client.cancel(job.id)
    assert near(seen(store, job).keep_until, store.time() + DEFAULT.keep_done)


def test_what_a_worker_claims_and_settles(store: MemoryStore, pump: Pump) -> None:
    now, late = put(store, store.time()), put(store, store.time() + 30 * MINUTE)
    for _ in range(3):
        pump.step()
    assert [seen(store, job).state for job in (now, late)] == [State.RUNNING, State.SCHEDULED]
    assert near(seen(store, now).state_since, store.time())
    assert store.reclaim(store.time()) == []
    assert len(store.reclaim(store.time() + LEASE)) == 1
    change = pump._exchanger.decide(seen(store, now), Returned(), pump._clock.now())
    assert near(change.keep_until, store.time() + DEFAULT.keep_done)


def test_a_keeper_rescues_and_forgets(store: MemoryStore) -> None:
    lost, kept, old = (put(store, store.time()) for _ in range(3))
    keeper, claim = Keeper(store), [Want("default", NORMAL, 1)]
    store.claim(claim, 1, "ann", LEASE, store.time() - MINUTE)
    (running,) = store.claim(claim, 1, "bob", LEASE, store.time())
    keeper.rescue_overdue()
    assert [seen(store, job).state for job in (lost, kept)] == [State.READY, State.RUNNING]
    end = store.time() - DEFAULT.keep_done
    assert store.apply([lifecycle.cancel(old, DEFAULT, end - SECOND)], end) == [True]
    assert store.apply([lifecycle.after(running, Returned(), DEFAULT, end + MINUTE)], end) == [True]
    keeper.prune()
    assert store.get([old.id]) == [None]
    assert seen(store, kept).state is State.DONE


def test_hosts_leases_and_backlogs(store: MemoryStore) -> None:
    """What a keeper does beside: each has a clock of its own."""
    chores = (BacklogReporter(store, {}, lambda told: None), HostEntry(store, lambda: None), LeaseRenewer(store, dict))
    assert all(near(chore._clock.now(), store.time()) for chore in chores)

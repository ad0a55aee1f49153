"""Broadcasts: who gets a job, what the result is, and what becomes of jobs that nobody takes."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tarry import App, HostNotFound, JobCancelled, ResultTimeout, Snooze
from tarry.client.clock import FakeClock
from tarry.keeper.chores import GONE_AFTER, BroadcastChore
from tarry.keeper.hosts import HostEntry
from tarry.model import lifecycle
from tarry.model.duration import MINUTE, SECOND
from tarry.model.flow.own_queues import own_queue
from tarry.model.job import State
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.hosts import LOST_AFTER, Host, PoolFigures, WorkerFigures
from tarry.store.rules import owner
from tarry.store.rules.base import Query
from tarry.store.rules.flows import FlowQuery

clock = FakeClock(1_700_000_000_000_000)
ran: list[str] = []


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock.now)


@pytest.fixture
def app(store: MemoryStore) -> Iterator[App]:
    ran.clear()
    app = App(store, closures=True, retry=None)
    app.task(name="clear")(clear)
    yield app
    app.close()


def clear(what: str) -> int:
    ran.append(what)
    if what == "wrong":
        raise ValueError(what)
    return len(what)


def host(name: str, workers: int = 1, state: str = "serving") -> Host:
    told = [WorkerFigures("default", number, f"{name}|1.1:{number}:1", state="ready") for number in range(1, workers)]
    gone = WorkerFigures("default", workers, state="gone")
    more = [f"{name}|1.1:99:1"] if workers else []
    pools = [PoolFigures("default", workers=workers)]
    return Host(f"{name}|1.1:0:0", name, state=state, pools=pools, workers=[*told, gone], more_workers=more)


def live(store: MemoryStore, *hosts: Host) -> None:
    for one in hosts:
        HostEntry(store, lambda: one, clock).register_host()  # noqa: B023


def drain(app: App, *names: str) -> int:
    """Runs what waits in the queues of these masters or workers."""
    return app.drain(queues=[own_queue(name) for name in names])


def expire(app: App) -> None:
    BroadcastChore(app.client.store, clock, lambda task, queue: lifecycle.DEFAULT).expire_jobs()


def test_each_host_has_a_job_of_its_own(app: App, store: MemoryStore) -> None:
    live(store, host("web-1", 2), host("web-2"), host("door-1", 0), host("old", state="stopping"))
    flow = app.tasks["clear"].broadcast("cache")
    assert flow.name == "broadcast"
    assert app.drain() == 0, "workers of all queues leave them to the hosts"
    assert drain(app, "web-1|1.1:0:0") == 1
    with pytest.raises(ResultTimeout):
        flow.result(timeout=0)
    assert drain(app, "web-1|1.1:0:0", "web-2|1.1:0:0") == 1
    assert flow.result(timeout=0) == {"web-1|1.1:0:0": 5, "web-2|1.1:0:0": 5}
    assert list(flow.results()) == [{"web-1|1.1:0:0": 5, "web-2|1.1:0:0": 5}]
    assert ran == ["cache"] * 2


def test_each_worker_has_a_job_of_its_own(app: App, store: MemoryStore) -> None:
    live(store, host("web-1", 3), host("web-2", 1))
    flow = app.tasks["clear"].using(per="worker").broadcast("cache")
    names = ["web-1|1.1:1:1", "web-1|1.1:2:1", "web-1|1.1:99:1", "web-2|1.1:99:1"]
    assert drain(app, *names) == 4
    assert flow.result(timeout=0) == dict.fromkeys(names, 5)


def test_awaited(app: App, store: MemoryStore) -> None:
    live(store, host("web-1"))

    async def main() -> list[dict[str, int | None]]:
        first = await app.tasks["clear"].abroadcast("cache")
        second = await app.tasks["clear"].using(per="worker").abroadcast("all")
        await asyncio.to_thread(drain, app, "web-1|1.1:0:0", "web-1|1.1:99:1")
        return [await first.aresult(timeout=0), await second.aresult(timeout=0)]

    assert asyncio.run(main()) == [{"web-1|1.1:0:0": 5}, {"web-1|1.1:99:1": 3}]


def test_without_a_live_host_it_says_what_is_missing(app: App, store: MemoryStore) -> None:
    live(store, host("web-1"))
    clock.time += LOST_AFTER
    for per in ("host", "worker"):
        with pytest.raises(HostNotFound, match=r"needs a worker that is ready.*tarry start"):
            app.tasks["clear"].using(per=per).broadcast("cache")
    assert store.flows.find(FlowQuery()) == []


def test_a_job_that_fails_gives_none(app: App, store: MemoryStore) -> None:
    live(store, host("web-1"))
    flow = app.tasks["clear"].broadcast("wrong")
    drain(app, "web-1|1.1:0:0")
    assert (flow.result(timeout=0), str(flow.state)) == ({"web-1|1.1:0:0": None}, "done")


@pytest.mark.parametrize(("options", "seconds"), [({}, 60), ({"expires": 5}, 5), ({"delay": 100}, 160)])
def test_a_host_that_never_takes_its_job_gives_none(
    app: App, store: MemoryStore, options: dict[str, Any], seconds: int
) -> None:
    live(store, host("web-1"), host("web-2"))
    flow = app.tasks["clear"].using(**options).broadcast("cache")
    # A client reads its store's clock now and then, and adds its own: a job is due some ms later than that clock says.
    due = int(options.get("delay", 0)) + 1
    clock.time += due * SECOND
    drain(app, "web-1|1.1:0:0")
    clock.time += (seconds - due - 1) * SECOND
    expire(app)
    assert flow.state == "running"
    clock.time += 2 * SECOND
    expire(app)
    assert flow.result(timeout=0) == {"web-1|1.1:0:0": 5, "web-2|1.1:0:0": None}


@pytest.mark.parametrize("is_dead", [False, True])
def test_a_job_that_has_started_and_whose_worker_is_gone_gives_none(
    app: App, store: MemoryStore, monkeypatch: pytest.MonkeyPatch, is_dead: bool
) -> None:
    """It was to be tried again, by nobody else. A host that cannot be seen may be cut off only."""
    name = "web-1|1.1:1:1"

    @app.task(name="again")
    def again() -> None:
        raise Snooze("1m")

    live(store, host("web-1", 2))
    again.using(per="worker").broadcast()
    assert drain(app, name) == 1
    expire(app)
    clock.time += max(LOST_AFTER, MINUTE) + SECOND
    live(store, host("web-2"))
    assert app.drain() == 0, "it is ready again"
    monkeypatch.setattr(owner, "is_dead", lambda dead: is_dead and dead == name)
    expire(app)
    assert len(store.find(Query((State.CANCELLED,), own_queue(name)))) == is_dead
    clock.time += GONE_AFTER + SECOND
    live(store, host("web-2"))
    expire(app)
    (gone,) = store.find(Query((State.CANCELLED,), own_queue(name)))
    assert b"does not run any more" in gone.note


def test_only_jobs_of_broadcasts_expire_before_somebody_claims_them(app: App, store: MemoryStore) -> None:
    plain = app.tasks["clear"].using(expires=1, queue="@mail").enqueue("x")
    clock.time += 2 * SECOND
    expire(app)
    assert plain.state == "ready"
    app.drain()
    with pytest.raises(JobCancelled):
        plain.result(timeout=0)


def test_it_can_be_stored_for_later_and_with_a_priority(app: App, store: MemoryStore) -> None:
    live(store, host("web-1"))
    flow = app.tasks["clear"].using(delay=30, priority=5, timeout=3).broadcast("cache")
    assert drain(app, "web-1|1.1:0:0") == 0
    clock.time += 30 * SECOND
    assert drain(app, "web-1|1.1:0:0") == 1
    assert flow.state == "done"


@pytest.mark.parametrize("options", [{"key": "a"}, {"queue": "mail"}, {"idempotency": "a"}, {"durable": "replica"}])
def test_options_of_one_job_are_refused(app: App, store: MemoryStore, options: dict[str, Any]) -> None:
    live(store, host("web-1"))
    with pytest.raises(ValueError, match=f"clear: {next(iter(options))}= is not for a broadcast"):
        app.tasks["clear"].using(**options).broadcast("cache")


def test_per_is_only_for_a_broadcast(app: App) -> None:
    with pytest.raises(ValueError, match="per= says whom a broadcast is for"):
        app.tasks["clear"].using(per="worker").enqueue("cache")
    with pytest.raises(ValueError, match="per= says whom a broadcast is for"):
        app.tasks["clear"].using(per="host").enqueue_many([("cache",)])
    with pytest.raises(ValueError, match="per='rack'"):
        app.tasks["clear"].using(per=cast("Any", "rack"))


def test_arguments_are_checked(app: App, store: MemoryStore) -> None:
    live(store, host("web-1"))
    with pytest.raises(TypeError, match="clear"):
        app.tasks["clear"].broadcast()

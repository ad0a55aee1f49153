"""Tasks with limits in flows on several shards: the jobs of a key that has a limit are counted on one shard."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tarry import App, ConfigError, Flow, fan_out
from tarry.keeper.hosts import HostEntry
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.hosts import Host, PoolFigures
from tarry.store.rules.base import NORMAL, Query, Want
from tarry.store.rules.flows import FlowQuery
from tarry.store.rules.ids import parse
from tarry.store.shards.sharded import ShardedStore

MINUTE = 60_000_000


@pytest.fixture
def store() -> ShardedStore:
    return ShardedStore([_named(f"memory://{name}") for name in "abc"])


def _named(url: str) -> MemoryStore:
    store = MemoryStore()
    store.url = url
    return store


@pytest.fixture
def app(store: ShardedStore) -> Iterator[App]:
    app = App(store, closures=True, retry=None)
    app.task(name="plain")(plain)
    app.task(name="split")(split)
    app.task(name="one", limit=1)(plain)
    app.task(name="two", limit=1)(plain)
    app.task(name="each", limit_by=lambda x: x, limit=1)(plain)
    app.task(name="also", limit_by=lambda x: x, rate="1/h")(plain)
    app.task(name="turns", limit_by=lambda x: x)(plain)
    app.task(name="ordered", order_by=lambda x: x)(plain)
    app.declare_limits(store)
    apps.append(app)
    yield app
    apps.clear()
    app.close()


apps: list[App] = []


def plain(x: int) -> int:
    return x


def split(x: int, name: str, key: int) -> Any:
    return fan_out([call(name, key), call(name, key)])


def call(task: str, *args: Any) -> Any:
    return apps[0].tasks[task].call(*args)


def home(store: ShardedStore, key: int) -> int:
    """The shard where jobs of that key are counted."""
    number = store.home("each", None, str(key))
    assert number is not None
    return number


def apart(store: ShardedStore) -> tuple[int, int]:
    """Two keys that are counted on different shards."""
    return 0, next(key for key in range(100) if home(store, key) != home(store, 0))


def place(store: ShardedStore, flow: Flow[Any]) -> int:
    """The only shard with anything of the flow."""
    number = store._hashing.place_of_job(parse(flow.id))
    (found,) = (n for n, shard in enumerate(store.stores) if shard.flows.get(parse(flow.id)) is not None)
    assert found == number
    return number


def run_all(store: ShardedStore) -> list[Job]:
    """What starts if everything that may start does."""
    wants, now = [Want("default", NORMAL, 100)], store.time()
    found: list[Job] = []
    for _ in range(3):
        store.move_shares("keeper", now, MINUTE)
        found += store.claim(wants, 100, "ann", MINUTE, now)
        now += SECOND
    return found


@pytest.mark.parametrize("task", ["one", "each", "ordered"])
def test_at_most_so_many_run_over_all_flows_and_jobs(app: App, store: ShardedStore, task: str) -> None:
    for number in range(12):
        with app.flow("order") as f:
            f.add(call("plain", number))
            f.add(call(task, 7))
        app.group([call(task, 7)])
        app.tasks[task].enqueue(7)
    claimed = run_all(store)
    assert sum(job.task == task for job in claimed) == 1
    assert sum(job.task == "plain" for job in claimed) == 12


@pytest.mark.parametrize("names", [["each"], ["each", "plain", "also"], ["ordered", "one"]])
def test_a_flow_lives_where_the_jobs_of_its_key_are_counted(app: App, store: ShardedStore, names: list[str]) -> None:
    for key in range(9):
        with app.flow("order") as f:
            for name in names:
                f.add(call(name, key))
        assert place(store, f.handle) == home(store, key)


@pytest.mark.parametrize("name", ["plain", "one", "turns"])
def test_other_flows_live_on_all_shards(app: App, store: ShardedStore, name: str) -> None:
    flows = [app.group(call(each, key) for each in (name, "two") for key in range(20)) for _ in range(30)]
    assert {place(store, flow) for flow in flows} == {0, 1, 2}


def test_it_works_for_flows_that_are_large_and_awaited(app: App, store: ShardedStore) -> None:
    flow = app.group(call("each", 5) for _ in range(1500))
    assert place(store, flow) == home(store, 5)
    assert len(run_all(store)) == 1

    async def main() -> Flow[Any]:
        return await app.agroup([call("each", 6)])

    assert place(store, asyncio.run(main())) == home(store, 6)


def test_middleware_does_not_hide_a_limit(app: App, store: ShardedStore) -> None:
    app.middleware("enqueue")(lambda job, call_next: call_next(job))
    for key in range(9):
        assert place(store, app.group([call("each", key)])) == home(store, key)


def test_a_drain_runs_all_that_waits_wherever_it_is(app: App, store: ShardedStore) -> None:
    app.tasks["one"].enqueue_many((key,) for key in range(30))
    assert app.drain() == 30


def nothing_is_stored(store: ShardedStore) -> bool:
    return not store.find(Query(limit=1)) and not store.flows.find(FlowQuery())


def test_keys_of_different_shards_are_refused(app: App, store: ShardedStore) -> None:
    first, second = apart(store)
    with pytest.raises(ConfigError) as refused:
        app.group([call("plain", 1), call("each", first), call("also", second)])
    assert str(refused.value) == (
        f"flow group has jobs of also with the key '{second}', each with the key '{first}': on several stores the jobs"
        " of a key that has a limit are counted on one, and a flow lives on one. Make a flow of its own for each key,"
        " or enqueue the task from a job of the flow"
    )
    with pytest.raises(ConfigError, match=r"the key '0', each with the key '1', each with the key '10' and 97 more:"):
        app.group(call("each", key) for key in range(100))
    assert nothing_is_stored(store)


def test_a_key_beside_a_limit_is_refused_whatever_the_key_is(app: App, store: ShardedStore) -> None:
    for key in "abcdefgh":
        with (
            pytest.raises(ConfigError, match=r"flow order has a key, and jobs of each with the key '1': on several"),
            app.flow("order", key=key) as f,
        ):
            f.add(call("each", 1))
    assert nothing_is_stored(store)
    for task in ("plain", "one", "turns"):
        with app.flow("order", key=task) as f:
            f.add(call(task, 1))
        assert f.handle.is_new


def test_on_one_store_nothing_is_refused() -> None:
    single = App(ShardedStore([MemoryStore()]), closures=True)
    a, b = (single.task(name=name, limit_by=lambda x: x, limit=1)(plain) for name in ("a", "b"))
    with single.using(key="k").flow("order") as f:
        f.add(b.call(2), after=[f.add(a.call(1))])
    single.drain()
    assert f.handle.state == "done"
    single.close()


def test_a_broadcast_of_a_limited_task_keeps_to_the_limit(app: App, store: ShardedStore) -> None:
    hosts = [Host(f"web-{n}|1.1:0:0", f"web-{n}", pools=[PoolFigures("default", workers=1)]) for n in (1, 2)]
    for host in hosts:
        HostEntry(store, lambda: host).register_host()  # noqa: B023
    app.tasks["one"].broadcast(1)
    wants = [Want(f"@{host.instance}", NORMAL, 9) for host in hosts]
    now = store.time()
    started = []
    for _ in range(3):
        store.move_shares("keeper", now, MINUTE)
        started += store.claim(wants, 9, "ann", MINUTE, now)
    assert len(started) == 1, "one at a time, over all hosts"


def _splitting(first: int, other: int) -> Flow[Any]:
    with apps[0].flow("order") as f:
        f.add(call("split", f.add(call("each", first)).result, "each", other))
    return f.handle


def test_nodes_that_a_node_adds_are_counted_there(app: App, store: ShardedStore) -> None:
    first, second = apart(store)
    good, bad = (_splitting(first, key) for key in (first, second))
    app.drain()
    assert (good.result(timeout=0), bad.state) == ([first, first], "dead")
    (failed,) = bad.failed_nodes()
    why = f"adds jobs of each with the key '{second}' to its flow, which lives on another store than they"
    assert why in (failed.record().note or b"").decode()
    assert store.find(Query(task="each", limit=9)) != []

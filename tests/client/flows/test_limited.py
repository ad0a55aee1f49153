"""Tasks with limits in flows on several shards: the jobs of such a task all live on one shard, which counts them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from tarry import App, ConfigError, Flow, fan_out
from tarry.keeper.hosts import HostEntry
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
    for number in range(12):
        app.task(name=f"one{number}", limit=1)(plain)
    app.task(name="each", limit_by=lambda x: x, limit=1)(plain)
    app.declare_limits(store)
    apps.append(app)
    yield app
    apps.clear()
    app.close()


apps: list[App] = []


def plain(x: int) -> int:
    return x


def split(x: int, name: str) -> Any:
    return fan_out([call(name, 1), call(name, 2)])


def call(task: str, *args: Any) -> Any:
    return apps[0].tasks[task].call(*args)


def homes(store: ShardedStore, *tasks: str) -> set[int]:
    return {store.home(task, None, "") for task in tasks}


def apart(store: ShardedStore) -> tuple[str, str]:
    """Two tasks with limits that live on different shards."""
    names = [f"one{number}" for number in range(12)]
    return names[0], next(name for name in names if homes(store, name) != homes(store, names[0]))


def together(store: ShardedStore) -> tuple[str, str]:
    """Two tasks with limits that live on the same shard."""
    names = [f"one{number}" for number in range(1, 12)]
    return "one0", next(name for name in names if homes(store, name) == homes(store, "one0"))


def place(store: ShardedStore, flow: Flow[Any]) -> int:
    """The only shard with anything of the flow."""
    number = store._hashing.place_of_job(parse(flow.id))
    (found,) = (n for n, shard in enumerate(store.stores) if shard.flows.get(parse(flow.id)) is not None)
    assert found == number
    return number


@pytest.mark.parametrize("task", ["one0", "one1", "each"])
def test_at_most_so_many_run_over_all_flows_and_jobs(app: App, store: ShardedStore, task: str) -> None:
    for number in range(12):
        with app.flow("order") as f:
            f.add(call("plain", number))
            f.add(call(task, 7))
        app.group([call(task, 7)])
        app.tasks[task].enqueue(7)
    now = store.time()
    claimed = store.claim([Want("default", NORMAL, 100)], 100, "ann", MINUTE, now)
    assert sum(job.task == task for job in claimed) == 1, "all of them are counted on one shard"
    assert sum(job.task == "plain" for job in claimed) == 12


def test_a_flow_lives_on_the_shard_of_its_limited_tasks(app: App, store: ShardedStore) -> None:
    for names in (["one0"], ["one5", "one5"], [*together(store)], ["each", "plain"]):
        flow = app.chain(*(call(name) if at else call(name, 3) for at, name in enumerate(names)))
        limited = [name for name in names if name != "plain"]
        assert {place(store, flow)} == homes(store, *limited)
        app.drain()
        assert flow.result(timeout=0) == 3


def test_it_works_for_flows_that_are_large_and_awaited(app: App, store: ShardedStore) -> None:
    flow = app.group(call("one0", number) for number in range(1500))
    assert {place(store, flow)} == homes(store, "one0")
    (running,) = store.claim([Want("default", NORMAL, 9)], 9, "ann", MINUTE, store.time())
    assert running.task == "one0"

    async def main() -> Flow[Any]:
        return await app.agroup([call("one1", 1)])

    assert {place(store, asyncio.run(main()))} == homes(store, "one1")


def test_middleware_does_not_hide_a_limit(app: App, store: ShardedStore) -> None:
    app.middleware("enqueue")(lambda job, call_next: call_next(job))
    flow = app.group([call("one0", 1)])
    assert {place(store, flow)} == homes(store, "one0")


def nothing_is_stored(store: ShardedStore) -> bool:
    return not store.find(Query(limit=1)) and not store.flows.find(FlowQuery())


def test_tasks_of_different_shards_are_refused(app: App, store: ShardedStore) -> None:
    first, second = apart(store)
    with pytest.raises(ConfigError) as refused:
        app.chain(call("plain", 1), call(first), call(second))
    names = ", ".join(sorted((first, second)))
    assert str(refused.value) == (
        f"flow chain has tasks with limits ({names}): these live on different shards, and a flow lives on one."
        " Put them into flows of their own, or enqueue one of them from a job of the flow"
    )
    assert nothing_is_stored(store)


def test_a_key_beside_a_limit_is_refused_whatever_the_key_is(app: App, store: ShardedStore) -> None:
    for key in "abcdefgh":
        with (
            pytest.raises(
                ConfigError, match=r"flow order has a key, and a task with limits \(one0\): on several shards"
            ),
            app.flow("order", key=key) as f,
        ):
            f.add(call("one0", 1))
    assert nothing_is_stored(store)
    with app.flow("order", key="a") as f:
        f.add(call("plain", 1))
    assert f.handle.is_new


def test_on_one_store_nothing_is_refused() -> None:
    single = App(ShardedStore([MemoryStore()]), closures=True)
    a, b = (single.task(name=name, limit=1)(plain) for name in ("a", "b"))
    with single.using(key="k").flow("order") as f:
        f.add(b.call(f.add(a.call(1)).result))
    single.drain()
    assert f.handle.result(timeout=0) == 1
    single.close()


def test_a_broadcast_of_a_limited_task_lives_there_too(app: App, store: ShardedStore) -> None:
    hosts = [Host(f"web-{n}|1.1:0:0", f"web-{n}", pools=[PoolFigures("default", workers=1)]) for n in (1, 2)]
    for host in hosts:
        HostEntry(store, lambda: host).register_host()  # noqa: B023
    flow = app.tasks["one0"].broadcast(1)
    assert {place(store, flow)} == homes(store, "one0")
    wants = [Want(f"@{host.instance}", NORMAL, 9) for host in hosts]
    assert len(store.claim(wants, 9, "ann", MINUTE, store.time())) == 1, "one at a time, over all hosts"


def _splitting(first: str, other: str) -> Flow[Any]:
    with apps[0].flow("order") as f:
        f.add(call("split", f.add(call(first, 1)).result, other))
    return f.handle


def test_nodes_that_a_node_adds_are_of_tasks_of_that_shard(app: App, store: ShardedStore) -> None:
    first, second = apart(store)
    good, bad = (_splitting(first, name) for name in (first, second))
    app.drain()
    assert (good.result(timeout=0), bad.state) == ([1, 2], "dead")
    (failed,) = bad.failed_nodes()
    why = f"adds a task with limits ({second}) to its flow: these live on different shards"
    assert why in str(failed.record().note)
    assert store.find(Query(task=second, limit=9)) == []

"""`using(durable="replica")`: an enqueue that returns once a replica has the job too."""

import asyncio
from collections.abc import Sequence

import pytest

from tarry import App, ConfigError, StoreUnavailable
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Query
from tarry.store.shards.sharded import ShardedStore


def add(a: int) -> None: ...


class Replicated(MemoryStore):
    """Notes what it was asked to confirm, and that it was stored before."""

    can_confirm = True

    def __init__(self, name: str = "") -> None:
        super().__init__(name=name)
        self.confirmed: list[bytes] = []
        self.away = False

    def confirm(self, jobs: Sequence[Job]) -> None:
        assert None not in self.get([job.id for job in jobs])
        if self.away:
            raise StoreUnavailable("stored, but not confirmed by a replica")
        self.confirmed += [job.id for job in jobs]


def test_it_is_stored_and_then_confirmed() -> None:
    store = Replicated()
    task = App(store, closures=True).task(add)
    safe = task.using(durable="replica")
    handles = [safe.enqueue(1), asyncio.run(safe.aenqueue(2)), *safe.enqueue_many([(3,), (4,)])]
    handles += asyncio.run(safe.aenqueue_many([(5,)]))
    assert [handle._id for handle in handles] == store.confirmed
    assert all(handle.is_new for handle in handles)
    task.enqueue(6)
    assert len(store.confirmed) == 5


def test_of_several_stores_each_confirms_its_own() -> None:
    stores = [Replicated("a"), Replicated("b")]
    task = App(ShardedStore(stores), closures=True).task(add)
    handles = task.using(durable="replica").enqueue_many([(n,) for n in range(50)])
    confirmed = [set(store.confirmed) for store in stores]
    assert all(confirmed)
    assert confirmed[0] | confirmed[1] == {handle._id for handle in handles}


def test_one_of_several_that_has_no_replica_is_enough_to_refuse() -> None:
    task = App(ShardedStore([Replicated(), MemoryStore(name="b")]), closures=True).task(add)
    with pytest.raises(ConfigError, match="has no replica that could confirm"):
        task.using(durable="replica").enqueue(1)


def test_through_middleware() -> None:
    store = Replicated()
    app = App(store, closures=True)
    task = app.task(add)
    app.middleware("enqueue")(lambda job, call_next: call_next(job))
    task.using(durable="replica").enqueue(1)
    task.using(durable="replica").enqueue_many([(2,)])
    assert len(store.confirmed) == 2


def test_what_no_replica_confirms_is_stored_all_the_same() -> None:
    store = Replicated()
    store.away = True
    with pytest.raises(StoreUnavailable, match="stored, but not confirmed"):
        App(store, closures=True).task(add).using(durable="replica").enqueue(1)
    assert len(store.find(Query())) == 1


def test_where_there_are_no_replicas_it_is_refused_before_anything_is_stored(app: App) -> None:
    task = app.task(add)
    for put in (
        lambda: task.using(durable="replica").enqueue(1),
        lambda: task.using(durable="replica").enqueue_many([(1,)]),
    ):
        with pytest.raises(ConfigError, match="no replica that could confirm a job: leave out durable="):
            put()
    assert app.client.store.find(Query()) == []


def test_options_that_make_no_sense(app: App) -> None:
    task = app.task(add)
    with pytest.raises(ValueError, match="durable='twice': \"replica\", or leave it out"):
        task.using(durable="twice")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="durable= and connection= exclude each other"):
        task.using(durable="replica", connection=object())

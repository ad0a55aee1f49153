"""`insert_each`: jobs of several callers in one call of the store, and each caller gets what is about its job."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tarry import App, ConfigError, IdempotencyError, Job, StoreError, StoreFull, StoreUnavailable
from tarry.errors import StoreAway
from tarry.model import job as model
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Query
from tarry.store.shards.sharded import ShardedStore
from tarry.tasks.arguments.options import NO_OPTIONS, Options
from tests.worker.bench import until


class Choosy(MemoryStore):
    """Refuses some jobs, or all, and counts the calls."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name=name)
        self.calls = 0
        self.trouble: Exception | None = None

    def insert(self, jobs: Sequence[model.Job]) -> list[bytes]:
        self.calls += 1
        if self.trouble is not None:
            raise self.trouble
        if any(b"bad" in job.body for job in jobs):
            raise StoreError("a bad one")
        if any(b"odd" in job.body for job in jobs):
            raise OverflowError("an odd one")
        return super().insert(jobs)


def insert(app: App, *calls: tuple[str, Options]) -> list[Any]:
    """What each of these gets: its handle or its error."""
    jobs = [app.client.make_job("send", f'["{text}"]'.encode(), options) for text, options in calls]
    return app.client.insert_each(jobs, [options for _, options in calls])


def texts(app: App) -> list[str]:
    return sorted(job.body.decode() for job in app.client.store.find(Query()))


def test_all_go_in_one_call() -> None:
    store = Choosy()
    app = App(store)
    found = insert(app, *((str(n), NO_OPTIONS) for n in range(100)))
    assert store.calls == 1
    assert [handle.record().body for handle in found] == [f'["{n}"]'.encode() for n in range(100)]
    assert all(handle.is_new for handle in found)


def test_nothing_at_all_is_fine() -> None:
    assert insert(App(MemoryStore())) == []


def test_the_error_of_one_is_that_of_no_other() -> None:
    store = Choosy()
    app = App(store)
    found = insert(app, *((text, NO_OPTIONS) for text in ("a", "bad", "b", "odd", "c", "d", "e")))
    assert [type(each) for each in found] == [Job, StoreError, Job, OverflowError, Job, Job, Job]
    assert found[1].job.id != found[0].id
    assert texts(app) == ['["a"]', '["b"]', '["c"]', '["d"]', '["e"]']


def test_one_bad_job_among_many_costs_few_calls() -> None:
    store = Choosy()
    app = App(store)
    found = insert(app, *(("bad" if n == 700 else str(n), NO_OPTIONS) for n in range(1000)))
    assert [at for at, each in enumerate(found) if not isinstance(each, Job)] == [700]
    assert store.calls <= 21


@pytest.mark.parametrize("trouble", [StoreAway("away"), StoreFull("full"), StoreUnavailable("gone")])
def test_a_store_in_trouble_is_asked_once_and_each_has_an_error_of_its_own(trouble: StoreError) -> None:
    store = Choosy()
    app = App(store)
    store.trouble = trouble
    found = insert(app, ("a", NO_OPTIONS), ("b", NO_OPTIONS))
    assert store.calls == 1
    assert [(type(each), each.stored) for each in found] == [(type(trouble), trouble.stored)] * 2
    store.trouble = None
    sent = [each.send_again() for each in found]
    assert [each.id for each in sent] == [each.job.id for each in found]
    assert texts(app) == ['["a"]', '["b"]']


def test_each_has_the_options_that_it_was_made_with() -> None:
    app = App(MemoryStore())
    later, key, name = Options(delay=60, key="k"), Options(key="k"), Options(idempotency="n")
    replace = Options(key="k", on_duplicate="replace")
    found = insert(app, ("a", later), ("b", key), ("c", replace), ("d", name), ("d", name), ("e", name))
    assert [isinstance(each, Job) and each.is_new for each in found] == [True, False, False, True, False, False]
    assert found[0] == found[1] == found[2]
    assert found[3] == found[4]
    assert isinstance(found[5], IdempotencyError)
    assert texts(app) == ['["c"]', '["d"]']


def test_a_job_goes_to_another_shard_if_its_own_is_away() -> None:
    shards = [Choosy("a"), Choosy("b")]
    app = App(ShardedStore(shards))
    shards[0].trouble = StoreAway("away")
    found = insert(app, *((str(n), NO_OPTIONS) for n in range(50)))
    assert all(isinstance(each, Job) and each.is_new for each in found)
    assert len(shards[1].find(Query())) == 50


def test_a_store_that_is_away_leaves_them_to_the_outbox_and_each_job_exists_once(tmp_path: Path) -> None:
    store = Choosy()
    app = App(store, outbox=tmp_path / "outbox.db")
    store.trouble = StoreUnavailable("away")
    safe = Options(durable="replica")
    found = insert(app, ("a", NO_OPTIONS), ("b", safe), ("c", NO_OPTIONS))
    assert [isinstance(each, Job) and each.is_new for each in found] == [None, False, None]
    assert isinstance(found[1], ConfigError), "an outbox is no replica"
    assert found[0].record().body == b'["a"]'
    store.trouble = None
    assert app.client.forwarder is not None
    # False while the thread, which found the store away, is still at it.
    until(app.client.forwarder.step)
    app.close()
    assert sorted(job.body for job in store.find(Query())) == [b'["a"]', b'["c"]']


def test_an_outbox_does_not_hide_what_is_no_absence(tmp_path: Path) -> None:
    store = Choosy()
    app = App(store, outbox=tmp_path / "outbox.db")
    store.trouble = StoreFull("full")
    assert isinstance(insert(app, ("a", NO_OPTIONS))[0], StoreFull)
    app.close()

"""Keys: how long a job holds one, and what a second enqueue does meanwhile."""

import threading
from collections.abc import Iterator
from typing import Literal

import pytest
from msgspec.structs import replace

from tarry import App, IdempotencyError, State
from tarry.client import duplicates
from tarry.client.client import Client
from tarry.client.clock import FakeClock
from tarry.client.tasks.task import SyncTask
from tarry.errors import QueueFull, StoreBusy
from tarry.model import lifecycle
from tarry.model.bound import Bound
from tarry.model.change import Change
from tarry.model.duration import HOUR, SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Released, Returned
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import NORMAL, Query, Want
from tarry.tasks.arguments.options import Options


class Shop:
    """An app with one task, on a store and a clock that stand still."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(lambda: self.clock.time)
        self.app = App(self.store)
        self.app._clock = self.clock
        self.index: SyncTask[[str], None] = self.app.task(_index)

    def take(self) -> Job:
        """A worker takes the next job that is due."""
        (job,) = self.store.claim([Want("default", NORMAL, 1)], 1, "ann", 30 * SECOND, self.clock.now())
        return job

    def finish(self) -> None:
        """A worker takes it and is done with it."""
        job, now = self.take(), self.clock.now()
        assert self.store.apply([lifecycle.after(job, Returned(), DEFAULT, now)], now) == [True]


def _index(page: str) -> None: ...


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    made.app.close()


def test_by_default_a_key_is_held_until_the_job_has_finished(shop: Shop) -> None:
    index = shop.index.using(key="p")
    first = index.enqueue("p")
    assert first.is_new
    again = index.enqueue("p")
    assert (again.id, again.is_new) == (first.id, False)
    shop.finish()
    assert index.enqueue("p").is_new


def test_a_key_for_the_wait_is_free_once_a_worker_takes_the_job(shop: Shop) -> None:
    index = shop.index.using(key="p", unique_for="waiting")
    first = index.enqueue("p")
    assert index.enqueue("p").id == first.id
    shop.take()
    second = index.enqueue("p")
    assert second.is_new
    assert index.enqueue("p").id == second.id


def test_a_retry_of_a_job_that_let_its_key_go_does_not_take_it_back(shop: Shop) -> None:
    index = shop.index.using(key="p", unique_for="waiting")
    first = index.enqueue("p")
    running = shop.take()
    second = index.enqueue("p")
    now = shop.clock.now()
    assert shop.store.apply([lifecycle.after(running, Released(), DEFAULT, now)], now) == [True]
    assert (first.state, second.state) == (State.READY, State.READY)


def test_a_key_for_a_time_is_held_for_so_long_after_the_end(shop: Shop) -> None:
    index = shop.index.using(key="p", unique_for="2h")
    first = index.enqueue("p")
    shop.clock.advance(7200)
    assert index.enqueue("p").id == first.id, "it has not even begun"
    shop.finish()
    shop.clock.advance(7199)
    assert index.enqueue("p").id == first.id
    shop.clock.advance(2)
    assert index.enqueue("p").is_new


def test_the_record_stays_as_long_as_the_key(shop: Shop) -> None:
    first = shop.index.using(key="p", unique_for="2d").enqueue("p")
    shop.finish()
    shop.clock.advance(86_400)
    shop.store.prune(shop.clock.now(), 0)
    assert first.state is State.DONE, "although its time of keeping, an hour, is over, and its queue may keep nothing"
    shop.clock.advance(86_401)
    assert shop.store.prune(shop.clock.now(), 10**9) == 1


def test_a_second_enqueue_may_replace_the_first(shop: Shop) -> None:
    """Debounce: the last call counts, and when it says."""
    debounced = shop.index.using(key="p", delay=10, on_duplicate="replace")
    first = debounced.enqueue("one")
    shop.clock.advance(8)
    second = debounced.enqueue("two")
    assert (second.id, second.is_new) == (first.id, False)
    record = first.record()
    assert (record.body, record.due) == (b'["two"]', shop.clock.now() + 10 * SECOND)


def test_what_replaces_may_have_another_queue_priority_and_time(shop: Shop) -> None:
    first = shop.index.using(key="p", delay=10, expires=60).enqueue("one")
    shop.index.using(key="p", queue="fast", priority=9, on_duplicate="replace").enqueue("two")
    record = first.record()
    assert (record.queue, record.priority, record.state, record.expires) == ("fast", 9, State.READY, 0)


def test_what_runs_already_is_not_replaced_and_the_new_call_is_not_lost(shop: Shop) -> None:
    debounced = shop.index.using(key="p", on_duplicate="replace")
    debounced.enqueue("one")
    shop.take()
    second = debounced.enqueue("two")
    assert second.is_new, "its run may have looked before the change"


def test_with_a_longer_hold_what_runs_is_returned(shop: Shop) -> None:
    index = shop.index.using(key="p", unique_for="unfinished", on_duplicate="replace")
    first = index.enqueue("one")
    shop.take()
    again = index.enqueue("two")
    assert (again.id, again.is_new, first.record().body) == (first.id, False, b'["one"]')


def test_a_second_enqueue_may_push_the_first_back(shop: Shop) -> None:
    throttled = shop.index.using(key="p", delay=10, on_duplicate="postpone")
    first = throttled.enqueue("one")
    shop.clock.advance(8)
    assert throttled.enqueue("two").id == first.id
    record = first.record()
    assert (record.body, record.due) == (b'["one"]', shop.clock.now() + 10 * SECOND)
    shop.index.using(key="p", on_duplicate="postpone").enqueue("three")
    assert first.record().due == record.due, "never forward"


@pytest.mark.parametrize("rule", ["replace", "postpone"])
def test_a_job_is_put_off_for_so_long_at_most(shop: Shop, rule: Literal["replace", "postpone"]) -> None:
    put_off = shop.index.using(key="p", delay=10, expires=60, on_duplicate=rule, max_delay="25s")
    first, began = put_off.enqueue("0"), shop.clock.now()
    dues = []
    for number in range(1, 6):
        shop.clock.advance(5)
        assert put_off.enqueue(str(number)).id == first.id
        record = first.record()
        dues.append((record.due - began) // SECOND)
        assert record.expires - record.due == 60 * SECOND
    assert dues == [15, 20, 25, 25, 25]
    assert first.record().body == (b'["5"]' if rule == "replace" else b'["0"]')
    assert shop.take().body == first.record().body


def test_the_bound_is_that_of_the_first(shop: Shop) -> None:
    put_off = shop.index.using(key="p", on_duplicate="replace", delay=5, max_delay=30)
    first, latest = put_off.enqueue("one"), shop.clock.now() + 30 * SECOND
    shop.index.using(key="p", on_duplicate="postpone", delay=600).enqueue("two")
    assert first.record().due == latest
    shop.index.using(key="p", on_duplicate="replace", delay=6, max_delay=900).enqueue("three")
    assert first.record().due == shop.clock.now() + 6 * SECOND, "a bound is no delay"
    unbounded = shop.index.using(key="q", on_duplicate="replace", delay=5).enqueue("one")
    shop.index.using(key="q", on_duplicate="replace", delay=40, max_delay=60).enqueue("two")
    assert unbounded.record().due == shop.clock.now() + 40 * SECOND


@pytest.mark.parametrize("said", ['"soon"', '"-9"', '"' + "9" * 5000 + '"', "9", "[]", '"1e9"'])
def test_a_bound_that_is_none_puts_nothing_wrong(shop: Shop, said: str) -> None:
    job = replace(shop.app.client.make_job(shop.index.name, b'["one"]', Options(key="p", delay=5)), headers=b"{}")
    shop.app.client.insert_jobs([replace(job, headers=b'{"tarry-latest":' + said.encode() + b"}")])
    again = shop.index.using(key="p", on_duplicate="postpone", delay=60).enqueue("two")
    assert again.record().due in (shop.clock.now() + 60 * SECOND, shop.clock.now() + 5 * SECOND)


def test_a_call_whose_time_another_has_overtaken_writes_nothing(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.index.using(key="p", delay=60, on_duplicate="postpone").enqueue("one")
    monkeypatch.setattr(shop.store, "apply", lambda changes, now: pytest.fail("changed"))
    assert not shop.index.using(key="p", delay=30, on_duplicate="postpone").enqueue("two").is_new


def test_a_job_that_changes_all_the_time_is_told(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    index = shop.index.using(key="p", delay=60, on_duplicate="postpone")
    first = index.enqueue("one")
    monkeypatch.setattr(duplicates, "_PAUSE", 0.0)
    monkeypatch.setattr(shop.store, "apply", lambda changes, now: [False] * len(changes))
    with pytest.raises(StoreBusy, match=f"job {first.id} holds the key 'p' and changes all the time"):
        shop.index.using(key="p", delay=90, on_duplicate="postpone").enqueue("two")


def test_a_call_that_races_with_a_worker_is_not_lost(shop: Shop) -> None:
    """The worker takes the job between the look and the change."""
    debounced = shop.index.using(key="p", on_duplicate="replace")
    first = debounced.enqueue("one")
    apply = shop.store.apply

    def late(changes: list[Change], now: int) -> list[bool]:
        shop.store.apply = apply  # type: ignore[method-assign]
        shop.take()
        return apply(changes, now)

    shop.store.apply = late  # type: ignore[method-assign, assignment]
    second = debounced.enqueue("two")
    assert second.is_new
    assert (first.record().body, second.record().body) == (b'["one"]', b'["two"]')


def test_many_at_once_are_one(shop: Shop) -> None:
    jobs = shop.index.using(key="p", on_duplicate="replace").enqueue_many([("one",), ("two",), ("three",)])
    assert [job.is_new for job in jobs] == [True, False, False]
    assert jobs[0].record().body == b'["three"]'


def test_threads_at_once_are_one(shop: Shop) -> None:
    index, made = shop.index.using(key="p"), []
    threads = [threading.Thread(target=lambda: made.append(index.enqueue("p"))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({job.id for job in made}) == 1
    assert sum(bool(job.is_new) for job in made) == 1


def test_a_request_sent_again_is_the_first(shop: Shop) -> None:
    send = shop.index.using(idempotency="order-7")
    first = send.enqueue("p")
    shop.finish()
    shop.clock.advance(86_000)
    again = send.enqueue("p")
    assert (again.id, again.is_new) == (first.id, False)
    shop.clock.advance(500)
    assert send.enqueue("p").is_new, "the window is a day, unless said otherwise"


def test_a_request_with_other_arguments_is_refused(shop: Shop) -> None:
    first = shop.index.using(idempotency="order-7", window="1h").enqueue("p")
    with pytest.raises(IdempotencyError, match=r"idempotency='order-7' was used for other arguments, by job "):
        shop.index.using(idempotency="order-7").enqueue("q")
    assert first.record().body == b'["p"]'


def test_names_of_requests_are_no_keys(shop: Shop) -> None:
    one = shop.index.using(idempotency="x").enqueue("p")
    two = shop.index.using(key="x").enqueue("p")
    assert one.id != two.id


def test_a_job_run_again_by_hand_takes_its_key_back(shop: Shop) -> None:
    index = shop.index.using(key="p", unique_for="1h")
    first = index.enqueue("p")
    shop.finish()
    assert first.retry()
    shop.clock.advance(7200)
    assert index.enqueue("p").id == first.id


def test_a_job_whose_key_is_another_s_by_now_is_not_run_again(shop: Shop) -> None:
    first = shop.index.using(key="p").enqueue("p")
    shop.finish()
    shop.index.using(key="p").enqueue("p")
    assert not first.retry()


def test_a_finished_holder_whose_time_is_over_is_in_nobody_s_way(shop: Shop) -> None:
    first = shop.index.using(key="p").enqueue("p")
    shop.finish()
    shop.index.using(key="p", unique_for="1h").enqueue("p")
    shop.finish()
    shop.clock.advance(HOUR // SECOND + 1)
    assert first.retry()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"key": "a", "idempotency": "b"}, "give one of them"),
        ({"unique_for": "1h"}, "give key= too"),
        ({"on_duplicate": "replace"}, "give key= too"),
        ({"key": "a", "on_duplicate": "ignore"}, '"return", "replace" or "postpone"'),
        ({"key": "a", "unique_for": "long"}, "'long' is no duration"),
        ({"key": "a", "max_delay": 5}, 'on_duplicate="replace" and "postpone"'),
        ({"key": "a", "on_duplicate": "replace", "delay": 6, "max_delay": 5}, "max_delay=5 is less than delay=6"),
        ({"key": "a", "on_duplicate": "replace", "max_delay": -1}, "max_delay=-1 is negative"),
        ({"idempotency": ""}, "idempotency=''"),
        ({"leading": True, "delay": 5}, "leading= is about a key: give key= too"),
        ({"key": "a", "leading": True, "delay": 5}, 'leading=True is for on_duplicate="replace" and "postpone"'),
        ({"key": "a", "leading": True, "on_duplicate": "replace"}, "give a delay longer than 0"),
        ({"key": "a", "leading": True, "on_duplicate": "replace", "delay": 0}, "give a delay longer than 0"),
        ({"key": "a", "leading": True, "on_duplicate": "replace", "at": 5}, "give a delay longer than 0"),
        ({"key": "a", "leading": True, "running": "cancel", "delay": 5}, 'leading=True with running="cancel"'),
        ({"key": "a", "leading": True, "on_duplicate": "replace", "delay": 5, "unique_for": "1h"}, "leave it out"),
        ({"key": "a", "leading": 1, "on_duplicate": "replace", "delay": 5}, "leading=1: True or False"),
        ({"idempotency": "a", "window": -1}, "negative"),
    ],
)
def test_options_that_cannot_be(shop: Shop, options: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        shop.index.using(**options)  # type: ignore[arg-type]


def test_many_over_a_time_have_no_first_at_once(shop: Shop) -> None:
    leading = shop.index.using(key="p", delay=5, on_duplicate="replace", leading=True)
    with pytest.raises(ValueError, match="over= gives each call a time of its own"):
        leading.enqueue_many([("one",), ("two",)], over="1h")
    assert shop.store.find(Query()) == []


def test_a_burst_fills_its_queue_no_further_than_its_bound(shop: Shop) -> None:
    shop.app.client.queues._declared["default"] = Bound(1)
    leading = shop.index.using(key="p", delay=5, on_duplicate="replace", leading=True)
    leading.enqueue("one")
    with pytest.raises(QueueFull) as caught:
        leading.enqueue("two")
    shop.app.client.queues._declared["default"] = Bound(3)
    shop.app.client.queues.read_again()
    assert caught.value.send_again().is_new
    assert [job.body for job in shop.store.find(Query(states=(State.SCHEDULED,)))] == [b'["two"]']


def test_a_client_without_the_task_keeps_keys_too(shop: Shop) -> None:
    client = Client(shop.store, {}, clock=shop.clock)
    job = client.make_job("elsewhere.task", b"[]", Options(key="k"))
    (first,) = client.insert_jobs([job])
    (again,) = client.insert_jobs([client.make_job("elsewhere.task", b"[]", Options(key="k"))])
    assert (again.id, again.is_new) == (first.id, False)

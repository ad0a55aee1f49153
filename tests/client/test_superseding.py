"""`running="cancel"`: a newer enqueue of a key cancels the job that runs."""

from collections.abc import Iterator
from typing import Any

import pytest

from tarry import JobCancelled, State
from tarry.errors import StoreUnavailable
from tarry.model import lifecycle
from tarry.model.attempts import acts_of, attempts_of
from tarry.model.change import Change
from tarry.model.duration import SECOND
from tarry.model.job import HELD, Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Raised, Released, Returned
from tarry.model.retry import Retry
from tarry.store.rules import kept_places
from tarry.store.rules.base import Query
from tarry.tasks.arguments.options import Options
from tarry.tasks.progress import kept_steps
from tests.client.test_unique import Shop


@pytest.fixture
def shop() -> Iterator[Shop]:
    made = Shop()
    yield made
    made.app.close()


def newest(shop: Shop, **options: Any) -> Any:
    return shop.index.using(key="p", running="cancel", **options)


def end(shop: Shop, job: Job, outcome: Any, rules: lifecycle.Rules = DEFAULT) -> bool:
    now = shop.clock.now()
    return shop.store.apply([lifecycle.after(job, outcome, rules, now)], now)[0]


def test_a_newer_job_cancels_the_one_that_runs(shop: Shop) -> None:
    first = newest(shop).enqueue("one")
    ran = shop.take()
    second = newest(shop).enqueue("two")
    assert (second.is_new, second.state, second.record().body) == (True, State.READY, b'["two"]')
    assert first.state is State.CANCELLED
    with pytest.raises(JobCancelled, match=rf"job {second.id} has taken its key"):
        first.result(0)
    record = first.record()
    assert [(act.act, act.via) for act in acts_of(record)] == [("cancelled", "program")]
    assert [one.outcome for one in attempts_of(record).attempts] == ["cancelled"]
    assert not end(shop, ran, Returned()), "what it returns is nobody's"
    assert (first.state, second.state) == (State.CANCELLED, State.READY)
    assert shop.index.using(key="p").enqueue("three").id == second.id, "the key is held as ever"


def test_it_waits_for_its_time_as_any(shop: Shop) -> None:
    first = newest(shop).enqueue("one")
    shop.take()
    second = newest(shop, delay=60, queue="slow", priority=7, unique_for="1h").enqueue("two")
    record = second.record()
    assert (first.state, record.state, record.due) == (State.CANCELLED, State.SCHEDULED, shop.clock.now() + 60 * SECOND)
    assert (record.queue, record.priority, record.key_ttl) == ("slow", 7, 3600 * SECOND)


def test_one_that_waits_is_replaced(shop: Shop) -> None:
    first = newest(shop, delay=30).enqueue("one")
    again = newest(shop, delay=60).enqueue("two")
    assert (again.id, again.is_new) == (first.id, False)
    assert (first.record().body, first.record().due) == (b'["two"]', shop.clock.now() + 60 * SECOND)


def test_a_debounce_has_its_bound(shop: Shop) -> None:
    put_off = newest(shop, delay=10, max_delay="25s")
    newest(shop).enqueue("zero")
    shop.take()
    first, began = put_off.enqueue("one"), shop.clock.now()
    dues = []
    for number in range(4):
        shop.clock.advance(6)
        assert put_off.enqueue(str(number)).id == first.id
        dues.append((first.record().due - began) // SECOND)
    assert dues == [16, 22, 25, 25], "from the first that waits, not from the one that was cancelled"


def test_one_that_waits_for_its_next_attempt_is_replaced(shop: Shop) -> None:
    first = newest(shop).enqueue("one")
    rules = lifecycle.Rules(retry=Retry(3, base=60))
    assert end(shop, shop.take(), Raised(b'"no"', ("ValueError",)), rules)
    assert first.state is State.SCHEDULED
    assert newest(shop).enqueue("two").id == first.id
    assert (first.record().body, first.record().failures, first.state) == (b'["two"]', 1, State.READY)


@pytest.mark.parametrize("how", [{"running": "cancel"}, {"on_duplicate": "replace", "unique_for": "unfinished"}])
def test_a_call_that_has_steps_is_not_replaced(shop: Shop, how: dict[str, Any]) -> None:
    """Another call would skip them, and take their values."""
    steps = b'[null,"",1,0,"",[["charge","7"]]]'
    enqueue = shop.index.using(key="p", **how).enqueue
    first = enqueue("one")
    ran = shop.take()
    assert shop.store.save_progress("ann", [(ran.id, ran.epoch, steps)]) == [True]
    assert kept_steps(first.record().progress)
    assert end(shop, ran, Released(has_started=True))
    second = enqueue("two")
    assert (second.is_new, first.state, second.record().progress) == (True, State.CANCELLED, b"")
    assert (second.record().headers, shop.store.kv_list(kept_places.PREFIX)) == (b"", {})
    assert enqueue("three").id == second.id, "this one has none"


@pytest.mark.parametrize(("outcome", "is_new"), [(Returned(), True), (Released(), False)])
def test_one_that_ends_by_itself_at_this_moment(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, outcome: Any, is_new: bool
) -> None:
    """The newer job is a new one; one that came back is replaced."""
    first = newest(shop).enqueue("one")
    ran, supersede = shop.take(), shop.store.supersede

    def ends_before(change: Change, job: Job, now: int) -> bool:
        end(shop, ran, outcome)
        return supersede(change, job, now)

    monkeypatch.setattr(shop.store, "supersede", ends_before)
    second = newest(shop).enqueue("two")
    assert (second.is_new, second.id != first.id) == (is_new, is_new)
    assert (second.record().body, second.record().headers) == (b'["two"]', b"")
    assert first.state is (State.DONE if is_new else State.READY)
    assert shop.store.kv_list(kept_places.PREFIX) == {}


def test_of_many_newer_ones_the_last_is_left(shop: Shop) -> None:
    handles = []
    for number in range(4):
        handles.append(newest(shop).enqueue(str(number)))
        shop.take()
    assert [handle.state for handle in handles] == [*[State.CANCELLED] * 3, State.RUNNING]
    assert len(shop.store.kv_list(kept_places.PREFIX)) == 3


def test_a_finished_one_keeps_its_key_for_its_time(shop: Shop) -> None:
    first = newest(shop, unique_for="1h").enqueue("one")
    shop.finish()
    again = newest(shop).enqueue("two")
    assert (again.id, again.is_new, first.state) == (first.id, False, State.DONE)
    shop.clock.advance(3601)
    assert newest(shop).enqueue("three").is_new


def test_a_cancelled_one_keeps_it_no_moment(shop: Shop) -> None:
    first = newest(shop, unique_for="1h").enqueue("one")
    shop.take()
    second = newest(shop).enqueue("two")
    assert (first.record().key_held_until, second.record().key_held_until) == (0, HELD)


def test_one_that_has_let_its_key_go_runs_on(shop: Shop) -> None:
    first = shop.index.using(key="p", on_duplicate="replace").enqueue("one")
    shop.take()
    assert newest(shop).enqueue("two").is_new
    assert first.state is State.RUNNING


def test_a_flow_is_left_alone(shop: Shop) -> None:
    with shop.app.flow("nightly", key="p") as flow:
        flow.add(shop.index.call("one"))
    shop.take()
    (root,) = shop.store.find(Query(key="p"))
    client, options = shop.app.client, Options(key="p", running="cancel")
    (handle,) = client.insert_jobs([client.make_job(root.task, b"[]", options)], options)
    assert (handle.id, handle.is_new, handle.state.finished) == (flow.handle.id, False, False)


def test_a_call_of_many_cancels_once(shop: Shop) -> None:
    first = newest(shop).enqueue("zero")
    shop.take()
    handles = newest(shop).enqueue_many([("one",), ("two",)])
    assert [handle.is_new for handle in handles] == [True, False]
    assert handles[0].id == handles[1].id != first.id
    assert handles[0].record().body == b'["two"]'


def test_a_lost_answer_is_asked_for_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    first = newest(shop).enqueue("one")
    shop.take()
    supersede = shop.store.supersede

    def lost(change: Change, job: Job, now: int) -> bool:
        supersede(change, job, now)
        raise StoreUnavailable("the answer is lost")

    with monkeypatch.context() as patch:
        patch.setattr(shop.store, "supersede", lost)
        with pytest.raises(StoreUnavailable) as caught:
            newest(shop).enqueue("two")
    second = caught.value.send_again()
    assert (second.is_new, second.id) == (True, caught.value.job_ids[0])
    assert (first.state, second.state) == (State.CANCELLED, State.READY)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"running": "cancel"}, "give key= too"),
        ({"idempotency": "a", "running": "cancel"}, "give key= too"),
        ({"key": "a", "running": "stop"}, r"running='stop': \"return\" or \"cancel\""),
        ({"key": "a", "running": "cancel", "on_duplicate": "postpone"}, "keeps the first"),
        ({"key": "a", "running": "cancel", "unique_for": "waiting"}, "no running job holds the key"),
        ({"key": "a", "running": "cancel", "delay": 6, "max_delay": 5}, "max_delay=5 is less than delay=6"),
    ],
)
def test_options_that_cannot_be(shop: Shop, options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        shop.index.using(**options)

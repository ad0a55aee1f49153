"""`max_waiting` of keys of a task, as producers meet it, on each kind of store."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from tarry import App, QueueFull, TenantFull
from tarry.client.tasks.task import Task
from tarry.store.rules.base import Query
from tests.worker.bench import until


@pytest.fixture
def bill(app: App) -> "Task[Any, int]":
    @app.task(name="bill", limit_by=lambda account: account, max_waiting=3)
    def bill(account: str, n: int) -> int:
        return n

    return bill


def waiting(app: App) -> Counter[str | None]:
    """How many jobs of each key wait."""
    return Counter(job.lane for job in app.client.store.find(Query(limit=10_000)))


def test_each_key_takes_no_more_than_its_task_says(app: App, bill: "Task[Any, int]") -> None:
    for n in range(3):
        assert bill.enqueue("whale", n).is_new
    with pytest.raises(TenantFull, match=r"each:bill=whale is full: 3 of its jobs .* max_waiting is 3") as caught:
        bill.enqueue("whale", 3)
    error = caught.value
    assert (error.task, error.tenant, error.most, error.queue) == ("bill", "whale", 3, "default")
    assert (error.stored, error.retry_after >= 1, isinstance(error, QueueFull)) == (False, True, True)
    assert bill.enqueue("minnow", 0).is_new
    assert waiting(app) == {"whale": 3, "minnow": 1}
    app.drain()
    # The very same job, once there is room.
    until(lambda: _is_sent_again(error))
    app.drain()
    assert error.job.result(5) == 3


def _is_sent_again(error: QueueFull) -> bool:
    try:
        return error.send_again().is_new is True
    except QueueFull:
        return False


def test_a_key_has_a_number_of_its_own_until_it_is_reset(app: App, bill: "Task[Any, int]") -> None:
    whale = bill.tenant("whale")
    whale.set(max_waiting=5)
    facts = whale.facts()
    assert (facts.max_waiting, facts.has_own, facts.limit, facts.is_paused) == (5, True, None, False)
    for account in ("whale", "minnow"):
        with pytest.raises(TenantFull):
            bill.enqueue_many((account, n) for n in range(9))
    assert waiting(app) == {"whale": 5, "minnow": 3}
    whale.reset()
    assert not whale.facts().has_own
    with pytest.raises(TenantFull, match="max_waiting is 3"):
        bill.enqueue("whale", 9)
    bill.tenant("minnow").set(max_waiting=0)
    with pytest.raises(TenantFull, match="each:bill=minnow takes no new jobs: its max_waiting is 0"):
        bill.enqueue("minnow", 9)


def test_many_are_stored_as_far_as_each_key_has_room(app: App, bill: "Task[Any, int]") -> None:
    calls = [(account, n) for n in range(6) for account in ("ann", "bob", "cid")]
    with pytest.raises(TenantFull) as caught:
        bill.enqueue_many(calls)
    assert caught.value.stored is None
    assert waiting(app) == {"ann": 3, "bob": 3, "cid": 3}
    for account in ("ann", "bob", "cid"):
        bill.tenant(account).set(max_waiting=6)
    assert len(caught.value.send_again()) == 18
    assert waiting(app) == {"ann": 6, "bob": 6, "cid": 6}


def test_coroutines_are_refused_one_by_one(app: App, bill: "Task[Any, int]") -> None:
    async def enqueue() -> list[object]:
        await bill.tenant("ann").aset(max_waiting=7)
        calls = (bill.aenqueue(account, n) for n in range(20) for account in ("ann", "bob"))
        return await asyncio.gather(*calls, return_exceptions=True)

    answers = asyncio.run(enqueue())
    assert waiting(app) == {"ann": 7, "bob": 3}
    refused = Counter(error.tenant for error in answers if isinstance(error, TenantFull))
    assert refused == {"ann": 13, "bob": 17}

"""What the history has of deliveries: the HTTP status of each attempt that was answered."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from tarry import State
from tarry.model.history.counting import KINDS
from tarry.store.rules.history.sums import DAYS, Sums, decode
from tarry.tasks.running import CurrentJob
from tests.push.fixture import DeliveryFixture
from tests.push.server import answer, end_before_answer
from tests.server.http.calling import api
from tests.worker.bench import finished


def summed(delivery: DeliveryFixture) -> Sums:
    """All that was counted, after it was summed up."""
    history, now = delivery.app.client.store.history, delivery.app.client.clock.now()
    while history.sum_up(now):
        pass
    total = Sums()
    for cell in history.read(DAYS, 0, 2**40).values():
        total.add(decode(cell))
    return total


def test_each_answer_counts_by_its_status(any_delivery: DeliveryFixture) -> None:
    """Of an attempt after which the job comes again, of the last one, and of a delivery."""
    any_delivery.configure(bad={"url": "/bad", "schedule": [0.001]}, good={"url": "/good"}, gone={"url": "/no"})
    any_delivery.server.says("/bad", answer(500))
    any_delivery.server.says("/no", answer(404))
    jobs = [any_delivery.app.enqueue(name, {}) for name in ("bad", "good", "good", "gone")]
    any_delivery.deliver()
    assert [finished(job) for job in jobs] == [State.DEAD, State.DONE, State.DONE, State.DEAD]
    sums = summed(any_delivery)
    assert sums.statuses == {500: 2, 200: 2, 404: 1}
    assert {KINDS[kind]: number for kind, number in sums.kinds.items()} == {"put": 4, "failed": 1, "dead": 2, "done": 2}


def test_middleware_does_not_hide_the_status(delivery: DeliveryFixture) -> None:
    """The outcome is then that of the middleware."""

    @delivery.app.middleware("run")
    async def around(job: CurrentJob, call_next: Callable[[CurrentJob], Awaitable[Any]]) -> Any:
        return await call_next(job)

    delivery.configure(hook={"url": "/"})
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    assert finished(job) is State.DONE
    assert summed(delivery).statuses == {200: 1}


def test_an_attempt_without_an_answer_has_no_status(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"url": "/", "schedule": [0.001]})
    delivery.server.says("/", end_before_answer)
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    assert finished(job) is State.DEAD
    assert summed(delivery).statuses == {}


def test_the_api_shows_statuses(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"url": "/", "schedule": [0.001]})
    delivery.server.says("/", answer(503))
    job = delivery.app.enqueue("hook", {})
    delivery.deliver()
    assert finished(job) is State.DEAD
    summed(delivery)

    async def ask() -> object:
        async with api(delivery.app) as client:
            return (await client.get("/v1/history?resolution=minute&task=hook")).json()["total"]["statuses"]

    assert asyncio.run(ask()) == {"503": 2}

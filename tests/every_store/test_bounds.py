"""Queues with a bound, as producers meet them, on each kind of store."""

import asyncio
import itertools
import logging
from collections.abc import Callable

import pytest

from tarry import App, QueueFull
from tarry.client.bounds import bounds_in_use, declare_bounds
from tarry.client.tasks.task import SyncTask
from tarry.model.bound import Bound
from tarry.store.rules.base import Query
from tarry.store.shards.sharded import ShardedStore
from tests.worker.bench import until


def shards(app: App) -> int:
    store = app.client.store
    return len(store.shards) if isinstance(store, ShardedStore) else 1


@pytest.fixture
def bound(app: App) -> Callable[..., None]:
    """Sets the bound of the queue `mail`, that of each shard; the app has seen it then."""

    def bound(most: int, when_full: str = "refuse") -> None:
        wanted = Bound(most * shards(app), when_full)  # type: ignore[arg-type]
        declare_bounds(app.client.store, {"mail": wanted})
        app.client.queues._read_at = 0.0
        assert app.client.queues.bounds()["mail"] == wanted

    return bound


def waiting(app: App) -> list[bytes]:
    return [job.body for job in app.client.store.find(Query(queue="mail", limit=10_000))]


def test_a_full_queue_refuses(app: App, bound: Callable[..., None]) -> None:
    @app.task(queue="mail", name="send")
    def send(number: int) -> int:
        return number

    @app.task(name="other")
    def other() -> None: ...

    bound(3)
    with pytest.raises(QueueFull, match="queue mail is full") as caught:
        _enqueue_on(send)
    error, accepted = caught.value, len(waiting(app))
    assert (error.queue, error.stored) == ("mail", False)
    assert error.retry_after >= 1
    assert 3 <= accepted <= 3 * shards(app)
    assert other.enqueue().is_new
    app.drain()
    # What is told again is the very same job, and there is room by now.
    until(lambda: _sent_again(error))
    app.drain()
    assert error.job.result(5) == accepted


def _enqueue_on(task: SyncTask[[int], int]) -> None:
    for number in itertools.count():
        task.enqueue(number)


def _sent_again(error: QueueFull) -> bool:
    try:
        return error.send_again().is_new is True
    except QueueFull:
        return False


def test_many_at_once_are_stored_as_far_as_there_is_room(app: App, bound: Callable[..., None]) -> None:
    @app.task(queue="mail", name="send")
    def send(number: int) -> int:
        return number

    bound(40)
    with pytest.raises(QueueFull) as caught:
        send.enqueue_many([(number,) for number in range(200)])
    # Some of them are stored.
    assert caught.value.stored is None
    assert len(waiting(app)) == 40 * shards(app)
    bound(400)
    handles = caught.value.send_again()
    assert len(handles) == 200
    # Those that were stored at first are so once.
    assert len(waiting(app)) == 200


def test_coroutines_are_refused_one_by_one(app: App, bound: Callable[..., None]) -> None:
    @app.task(queue="mail", name="send")
    async def send(number: int) -> int:
        return number

    bound(5)

    async def enqueue() -> list[object]:
        return await asyncio.gather(*(send.aenqueue(number) for number in range(60)), return_exceptions=True)

    answers = asyncio.run(enqueue())
    refused = [answer for answer in answers if isinstance(answer, QueueFull)]
    assert len(refused) == 60 - len(waiting(app))
    assert len(waiting(app)) == 5 * shards(app)


def test_the_oldest_make_room(app: App, bound: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    @app.task(queue="mail", name="send")
    def send(number: int) -> int:
        return number

    bound(4, "drop_oldest")
    with caplog.at_level(logging.WARNING, "tarry.client"):
        handles = [send.enqueue(number) for number in range(10 * shards(app))]
    assert all(handle.is_new for handle in handles)
    left = waiting(app)
    if shards(app) == 1:
        assert left == [b"[6]", b"[7]", b"[8]", b"[9]"]
    assert len(left) <= 4 * shards(app)
    use = bounds_in_use(app.client.store)
    assert use.dropped == {"mail": 10 * shards(app) - len(left)}
    assert "queue mail is full: dropped the oldest" in caplog.text
    # A batch that is larger than the bound leaves its end.
    send.enqueue_many([(number,) for number in range(100, 130)])
    left = waiting(app)
    assert len(left) <= 4 * shards(app)
    assert set(left) <= {b"[%d]" % number for number in range(100, 130)}


def test_0_lifts_a_bound(app: App, bound: Callable[..., None]) -> None:
    @app.task(queue="mail", name="send")
    def send(number: int) -> int:
        return number

    bound(1)
    with pytest.raises(QueueFull):
        send.enqueue_many([(number,) for number in range(20)])
    bound(0)
    assert len(send.enqueue_many([(number,) for number in range(20)])) == 20
    assert bounds_in_use(app.client.store).bounds == {}

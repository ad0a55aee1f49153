"""A job's way, seen from outside as it goes."""

import asyncio
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tarry import App, JobNotFound, ResultTimeout, Retry, Snooze, StoreUnavailable, current_job
from tarry.client import follow as following
from tarry.client.follow import Event
from tarry.client.waiting import FOLLOW_INTERVAL
from tarry.model.duration import SECOND
from tarry.model.lifecycle import Rules
from tarry.store.memory.store import MemoryStore
from tarry.tasks.progress import Progress
from tests.client.test_waiting import in_thread, waiting_threads
from tests.worker.bench import LIMIT, Bench, until, wait_for


def with_for(job: Any) -> list[Event]:
    return list(job.follow(LIMIT))


def with_async_for(job: Any) -> list[Event]:
    async def all_of(events: Any) -> list[Event]:
        return [event async for event in events]

    return asyncio.run(all_of(job.follow(LIMIT)))


def with_afollow(job: Any) -> list[Event]:
    async def all_of() -> list[Event]:
        return [event async for event in job.afollow(LIMIT)]

    return asyncio.run(all_of())


ways = pytest.mark.parametrize("way", [with_for, with_async_for, with_afollow])
Way = Callable[[Any], list[Event]]


class Steps:
    """A task that goes on when it is told."""

    def __init__(self, bench: Bench) -> None:
        self.turns = threading.Semaphore(0)

        @bench.app.task(name="steps")
        def steps(count: int) -> str:
            for step in range(count):
                current_job().progress((step + 1) / count, f"step {step + 1}")
                assert self.turns.acquire(timeout=LIMIT)
            return "all"

        self.task = steps


@ways
def test_a_finished_job_gives_one_event(any_bench: Bench, way: Way) -> None:
    @any_bench.app.task
    def add(a: int) -> int:
        return a + 1

    any_bench.work()
    job = add.enqueue(1)
    job.result(LIMIT)
    assert way(job) == [Event("done", 1, None, job.record().state_since / SECOND, "")]  # type: ignore[arg-type]
    until(lambda: waiting_threads() == 0)


def test_each_step_is_seen_as_it_happens(any_bench: Bench) -> None:
    steps = Steps(any_bench)
    job = steps.task.enqueue(3)
    seen: list[Event] = []
    came = in_thread(lambda: seen.extend(job.follow(LIMIT)))
    until(lambda: seen)
    assert [(event.state, event.progress) for event in seen] == [("ready", None)]
    any_bench.work()
    for step in (1, 2, 3):
        until(lambda step=step: seen[-1].progress == Progress(step / 3, f"step {step}"))  # type: ignore[misc]
        assert seen[-1].state == "running"
        steps.turns.release()
    until(lambda: came)
    assert (seen[-1].state, seen[-1].progress) == ("done", Progress(1.0, "step 3"))
    assert all(earlier != later for earlier, later in pairwise(seen))
    assert [event.at for event in seen] == sorted(event.at for event in seen)


def test_each_step_is_seen_in_a_coroutine(any_bench: Bench) -> None:
    steps = Steps(any_bench)
    any_bench.work()

    async def follow() -> list[Event]:
        job = await steps.task.aenqueue(3)
        seen = []
        async for event in job.follow(LIMIT):
            seen.append(event)
            if event.progress and event.state == "running":
                steps.turns.release()
        return seen

    seen = asyncio.run(follow())
    assert [e.progress.message for e in seen if e.progress and e.state == "running"] == ["step 1", "step 2", "step 3"]
    assert seen[-1].state == "done"
    until(lambda: waiting_threads() == 0)


@ways
def test_failures_are_told_with_their_message_and_the_end_is_never_missed(bench: Bench, way: Way) -> None:
    @bench.app.task(retry=Retry(2, base=0.3, jitter=0))
    def fails() -> None:
        raise ValueError(f"no {current_job().attempt}")

    bench.work()
    seen = way(fails.enqueue())
    waits = [(event.attempt, event.message) for event in seen if event.state == "scheduled"]
    assert waits == [(2, "ValueError: no 1"), (3, "ValueError: no 2")]
    assert (seen[-1].state, seen[-1].attempt, seen[-1].message) == ("dead", 3, "ValueError: no 3")


def test_a_cancelled_job_says_why(bench: Bench) -> None:
    @bench.app.task
    def pay() -> None: ...

    job = pay.enqueue()
    job.cancel("not wanted")
    (event,) = with_for(job)
    assert (event.state, event.message) == ("cancelled", "not wanted")


def test_a_snoozed_job_has_no_message_and_one_that_runs_anew_none_of_its_result(bench: Bench) -> None:
    runs: list[int] = []

    @bench.app.task
    def naps() -> dict[str, str] | int:
        runs.append(1)
        if len(runs) == 1:
            raise Snooze(0.3)
        return 7 if len(runs) == 2 else {"a": "b"}

    worker = bench.work()
    job = naps.enqueue()
    assert {event.message for event in with_for(job)} == {""}
    worker.end()
    job.retry()
    assert following.make_event(job.record()).message == ""


def test_who_follows_for_too_long_is_told_so(app: App) -> None:
    @app.task
    def never() -> None: ...

    job = never.enqueue()
    expected = rf"job {job.id} has not finished after 0.5 s"
    seen: list[str] = []
    with pytest.raises(ResultTimeout, match=expected):
        seen.extend(event.state for event in job.follow(0.5))
    assert seen == ["ready"]

    async def follow() -> None:
        seen.extend([event.state async for event in job.afollow(0.5)])

    with pytest.raises(ResultTimeout, match=expected):
        asyncio.run(follow())
    until(lambda: waiting_threads() == 0)


@ways
def test_a_job_that_is_forgotten_is_not_found(way: Way) -> None:
    app = App(MemoryStore(), closures=True)
    app.rules = lambda task, queue: Rules(keep_done=0)  # type: ignore[method-assign]

    @app.task
    def pay() -> None: ...

    job = pay.enqueue()
    came = in_thread(lambda: way(job))
    until(lambda: waiting_threads() == 1)
    assert job.cancel()
    until(lambda: came)
    assert isinstance(came[0], JobNotFound)
    with pytest.raises(JobNotFound, match=f"no job {job.id}: it never existed, or its time of keeping is over"):
        way(job)


def test_who_stops_following_leaves_nothing_behind(app: App) -> None:
    @app.task
    def never() -> None: ...

    job = never.enqueue()
    for _ in job.follow():
        break
    until(lambda: waiting_threads() == 0)

    async def follow() -> None:
        events = job.afollow()
        await anext(events)
        assert waiting_threads() == 1
        await events.aclose()  # type: ignore[attr-defined]

    asyncio.run(follow())
    until(lambda: waiting_threads() == 0)


def test_the_same_follow_can_be_begun_twice(app: App) -> None:
    @app.task
    def never() -> None: ...

    job = never.enqueue()
    follow = job.follow(LIMIT)
    assert next(iter(follow)).state == "ready"
    job.cancel()
    assert [event.state for event in follow] == ["cancelled"]


def test_fifty_follow_and_fifty_wait_with_one_thread(any_bench: Bench) -> None:
    gate = any_bench.gate()

    @any_bench.app.task
    async def double(a: int) -> int:
        await asyncio.to_thread(wait_for, gate)
        return 2 * a

    jobs = double.enqueue_many([(number,) for number in range(50)])
    came = [in_thread(lambda job=job: job.result(LIMIT)) for job in jobs]  # type: ignore[misc]
    followed = [in_thread(lambda job=job: with_for(job)) for job in jobs]  # type: ignore[misc]
    until(lambda: len(any_bench.app.client._waiting._waiters) == 50)
    assert waiting_threads() == 1
    any_bench.work()
    gate.set()
    until(lambda: all(came) and all(followed))
    assert came == [[2 * number] for number in range(50)]
    assert {events[0][-1].state for events in followed} == {"done"}  # type: ignore[index]
    until(lambda: waiting_threads() == 0)


class Counted(MemoryStore):
    looks = 0

    def get(self, ids: Any) -> Any:
        self.looks += 1
        return super().get(ids)


def test_however_often_it_rings_followers_look_every_50_ms_at_most() -> None:
    store = Counted()
    app = App(store, closures=True)

    @app.task
    def one() -> None: ...

    job = one.enqueue()
    other = one.enqueue()
    came = in_thread(lambda: with_for(job))
    until(lambda: store.looks)
    started, looks = time.monotonic(), store.looks
    while store.looks < looks + 6:
        store.save_progress("nobody", [(b"nobody", 1, b"")])
    took = time.monotonic() - started
    assert took >= 5 * FOLLOW_INTERVAL * 0.9, f"6 looks in {took:.3f} s"
    waits = in_thread(lambda: other.result(LIMIT))
    until(lambda: len(app.client._waiting._waiters) == 2)
    other.cancel()
    until(lambda: waits)
    job.cancel()
    until(lambda: came)


def test_following_outlasts_a_store_that_is_away(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def never() -> None: ...

    job = never.enqueue()
    store = app.client.store
    get, calls = store.get, [0]

    def flaky(ids: list[bytes]) -> object:
        calls[0] += 1
        if calls[0] < 3:
            raise StoreUnavailable("away")
        return get(ids)

    monkeypatch.setattr(store, "get", flaky)
    seen: list[Event] = []
    came = in_thread(lambda: seen.extend(job.follow(LIMIT)))
    until(lambda: seen)
    job.cancel()
    until(lambda: came)
    assert [event.state for event in seen] == ["ready", "cancelled"]

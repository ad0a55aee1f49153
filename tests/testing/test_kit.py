"""What the fixture `jobs` gives to tests, tried in tests that use it."""

import asyncio
import gc
import sqlite3
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest

from tarry import (
    App,
    Cancel,
    Cron,
    Fail,
    JobFailed,
    ResultTimeout,
    Retry,
    Snooze,
    State,
    current_job,
)
from tarry.config.config import Config, Pool
from tarry.testing import Jobs
from tarry.testing.kit import open_kit
from tests.worker.bench import LIMIT

app = App("sqlite:////nowhere/at/all.db")
sent: list[tuple[str, str]] = []


@app.task(name="shop.send", queue="mail", retry=Retry(2, base=60, jitter=0))
def send(email: str, name: str = "") -> str:
    sent.append((email, name))
    if "@" not in email:
        raise ValueError(f"{email} is no address")
    return name.upper()


@app.task(name="shop.shout")
async def shout(text: str) -> str:
    await asyncio.sleep(0)
    return text.upper()


def signup(email: str) -> None:
    send.using(delay=60).enqueue(email, name="Ann")


@pytest.fixture(autouse=True)
def _nothing_sent_and_no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent.clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TARRY_STORE", raising=False)


def said(call: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        call()
    return str(caught.value)


# What was enqueued


def test_what_the_contract_shows(jobs: Jobs) -> None:
    signup("a@b.c")
    jobs.assert_enqueued(send, "a@b.c", name="Ann", delay=60)
    assert jobs.drain() == 0
    jobs.advance(61)
    assert jobs.drain() == 1
    send.enqueue("d@e.f")
    jobs.kill_worker_during(send)
    assert jobs.drain() == 2
    assert sent == [("a@b.c", "Ann"), ("d@e.f", ""), ("d@e.f", "")]


def test_a_call_is_the_same_however_it_is_written(jobs: Jobs) -> None:
    send.enqueue("a@b.c", name="Ann")
    calls: list[tuple[Any, Any]] = [
        (("a@b.c", "Ann"), {}),
        (("a@b.c",), {"name": "Ann"}),
        ((), {"email": "a@b.c", "name": ANY}),
    ]
    for args, kwargs in calls:
        jobs.assert_enqueued(send, *args, **kwargs)
    jobs.assert_enqueued(send)
    jobs.assert_enqueued("shop.send", "a@b.c", "Ann")
    jobs.assert_not_enqueued(send, "a@b.c")
    jobs.assert_not_enqueued(shout)
    send.enqueue("a@b.c")
    jobs.assert_enqueued(send, "a@b.c", name="")


def test_arguments_are_compared_as_they_travel(jobs: Jobs) -> None:
    @jobs.app.task
    def keep(what: Any, when: datetime) -> None: ...

    now = datetime.now(UTC)
    keep.enqueue((1, 2), now)
    jobs.assert_enqueued(keep, (1, 2), now)
    jobs.assert_enqueued(keep, [1, 2], ANY)
    with pytest.raises(TypeError, match=r"keep cannot be called so: missing a required argument: 'when'"):
        jobs.assert_enqueued(keep, (1, 2))


def test_a_name_that_no_app_knows(jobs: Jobs) -> None:
    jobs.app.client.insert_jobs([jobs.app.client.make_job("elsewhere.pay", b'[1,"x"]')])
    jobs.assert_enqueued("elsewhere.pay", 1, "x")
    jobs.assert_not_enqueued("elsewhere.pay", 2, "x")
    assert repr(jobs.enqueued()) == "[elsewhere.pay(1, 'x')]"


def test_settings_are_compared_where_they_are_given(jobs: Jobs) -> None:
    at = jobs.now + timedelta(hours=1)
    send.using(at=at, key="ann", priority=5, queue="slow").enqueue("a@b.c")
    good: dict[str, Any] = {"at": at, "key": "ann", "priority": 5, "queue": "slow", "delay": timedelta(hours=1)}
    for part in (good, *({name: value} for name, value in good.items()), {"delay": "1h"}, {"at": at.timestamp()}):
        jobs.assert_enqueued(send, "a@b.c", **part)
    wrongs: dict[str, Any] = {"at": jobs.now, "key": "bob", "priority": 0, "queue": "mail", "delay": 0}
    for name, wrong in wrongs.items():
        jobs.assert_not_enqueued(send, "a@b.c", **{name: wrong})


def test_counts(jobs: Jobs) -> None:
    send.enqueue_many([("a@b.c",), ("a@b.c",), ("d@e.f",)])
    jobs.assert_enqueued(send, count=3)
    jobs.assert_enqueued(send, "a@b.c", count=2)
    jobs.assert_enqueued(shout, count=0)
    told = said(lambda: jobs.assert_enqueued(send, "a@b.c", count=1))
    assert told.startswith("shop.send('a@b.c') was not enqueued once, but twice.\nEnqueued instead:\n")
    assert said(lambda: jobs.assert_enqueued(shout, count=4)).startswith("shop.shout was not enqueued 4 times.\n")


def test_a_failure_tells_what_was_enqueued_instead(jobs: Jobs) -> None:
    assert said(lambda: jobs.assert_enqueued(send)) == "shop.send was not enqueued.\nNothing was enqueued."
    signup("a@b.c")
    shout.using(key="k", priority=-3).enqueue("hi")
    jobs.drain()
    listed = """
  shop.send(email='a@b.c', name='Ann') with delay='1m', queue='mail', scheduled
  shop.shout('hi') with priority=-3, key='k', done"""
    told = said(lambda: jobs.assert_enqueued(send, "d@e.f", delay=5))
    assert told == f"shop.send('d@e.f') with delay=5 was not enqueued.\nEnqueued instead:{listed}"
    told = said(lambda: jobs.assert_not_enqueued(send, key=None))
    assert told == f"shop.send was enqueued.\nEnqueued in all:{listed}"
    shout.enqueue_many([("x",)] * 30)
    assert said(lambda: jobs.assert_not_enqueued(send)).endswith("\n  and 12 more")


def test_the_list_has_all_in_their_order_also_what_has_run(jobs: Jobs) -> None:
    signup("a@b.c")
    job = shout.enqueue("hi")
    jobs.advance(100)
    jobs.drain()
    signup("d@e.f")
    assert [(each.task, tuple(each.args), each.delay) for each in jobs.enqueued()] == [
        ("shop.send", (), 60),
        ("shop.shout", ("hi",), 0),
        ("shop.send", (), 60),
    ]
    (only,) = jobs.enqueued(shout)
    assert (only.job, only.job.state, only.queue, only.priority, only.key) == (job, "done", "default", 0, None)
    assert jobs.enqueued(send)[1].kwargs == {"email": "d@e.f", "name": "Ann"}
    assert jobs.enqueued(send)[1].at == jobs.now + timedelta(seconds=60)


def test_of_a_call_that_replaced_another_the_newer_counts(jobs: Jobs) -> None:
    debounced = send.using(key="ann", on_duplicate="replace", delay=5)
    debounced.enqueue("a@b.c")
    jobs.advance(2)
    debounced.enqueue("d@e.f")
    jobs.assert_enqueued(send, "d@e.f", delay=5, count=1)
    jobs.assert_not_enqueued(send, "a@b.c")
    jobs.advance(5)
    jobs.drain()
    assert sent == [("d@e.f", "")]


def test_enqueues_in_transactions(jobs: Jobs) -> None:
    """A connection that does not tell of its commit counts as committed."""
    connection = sqlite3.connect(":memory:")
    connection.execute("BEGIN")
    send.using(connection=connection).enqueue("a@b.c")
    connection.close()
    jobs.assert_enqueued(send, "a@b.c", count=1)


# Running it


def test_failures_are_retried_when_their_time_has_come(jobs: Jobs) -> None:
    job = send.enqueue("nobody")
    assert (jobs.drain(), job.state, job.record().attempt) == (1, "scheduled", 2)
    assert jobs.drain() == 0
    jobs.advance(59)
    assert jobs.drain() == 0
    jobs.advance(1)
    assert (jobs.drain(), job.record().attempt) == (1, 3)
    jobs.advance("1d")
    assert (jobs.drain(), job.state) == (1, "dead")
    with pytest.raises(JobFailed, match="ValueError: nobody is no address"):
        job.result()


def test_errors_are_raised_where_asked_once_they_are_noted(jobs: Jobs) -> None:
    job, after = send.enqueue("nobody"), send.enqueue("a@b.c")
    with pytest.raises(ValueError, match="nobody is no address"):
        jobs.drain(raising=True)
    assert (job.state, after.state) == ("scheduled", "ready")
    assert jobs.drain(raising=True) == 1


@pytest.mark.parametrize("verdict", [Snooze(5), Cancel("gone"), Retry.after(3), None])
def test_a_verdict_is_no_error(jobs: Jobs, verdict: Any) -> None:
    @jobs.app.task(retry=3)
    def decide() -> None:
        if verdict:
            raise verdict

    decide.enqueue()
    assert jobs.drain(raising=True) == 1


def test_what_fails_without_an_error_of_the_task_is_raised_too(jobs: Jobs) -> None:
    @jobs.app.task
    def unkeepable() -> object:
        return object()

    @jobs.app.task
    def give_up() -> None:
        raise Fail("for good")

    unkeepable.enqueue()
    with pytest.raises(JobFailed, match=r"ResultError: .* returned object, which cannot be kept as JSON"):
        jobs.drain(raising=True)
    give_up.enqueue()
    with pytest.raises(Fail):
        jobs.drain(raising=True)


@pytest.mark.parametrize("error", [KeyboardInterrupt, pytest.fail.Exception])
def test_what_is_for_the_test_reaches_it(jobs: Jobs, error: type[BaseException]) -> None:
    @jobs.app.task(retry=None)
    def stop() -> None:
        raise error("now")

    @jobs.app.task(retry=None)
    async def astop() -> None:
        raise error("now")

    for task in (stop, astop):
        job = task.enqueue()
        with pytest.raises(error):
            jobs.drain()
        assert job.state == "dead"


def test_one_after_the_other_by_priority_and_what_they_enqueue(jobs: Jobs) -> None:
    order: list[str] = []

    @jobs.app.task
    def note(name: str) -> None:
        order.append(name)
        if name == "first":
            note.using(priority=9).enqueue("urgent")
            cancelled.cancel()

    note.using(priority=1).enqueue("last")
    cancelled = note.using(priority=1).enqueue("cancelled")
    note.using(priority=5).enqueue("first")
    assert jobs.drain() == 3
    assert order == ["first", "urgent", "last"]


def order_of_ten(jobs: Jobs) -> list[int]:
    """The first ten priorities that run where there are twenty jobs of each band."""
    order: list[int] = []

    @jobs.app.task
    def note(priority: int) -> None:
        order.append(priority)

    for priority in (-1, 0, 1):
        note.using(priority=priority).enqueue_many([(priority,)] * 20)
    assert jobs.drain() == 60
    return order[:10]


def test_bands_of_priority_share_the_starts_as_in_a_worker(jobs: Jobs) -> None:
    order = order_of_ten(jobs)
    assert [order.count(priority) for priority in (1, 0, -1)] == [5, 3, 2]
    assert order[0] == 1


def test_bands_of_priority_are_strict_where_the_settings_say_so(jobs: Jobs) -> None:
    jobs.app.configure(Config(pools={"default": Pool(shares="strict")}))
    assert order_of_ten(jobs) == [1] * 10


def test_coroutines_share_a_loop_that_nobody_else_has(jobs: Jobs) -> None:
    loops: list[Any] = []

    @jobs.app.task
    async def look() -> None:
        loops.append(asyncio.get_running_loop())

    look.enqueue_many([(), ()])
    assert jobs.drain() == 2
    assert loops[0] is loops[1]
    assert not loops[0].is_running()


def test_what_a_coroutine_leaves_behind_ends_with_the_test() -> None:
    left: list[Any] = []

    async def linger() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            left.append("cancelled")

    with open_kit() as jobs:

        @jobs.app.task
        async def start() -> None:
            left.append(asyncio.create_task(linger()))
            await asyncio.sleep(0)

        start.enqueue()
        jobs.drain()
    assert left[1:] == ["cancelled"]


def test_several_apps_are_drained_until_none_has_anything(jobs: Jobs) -> None:
    @jobs.app.task
    def ping(n: int) -> None:
        send.enqueue(f"{n}@b.c")

    other = App(closures=True)

    @other.task
    def pong() -> None:
        ping.enqueue(2)

    send.enqueue("0@b.c")
    ping.enqueue(1)
    pong.enqueue()
    assert jobs.drain() == 6
    assert sorted(sent) == [("0@b.c", ""), ("1@b.c", ""), ("2@b.c", "")]


def test_time_limits_do_not_pass_while_a_task_runs(jobs: Jobs) -> None:
    @jobs.app.task(timeout=0.001)
    def slow() -> float | None:
        end = time.monotonic() + 0.01
        while time.monotonic() < end:
            pass
        return current_job().deadline

    job = slow.enqueue()
    assert (jobs.drain(), job.state) == (1, "done")


def test_what_expires_is_not_run(jobs: Jobs) -> None:
    job = send.using(expires=60).enqueue("a@b.c")
    jobs.advance(61)
    assert (jobs.drain(), job.state, sent) == (0, "cancelled", [])


def test_limits_hold_back_what_is_over_them(jobs: Jobs) -> None:
    @jobs.app.task(rate="2/min")
    def call() -> None: ...

    call.enqueue_many([()] * 5)
    ran = [jobs.drain()]
    for _ in range(5):
        jobs.advance(60)
        ran.append(jobs.drain())
    assert sum(ran) == 5
    assert max(ran) <= 2


def test_a_batch_is_called_once_without_a_wait(jobs: Jobs) -> None:
    calls: list[list[int]] = []

    @jobs.app.task(batch=3, wait="1h")
    def insert(numbers: list[int]) -> None:
        calls.append(numbers)

    insert.enqueue_many([(n,) for n in range(5)])
    jobs.assert_enqueued(insert, 4)
    assert jobs.drain() == 5
    assert calls == [[0, 1, 2], [3, 4]]


def test_hooks_and_middleware_are_around_it(jobs: Jobs) -> None:
    seen: list[str] = []

    @jobs.app.task(retry=None)
    def fail() -> None:
        seen.append("task")
        raise ValueError("x")

    @fail.on_dead
    def told(job: Any, error: Any) -> None:
        seen.append(f"dead {error}")

    @jobs.app.middleware("run")
    def around(job: Any, call_next: Any) -> Any:
        seen.append("around")
        return call_next(job)

    fail.enqueue()
    jobs.drain()
    assert seen == ["around", "task", "dead x"]


def test_results_and_progress_and_follow(jobs: Jobs) -> None:
    @jobs.app.task
    def half() -> str:
        current_job().progress(0.5, "half")
        return current_job().id

    job = half.enqueue()
    with pytest.raises(ResultTimeout, match=rf"job {job.id} is ready, and nobody runs it: call jobs.drain\(\) first"):
        job.result()
    with pytest.raises(ResultTimeout, match=r"call jobs.drain\(\) first"):
        asyncio.run(job.aresult(timeout=5))
    with pytest.raises(ResultTimeout, match=r"call jobs.drain\(\) first"):
        next(iter(job.follow()))
    jobs.drain()
    assert job.result() == job.id == asyncio.run(job.aresult())
    assert job.progress is not None
    assert job.progress.message == "half"


def test_workers_beside_the_test_have_its_store_and_clock(jobs: Jobs) -> None:
    later = send.using(delay=60).enqueue("later@b.c")
    with app.running():
        assert send.enqueue("a@b.c", "Ann").result(LIMIT) == "ANN"
    assert later.state == "scheduled"
    jobs.advance(60)
    assert app.drain() == 1
    assert asyncio.run(app.adrain()) == 0
    other = send.using(queue="other").enqueue("b@b.c")
    send.enqueue("a@b.c")
    assert app.drain(queues="other") == 1
    assert other.state == "done"


# Deaths


def test_a_worker_dies_at_the_end_of_a_run_and_the_job_runs_again(jobs: Jobs) -> None:
    job = send.enqueue("a@b.c", "Ann")
    beside = send.enqueue("d@e.f")
    jobs.kill_worker_during(send)
    assert jobs.drain() == 3
    assert sent == [("a@b.c", "Ann"), ("a@b.c", "Ann"), ("d@e.f", "")]
    assert (job.state, job.record().crashes, job.record().failures, job.result()) == ("done", 1, 1, "ANN")
    assert (beside.record().crashes, beside.record().attempt) == (0, 1)


def test_or_at_its_start(jobs: Jobs) -> None:
    job = shout.enqueue("hi")
    jobs.kill_worker_during("shop.shout", at="start")
    assert jobs.drain() == 2
    assert (job.record().crashes, job.result()) == (1, "HI")
    with pytest.raises(ValueError, match='at=\'middle\': "start" or "end"'):
        jobs.kill_worker_during(send, at="middle")  # type: ignore[arg-type]


def test_three_deaths_are_poison(jobs: Jobs) -> None:
    job = send.enqueue("a@b.c")
    for _ in range(3):
        jobs.kill_worker_during(send)
    assert jobs.drain() == 2
    jobs.advance(5)
    assert jobs.drain() == 1
    with pytest.raises(JobFailed, match="Poison"):
        job.result()


def test_the_worker_of_a_batch_dies(jobs: Jobs) -> None:
    calls: list[list[int]] = []

    @jobs.app.task(batch=2)
    def insert(numbers: list[int]) -> None:
        calls.append(numbers)

    insert.enqueue_many([(0,), (1,)])
    jobs.kill_worker_during(insert)
    jobs.drain()
    assert calls == [[0, 1], [0], [1]]


# At once


def test_inline_runs_what_is_due_before_the_enqueue_returns(jobs: Jobs) -> None:
    with jobs.inline():
        assert send.enqueue("a@b.c", "Ann").result() == "ANN"
        assert [job.result() for job in send.enqueue_many([("a@b.c", "b"), ("a@b.c", "c")])] == ["B", "C"]
        assert send.using(delay=5).enqueue("a@b.c").state == "scheduled"
        assert send.enqueue("nobody").state == "scheduled"
    assert send.enqueue("a@b.c").state == "ready"


def test_inline_for_the_rest_of_the_test_and_within_itself(jobs: Jobs) -> None:
    @jobs.app.task
    def outer(email: str) -> str:
        return send.enqueue(email, "Ann").result()

    jobs.inline()
    assert outer.enqueue("a@b.c").result() == "ANN"
    with jobs.inline(raising=True), pytest.raises(ValueError, match="nobody is no address"):
        send.enqueue("nobody")
    assert send.enqueue("nobody").state == "scheduled"


def test_inline_is_a_call(jobs: Jobs) -> None:
    with pytest.raises(AttributeError, match="read-only"):
        jobs.inline = True  # type: ignore[method-assign, assignment]


def test_inline_awaited(jobs: Jobs) -> None:
    async def request() -> list[Any]:
        async with asyncio.timeout(LIMIT):
            loop = asyncio.get_running_loop()

            @jobs.app.task
            async def same_loop() -> bool:
                return asyncio.get_running_loop() is loop

            with jobs.inline():
                one = await same_loop.aenqueue()
                (other,) = await send.aenqueue_many([("a@b.c", "x")])
                return [await one.aresult(), await other.aresult()]

    assert asyncio.run(request()) == [True, "X"]


# Schedules


def test_schedules_tick_as_time_passes(jobs: Jobs) -> None:
    runs: list[datetime] = []

    @jobs.app.task(cron="0 * * * *")
    def hourly() -> None:
        runs.append(jobs.now)

    jobs.advance("1d", schedules=True)
    jobs.assert_enqueued(hourly, count=24)
    ats = [each.at for each in jobs.enqueued(hourly)]
    assert {(at.minute, at.second) for at in ats} == {(0, 0)}
    assert len(set(ats)) == 24
    assert jobs.drain() == 24
    assert jobs.drain() == 0


def test_an_app_that_the_test_does_not_use_is_left_alone(jobs: Jobs) -> None:
    other = App(closures=True)
    other.task(name="other")(lambda: None)
    jobs.advance("1d", schedules=True)
    assert other._client is None


def test_a_job_knows_its_tick_in_every_attempt_and_others_have_none(jobs: Jobs) -> None:
    seen: list[datetime | None] = []

    @jobs.app.task(cron=Cron("0 * * * *", name="a:b"), retry=Retry(1, base=900))
    def hourly() -> None:
        seen.append(current_job().tick)
        if len(seen) == 1:
            raise ConnectionError

    jobs.advance("1h", schedules=True)
    (tick,) = jobs.enqueued(hourly)
    jobs.drain()
    jobs.advance(900)
    jobs.drain()
    assert seen == [tick.at, tick.at]
    hourly.enqueue()
    hourly.using(key="cron:mine").enqueue()
    jobs.drain()
    assert seen[2:] == [None, None]


def test_schedules_of_an_app_that_nobody_has_any_more_rest(jobs: Jobs) -> None:
    def scheduled() -> None: ...

    gc.disable()
    try:
        App(closures=True).task(cron="@every 1s")(scheduled)
        jobs.advance("1m", schedules=True)
    finally:
        gc.enable()
    assert jobs.enqueued() == []


def test_schedules_at_once(jobs: Jobs) -> None:
    @jobs.app.task(cron="@every 60s")
    def often() -> datetime:
        return jobs.now

    begin = jobs.now
    with jobs.inline():
        jobs.advance(timedelta(minutes=10), schedules=True)
    ran = [each.job.result() for each in jobs.enqueued(often)]
    assert len(ran) == len(set(ran)) == 10
    assert begin < ran[0] <= begin + timedelta(seconds=60)


def test_a_long_time_costs_no_more_than_a_bounded_number_of_ticks(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.testing.job_runs.MAX_TICKS", 10)

    @jobs.app.task(cron="@every 1s")
    def often() -> None: ...

    jobs.advance("365d", schedules=True)
    assert 10 <= len(jobs.enqueued(often)) <= 12


def test_schedules_rest_unless_they_are_what_is_tested(jobs: Jobs) -> None:
    @jobs.app.task(cron="@every 1s")
    def often() -> None: ...

    jobs.advance(60)
    jobs.drain()
    jobs.assert_not_enqueued(often)
    jobs.advance(5, schedules=True)
    jobs.assert_enqueued(often, count=5)


# Nothing outside


def test_the_clock_begins_now_and_stands_still(jobs: Jobs) -> None:
    now = jobs.now
    assert abs(now - datetime.now(UTC)) < timedelta(seconds=LIMIT)
    assert jobs.now == now
    jobs.advance(timedelta(days=1))
    assert jobs.now == now + timedelta(days=1)
    job = send.enqueue("a@b.c")
    assert abs(job.record().created / 1e6 - jobs.now.timestamp()) < 0.01


def test_ids_rise(jobs: Jobs) -> None:
    ids = [send.enqueue("a@b.c").id for _ in range(10)]
    assert ids == sorted(set(ids))
    assert all(id[14] == "7" and id[19] in "89ab" for id in ids)


def test_no_thread_no_sleep(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("not in a test")

    monkeypatch.setattr(threading.Thread, "start", refused)
    monkeypatch.setattr(time, "sleep", refused)
    send.enqueue("a@b.c")
    job = shout.enqueue("hi")
    jobs.kill_worker_during(send)
    assert (jobs.drain(), job.result()) == (3, "HI")

    async def script() -> None:
        await send.aenqueue("a@b.c")
        await send.aenqueue_many([("a@b.c",)])
        awaited = await shout.aenqueue("ho")
        assert await jobs.adrain() == 3
        assert await awaited.aresult() == "HO"

    asyncio.run(script())


def test_each_app_has_its_own_back_afterwards(tmp_path: Path) -> None:
    opened_before = App(f"sqlite:///{tmp_path}/one.db", closures=True)
    unopened = App(f"sqlite:///{tmp_path}/two.db", closures=True)

    @opened_before.task
    def one(n: int) -> int:
        return n

    @unopened.task
    def two(n: int) -> int:
        return n

    kept = one.enqueue(0)
    client = opened_before.client
    with open_kit() as jobs:
        born = App(f"sqlite:///{tmp_path}/three.db", closures=True)
        three = born.task(two.fn)
        for task in (one, two, three):
            task.enqueue(7)
        opened_before.close()
        one.enqueue(8)
        assert jobs.drain() == 4
        assert len(jobs.enqueued()) == 4
    assert opened_before.client is client
    assert kept.state == "ready"
    assert (opened_before.drain(), kept.result(0)) == (1, 0)
    assert [path.name for path in tmp_path.glob("t*.db")] == []
    for other in (unopened, born):
        assert other.client.store.counts() == []
        other.close()
    opened_before.close()


def test_a_block_within_another_has_its_own() -> None:
    with open_kit() as outer:
        send.enqueue("a@b.c")
        with open_kit() as inner:
            send.enqueue("d@e.f")
            assert [list(each.args) for each in inner.enqueued()] == [["d@e.f"]]
        assert [list(each.args) for each in outer.enqueued()] == [["a@b.c"]]
        assert outer.drain() == 1


def test_an_async_test_may_drain_without_awaiting(jobs: Jobs) -> None:
    """What is sync finds no loop in its thread, as in a worker; what is async has one of its own, in another."""

    @jobs.app.task
    def sync() -> str:
        return asyncio.run(_name())

    async def script() -> None:
        loop, thread = asyncio.get_running_loop(), threading.current_thread()

        @jobs.app.task
        async def elsewhere() -> None:
            assert asyncio.get_running_loop() is not loop

        @jobs.app.task
        async def here() -> None:
            assert asyncio.get_running_loop() is loop
            assert threading.current_thread() is thread

        elsewhere.enqueue()
        sync.enqueue()
        assert jobs.drain(raising=True) == 2
        here.enqueue()
        sync.enqueue()
        assert await jobs.adrain(raising=True) == 2
        assert asyncio.get_running_loop() is loop

    asyncio.run(script())


async def _name() -> str:
    return "Ann"


def test_who_drains_may_be_cancelled(jobs: Jobs) -> None:
    async def script() -> State:
        begun = asyncio.Event()

        @jobs.app.task
        async def wait() -> None:
            begun.set()
            await asyncio.sleep(1000)

        job = await wait.aenqueue()
        draining = asyncio.create_task(jobs.adrain())
        await begun.wait()
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining
        return job.state

    assert asyncio.run(script()) == "ready"


def test_a_drain_finds_the_queue_in_which_its_last_job_enqueued(jobs: Jobs) -> None:
    @jobs.app.task(queue="another")
    def second() -> None: ...

    @jobs.app.task
    def first() -> None:
        second.enqueue()

    first.enqueue()
    assert jobs.drain() == 2

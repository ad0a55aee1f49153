"""Jobs taken by programs that hold them by id and epoch, on every store."""

import asyncio
import contextlib
import json
import time
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from tarry import App
from tarry.errors import Draining, JobNotFound, NotHeld, StoreUnavailable
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.limit import Limit
from tarry.model.outcome import Raised, Released, Returned, Snoozed, outcome_note
from tarry.server import claim_loop
from tarry.store.rules import ids, owner
from tarry.store.rules.base import BANDS, Want
from tarry.tasks.arguments.options import Options
from tarry.tasks.progress import Progress
from tarry.worker.external_queues import find_external
from tests.every_store.conftest import app  # noqa: F401 - each kind of store
from tests.server.taking import LEASE, WITHIN, ask_at_once, put, seen, taking, until


def run(story: Coroutine[Any, Any, None]) -> None:
    uvloop.run(asyncio.wait_for(story, 60))


def test_a_job_is_claimed_and_finished_and_python_reads_its_result(app: App) -> None:  # noqa: F811
    async def story() -> None:
        (job,) = put(app)
        async with taking(app) as claims:
            (got,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=0)
            assert (got.id, got.body, got.epoch, got.state) == (job.id, b"[1]", 1, State.RUNNING)
            was, change = await claims.settle(got.id, got.epoch, Returned(b'{"total":3}'))
            assert (was.id, was.body, change.to) == (job.id, b"[1]", State.DONE)
        assert app.get(job.id).result(timeout=WITHIN) == {"total": 3}

    run(story())


def test_nothing_there_is_answered_at_once_or_after_the_wait(app: App) -> None:  # noqa: F811
    async def story() -> None:
        async with taking(app) as claims:
            assert await claims.claim(["php", "node"], limit=5, lease=LEASE, wait=0) == []
            began = time.monotonic()
            assert await claims.claim(["php"], limit=5, lease=LEASE, wait=0.1) == []
            # libuv counts from the begin of its turn, in whole milliseconds.
            assert time.monotonic() - began >= 0.09
            assert claims.waiting == 0

    run(story())


def test_a_waiting_taker_gets_a_new_job_within_milliseconds(
    app: App,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # It is woken each time, and does not find the job when it looks anyway.
    monkeypatch.setattr(claim_loop, "LOOK_ANYWAY", 60.0)

    async def story() -> None:
        async with taking(app) as claims:
            took = []
            for _ in range(10):
                call = asyncio.create_task(claims.claim(["php"], limit=1, lease=LEASE, wait=WITHIN))
                await until(lambda: claims.waiting == 1)
                await asyncio.sleep(0.02)
                began = time.monotonic()
                await asyncio.to_thread(put, app)
                (got,) = await call
                took.append(time.monotonic() - began)
                await claims.settle(got.id, got.epoch, Returned())
            # Of ten, on a machine that is busy with other tests.
            assert min(took) < 0.1, took
            assert max(took) < WITHIN / 2, took

    run(story())


def test_a_job_that_falls_due_wakes_a_taker(app: App) -> None:  # noqa: F811
    async def story() -> None:
        async with taking(app) as claims:
            (job,) = put(app, due=app.client.store.time() + SECOND // 5)
            (got,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=WITHIN)
            assert got.id == job.id
            assert app.client.store.time() >= job.due

    run(story())


def test_a_second_finish_and_a_stale_epoch_change_nothing(app: App) -> None:  # noqa: F811
    async def story() -> None:
        put(app)
        async with taking(app) as claims:
            (first,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=0)
            await claims.settle(first.id, first.epoch, Released())
            (second,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=1)
            assert (second.id, second.epoch) == (first.id, 2)
            with pytest.raises(NotHeld, match=r"attempt 1 of job .* is over: another attempt of it runs"):
                await claims.settle(first.id, 1, Returned())
            await claims.settle(second.id, 2, Returned(b"1"))
            for asked in (
                claims.settle(second.id, 2, Returned(b"2")),
                claims.extend(second.id, 2, LEASE),
                claims.progress(second.id, 2, Progress(0.5)),
            ):
                with pytest.raises(NotHeld, match="it is done"):
                    await asked
            with pytest.raises(JobNotFound):
                await claims.settle(bytes(16), 1, Returned())
        assert [job.note for job in seen(app, first)] == [b"1"]

    run(story())


def test_what_a_failed_attempt_becomes_follows_the_rules(app: App) -> None:  # noqa: F811
    async def story() -> None:
        put(app, 4)
        async with taking(app) as claims:
            a, b, c, d = await claims.claim(["php"], limit=4, lease=LEASE, wait=0)
            note = outcome_note("RuntimeException", "no such address")
            ended = await asyncio.gather(
                claims.settle(a.id, 1, Raised(note, ("RuntimeException",))),
                claims.settle(b.id, 1, Raised(note, final=True)),
                claims.settle(c.id, 1, Raised(note, after=60 * SECOND)),
                claims.settle(d.id, 1, Snoozed(60 * SECOND)),
            )
            assert [(change.to, change.failures) for _, change in ended] == [
                (State.SCHEDULED, 1),
                (State.DEAD, 1),
                (State.SCHEDULED, 1),
                (State.SCHEDULED, 0),
            ]
        assert json.loads(seen(app, b)[0].note)["message"] == "no such address"

    run(story())


def test_hooks_of_a_task_are_called_when_a_taker_fails_for_good(app: App) -> None:  # noqa: F811
    told: list[str] = []

    @app.task(queue="both")
    def send(number: int) -> None: ...

    @send.on_dead
    def note(job: Any, error: BaseException) -> None:
        told.append(str(error))

    async def story() -> None:
        send.enqueue(7)
        async with taking(app) as claims:
            (got,) = await claims.claim(["both"], limit=1, lease=LEASE, wait=0)
            await claims.settle(got.id, 1, Raised(outcome_note("E", "broken"), final=True))
            await until(lambda: bool(told))
        assert told[0].endswith("broken")

    run(story())


def test_progress_is_seen_and_a_lease_is_extended(app: App) -> None:  # noqa: F811
    async def story() -> None:
        (job,) = put(app)
        store = app.client.store
        async with taking(app) as claims:
            (got,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=0)
            await claims.progress(got.id, got.epoch, Progress(0.25, "a quarter"))
            assert app.get(job.id).progress == Progress(0.25, "a quarter")
            await claims.extend(got.id, got.epoch, 10 * LEASE)
            assert store.reclaim(store.time() + 9 * LEASE) == []
            assert [one.id for one in store.reclaim(store.time() + 21 * LEASE)] == [job.id]

    run(story())


def test_a_taker_that_dies_is_timed_out_by_the_keeper(app: App) -> None:  # noqa: F811
    async def story() -> None:
        (job,) = put(app)
        store, keeper = app.client.store, app.keeper(app.client.store)
        async with taking(app) as claims:
            (got,) = await claims.claim(["php"], limit=1, lease=SECOND // 10, wait=0)
            keeper.rescue_dead()
            assert seen(app, job)[0].state is State.RUNNING, "nobody knows whether it lives"
            async with asyncio.timeout(WITHIN):
                while seen(app, job)[0].state is State.RUNNING:
                    await asyncio.to_thread(keeper.rescue_overdue)
            (late,) = seen(app, job)
            assert (late.failures, late.crashes) == (1, 0)
            assert json.loads(late.note)["type"] == "LeaseExpired"
            # The lease was the time to run: no delay of a rule is on top of it.
            (again,) = await claims.claim(["php"], limit=1, lease=SECOND // 10, wait=0)
            assert (again.id, again.epoch, again.failures) == (job.id, got.epoch + 1, 1)
            await claims.settle(again.id, again.epoch, Returned())
            with pytest.raises(NotHeld):
                await claims.extend(got.id, got.epoch, LEASE)
        keeper.close()
        assert store.owners() == []

    run(story())


def test_names_of_owners_are_used_again_and_two_claims_never_share_one(app: App) -> None:  # noqa: F811
    async def story() -> None:
        put(app, 4)
        async with taking(app) as claims:
            one = await claims.claim(["php"], limit=2, lease=LEASE, wait=0)
            two = await claims.claim(["php"], limit=1, lease=LEASE, wait=0)
            assert one[0].owner == one[1].owner != two[0].owner
            assert all(owner.is_outside(job.owner) for job in (*one, *two))
            for job in one:
                await claims.settle(job.id, job.epoch, Returned())
            (three,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=0)
            assert three.owner == one[0].owner
            store = app.client.store
            # What is left of the lease of before may be less than was asked for.
            assert store.reclaim(store.time() + LEASE - SECOND) == []

    run(story())


def test_many_callers_share_their_calls(app: App) -> None:  # noqa: F811
    async def story() -> None:
        async with taking(app) as claims:
            asked = (claims.claim(["php"], limit=1, lease=LEASE, wait=0) for _ in range(50))
            # One that found nothing speaks for all who asked with it.
            assert await ask_at_once(claims, asked) == ([[]] * 50, 1)
            put(app, 50)
            taken = await asyncio.gather(*(claims.claim(["php"], limit=1, lease=LEASE, wait=WITHIN) for _ in range(50)))
            jobs = [job for some in taken for job in some]
            assert len({job.id for job in jobs}) == 50
            _, calls = await ask_at_once(claims, (claims.settle(job.id, job.epoch, Returned()) for job in jobs))
            assert calls <= 2
        assert {job.state for job in seen(app, *jobs)} == {State.DONE}

    run(story())


def test_those_who_asked_first_come_first(app: App) -> None:  # noqa: F811
    async def story() -> None:
        ended: list[int] = []

        async def claim(number: int) -> None:
            (job,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=WITHIN)
            await claims.settle(job.id, job.epoch, Returned())
            ended.append(number)

        async with taking(app) as claims:
            calls = []
            for number in range(5):
                calls.append(asyncio.create_task(claim(number)))
                await until(lambda: claims.waiting == len(calls))
            for number in range(5):
                await asyncio.to_thread(put, app)
                await until(lambda: len(ended) == number + 1)  # noqa: B023
            await asyncio.gather(*calls)
        assert ended == [0, 1, 2, 3, 4]

    run(story())


def test_a_cancel_reaches_the_taker(app: App) -> None:  # noqa: F811
    async def story() -> None:
        (job,) = put(app)
        async with taking(app) as claims:
            (got,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=0)
            assert await asyncio.to_thread(app.get(job.id).cancel)
            with pytest.raises(NotHeld, match="it is cancelled"):
                await claims.extend(got.id, got.epoch, LEASE)
            with pytest.raises(NotHeld, match="it is cancelled"):
                await claims.settle(got.id, got.epoch, Returned())

    run(story())


def test_a_taker_of_a_cancelled_job_keeps_its_place_until_it_is_done(app: App) -> None:  # noqa: F811
    async def story() -> None:
        store = app.client.store
        store.limit("queue:php", Limit(1))
        (job,) = put(app)
        # As a keeper does: the place goes to the shard that has the job.
        store.move_shares("keeper", store.time(), LEASE)
        async with taking(app) as claims:
            (got,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=0)
            assert await asyncio.to_thread(app.get(job.id).cancel)
            with pytest.raises(NotHeld):
                await claims.extend(got.id, got.epoch, LEASE)
            with pytest.raises(JobNotFound):
                await claims.settle(got.id, got.epoch, Returned(), lambda queue: False)
            assert store.limits()["queue:php"][1].running == 1
            with pytest.raises(NotHeld):
                await claims.settle(got.id, got.epoch, Returned())
            await until(lambda: store.limits()["queue:php"][1].running == 0)

    run(story())


def test_an_attempt_of_a_python_worker_is_none_of_theirs(app: App) -> None:  # noqa: F811
    async def story() -> None:
        (job,) = put(app)
        store = app.client.store
        store.claim([Want("php", band, 9) for band in BANDS], 9, owner.new_name(), LEASE, store.time())
        async with taking(app) as claims:
            with pytest.raises(NotHeld):
                await claims.settle(job.id, 1, Returned())
        assert seen(app, job)[0].state is State.RUNNING

    run(story())


def test_who_may_not_take_from_a_queue_learns_nothing(app: App) -> None:  # noqa: F811
    async def story() -> None:
        put(app)
        async with taking(app) as claims:
            (got,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=0)
            for asked in (
                claims.settle(got.id, 7, Returned(), lambda queue: queue != "php"),
                claims.extend(got.id, 1, LEASE, lambda queue: False),
                claims.progress(got.id, 1, Progress(0.5), lambda queue: False),
            ):
                with pytest.raises(JobNotFound, match=f"no job {ids.text(got.id)}: it was never put, or is deleted"):
                    await asked
            await claims.settle(got.id, 1, Returned(), lambda queue: queue == "php")

    run(story())


def test_workers_and_takers_side_by_side_run_each_job_once(app: App) -> None:  # noqa: F811
    ran: list[int] = []

    @app.task(queue="both")
    def work(number: int) -> None:
        ran.append(number)

    async def story() -> None:
        work.enqueue_many([(number,) for number in range(60)])
        async with taking(app) as claims:

            async def take_some() -> None:
                while jobs := await claims.claim(["both"], limit=2, lease=LEASE, wait=0.2):
                    for job in jobs:
                        ran.append(json.loads(job.body)[0])
                        await claims.settle(job.id, job.epoch, Returned())

            async with app.running():
                await asyncio.gather(*(take_some() for _ in range(3)))
                await until(lambda: len(ran) >= 60)
            assert sorted(ran) == list(range(60))
            assert find_external(app.client.store) == frozenset(), "a task of the app uses the queue"

    run(story())


def test_a_queue_that_only_takers_serve_is_left_to_them(app: App) -> None:  # noqa: F811
    async def story() -> None:
        async with taking(app) as claims:
            assert await claims.claim(["php"], limit=1, lease=LEASE, wait=0) == []
            assert find_external(app.client.store) == {"php"}
            (job,) = put(app)
            assert await asyncio.to_thread(app.drain) in (0, None)
            assert (seen(app, job)[0].state, seen(app, job)[0].epoch) == (State.READY, 0)

    run(story())


def test_limits_and_pauses_of_a_queue_hold_for_takers(app: App) -> None:  # noqa: F811
    async def story() -> None:
        store = app.client.store
        store.limit("queue:php", Limit(most=2))
        # So many that each of several stores has some.
        put(app, 40)
        async with taking(app) as claims:
            jobs = await claims.claim(["php"], limit=5, lease=LEASE, wait=0)
            assert len(jobs) == 2
            assert await claims.claim(["php"], limit=5, lease=LEASE, wait=0) == []
            await claims.settle(jobs[0].id, 1, Returned())
            assert len(await claims.claim(["php"], limit=5, lease=LEASE, wait=WITHIN)) == 1
            store.pause("php", True)
            await claims.settle(jobs[1].id, 1, Returned())
            assert await claims.claim(["php"], limit=5, lease=LEASE, wait=0) == []

    run(story())


def test_a_key_is_free_once_its_holder_is_finished(app: App) -> None:  # noqa: F811
    async def story() -> None:
        (job,) = put(app, key="ann")
        async with taking(app) as claims:
            (got,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=0)
            store = app.client.store
            twin = replace(job, id=store.new_id("php", "ann"))
            assert store.insert([twin]) == [job.id]
            await claims.settle(got.id, 1, Returned())
            put(app, key="ann")

    run(story())


def test_what_expired_before_it_was_taken_is_not_given_out(app: App) -> None:  # noqa: F811
    async def story() -> None:
        now = app.client.store.time()
        (late,) = put(app, due=now - 2, expires=now - 1)
        (fresh,) = put(app)
        async with taking(app) as claims:
            (got,) = await claims.claim(["php"], limit=2, lease=LEASE, wait=WITHIN)
            assert got.id == fresh.id
            await until(lambda: seen(app, late)[0].state is State.CANCELLED)

    run(story())


def test_a_newer_job_of_a_key_is_given_once_the_one_before_is_let_go(app: App) -> None:  # noqa: F811
    async def story() -> None:
        newest, client = Options(key="ann", queue="php", running="cancel"), app.client
        put(app, key="ann")
        async with taking(app) as claims:
            (got,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=0)
            (newer,) = await client.ainsert_jobs([client.make_job(got.task, b"[]", newest)], newest)
            assert newer.is_new
            assert await claims.claim(["php"], limit=1, lease=LEASE, wait=0.5) == []
            assert (newer.record().epoch > 1, newer.record().attempts) == (True, b"")
            with pytest.raises(NotHeld):
                await claims.settle(got.id, got.epoch, Returned())
            (again,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=WITHIN)
            assert (ids.text(again.id), again.failures) == (newer.id, 0)

    run(story())


def test_a_job_is_given_once_those_of_its_key_before_it_have_ended(app: App) -> None:  # noqa: F811
    async def story() -> None:
        ordered = app.task(name="ordered", queue="php", order_by=lambda key: key)(lambda key: None)
        await asyncio.to_thread(app.declare_limits, app.client.store)
        first, second = await ordered.aenqueue_many([("ann",), ("ann",)])
        async with taking(app) as claims:
            (got,) = await claims.claim(["php"], limit=5, lease=LEASE, wait=0)
            assert ids.text(got.id) == first.id
            await claims.settle(got.id, got.epoch, Snoozed(60 * SECOND))
            assert await claims.claim(["php"], limit=5, lease=LEASE, wait=0.5) == []
            assert second.record().epoch
            assert await asyncio.to_thread(first.cancel)
            (got,) = await claims.claim(["php"], limit=5, lease=LEASE, wait=WITHIN)
            assert ids.text(got.id) == second.id

    run(story())


def test_a_caller_that_goes_away_leaves_no_job_taken(app: App) -> None:  # noqa: F811
    async def story() -> None:
        async with taking(app) as claims:
            call = asyncio.create_task(claims.claim(["php"], limit=1, lease=LEASE, wait=WITHIN))
            await until(lambda: claims.waiting == 1)
            (job,) = await asyncio.to_thread(put, app)
            if not call.cancel():
                # It was quicker, so the job is its own.
                claims.give_back(call.result())
            await asyncio.gather(call, return_exceptions=True)
            await until(lambda: seen(app, job)[0].state is State.READY)
            assert claims.waiting == 0
            # Whether it was on its way or not: it waits for the next one.
            (got,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=WITHIN)
            assert (got.id, got.failures) == (job.id, 0)

    run(story())


def test_at_the_end_those_who_wait_are_told(app: App) -> None:  # noqa: F811
    async def story() -> None:
        async with taking(app) as claims:
            calls = [claims.claim([queue], limit=1, lease=LEASE, wait=WITHIN) for queue in ("php", "php", "node")]
            tasks = [asyncio.create_task(call) for call in calls]
            await until(lambda: claims.waiting == 3)
            await asyncio.to_thread(claims.close)
            assert [type(one) for one in await asyncio.gather(*tasks, return_exceptions=True)] == [Draining] * 3
            with pytest.raises(Draining):
                await claims.claim(["php"], limit=1, lease=LEASE, wait=0)

    run(story())


@pytest.mark.parametrize("verb", ["exchange", "get", "queues", "owners", "extend"])
def test_a_fault_of_any_kind_does_not_end_the_taking(app: App, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:  # noqa: F811
    """Whatever a call of the store raises: those who ask meanwhile are told, and then all goes on."""

    async def story() -> None:
        async with taking(app) as claims:
            (job,) = put(app)
            faults = [RuntimeError("dictionary changed size during iteration"), MemoryError(), KeyError("row")]

            def faulty(*args: Any, **more: Any) -> Any:
                if faults:
                    raise faults.pop()
                return plain(*args, **more)

            plain = getattr(claims.store, verb)
            monkeypatch.setattr(claims.store, verb, faulty)
            got: list[Any] = []
            async with asyncio.timeout(WITHIN):
                while not got:
                    with contextlib.suppress(StoreUnavailable):
                        # Of several kinds, so that it asks first which queues have jobs.
                        others = [claims.claim([f"q{n}"], limit=1, lease=LEASE, wait=0) for n in range(5)]
                        await asyncio.gather(*others, return_exceptions=True)
                        got = await claims.claim(["php"], limit=1, lease=LEASE, wait=1)
                    if not got:
                        # What a claim brought whose answer was lost is given back.
                        await asyncio.sleep(0.01)
                while True:
                    try:
                        await claims.extend(got[0].id, got[0].epoch, LEASE)
                        await claims.settle(got[0].id, got[0].epoch, Returned())
                        break
                    except StoreUnavailable:
                        continue
            assert not claims.is_broken
        assert seen(app, job)[0].state is State.DONE

    run(story())


@pytest.mark.parametrize("is_made", [False, True])
def test_a_job_whose_reservation_was_lost_is_given_back(app: App, is_made: bool) -> None:  # noqa: F811
    """As by `reserve-job`: another thread claims in the name of the holder, and its answer is lost."""

    async def story() -> None:
        async with taking(app) as claims:
            (job,) = put(app)
            other = put(app, queue="node")[0]
            claims.take(["node"], lambda answer: None)
            await until(lambda: claims.held == 1)

            def reserve() -> None:
                with claims.reservation():
                    if is_made:
                        now = app.client.store.time()
                        claims.store.exchange((), [Want("php", BANDS[1], 1)], 1, claims.owner, LEASE, now)
                    raise StoreUnavailable("the answer was lost")

            with pytest.raises(StoreUnavailable):
                await asyncio.to_thread(reserve)
            (again,) = await claims.claim(["php"], limit=1, lease=LEASE, wait=WITHIN)
            assert (again.id, again.epoch) == (job.id, 1 + is_made)
            assert (claims.held, seen(app, other)[0].state) == (1, State.RUNNING)

    run(story())

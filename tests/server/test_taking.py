"""Jobs that a server process holds for programs with a connection, on every store."""

import asyncio
import os
import signal
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tarry import App
from tarry.errors import Busy, Draining, JobNotFound, PartlyUnavailable, StoreAway, StoreError, StoreUnavailable
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.lifecycle import NotPossible, Rules
from tarry.server import claim_loop
from tarry.server.claims import Claims
from tarry.server.takers import ClaimTicket
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import owner
from tarry.store.rules.base import NORMAL, Want
from tarry.store.shards.sharded import ShardedStore
from tarry.worker import unseen_claims
from tests.every_store.conftest import app  # noqa: F401 - each kind of store
from tests.server.taking import LEASE, WITHIN, counting, put, seen, taking, until
from tests.store.switched import Switched

RULES = Rules()


def run(story: Coroutine[Any, Any, None]) -> None:
    uvloop.run(asyncio.wait_for(story, 60))


def take(claims: Claims, *queues: str, wait: float | None = None) -> tuple[ClaimTicket, "asyncio.Future[Any]"]:
    """Takes a job; the future gets what the reply gets."""
    future = asyncio.get_running_loop().create_future()
    return claims.take(queues, future.set_result, wait), future


async def taken(claims: Claims, *queues: str) -> Job:
    job = await asyncio.wait_for(take(claims, *queues)[1], WITHIN)
    assert isinstance(job, Job)
    return job


async def changed(claims: Claims, job: Job, rule: Any) -> Any:
    future = asyncio.get_running_loop().create_future()
    claims.change(job.id, rule, future.set_result)
    return await asyncio.wait_for(future, WITHIN)


def delete(job: Job, now: int) -> Any:
    return lifecycle.discard(job, RULES, now)


def test_a_job_is_taken_and_deleted(app: App) -> None:  # noqa: F811
    async def story() -> None:
        (job,) = put(app)
        async with taking(app) as claims:
            got = await taken(claims, "php")
            assert (got.id, got.body, got.owner) == (job.id, b"[1]", claims.owner)
            assert claims.held == 1
            before = await changed(claims, got, delete)
            assert (before.id, before.state) == (job.id, State.RUNNING)
            await until(lambda: claims.held == 0)
        assert seen(app, job)[0].state is State.DONE

    run(story())


def test_urgent_jobs_come_first_whatever_the_queue(app: App) -> None:  # noqa: F811
    async def story() -> None:
        put(app, queue="a", priority=-7)
        put(app, queue="b", priority=0)
        put(app, queue="c", priority=9)
        async with taking(app) as claims:
            got = [(await taken(claims, "a", "b", "c")).priority for _ in range(3)]
        # Several stores as one promise an order within each only.
        assert got == [9, 0, -7] or isinstance(app.client.store, ShardedStore)

    run(story())


def test_released_buried_and_kicked(app: App) -> None:  # noqa: F811
    async def story() -> None:
        (job,) = put(app)
        async with taking(app) as claims:
            got = await taken(claims, "php")
            await changed(claims, got, lambda job, now: lifecycle.give_back(job, now, priority=5))
            got = await taken(claims, "php")
            assert (got.priority, got.epoch, got.failures) == (5, 2, 0)
            await changed(claims, got, lambda job, now: lifecycle.bury(job, RULES, now, priority=-3))
            assert seen(app, job)[0].state is State.DEAD
            _, future = take(claims, "php", wait=0)
            assert await future is None
            await changed(claims, got, lifecycle.run_now)
            got = await taken(claims, "php")
            assert (got.priority, got.epoch) == (-3, 3)
            await changed(claims, got, lambda job, now: lifecycle.give_back(job, now, delay=60 * SECOND))
            assert seen(app, job)[0].state is State.SCHEDULED

    run(story())


def test_changes_of_jobs_that_nobody_holds(app: App) -> None:  # noqa: F811
    async def story() -> None:
        (job,) = put(app)
        async with taking(app) as claims:
            before = await changed(claims, job, delete)
            assert before.state is State.READY
            assert isinstance(await changed(claims, job, delete), JobNotFound)
            (other,) = put(app)
            assert isinstance(
                await changed(claims, other, lambda job, now: lifecycle.bury(job, RULES, now)), NotPossible
            )

            def broken(job: Job, now: int) -> Any:
                raise ZeroDivisionError

            assert isinstance(await changed(claims, other, broken), ZeroDivisionError)
            assert (await changed(claims, other, delete)).id == other.id

    run(story())


def test_two_deletes_in_one_batch_are_answered_one_by_one(app: App) -> None:  # noqa: F811
    async def story() -> None:
        put(app)
        async with taking(app) as claims:
            got = await taken(claims, "php")
            first, second = await asyncio.gather(changed(claims, got, delete), changed(claims, got, delete))
            assert first.state is State.RUNNING
            # The done job is kept; to delete it again deletes the record.
            assert second.state is State.DONE
            assert seen(app, got) == []

    run(story())


def test_fifty_that_wait_share_one_claim(app: App) -> None:  # noqa: F811
    async def story() -> None:
        async with taking(app) as claims:
            futures = [take(claims, "php")[1] for _ in range(50)]
            await until(lambda: claims.waiting == 50)
            with counting(claims, "exchange") as calls:
                await asyncio.to_thread(put, app, 50)
                jobs = await asyncio.wait_for(asyncio.gather(*futures), WITHIN)
                assert len(calls) <= 25
            assert len({job.id for job in jobs}) == 50
            with counting(claims, "exchange") as calls:
                await asyncio.gather(*(changed(claims, job, delete) for job in jobs))
                assert len(calls) <= 25

    run(story())


def test_many_kinds_of_takers_cost_few_calls_while_nothing_is_there(app: App) -> None:  # noqa: F811
    async def story() -> None:
        async with taking(app) as claims:
            futures = [take(claims, f"tube{n}")[1] for n in range(40)]
            await until(lambda: claims.waiting == 40)
            await asyncio.wait_for(take(claims, "tube0", wait=0)[1], WITHIN)
            with counting(claims, "exchange") as calls:
                put(app, queue="tube7")
                got = await asyncio.wait_for(futures[7], WITHIN)
                assert got.queue == "tube7"
                assert len(calls) <= 20
            for future in futures:
                future.cancel()

    run(story())


def test_a_ticket_that_is_cancelled_gets_nothing(app: App) -> None:  # noqa: F811
    async def story() -> None:
        async with taking(app) as claims:
            ticket, future = take(claims, "php")
            await until(lambda: claims.waiting == 1)
            ticket.cancel()
            ticket.cancel()
            assert claims.waiting == 0
            (job,) = put(app)
            # Perhaps at the second attempt: a claim for the ticket may have been under way.
            assert (await taken(claims, "php")).id == job.id
            assert not future.done()

    run(story())


def test_a_job_on_its_way_to_a_cancelled_ticket_is_given_back(app: App) -> None:  # noqa: F811
    async def story() -> None:
        (job,) = put(app)
        async with taking(app) as claims:
            ticket, future = take(claims, "php")
            # No step of the event loop lies between the claim and the cancel.
            with_limit = asyncio.get_running_loop().time() + WITHIN
            while not claims.held and asyncio.get_running_loop().time() < with_limit:
                pass
            ticket.cancel()
            await until(lambda: seen(app, job)[0].state is State.READY and not claims.held)
            assert not future.done()

    run(story())


def test_at_the_end_all_that_is_held_is_given_back_and_counts_nothing(app: App) -> None:  # noqa: F811
    async def story() -> None:
        jobs = put(app, 3)
        async with taking(app) as claims:
            for _ in range(3):
                await taken(claims, "php")
            _, waits = take(claims, "php")
            await until(lambda: claims.waiting == 1)
            await asyncio.to_thread(claims.close)
            assert isinstance(await waits, Draining)
            with pytest.raises(Draining):
                claims.change(jobs[0].id, delete, print)
        assert {(job.state, job.failures) for job in seen(app, *jobs)} == {(State.READY, 0)}

    run(story())


def test_a_lease_is_prolonged_as_long_as_the_process_lives(app: App) -> None:  # noqa: F811
    async def story() -> None:
        (job,) = put(app)
        store = app.client.store
        async with taking(app) as claims:
            await taken(claims, "php")
            with counting(claims, "extend") as calls:
                await until(lambda: len(calls) >= 2)
            assert calls[0][0] == claims.owner
            # A job that is taken from it, as by a cancel, is held no longer.
            assert await asyncio.to_thread(app.get(job.id).cancel)
            await until(lambda: claims.held == 0)
        assert store.owners() == []

    run(story())


def test_a_killed_server_process_loses_no_job(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    app = App(url, closures=True)  # noqa: F811
    (job,) = put(app)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:

        async def hold() -> None:
            async with taking(App(url, closures=True)) as claims:
                await taken(claims, "php")
                os.write(writing, claims.owner.encode())
                await asyncio.sleep(60)

        uvloop.run(hold())
        os._exit(0)
    name = os.read(reading, 1000).decode()
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert owner.is_dead(name)
    keeper = app.keeper(app.client.store)
    keeper.rescue_dead()
    keeper.close()
    assert [(one.state, one.failures, one.crashes) for one in seen(app, job)] == [(State.READY, 0, 0)]
    app.close()
    os.close(reading)
    os.close(writing)


def test_bounds_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App(MemoryStore(), closures=True)  # noqa: F811

    async def story() -> None:
        async with taking(app) as claims:
            monkeypatch.setattr("tarry.server.claims.MOST_WAITING", 1)
            take(claims, "php")
            with pytest.raises(Busy, match="1 wait for jobs already: ask again later"):
                take(claims, "php")
            put(app)
            await until(lambda: claims.held == 1)
            monkeypatch.setattr("tarry.server.claims.MOST_HELD", 1)
            with pytest.raises(Busy, match="this server holds 1 jobs already: finish some of them"):
                take(claims, "php")

    run(story())
    app.close()


def test_while_the_store_is_away_those_who_cannot_wait_are_told_and_the_others_wait() -> None:
    switched = Switched(MemoryStore())
    app = App(switched, closures=True)  # noqa: F811

    async def story() -> None:
        async with taking(app) as claims:
            _, waits = take(claims, "php")
            # Asleep, and listening: then nothing but its pauses brings it to look again.
            await until(lambda: claims.waiting == 1 and claims._loop is not None and claims._loop._asleep)
            switched.down()
            _, late = take(claims, "php", wait=0)
            assert isinstance(await asyncio.wait_for(late, WITHIN), StoreError)
            change = await changed(claims, Job(bytes(16), "php", b""), delete)
            assert isinstance(change, StoreUnavailable)
            switched.up()
            put(app)
            assert isinstance(await asyncio.wait_for(waits, WITHIN), Job)

    run(story())
    app.close()


def test_what_a_lost_answer_brought_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    app = App(store, closures=True)  # noqa: F811
    exchange = store.exchange
    lost = [True]

    def loses(*args: Any) -> Any:
        answer = exchange(*args)
        if answer.jobs and lost:
            lost.clear()
            raise StoreUnavailable("the answer was lost")
        return answer

    monkeypatch.setattr(store, "exchange", loses)

    async def story() -> None:
        (job,) = put(app)
        async with taking(app) as claims:
            got = await taken(claims, "php")
            assert (got.id, got.epoch, got.failures) == (job.id, 2, 0)

    run(story())
    app.close()


def test_what_nobody_takes_any_more_is_given_back_once_the_store_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claim_loop, "ASKED_AGAIN_AFTER", 0.02)
    store = MemoryStore()
    app = App(store, closures=True)  # noqa: F811
    exchange = store.exchange
    is_claimed, may_go, failures = threading.Event(), threading.Event(), list[object]()

    def fails(changes: Any, *args: Any) -> Any:
        if changes and not failures:
            failures.append(changes)
            raise StoreUnavailable("away")
        answer = exchange(changes, *args)
        if answer.jobs:
            is_claimed.set()
            assert may_go.wait(WITHIN)
        return answer

    monkeypatch.setattr(store, "exchange", fails)

    async def story() -> None:
        (job,) = put(app)
        async with taking(app) as claims:
            ticket, _ = take(claims, "php")
            assert await asyncio.to_thread(is_claimed.wait, WITHIN)
            ticket.cancel()
            may_go.set()
            await until(lambda: seen(app, job)[0].state is State.READY and claims.held == 0)
            assert failures

    run(story())
    app.close()


def test_what_a_lost_answer_brought_is_found_among_all_that_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen_claims, "CLAIMED_AT_ONCE", 2)
    store = MemoryStore()
    app = App(store, closures=True)  # noqa: F811
    exchange, lost = store.exchange, list[Job]()

    def loses(*args: Any) -> Any:
        answer = exchange(*args)
        if answer.jobs and answer.jobs[0].queue == "node" and not lost:
            lost.extend(answer.jobs)
            raise StoreUnavailable("the answer was lost")
        return answer

    monkeypatch.setattr(store, "exchange", loses)

    async def story() -> None:
        put(app, 5)
        async with taking(app) as claims:
            for _ in range(5):
                await taken(claims, "php")
            put(app, queue="node")
            got = await taken(claims, "node")
            assert [(got.id, got.epoch)] == [(job.id, 2) for job in lost]
            assert claims.held == 6

    run(story())
    app.close()


def test_leases_that_one_of_several_stores_does_not_prolong_hold_up_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    app = App(store, closures=True)  # noqa: F811
    tries = []

    def extend(*args: Any) -> Any:
        tries.append(args)
        raise PartlyUnavailable("one is away", [], {0: StoreAway("away")})

    monkeypatch.setattr(store, "extend", extend)

    async def story() -> None:
        put(app, 2)
        async with taking(app) as claims:
            await taken(claims, "php")
            await until(lambda: len(tries) == 2)
            job = await taken(claims, "php")
            assert isinstance(await changed(claims, job, delete), Job)
        assert "leases not extended" in caplog.text
        assert "taking jobs" not in caplog.text

    run(story())
    app.close()


def test_what_the_store_claims_long_after_the_claim_was_given_up_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unseen_claims, "AGAIN_FIRST", 0.02)
    monkeypatch.setattr(claim_loop, "LOOK_ANYWAY", 0.02)
    store = MemoryStore()
    app = App(store, closures=True)  # noqa: F811
    looks: list[str | None] = []
    exchange, reclaim, lost = store.exchange, store.reclaim, [True]

    def hangs(changes: Any, wants: Any, *rest: Any) -> Any:
        if wants and lost:
            lost.clear()
            raise StoreUnavailable("no answer in time")
        return exchange(changes, wants, *rest)

    def look(now: int, of: str, limit: int) -> list[Job]:
        looks.append(of)
        return reclaim(now, of, limit)

    monkeypatch.setattr(store, "exchange", hangs)
    monkeypatch.setattr(store, "reclaim", look)

    async def story() -> None:
        async with taking(app) as claims:
            take(claims, "php")
            await until(lambda: claims.owner in looks)
            (job,) = put(app, queue="node")
            assert store.claim([Want("node", NORMAL, 1)], 1, claims.owner, LEASE, store.time())
            await until(lambda: seen(app, job)[0].state is State.READY)
            assert (seen(app, job)[0].epoch, seen(app, job)[0].failures) == (1, 0)

    run(story())
    app.close()

"""Jobs in real workers: what runs, when, how many at once, and in what order."""

import asyncio
import threading
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tarry import State, current_job
from tarry.keeper.chores import Keeper
from tarry.store.rules.base import BANDS, Want
from tarry.worker import capacity
from tarry.worker.worker import Worker
from tests.worker.bench import LIMIT, Bench, until, wait_for

kinds = pytest.mark.parametrize("kind", ["sync", "loop"])


def test_both_kinds_of_task_in_one_worker(any_bench: Bench) -> None:
    @any_bench.app.task
    def double(a: int) -> tuple[int, str]:
        return 2 * a, threading.current_thread().name

    @any_bench.app.task
    async def triple(a: int) -> tuple[int, str]:
        await asyncio.sleep(0)
        return 3 * a, threading.current_thread().name

    any_bench.work(threads=2, coroutines=10)
    jobs = [task.enqueue(n) for n in range(60) for task in (double, triple)]
    results = [job.result(LIMIT) for job in jobs]
    assert [value for value, _ in results] == [factor * n for n in range(60) for factor in (2, 3)]
    assert {name for _, name in results[0::2]} <= {"tarry-slot-0", "tarry-slot-1"}
    assert {name for _, name in results[1::2]} == {"tarry-loop"}


def test_a_thousand_coroutines_at_once(any_bench: Bench) -> None:
    started: list[int] = []
    all_here: list[asyncio.Event] = []

    @any_bench.app.task
    async def meet(number: int) -> int:
        if not all_here:
            all_here.append(asyncio.Event())
        started.append(number)
        if len(started) == 1000:
            all_here[0].set()
        await asyncio.wait_for(all_here[0].wait(), LIMIT)
        return number

    jobs = meet.enqueue_many([(number,) for number in range(1000)])
    any_bench.work(coroutines=1000)
    assert [job.result(LIMIT) for job in jobs] == list(range(1000))
    assert len(started) == 1000


def test_no_more_coroutines_at_once_than_there_are_slots(bench: Bench) -> None:
    here: Counter[str] = Counter()
    most: list[int] = []

    @bench.app.task
    async def visit() -> None:
        here["now"] += 1
        most.append(here["now"])
        await asyncio.sleep(0.002)
        here["now"] -= 1

    jobs = visit.enqueue_many([()] * 60)
    bench.work(coroutines=7)
    for job in jobs:
        job.result(LIMIT)
    assert max(most) == 7


def test_four_threads_are_four_at_once(any_bench: Bench) -> None:
    barrier = threading.Barrier(4)

    @any_bench.app.task
    def meet() -> int:
        return barrier.wait(LIMIT)

    jobs = meet.enqueue_many([()] * 8)
    any_bench.work(threads=4)
    assert sorted(job.result(LIMIT) for job in jobs) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_the_caller_of_run_is_a_slot(bench: Bench) -> None:
    @bench.app.task
    def where() -> int:
        return threading.get_ident()

    worker = Worker(bench.store(), bench.app.tasks, main_thread=True)
    job = where.enqueue()
    came: list[int] = []

    def wait() -> None:
        came.append(job.result(LIMIT))
        worker.stop()

    waiter = threading.Thread(target=wait)
    waiter.start()
    worker.run()
    waiter.join(LIMIT)
    assert came == [threading.get_ident()]


def test_a_worker_serves_its_queues_only(bench: Bench) -> None:
    @bench.app.task
    def one() -> int:
        return 1

    bench.work(queues={"mail": 1, "default": 2})
    other = one.using(queue="other").enqueue()
    assert one.using(queue="mail").enqueue().result(LIMIT) == 1
    assert one.enqueue().result(LIMIT) == 1
    assert other.state == "ready"
    bench.work(queues={"other": 1})
    assert other.result(LIMIT) == 1


def test_a_worker_of_all_queues_finds_new_ones(any_bench: Bench) -> None:
    @any_bench.app.task
    def one() -> int:
        return 1

    any_bench.work(queues={"*": 1})
    for name in ("a", "b", "c"):
        assert one.using(queue=name).enqueue().result(LIMIT) == 1
    assert one.using(queue="later", delay=0.1).enqueue().result(LIMIT) == 1


def test_a_worker_of_all_queues_finds_a_new_one_also_while_it_is_never_idle(bench: Bench) -> None:
    over = bench.gate()

    @bench.app.task
    def again() -> None:
        if not over.is_set():
            again.using(queue="busy").enqueue_many([()] * 2 if backlog() < 50 else [()])

    @bench.app.task
    def once() -> int:
        return 1

    def backlog() -> int:
        return sum(tally.count for tally in watcher.counts() if tally.state is State.READY)

    watcher = bench.store()
    again.using(queue="busy").enqueue_many([()] * 50)
    bench.work()
    until(lambda: any(tally.state is State.DONE for tally in watcher.counts()))
    assert once.using(queue="new").enqueue().result(LIMIT) == 1
    assert backlog() > 0
    over.set()


def banded(bench: Bench, count: int) -> list[int]:
    """A task that keeps the order of starts by band, with so many jobs waiting in each of the three."""
    order: list[int] = []

    @bench.app.task
    def run(band: int) -> None:
        order.append(band)
        time.sleep(0.002)

    for band in (-1, 0, 1):
        run.using(priority=band).enqueue_many([(band,)] * count)
    return order


def test_bands_share_starts_five_to_three_to_two(bench: Bench) -> None:
    order = banded(bench, 120)
    bench.work(threads=1)
    until(lambda: len(order) == 360)
    first = Counter(order[:200])
    assert abs(first[1] - 100) <= 12
    assert abs(first[0] - 60) <= 12
    assert abs(first[-1] - 40) <= 12
    assert Counter(order) == {1: 120, 0: 120, -1: 120}


def test_strict_runs_the_high_band_first_and_the_low_one_last(bench: Bench) -> None:
    order = banded(bench, 40)
    bench.work(threads=1, shares="strict")
    until(lambda: len(order) == 120)
    assert order == [1] * 40 + [0] * 40 + [-1] * 40


def test_low_work_never_starves(bench: Bench) -> None:
    over = bench.gate()

    @bench.app.task
    def high() -> None:
        if not over.is_set():
            high.using(priority=1).enqueue()

    @bench.app.task(priority=-5)
    def low() -> int:
        return 1

    high.using(priority=1).enqueue_many([()] * 20)
    jobs = low.enqueue_many([()] * 10)
    bench.work(threads=1)
    assert [job.result(LIMIT) for job in jobs] == [1] * 10
    over.set()


def test_within_a_band_priority_then_order_of_coming(any_bench: Bench) -> None:
    order: list[int] = []

    @any_bench.app.task
    def run(place: int) -> None:
        order.append(place)

    for place, priority in ((3, 1), (1, 5), (4, 1), (0, 9), (2, 5)):
        last = run.using(priority=priority).enqueue(place)
    any_bench.work(threads=1)
    last.result(LIMIT)
    until(lambda: len(order) == 5)
    assert order == [0, 1, 2, 3, 4]


def test_a_job_is_never_early(any_bench: Bench) -> None:
    @any_bench.app.task
    def when() -> tuple[int, int, float]:
        record = any_bench.app.get(current_job().id).record()
        return record.state_since, record.due, time.time()

    any_bench.work()
    soon = datetime.now(UTC) + timedelta(seconds=0.15)
    jobs = [when.using(delay=delay).enqueue() for delay in (0.3, 0.05, 0.1)] + [when.using(at=soon).enqueue()]
    for job in jobs:
        claimed, due, started = job.result(LIMIT)
        assert claimed >= due
        assert started > due / 1e6 - 0.002


def test_a_task_knows_its_job(bench: Bench) -> None:
    @bench.app.task(name="look", timeout=60, queue="mail")
    def look() -> list[Any]:
        job = current_job()
        assert repr(job) == f"<CurrentJob look {job.id} attempt 1>"
        assert job.log.extra == {"job": job.id, "task": "look"}
        left = (job.deadline or 0) - time.monotonic()
        return [job.id, job.task, job.queue, job.key, job.attempt, job.stopping, left]

    @bench.app.task(name="alook")
    async def alook() -> list[Any]:
        await asyncio.sleep(0)
        job = current_job()
        return [job.id, job.task, job.queue, job.key, job.attempt, job.stopping, job.deadline]

    bench.work()
    job = look.using(key="ann").enqueue()
    told = job.result(LIMIT)
    assert told[:6] == [job.id, "look", "mail", "ann", 1, False]
    assert 50 < told[6] <= 60
    other = alook.enqueue()
    assert other.result(LIMIT) == [other.id, "alook", "default", None, 1, False, None]


def test_outside_a_job_there_is_no_current_one(bench: Bench) -> None:
    with pytest.raises(RuntimeError, match="for code that a worker runs; no job runs here"):
        current_job()


def test_coroutines_each_know_their_own_job(bench: Bench) -> None:
    @bench.app.task
    async def whose() -> list[str]:
        before = current_job().id
        await asyncio.sleep(0.01)
        inner = await asyncio.create_task(_whose())
        return [before, current_job().id, inner]

    jobs = whose.enqueue_many([()] * 30)
    bench.work()
    assert [job.result(LIMIT) for job in jobs] == [[job.id] * 3 for job in jobs]


async def _whose() -> str:
    return current_job().id


@kinds
def test_a_task_enqueues_other_jobs(any_bench: Bench, kind: str) -> None:
    app = any_bench.app

    @app.task(name="sync")
    def sync(depth: int) -> list[str]:
        return [] if depth == 0 else [app.tasks["sync"].enqueue(depth - 1).id for _ in range(2)]

    @app.task(name="loop")
    async def loop(depth: int) -> list[str]:
        return [] if depth == 0 else [(await app.tasks["loop"].aenqueue(depth - 1)).id for _ in range(2)]

    any_bench.work()
    ids, runs = [app.enqueue(kind, 4).id], 0
    while ids:
        runs += len(ids)
        ids = [child for id in ids for child in app.get(id).result(LIMIT)]
    assert runs == 31


def test_jobs_in_line_behind_a_long_one_go_to_another_worker(bench: Bench) -> None:
    gate, begun = bench.gate(), threading.Event()

    @bench.app.task
    def long() -> int:
        begun.set()
        return int(gate.wait(LIMIT))

    @bench.app.task
    def short(number: int) -> str:
        return current_job().id

    first = long.enqueue()
    others = short.enqueue_many([(number,) for number in range(10)])
    greedy = bench.idle(threads=1)
    # As after a run of short jobs: it expects the next ones to be as short.
    greedy.pump._capacity._prefetch[False]._rate = 4000.0
    bench._workers.append(greedy.start())
    wait_for(begun)
    until(lambda: greedy.pump.held_count == 11 or all(job.record().epoch == 1 for job in others))
    bench.work(threads=1)
    started = time.monotonic()
    assert [job.result(LIMIT) for job in others] == [job.id for job in others]
    assert time.monotonic() - started < 3, "they stood behind the long one"
    assert first.state == "running"
    assert {(job.record().epoch, job.record().failures) for job in others} == {(2, 0)}
    gate.set()
    assert first.result(LIMIT) == 1


@pytest.mark.parametrize("kind", ["sync", "loop"])
def test_who_comes_while_others_take_long_takes_a_free_slot(
    bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "STALLED_AFTER", 0.0)
    gate = bench.gate()
    begun = threading.Semaphore(0)

    @bench.app.task
    def long() -> None:
        begun.release()
        gate.wait(LIMIT)

    @bench.app.task
    async def along() -> None:
        begun.release()
        await asyncio.to_thread(gate.wait, LIMIT)

    @bench.app.task
    def short() -> int:
        return 1

    @bench.app.task
    async def ashort() -> int:
        return 1

    first, then = (long, short) if kind == "sync" else (along, ashort)
    bench.work(threads=4, coroutines=4)
    first.enqueue_many([()] * 3)
    for _ in range(3):
        assert begun.acquire(timeout=LIMIT)
    for _ in range(20):
        job = then.enqueue()
        assert job.result(LIMIT) == 1
        assert job.record().epoch == 1, "it was given back, although there was a slot for it"


def test_coroutines_run_on_while_the_threads_are_busy_and_others_wait_for_them(bench: Bench) -> None:
    gate, begun = bench.gate(), threading.Event()

    @bench.app.task
    def long(number: int) -> int:
        begun.set()
        gate.wait(LIMIT)
        return number

    @bench.app.task
    async def quick(number: int) -> int:
        return number

    worker = bench.work(threads=1, coroutines=10)
    held = long.enqueue_many([(number,) for number in range(20)])
    wait_for(begun)
    assert [quick.using(priority=1).enqueue(number).result(LIMIT) for number in range(4)] == list(range(4))
    until(lambda: worker.pump.held_count == 1)
    assert sum(job.state == "ready" for job in held) == 19, "what no thread is free for is others' to take"
    assert {job.record().failures for job in held} == {0}
    gate.set()
    assert [job.result(LIMIT) for job in held] == list(range(20))


@kinds
def test_two_that_were_on_at_two_deaths_are_never_on_side_by_side(bench: Bench, kind: str) -> None:
    """Else the innocent one would be on at the third death too, and be poison with the guilty one."""
    on: list[int] = []
    most: list[int] = []

    def note(item: int) -> None:
        on.append(item)
        most.append(len(on))

    @bench.app.task(name="sync")
    def sync(item: int) -> None:
        note(item)
        time.sleep(0.05)
        on.remove(item)

    @bench.app.task(name="async")
    async def asynchronous(item: int) -> None:
        note(item)
        await asyncio.sleep(0.05)
        on.remove(item)

    task = sync if kind == "sync" else asynchronous
    suspects = [task.enqueue(number) for number in range(2)]
    store = bench.app.client.store
    for _ in range(2):
        store.claim([Want("default", band, 9) for band in BANDS], 9, "gone", 30_000_000, store.time())
        Keeper(store, rules=bench.app.rules).rescue("gone", on=[job.record().id.hex() for job in suspects])
        for job in suspects:
            job.retry()
    assert {(job.state, job.record().crashes) for job in suspects} == {("ready", 2)}
    bench.work(threads=2)
    for job in suspects:
        job.result(LIMIT)
    assert most == [1, 1]

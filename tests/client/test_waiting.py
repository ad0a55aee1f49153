import asyncio
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tarry import App, Job, JobCancelled, JobFailed, JobNotFound, ResultTimeout, StoreUnavailable
from tarry.model.lifecycle import Rules
from tarry.store.memory.store import MemoryStore
from tarry.worker.worker import Worker, WorkerSettings
from tests.worker.bench import LIMIT, Bench, until


@dataclass
class Receipt:
    number: int
    lines: list[str]


def waiting_threads() -> int:
    return sum(thread.name == "tarry-waiting" for thread in threading.enumerate())


def in_thread(action: Callable[[], object]) -> "list[object]":
    """What the action came to, in a list that is empty until then."""
    came: list[object] = []

    def act() -> None:
        try:
            came.append(action())
        except BaseException as error:
            came.append(error)

    threading.Thread(target=act, daemon=True).start()
    return came


def test_a_result_comes_when_the_job_is_done(any_bench: Bench) -> None:
    @any_bench.app.task
    def double(a: int) -> int:
        return 2 * a

    job = double.enqueue(4)
    came = in_thread(lambda: job.result(LIMIT))
    until(lambda: waiting_threads() == 1)
    any_bench.work()
    until(lambda: came)
    assert came == [8]
    assert job.result(0) == 8, "and at once when it is there already"


def test_a_typed_result_is_of_its_type(bench: Bench) -> None:
    @bench.app.task
    def pay(number: int) -> Receipt:
        return Receipt(number, ["a", "b"])

    bench.work()
    receipt = pay.enqueue(5).result(LIMIT)
    assert receipt == Receipt(5, ["a", "b"])
    assert isinstance(receipt, Receipt)


def test_a_result_is_awaited(any_bench: Bench) -> None:
    @any_bench.app.task
    async def double(a: int) -> int:
        return 2 * a

    any_bench.work()

    async def several() -> list[int]:
        jobs = await asyncio.gather(*(double.aenqueue(number) for number in range(10)))
        return await asyncio.gather(*(job.aresult(LIMIT) for job in jobs))

    assert asyncio.run(several()) == [2 * number for number in range(10)]
    until(lambda: waiting_threads() == 0)


def test_a_result_of_a_job_that_another_process_runs(bench: Bench) -> None:
    @bench.app.task
    def whose() -> int:
        return os.getpid()

    bench.app.close()
    child = os.fork()
    if child == 0:
        try:
            Worker(bench.app.open_store(durable=False), bench.app.tasks, WorkerSettings(), main_thread=False).run()
        finally:
            os._exit(1)
    try:
        assert whose.enqueue().result(LIMIT) == child
        assert asyncio.run(_aresult(whose.enqueue())) == child
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


async def _aresult(job: "Job[int]") -> int:
    return await job.aresult(LIMIT)


def test_the_result_of_a_job_that_is_done_is_there_at_once(any_bench: Bench) -> None:
    @any_bench.app.task
    def double(a: int) -> int:
        return 2 * a

    job = double.enqueue(4)
    with pytest.raises(ResultTimeout):
        asyncio.run(job.aresult(0))
    any_bench.work()
    job.result(LIMIT)
    assert asyncio.run(job.aresult(0)) == 8


def test_fifty_wait_with_one_thread(any_bench: Bench) -> None:
    @any_bench.app.task
    def double(a: int) -> int:
        return 2 * a

    jobs = double.enqueue_many([(number,) for number in range(50)])
    came = [in_thread(lambda job=job: job.result(LIMIT)) for job in jobs]  # type: ignore[misc]
    until(lambda: len(any_bench.app.client._waiting._waiters) == 50)
    assert waiting_threads() == 1
    any_bench.work()
    until(lambda: all(came))
    assert came == [[2 * number] for number in range(50)]
    until(lambda: waiting_threads() == 0)


def test_two_wait_for_one_job(bench: Bench) -> None:
    @bench.app.task
    def one() -> int:
        return 1

    job = one.enqueue()
    came = [in_thread(lambda: job.result(LIMIT)) for _ in range(2)]
    until(lambda: [len(told) for told in bench.app.client._waiting._waiters.values()] == [2])
    bench.work()
    until(lambda: all(came))
    assert came == [[1], [1]]


def test_who_waits_too_long_is_told_so(app: App) -> None:
    @app.task
    def never() -> None: ...

    job = never.enqueue()
    started = time.monotonic()
    with pytest.raises(ResultTimeout, match=rf"job {job.id} has not finished after 0.05 s"):
        job.result(0.05)
    with pytest.raises(TimeoutError):
        asyncio.run(job.aresult(0.05))
    assert time.monotonic() - started < 5
    until(lambda: waiting_threads() == 0)


def test_a_dead_job_fails_with_the_tasks_own_error(bench: Bench) -> None:
    @bench.app.task(name="pay")
    def pay() -> None:
        raise ValueError("no money")

    bench.work()
    job = pay.enqueue()
    with pytest.raises(JobFailed) as caught:
        job.result(LIMIT)
    assert str(caught.value) == f"pay {job.id} is dead: ValueError: no money"
    (traceback,) = caught.value.__notes__
    assert 'raise ValueError("no money")' in traceback
    assert "test_waiting.py" in traceback


def test_a_cancelled_job_says_why(app: App) -> None:
    @app.task(name="pay")
    def pay() -> None: ...

    job, plain, expired = pay.enqueue(), pay.enqueue(), pay.enqueue()
    came = in_thread(lambda: job.result(LIMIT))
    until(lambda: waiting_threads() == 1)
    job.cancel("not wanted")
    until(lambda: came)
    assert isinstance(came[0], JobCancelled)
    assert str(came[0]) == f"pay {job.id} was cancelled: not wanted"
    plain.cancel()
    with pytest.raises(JobCancelled, match=rf"^pay {plain.id} was cancelled$"):
        asyncio.run(plain.aresult(LIMIT))
    assert expired.state == "ready"


def test_a_job_that_is_forgotten_is_not_found() -> None:
    app = App(MemoryStore(), closures=True)
    app.rules = lambda task, queue: Rules(keep_done=0)  # type: ignore[method-assign]

    @app.task
    def pay() -> None: ...

    job = pay.enqueue()
    came = in_thread(lambda: job.result(LIMIT))
    until(lambda: waiting_threads() == 1)
    assert job.cancel()
    until(lambda: came)
    assert isinstance(came[0], JobNotFound)
    for missing in (lambda: job.result(1), lambda: job.state, lambda: asyncio.run(job.aresult(LIMIT))):
        with pytest.raises(JobNotFound, match=f"no job {job.id}: it never existed, or its time of keeping is over"):
            missing()


def test_waiting_outlasts_a_store_that_is_away(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    @bench.app.task
    def one() -> int:
        return 1

    job = one.enqueue()
    store = bench.app.client.store
    get, calls = store.get, [0]

    def flaky(ids: list[bytes]) -> object:
        calls[0] += 1
        if calls[0] in (2, 3):
            raise StoreUnavailable("away")
        return get(ids)

    monkeypatch.setattr(store, "get", flaky)
    came = in_thread(lambda: job.result(LIMIT))
    until(lambda: calls[0] >= 2)
    bench.work()
    until(lambda: came)
    assert came == [1]
    assert calls[0] >= 4


def test_a_loop_that_closed_while_it_waited_hurts_nobody(app: App) -> None:
    @app.task
    def one() -> int:
        return 1

    job = one.enqueue()

    async def abandoned() -> None:
        asyncio.get_running_loop().create_task(job.aresult(LIMIT))
        await asyncio.sleep(0)

    asyncio.run(abandoned())
    until(lambda: waiting_threads() == 0)
    job.cancel()
    with pytest.raises(JobCancelled):
        job.result(LIMIT)


def test_a_job_of_a_task_that_this_app_does_not_know_has_a_plain_result(bench: Bench) -> None:
    @bench.app.task(name="pay")
    def pay() -> Receipt:
        return Receipt(1, [])

    bench.work()
    job = pay.enqueue()
    job.result(LIMIT)
    other = App(bench.app.store_url, closures=True)
    assert other.get(job.id).result(LIMIT) == {"number": 1, "lines": []}
    other.close()

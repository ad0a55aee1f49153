"""What a job leaves on the event loop may call `sys.exit`, or stop the loop: it fails, and the others go on."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import NoReturn

import pytest

from tests.worker.bench import Bench, finished, note, until

Way = Callable[[BaseException], Awaitable[object]]


async def leave(error: BaseException) -> NoReturn:
    await asyncio.sleep(0)
    raise error


def raise_it(error: BaseException) -> NoReturn:
    raise error


async def gathers(error: BaseException) -> None:
    await asyncio.gather(leave(error), asyncio.sleep(60))


async def leaves_a_task(error: BaseException) -> None:
    _task = asyncio.create_task(leave(error))  # noqa: RUF006
    await asyncio.sleep(60)


async def ensures_a_future(error: BaseException) -> None:
    _future = asyncio.ensure_future(leave(error))  # noqa: RUF006
    await asyncio.sleep(60)


async def awaits_a_task(error: BaseException) -> None:
    await asyncio.create_task(leave(error))


async def has_a_group(error: BaseException) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(leave(error))
        group.create_task(asyncio.sleep(60))


async def calls_soon(error: BaseException) -> None:
    asyncio.get_running_loop().call_soon(raise_it, error)
    await asyncio.sleep(60)


async def calls_later(error: BaseException) -> None:
    asyncio.get_running_loop().call_later(0.01, raise_it, error)
    await asyncio.sleep(60)


async def calls_from_a_thread(error: BaseException) -> None:
    await asyncio.to_thread(asyncio.get_running_loop().call_soon_threadsafe, raise_it, error)
    await asyncio.sleep(60)


async def has_a_callback(error: BaseException) -> None:
    asyncio.create_task(asyncio.sleep(0)).add_done_callback(lambda done: raise_it(error))
    await asyncio.sleep(60)


async def is_itself(error: BaseException) -> None:
    raise_it(error)


WAYS = [
    gathers, leaves_a_task, ensures_a_future, awaits_a_task, has_a_group, calls_soon, calls_later, calls_from_a_thread,
    has_a_callback, is_itself,
]  # fmt: skip


@pytest.mark.parametrize("uvloop", [False, True])
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_the_job_fails_and_its_neighbours_end(bench: Bench, kind: type[BaseException], uvloop: bool) -> None:
    gate = bench.gate()

    @bench.app.task(name="waits")
    async def waits() -> str:
        await asyncio.to_thread(gate.wait, 30)
        return "ended"

    @bench.app.task(name="exits", timeout=60)
    async def exits(way: str) -> None:
        await next(each for each in WAYS if each.__name__ == way)(kind("three"))

    worker = bench.work(coroutines=50, uvloop=uvloop)
    neighbours = [waits.enqueue() for _ in range(5)]
    until(lambda: all(job.state == "running" for job in neighbours))
    for way in WAYS:
        job = exits.enqueue(way.__name__)
        end = (finished(job), note(job)["type"], note(job)["message"])
        assert end == ("dead", kind.__name__, "three"), way
    gate.set()
    assert [job.result(timeout=15) for job in [*neighbours, waits.enqueue()]] == ["ended"] * 6
    assert {job.record().attempt for job in neighbours} == {1}
    worker.end()


def test_many_at_once_are_told_apart(bench: Bench) -> None:
    @bench.app.task(name="exits")
    async def exits(way: str) -> None:
        await next(each for each in WAYS if each.__name__ == way)(SystemExit(way))

    bench.work(coroutines=50)
    jobs = {way.__name__: exits.enqueue(way.__name__) for way in WAYS}
    assert {way: (finished(job), note(job)["message"]) for way, job in jobs.items()} == {
        way: ("dead", way) for way in jobs
    }


def test_a_job_that_stops_the_loop_stops_nobody(bench: Bench) -> None:
    @bench.app.task(name="stops")
    async def stops() -> str:
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0.01)
        return "ended"

    worker = bench.work(coroutines=10)
    assert [job.result(timeout=15) for job in [stops.enqueue() for _ in range(20)]] == ["ended"] * 20
    worker.end()


def test_what_a_job_has_left_may_exit_after_it_and_at_the_end(bench: Bench) -> None:
    kept: list[asyncio.Task[None]] = []

    @bench.app.task(name="leaves")
    async def leaves() -> str:
        async def at_the_end() -> None:
            try:
                await asyncio.sleep(60)
            finally:
                sys.exit(4)

        kept.append(asyncio.create_task(at_the_end()))
        asyncio.get_running_loop().call_later(0.01, sys.exit, 3)
        return "ended"

    @bench.app.task(name="sleeps")
    async def sleeps() -> str:
        await asyncio.sleep(0.05)
        return "slept"

    worker = bench.work(coroutines=10)
    assert leaves.enqueue().result(timeout=15) == "ended"
    assert [job.result(timeout=15) for job in [sleeps.enqueue() for _ in range(5)]] == ["slept"] * 5
    worker.end()

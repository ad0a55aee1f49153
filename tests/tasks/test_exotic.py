"""Tasks that do what tasks do not do: each ends as its own job's failure, and the worker works on."""

import asyncio
import functools
import json
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tarry import current_job
from tarry.model.checks.texts import MOST_TRACEBACK
from tarry.model.verdict import Verdict
from tests.worker.bench import LIMIT, Bench, until


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


class Nameless(Exception):
    """Its representation and its text are of another kind than they should be."""

    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307

    __repr__ = __str__


class HomeMade(BaseException):
    pass


class Odd(Verdict):
    pass


def endless(depth: int = 0) -> int:
    return endless(depth + 1) + 1


def raising(error: BaseException) -> Callable[[], Any]:
    def act() -> Any:
        raise error

    return act


def deep(levels: int) -> Any:
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


class Unreadable:
    __slots__ = ()

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("look away")


def grouped() -> None:
    raise ExceptionGroup("several", [ValueError("one"), Unspeakable()])


def long_message() -> None:
    raise ValueError("x" * 100_000)


ACTS: dict[str, tuple[Callable[[], Any], str]] = {
    "SystemExit": (lambda: sys.exit(3), "SystemExit"),
    "KeyboardInterrupt": (raising(KeyboardInterrupt()), "KeyboardInterrupt"),
    "MemoryError": (raising(MemoryError()), "MemoryError"),
    "GeneratorExit": (raising(GeneratorExit()), "GeneratorExit"),
    "StopAsyncIteration": (raising(StopAsyncIteration()), "StopAsyncIteration|RuntimeError"),
    "StopIteration": (raising(StopIteration(5)), "StopIteration|RuntimeError"),
    "CancelledError": (raising(asyncio.CancelledError()), "asyncio.exceptions.CancelledError"),
    "BaseException": (raising(HomeMade("x")), "tests.tasks.test_exotic.HomeMade"),
    "no text": (raising(Unspeakable()), "tests.tasks.test_exotic.Unspeakable"),
    "no text at all": (raising(Nameless()), "tests.tasks.test_exotic.Nameless"),
    "half a character": (raising(ValueError("\ud800 in a file name")), "ValueError"),
    "endless recursion": (endless, "RecursionError"),
    "group": (grouped, "ExceptionGroup"),
    "long message": (long_message, "ValueError"),
    "verdict of one's own": (raising(Odd("?")), "Fail"),
    "verdict of one's own, returned": (lambda: Odd("?"), "Fail"),
    "a result too deep": (lambda: deep(1_000_000), "ResultError"),
    "a result with half a character": (lambda: "\ud800", "ResultError"),
    "a result that cannot be read": (Unreadable, "ResultError"),
    "a class": (lambda: ValueError, "ResultError"),
    "a coroutine": (lambda: asyncio.sleep(0), "ResultError"),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("kind", ["sync", "loop"])
def test_it_fails_its_own_job_only(bench: Bench, kind: str, act: str) -> None:
    action, expected = ACTS[act]

    @bench.app.task(name="sync")
    def sync(wild: bool) -> Any:
        return action() if wild else 1

    @bench.app.task(name="loop")
    async def loop(wild: bool) -> Any:
        await asyncio.sleep(0)
        return action() if wild else 1

    worker = bench.work(threads=1)
    wild, tame = bench.app.enqueue(kind, True), bench.app.enqueue(kind, False)
    until(lambda: wild.state.finished)
    assert (wild.state, wild.record().failures) == ("dead", 1)
    told = json.loads(wild.record().note)
    assert told["type"] in expected.split("|")
    assert len(told["traceback"]) <= MOST_TRACEBACK
    assert tame.result(LIMIT) == 1
    until(lambda: worker.pump.held_count == 0)
    assert worker.thread.is_alive()


@pytest.mark.filterwarnings("error")
def test_a_decorator_that_hides_an_async_def_is_named(bench: Bench) -> None:
    async def send() -> int:
        return 1

    @functools.wraps(send)
    def wrapper() -> Any:
        return send()

    bench.app.task(name="send")(wrapper)
    bench.work()
    handle = bench.app.enqueue("send")
    until(lambda: handle.state.finished)
    told = json.loads(handle.record().note)["message"]
    assert told.startswith("send returned coroutine, which cannot be kept as JSON: await ")
    assert told.endswith("send, or, if a decorator's def calls that, make its wrapper an async def")


def test_a_task_that_leaves_a_thread_behind_has_ended(bench: Bench) -> None:
    gate = bench.gate()

    @bench.app.task
    def leak() -> int:
        threading.Thread(target=gate.wait, args=(LIMIT,), name="leaked", daemon=True).start()
        return 1

    worker = bench.work()
    assert [leak.enqueue().result(LIMIT) for _ in range(3)] == [1, 1, 1]
    worker.end()
    assert sum(thread.name == "leaked" for thread in threading.enumerate()) == 3


def test_a_task_that_leaves_a_coroutine_behind_has_ended_and_it_is_cancelled_with_the_worker(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    ends: list[str] = []
    kept: list[Any] = []

    @bench.app.task
    async def leak() -> int:
        kept.append(asyncio.get_running_loop().create_task(_left_behind(ends)))
        await asyncio.sleep(0)
        return 1

    worker = bench.work()
    assert leak.enqueue().result(LIMIT) == 1
    worker.end()
    assert ends == ["cancelled"]
    assert "destroyed but it is pending" not in caplog.text


async def _left_behind(ends: list[str]) -> None:
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        ends.append("cancelled")
        raise


def test_a_task_may_run_a_loop_of_its_own(bench: Bench) -> None:
    @bench.app.task
    def loops() -> int:
        return asyncio.run(_one())

    bench.work()
    assert loops.enqueue().result(LIMIT) == 1


async def _one() -> int:
    await asyncio.sleep(0)
    return 1


def test_a_task_may_wait_for_other_jobs(bench: Bench) -> None:
    @bench.app.task
    def inner(a: int) -> int:
        return a

    @bench.app.task
    def outer() -> int:
        return sum(job.result(LIMIT) for job in inner.enqueue_many([(1,), (2,)]))

    bench.work(threads=2)
    assert outer.enqueue().result(LIMIT) == 3


def test_a_task_may_cancel_its_own_job_and_not_retry_it(bench: Bench) -> None:
    answers: list[bool] = []

    @bench.app.task
    def itself() -> None:
        answers.append(bench.app.get(current_job().id).retry())
        answers.append(bench.app.get(current_job().id).cancel("enough"))

    worker = bench.work()
    job = itself.enqueue()
    until(lambda: job.state == "cancelled")
    until(lambda: worker.pump.held_count == 0)
    assert answers[0] is False
    assert job.state == "cancelled"

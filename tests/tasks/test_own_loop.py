"""Coroutines where no event loop runs."""

import asyncio
import os
import threading
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any

import pytest

from tarry.tasks import own_loop
from tarry.tasks.interrupts import TimeLimit
from tests.worker.bench import wait_for

var: ContextVar[str] = ContextVar("var", default="unset")

places = pytest.mark.parametrize("place", ["no loop", "a loop"])


def run(place: str, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """On the own loop of this thread; or of one whose loop is running."""
    if place == "no loop":
        return own_loop.thread_loop().run(coroutine)

    async def inside() -> Any:
        return own_loop.thread_loop().run(coroutine)

    return asyncio.run(inside())


@places
def test_a_coroutine_returns(place: str) -> None:
    async def work() -> str:
        async with asyncio.timeout(5):
            await asyncio.sleep(0.001)
        return "done"

    assert run(place, work()) == "done"


@places
@pytest.mark.parametrize("error", [ValueError("no"), TimeLimit("late"), asyncio.CancelledError()])
def test_a_coroutine_raises(place: str, error: BaseException) -> None:
    async def work() -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(type(error)):
        run(place, work())


def test_what_breaks_the_loop_itself_cancels_the_coroutine_first() -> None:
    cleaned: list[bool] = []

    async def work() -> None:
        asyncio.get_running_loop().call_soon(_raise, KeyboardInterrupt())
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append(True)

    own = own_loop.OwnLoop()
    with pytest.raises(KeyboardInterrupt):
        own.run(work())
    assert cleaned == [True]


def test_what_is_thrown_into_the_loops_own_code_is_not_lost() -> None:
    async def work() -> None:
        asyncio.get_running_loop().call_soon(_raise, TimeLimit("late"))
        await asyncio.sleep(60)

    own = own_loop.OwnLoop()
    with pytest.raises(TimeLimit):
        own.run(work())


def test_other_errors_in_callbacks_are_told_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> str:
        asyncio.get_running_loop().call_soon(_raise, ValueError("in a callback"))
        await asyncio.sleep(0.001)
        return "done"

    assert own_loop.OwnLoop().run(work()) == "done"
    assert "in a callback" in caplog.text


def _raise(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_call_outside_is_made_in_the_callers_thread_and_the_coroutines_context_with_no_loop_running(
    elsewhere: bool,
) -> None:
    async def nested() -> str:
        return var.get()

    def call() -> tuple[int, str]:
        return threading.get_ident(), "" if elsewhere else asyncio.run(nested())

    async def work(own: own_loop.OwnLoop) -> tuple[int, str]:
        var.set("set")
        async with asyncio.timeout(5):
            found: tuple[int, str] = await own.call_outside(call)
        return found

    def here() -> Any:
        own = own_loop.thread_loop()
        return own.run(work(own))

    async def inside() -> Any:
        return here()

    found = asyncio.run(inside()) if elsewhere else here()
    assert found == (threading.get_ident(), "" if elsewhere else "set")
    assert var.get() == "unset"


@pytest.mark.parametrize("error", [ValueError("no"), StopIteration("no"), TimeLimit("no")])
def test_an_error_of_a_call_outside_comes_back_into_the_coroutine(error: BaseException) -> None:
    caught: list[BaseException] = []

    async def work(own: own_loop.OwnLoop) -> None:
        try:
            await own.call_outside(lambda: _raise(error))
        except BaseException as raised:
            caught.append(raised)

    own = own_loop.thread_loop()
    own.run(work(own))
    assert error in (caught[0], caught[0].__cause__)


def test_calls_outside_nest() -> None:
    def deeper(depth: int) -> int:
        own = own_loop.thread_loop()

        async def work() -> int:
            await asyncio.sleep(0)
            return 1 + (await own.call_outside(lambda: deeper(depth - 1)) if depth else 0)

        found: int = own.run(work())
        return found

    assert deeper(5) == 6


def test_several_calls_outside_at_once() -> None:
    async def work(own: own_loop.OwnLoop) -> list[int]:
        return await asyncio.gather(*(own.call_outside(lambda n=n: n) for n in range(3)))  # type: ignore[misc]

    own = own_loop.thread_loop()
    assert own.run(work(own)) == [0, 1, 2]


def test_a_sleeping_loop_is_woken() -> None:
    asleep, awake = threading.Event(), threading.Event()

    async def work() -> None:
        asyncio.get_running_loop().call_soon(asleep.set)
        while not awake.is_set():
            await asyncio.sleep(0 if awake.is_set() else 0.01)

    thread = threading.Thread(target=lambda: own_loop.thread_loop().run(work()))
    thread.start()
    wait_for(asleep)
    assert thread.ident is not None
    awake.set()
    own_loop.wake(thread.ident)
    thread.join()
    own_loop.wake(thread.ident)


def test_a_forked_child_has_a_loop_of_its_own() -> None:
    async def work() -> int:
        await asyncio.sleep(0.001)
        return 7

    assert own_loop.thread_loop().run(work()) == 7
    pid = os.fork()
    if pid == 0:
        os._exit(own_loop.thread_loop().run(work()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert own_loop.thread_loop().run(work()) == 7

"""Calls that would hold up the event loop, made in threads that nobody waits for at the end of the process."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(call: Callable[[], T]) -> T:
    """What the call returns or raises. Given up on, it goes on by itself: it has to have a limit of its own."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def work() -> None:
        try:
            result = call()
        except BaseException as error:
            tell(partial(future.set_exception, error))
        else:
            tell(partial(future.set_result, result))

    def tell(what: Callable[[], None]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(lambda: None if future.done() else what())

    threading.Thread(target=work, name="tarry-aside", daemon=True).start()
    return await future

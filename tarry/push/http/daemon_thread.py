"""Blocking calls in daemon threads: the end of the process does not wait for them."""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(call: Callable[[], T]) -> T:
    """Runs a blocking call and returns or raises what it does.

    Cancelling does not stop the call, so it needs a time limit of its own.
    """
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
            # Done already if the caller was cancelled.
            loop.call_soon_threadsafe(lambda: None if future.done() else what())

    # Not an executor: at the end of the process the interpreter waits for the threads of executors.
    threading.Thread(target=work, name="tarry-aside", daemon=True).start()
    return await future

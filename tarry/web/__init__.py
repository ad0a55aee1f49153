"""For web applications: the progress of jobs as server-sent events, and an app that opens and closes with the server.

What serves every framework is here; `web.flask` and `web.litestar` are for theirs, and import them.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

from tarry.app import App
from tarry.tasks.lazy_asyncio import asyncio
from tarry.web.progress_events import EventStream, JobEvents

__all__ = ["EventStream", "JobEvents", "lifespan"]


def lifespan(app: App, *, worker: bool = False) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    """For `FastAPI(lifespan=...)`, `Starlette(lifespan=...)` and `Litestar(lifespan=[...])`.

    Opens the store in each server process, in a thread; StoreError if it is away, unless the app has an outbox. Closes
    the app at the end. worker: jobs run in this process too, as with `app.running()`.
    """

    @asynccontextmanager
    async def context(web: Any) -> AsyncIterator[None]:
        # In a thread: the first use of an app opens its store, and that would block the event loop at a request.
        await asyncio.to_thread(lambda: app.client)
        async with AsyncExitStack() as stack:
            stack.push_async_callback(_close, app)
            if worker:
                await stack.enter_async_context(app.running())
            yield

    return context


async def _close(app: App) -> None:
    # A server that is in a hurry cancels its lifespan. What the app has open is to be closed all the same.
    await asyncio.shield(asyncio.to_thread(app.close))

"""Helpers for the tests of programs that take jobs."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from tarry import App
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import HELD, Job
from tarry.server.claims import Claims

LEASE = 30 * SECOND
WITHIN = 60.0


@contextlib.asynccontextmanager
async def taking(app: App, **options: Any) -> AsyncIterator[Claims]:
    """The claims of a server process."""
    store, is_own = app.connection()
    claims = Claims(app.client, store, owns_store=is_own, **options)
    try:
        yield claims
    finally:
        await asyncio.to_thread(claims.close)


def put(app: App, count: int = 1, **fields: Any) -> list[Job]:
    """New jobs of a task that the app does not know, stored."""
    store = app.client.store
    now = store.time()
    start = replace(Job(b"", "php", b"[1]", "php", due=now, state_since=now), **fields)
    start = replace(
        start, state=lifecycle.initial_state(start.due, now), key_held_until=0 if start.key is None else HELD
    )
    jobs = [replace(start, id=store.new_id(start.task, start.key)) for _ in range(count)]
    assert store.insert(jobs) == [job.id for job in jobs]
    return jobs


def seen(app: App, *jobs: Job) -> list[Job]:
    """The jobs as they are now."""
    found = app.client.store.get([job.id for job in jobs])
    return [job for job in found if job is not None]


async def until(condition: Callable[[], bool]) -> None:
    """Waits for it, with a limit."""
    async with asyncio.timeout(WITHIN):
        while not condition():
            await asyncio.sleep(0.002)


async def ask_at_once(claims: Claims, asked: Iterable[Coroutine[Any, Any, Any]]) -> tuple[list[Any], int]:
    """Asks while the store is in its first exchange; returns the answers, and how many exchanges there were."""
    have_asked = threading.Event()
    with counting(claims, "exchange", have_asked) as calls:
        tasks = [asyncio.create_task(one) for one in asked]
        await asyncio.sleep(0)
        have_asked.set()
        return await asyncio.gather(*tasks), len(calls)


class Counting:
    """Counts the calls of a verb of a store. may_go: each call waits for it."""

    def __init__(self, store: Any, verb: str, may_go: threading.Event | None = None) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self._call = getattr(store, verb)

        def counted(*args: Any) -> Any:
            self.calls.append(args)
            if may_go is not None:
                assert may_go.wait(WITHIN)
            return self._call(*args)

        setattr(store, verb, counted)


@contextlib.contextmanager
def counting(claims: Claims, verb: str, may_go: threading.Event | None = None) -> Iterator[list[tuple[Any, ...]]]:
    """The calls of that verb of the store, with their arguments. may_go: each call waits for it."""
    store = claims.store
    counted = Counting(store, verb, may_go)
    try:
        yield counted.calls
    finally:
        delattr(store, verb)

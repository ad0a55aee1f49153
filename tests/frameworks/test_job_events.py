"""Streams of events about a job, without a server."""

import asyncio
import gc
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tarry import App, Retry, current_job
from tarry.errors import StoreUnavailable
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.web import JobEvents, lifespan
from tarry.web.progress_events import GONE, RETRY, RETRY_LATER, STILL_HERE


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/tarry.db", closures=True)
    yield app
    app.close()


@pytest.fixture
def task(app: App) -> Any:
    @app.task(retry=Retry(1, base=0))
    def half(password: str) -> None:
        current_job().progress(0.5, "half")
        raise ConnectionError(password)

    return half


def data_of(chunk: bytes) -> Any:
    return json.loads(chunk.decode().partition("data: ")[2])


def test_what_a_browser_is_told(app: App, task: Any) -> None:
    job = task.enqueue("secret")
    app.drain()
    retry, event, end = JobEvents(app).open(job.id)
    assert retry == RETRY
    assert data_of(event) == {"state": "dead", "attempt": 2, "progress": {"fraction": 0.5, "message": "half"}}
    assert b"secret" not in event
    assert b"event: end" in end


def test_what_the_application_tells_instead(app: App, task: Any) -> None:
    job = task.enqueue("secret")
    app.drain()
    _, event, _ = JobEvents(app, render=lambda event: {"why": event.message}).open(job.id)
    assert data_of(event) == {"why": "ConnectionError: secret"}


def test_a_pause_without_news(app: App, task: Any) -> None:
    job = task.enqueue("x")
    with closing(iter(JobEvents(app, heartbeat=0.05).open(job.id))) as chunks:  # type: ignore[type-var]
        assert next(chunks).startswith(RETRY + b"id: " + job_id(app, job))
        assert [next(chunks) for _ in range(2)] == [STILL_HERE, STILL_HERE]


def job_id(app: App, job: Any) -> bytes:
    """The id of the event for the job as it is."""
    (chunk,) = [chunk for chunk in JobEvents(app, most=0).open(job.id) if chunk.startswith(b"id: ")]
    return chunk.split()[1]


def test_a_stream_ends_in_time_and_goes_on_where_it_was(app: App, task: Any) -> None:
    job = task.enqueue("x")
    events = JobEvents(app, lasts=0.05)
    first = list(events.open(job.id))
    assert data_of(first[0])["state"] == "ready"
    assert not [chunk for chunk in first if b"event: end" in chunk]
    again = list(events.open(job.id, job_id(app, job).decode()))
    assert set(again) <= {RETRY, STILL_HERE}


def test_a_job_that_is_deleted_meanwhile(app: App, task: Any) -> None:
    job = task.enqueue("x")
    with closing(iter(JobEvents(app).open(job.id))) as chunks:  # type: ignore[type-var]
        next(chunks)
        assert app.client.forget(job.raw_id)
        assert next(chunks) == GONE


class _AwayStore(MemoryStore):
    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        raise StoreUnavailable("it restarts")


def test_a_store_that_is_away() -> None:
    """An error would end the EventSource of a page for good."""
    app = App(_AwayStore())
    stream = JobEvents(app).open("0193a2b4-0000-7000-8000-000000000000")
    assert (stream.status, list(stream)) == (200, [RETRY_LATER])
    app.close()


def test_an_answer_that_nobody_reads_makes_room(app: App, task: Any) -> None:
    job = task.enqueue("x")
    events = JobEvents(app, most=1)
    stream = events.open(job.id)
    assert next(iter(events.open(job.id))) == RETRY_LATER
    del stream
    gc.collect()
    with closing(iter(events.open(job.id))) as chunks:  # type: ignore[type-var]
        assert next(chunks).startswith(RETRY)


def test_one_that_is_cancelled_makes_room(app: App, task: Any) -> None:
    job = task.enqueue("x")
    events = JobEvents(app, most=1)

    async def main() -> None:
        stream = await events.aopen(job.id)
        reading = asyncio.create_task(read(stream))
        while not seen:
            await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        stream = await events.aopen(job.id)
        assert (await anext(aiter(stream))).startswith(RETRY)

    seen: list[bytes] = []

    async def read(stream: Any) -> None:
        async for chunk in stream:
            seen.append(chunk)

    asyncio.run(main())


def test_a_lifespan_opens_and_closes(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/tarry.db", closures=True)
    closed = []
    app.on_close(lambda: closed.append(True))

    @app.task
    def greet(name: str) -> str:
        return f"hello {name}"

    async def main() -> None:
        async with lifespan(app, worker=True)(None):
            assert (tmp_path / "tarry.db").exists(), "before the first request"
            job = await greet.aenqueue("ann")
            assert await job.aresult(30) == "hello ann"
        assert closed == [True]

    asyncio.run(main())

"""Streams of what changes: server-sent events, made from what the store shows."""

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from functools import partial
from hashlib import blake2b
from typing import Any, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.client.client import Client
from tarry.client.follow import make_event
from tarry.client.queue_records import QueueRecord
from tarry.errors import Busy, Draining, StoreError
from tarry.model.job import Job, State
from tarry.store.rules import ids
from tarry.store.rules.base import Query
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.progress import Progress

TICK = 1.0
"""Seconds after which a stream looks whether it is to end, and a filter is looked at again."""
HEARTBEAT = 15.0
"""Seconds after which a stream without events says that it still is there."""
MOST_STREAMS = 100
"""Streams of one process."""
MOST_OF_CALLER = 50
"""Of these, of one caller with a name: so nobody keeps others from having theirs."""
MOST_JOBS = 500
"""Jobs that one stream watches by a filter: those with the lowest ids."""
UNFINISHED = (State.SCHEDULED, State.READY, State.RUNNING)

# A store that is slow is asked less often, so that streams take a fifth of its time at most.
_REST = 4

StartTask = Callable[..., Coroutine[Any, Any, Any]]
"""Makes a blocking call in a thread."""


class JobChange(Struct, frozen=True):
    """A job as it is now."""

    id: str
    task: str
    queue: str
    epoch: int
    state: State
    attempt: int
    progress: Progress | None
    at: float
    message: str

    @classmethod
    def of(cls, job: Job, before: Job | None) -> "JobChange":
        """before: the job as it was in the event before; None: this is the first."""
        event = make_event(job, before)
        return cls(
            ids.text(job.id), job.task, job.queue, job.epoch,
            event.state, event.attempt, event.progress, event.at, event.message,
        )  # fmt: skip


class StreamEvent(Struct, frozen=True):
    """One event. name: `job`, `gone`, `queue` or `end`. data: is sent as JSON."""

    name: str
    data: Any

    def encode(self) -> bytes:
        """As it is sent."""
        return b"event: %b\ndata: %b\n\n" % (self.name.encode(), msgspec.json.encode(self.data))


class EventSource(Protocol):
    """What a stream is about."""

    def batches(self) -> AsyncIterator[Sequence[StreamEvent]]:
        """The events as they come: each `TICK` a batch at least, which may be empty. Ends when no more can come."""


class EventStreams:
    """The streams of one process. is_ending: whether they are to end."""

    def __init__(self, is_ending: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._is_ending, self._clock = is_ending, clock
        self.open_of = Counter[str]()
        """How many there are of each caller."""
        self.refused = 0
        """How many more were asked for."""

    @property
    def open(self) -> int:
        """How many there are."""
        return self.open_of.total()

    @contextmanager
    def counted(self, caller: str) -> Iterator[None]:
        """Counts a stream of that caller as long as the block lasts."""
        self.open_of[caller] += 1
        try:
            yield
        finally:
            self.open_of[caller] -= 1
            # A Counter keeps a name with nothing to count.
            self.open_of += Counter()

    def check_room(self, caller: str) -> None:
        """Busy if there are too many streams for one more of that caller. caller: empty: it has no name."""
        if caller and self.open_of[caller] >= MOST_OF_CALLER:
            self.refused += 1
            raise Busy(f"{caller} has {MOST_OF_CALLER} streams of events open here already: end one", 5.0)
        if self.open >= MOST_STREAMS:
            self.refused += 1
            raise Busy(f"{self.open} streams of events are open here already: end one, or ask again later", 5.0)

    async def chunks(
        self, source: EventSource, seconds: float, may_go_on: Callable[[], Coroutine[Any, Any, bool]]
    ) -> AsyncIterator[bytes]:
        """A stream as it is sent. It ends when its source does, after so many seconds, or when the server ends.
        may_go_on: asked before each batch is sent: whether its reader may see what comes; else it ends there."""
        end = self._clock() + seconds
        # At once, so that the client has the head of the answer. Then: when a client that lost the stream comes again.
        yield b"retry: 1000\n\n"
        said_at = self._clock()
        async with aclosing(source.batches()) as batches:  # type: ignore[type-var]
            async for batch in batches:
                if not await may_go_on():
                    break
                if batch:
                    yield b"".join(event.encode() for event in batch)
                    said_at = self._clock()
                elif self._clock() - said_at >= HEARTBEAT:
                    # A comment: it keeps proxies from closing the connection, and finds peers that are gone.
                    yield b": still here\n\n"
                    said_at = self._clock()
                if self._is_ending() or self._clock() >= end:
                    break
        yield StreamEvent("end", {}).encode()


class FollowedJobs:
    """Some jobs, followed until all of them have finished. Changes come when they are made; of those that come faster
    than they are read only the newest is kept. allows: whether the reader may see that queue."""

    def __init__(self, client: Client, run: StartTask, jobs: Sequence[bytes], allows: Callable[[str], bool]) -> None:
        self._client, self._run, self._jobs, self._allows = client, run, jobs, allows
        self._newest: dict[bytes, Job | None] = {}
        self._stops: list[Callable[[], None]] = []
        self._is_over = False

    async def batches(self) -> AsyncIterator[Sequence[StreamEvent]]:
        """See `EventSource`."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()
        left, before = set(self._jobs), dict[bytes, Job | None]()

        def put(id: bytes, job: Job | None) -> None:
            self._newest[id] = job
            changed.set()

        def notify(id: bytes, job: Job | None) -> None:
            # RuntimeError: the loop was closed, and nobody follows any more.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(put, id, job)

        try:
            await self._run(self._start, notify)
            while left:
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), TICK)
                changed.clear()
                newest, self._newest = self._newest, {}
                # One that was moved to a queue that the reader may not see is gone, for this reader.
                newest = {id: job if job and self._allows(job.queue) else None for id, job in newest.items()}
                yield [_event(id, job, before.get(id)) for id, job in newest.items()]
                before |= {id: job and _outline(job) for id, job in newest.items()}
                left -= {id for id, job in newest.items() if job is None or job.state.finished}
        finally:
            self._is_over = True
            self._stop()

    def _start(self, notify: Callable[[bytes, Job | None], None]) -> None:
        for id in self._jobs:
            self._stops.append(self._client.watch(id, partial(notify, id)))
        # The stream may have ended while this ran in its thread.
        if self._is_over:
            self._stop()

    def _stop(self) -> None:
        for stop in list(self._stops):
            stop()


class WatchedJobs:
    """The jobs that match a query, looked at again and again. allows: whether the reader may see that queue."""

    def __init__(self, client: Client, run: StartTask, query: Query, allows: Callable[[str], bool]) -> None:
        self._client, self._run, self._allows = client, run, allows
        self._query = replace(query, states=query.states or UNFINISHED, limit=MOST_JOBS)
        self._seen: dict[bytes, Job] = {}

    async def batches(self) -> AsyncIterator[Sequence[StreamEvent]]:
        """See `EventSource`."""
        while True:
            began = time.monotonic()
            batch: Sequence[StreamEvent] = []
            # It goes on once the store is back.
            with suppress(StoreError, Busy, Draining):
                batch = await self._run(self._look)
            yield batch
            rest = max(TICK, _REST * (time.monotonic() - began))
            while rest > 0:
                await asyncio.sleep(min(rest, TICK))
                rest -= TICK
                if rest > 0:
                    yield []

    def _look(self) -> list[StreamEvent]:
        found = {job.id: job for job in self._client.store.find(self._query)}
        left = [id for id in self._seen if id not in found]
        now: dict[bytes, Job | None] = {**found, **dict(zip(left, self._client.fetch(left), strict=True))}
        events = [
            _event(id, job, self._seen.get(id))
            for id, job in now.items()
            if (job and _outline(job)) != self._seen.get(id) and (job is None or self._allows(job.queue))
        ]
        self._seen = {id: _outline(job) for id, job in found.items()}
        return events


class WatchedQueues:
    """All queues, looked at again and again. read: gives their records, and may block."""

    def __init__(self, read: Callable[[], Sequence[QueueRecord]], run: StartTask) -> None:
        self._read, self._run = read, run
        self._seen: dict[str, QueueRecord] = {}

    async def batches(self) -> AsyncIterator[Sequence[StreamEvent]]:
        """See `EventSource`."""
        while True:
            batch: Sequence[StreamEvent] = []
            with suppress(StoreError, Busy, Draining):
                found = {record.queue: record for record in await self._run(self._read)}
                batch = [StreamEvent("queue", one) for name, one in found.items() if self._seen.get(name) != one]
                self._seen = found
            yield batch
            await asyncio.sleep(TICK)


def _event(id: bytes, job: Job | None, before: Job | None) -> StreamEvent:
    if job is None:
        return StreamEvent("gone", {"id": ids.text(id)})
    return StreamEvent("job", JobChange.of(job, before))


def _outline(job: Job) -> Job:
    """What is kept of a job to tell whether it has changed."""
    # Without its bytes: many streams that watch large jobs must not fill the memory.
    told = blake2b(job.note + b"\0" + job.progress, digest_size=8).digest()
    return replace(job, body=b"", headers=b"", progress=b"", note=told)

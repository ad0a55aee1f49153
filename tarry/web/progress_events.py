"""The progress of a job as server-sent events: what a page reads with `new EventSource(...)`."""

import threading
import time
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, closing
from hashlib import blake2b
from typing import Any

import msgspec

from tarry.app import App
from tarry.client.follow import Event, make_event
from tarry.client.handle import Handle
from tarry.errors import JobNotFound, ResultTimeout, StoreUnavailable
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.job import Job

RETRY = b"retry: 1000\n\n"
"""Tells a browser that loses the stream to come again after a second."""
RETRY_LATER = b"retry: 5000\n\n"
STILL_HERE = b": still here\n\n"
GONE = b"event: gone\ndata: {}\n\n"
END = b"event: end\ndata: {}\n\n"

_HEADERS = {
    "content-type": "text/event-stream",
    "cache-control": "no-store",
    # Without it nginx keeps events back until its buffer is full.
    "x-accel-buffering": "no",
}


def render_event(event: Event) -> Any:
    """What a browser is told of a job. Not the error of an attempt, which may hold secrets."""
    return {"state": event.state, "attempt": event.attempt, "progress": event.progress}


class JobEvents:
    """Makes streams of events about jobs of an app. Safe from threads and coroutines.

    most: how many streams of this process follow their jobs. One more gets the job as it is now, and ends: the browser
    comes again after 5 s. lasts: after this time a stream ends, and the browser comes again: so a server that stops
    waits no longer. heartbeat: so often a stream without news sends a comment, by which it finds clients that are gone.
    render: makes the data of an event, which is sent as JSON; `render_event` unless given.
    """

    def __init__(
        self,
        app: App,
        *,
        most: int = 100,
        lasts: Duration = "1m",
        heartbeat: Duration = 15,
        render: Callable[[Event], Any] = render_event,
    ) -> None:
        self._app, self._render = app, render
        self._lasts, self._heartbeat = microseconds(lasts) / SECOND, microseconds(heartbeat) / SECOND
        self._slots = threading.BoundedSemaphore(most)

    def open(self, id: str, last_event_id: str | None = None) -> "EventStream":
        """The answer to a request for the events of this job. last_event_id: the header of that name, which a browser
        sends when it comes again.

        Whoever knows the id may read: check first whether the job is one of this user's.
        """
        try:
            job = self._app.get(id)
            return self._answer(job, job.record(), last_event_id)
        except (JobNotFound, ValueError):
            return EventStream(404)
        except StoreUnavailable:
            return EventStream(200, [RETRY_LATER])

    async def aopen(self, id: str, last_event_id: str | None = None) -> "EventStream":
        """The same, awaited."""
        try:
            job = self._app.get(id)
            return self._answer(job, await job.arecord(), last_event_id)
        except (JobNotFound, ValueError):
            return EventStream(404)
        except StoreUnavailable:
            # An error would end the EventSource of the page for good. So it is to come again.
            return EventStream(200, [RETRY_LATER])

    def _answer(self, job: Handle[Any], record: Job, last_event_id: str | None) -> "EventStream":
        frames = _Frames(self._render, last_event_id)
        first = frames.encode(make_event(record))
        if record.state.finished:
            # 204 tells a browser that it need not come again.
            return EventStream(200, [RETRY, first, END]) if first else EventStream(204)
        if not self._slots.acquire(blocking=False):
            return EventStream(200, [RETRY_LATER, first])
        follower = _Follower(job, first, frames, self._lasts, self._heartbeat)
        return EventStream(200, follower=follower, release=self._slots.release)


class EventStream:
    """An answer to an HTTP request: its status, its headers, and the body in pieces, by `for` or by `async for`."""

    def __init__(
        self,
        status: int,
        chunks: Sequence[bytes] = (),
        *,
        follower: "_Follower | None" = None,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        self.status = status
        self.headers = dict(_HEADERS) if status == 200 else {}
        self._chunks, self._follower = chunks, follower
        # Also for a stream that nobody iterates over, since its client was gone before.
        self.close = weakref.finalize(self, release)
        """Ends the stream. May be called twice."""
        self.close.atexit = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._chunks if self._follower is None else self._follower.follow()
        finally:
            self.close()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            if self._follower is None:
                for chunk in self._chunks:
                    yield chunk
                return
            async with aclosing(self._follower.afollow()) as chunks:
                async for chunk in chunks:
                    yield chunk
        finally:
            self.close()


class _Frames:
    """Encodes the events of one stream; leaves out those that the client has seen."""

    def __init__(self, render: Callable[[Event], Any], last_id: str | None) -> None:
        self._render, self._last_id = render, last_id

    def encode(self, event: Event) -> bytes:
        """As it is sent; empty if it says what the one before said."""
        shown = (event.state, event.attempt, event.progress, event.message)
        id = blake2b(msgspec.json.encode(shown), digest_size=8).hexdigest()
        if id == self._last_id:
            return b""
        self._last_id = id
        return b"id: %b\nevent: job\ndata: %b\n\n" % (id.encode(), msgspec.json.encode(self._render(event)))


class _Follower:
    """The body of a stream that follows its job."""

    def __init__(self, job: Handle[Any], first: bytes, frames: _Frames, lasts: float, heartbeat: float) -> None:
        self._job, self._frames, self._heartbeat = job, frames, heartbeat
        # The event is known already, and is sent at once; the follower leaves it out.
        self._start = RETRY + first
        self._ends_at = time.monotonic() + lasts

    def follow(self) -> Iterator[bytes]:
        """For `for`."""
        yield self._start
        while wait := self._next_wait():
            try:
                # A pause without news ends by the timeout; then it follows anew, and the first event is a known one.
                with closing(iter(self._job.follow(wait))) as events:  # type: ignore[type-var]
                    for event in events:
                        if frame := self._frames.encode(event):
                            yield frame
            except ResultTimeout:
                yield STILL_HERE
            except JobNotFound:
                yield GONE
                return
            else:
                yield END
                return

    async def afollow(self) -> AsyncGenerator[bytes, None]:
        """For `async for`."""
        yield self._start
        while wait := self._next_wait():
            try:
                async with aclosing(self._job.afollow(wait)) as events:  # type: ignore[type-var]
                    async for event in events:
                        if frame := self._frames.encode(event):
                            yield frame
            except ResultTimeout:
                yield STILL_HERE
            except JobNotFound:
                yield GONE
                return
            else:
                yield END
                return

    def _next_wait(self) -> float:
        """Seconds until the next heartbeat; 0: the stream is to end."""
        return max(0.0, min(self._heartbeat, self._ends_at - time.monotonic()))

"""The method that streams what changes, as server-sent events."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from msgspec import Meta, Struct
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from tarry.client.queue_records import QueueRecord
from tarry.errors import JobNotFound
from tarry.model.job import States
from tarry.operate.access import Scope as CallerScope
from tarry.operate.jobs import found_jobs
from tarry.operate.method import methods_of
from tarry.operate.problem import RequestError, checking
from tarry.operate.queues import list_queue_records
from tarry.server.event_streams import EventSource, EventStreams, FollowedJobs, WatchedJobs, WatchedQueues
from tarry.server.http.method import ApiCall, api_method
from tarry.server.identity.access import is_as_before
from tarry.server.open_connections.activity import note_wait
from tarry.store.rules import ids
from tarry.store.rules.base import Query
from tarry.store.rules.ids import IdText
from tarry.tasks.arguments.options import Name

MEDIA_TYPE = "text/event-stream"
MOST_FOLLOWED = 100
"""Jobs that one stream follows by their ids."""


class EventQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """What to stream: jobs by id, or the jobs that match, or, without any of these, the queues."""

    job: Annotated[list[IdText], Meta(max_length=MOST_FOLLOWED)] = []
    """Ids, 100 at most."""
    queue: Name | None = None
    task: Name | None = None
    state: States = []
    """May be given several times; all states of unfinished jobs if it is not."""
    seconds: Annotated[float, Meta(ge=0, le=86_400)] = 3600
    """The stream ends after so many."""


class EventResponse(StreamingResponse):
    """A stream, counted as long as it is open."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        streams: EventStreams,
        source: EventSource,
        seconds: float,
        may_go_on: Callable[[], Coroutine[Any, Any, bool]],
        caller: str,
    ) -> None:
        # No proxy may hold back events to send many at once.
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(streams.chunks(source, seconds, may_go_on), headers=headers)
        self._streams, self._caller = streams, caller

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the stream."""
        note_wait(scope, "events")
        with self._streams.counted(self._caller):
            await super().__call__(scope, receive, send)


@api_method("GET /v1/events", CallerScope.READ, media_type=MEDIA_TYPE, errors=(JobNotFound,))
async def stream_events(call: ApiCall, query: EventQuery) -> EventResponse:
    """Streams what changes, as server-sent events.

    One `job` event for each job as it is, then one for each change; `gone` when a job is deleted. Of a filter the 500
    oldest jobs are watched, once a second. Without parameters, one `queue` event for each queue and for each change of
    one. A stream ends with the event `end` when all its jobs have finished, when its time is over, or when the server
    ends: then ask again. It ends too when its token is removed or gets other rights. Events between two streams are not
    sent again."""
    if query.job and (query.queue or query.task or query.state):
        raise RequestError("job: leave out queue, task and state, or the ids", "job", 422)
    if len(query.job) > MOST_FOLLOWED:
        raise RequestError(f"job: {len(query.job)} ids; a stream follows {MOST_FOLLOWED} at most", "job", 422)
    source = await _source(call, query)
    # Last, with nothing to wait for after it: the response counts itself as soon as it starts.
    call.service.streams.check_room(call.caller.entry)
    return EventResponse(call.service.streams, source, query.seconds, lambda: _may_go_on(call), call.caller.entry)


async def _may_go_on(call: ApiCall) -> bool:
    return is_as_before(call.service.access, call.caller)


async def _source(call: ApiCall, query: EventQuery) -> EventSource:
    service = call.service
    if query.job:
        return FollowedJobs(service.client, call.run, await call.run(_known, call, query.job), call.allows)
    if query.queue or query.task or query.state:
        if query.queue:
            call.check(query.queue)
        wanted = Query(tuple(query.state), query.queue, query.task, queues=call.queues)
        # In a thread: the first use of the client opens the store.
        return WatchedJobs(await call.run(lambda: service.client), call.run, wanted, call.allows)
    return WatchedQueues(lambda: _queues(call), call.run)


def _known(call: ApiCall, texts: list[str]) -> list[bytes]:
    """The ids; JobNotFound."""
    with checking("job"):
        wanted = [ids.parse(text) for text in dict.fromkeys(texts)]
    found_jobs(call, wanted)
    return wanted


def _queues(call: ApiCall) -> list[QueueRecord]:
    look = call.service.look.read(1.0)
    return [record for record in list_queue_records(call.app, look) if call.allows(record.queue)]


METHODS = methods_of(__name__)

"""The result of a job, waited for."""

from typing import Annotated, Any

from msgspec import Meta, Struct

from tarry import errors
from tarry.client.job_records import decode_json
from tarry.model.checks.unreadable import is_apart
from tarry.model.job import Job, State
from tarry.operate.access import Scope
from tarry.operate.jobs import JobPath, fetch_job, job_not_found
from tarry.server.http.method import ApiCall, api_method
from tarry.store.rules import ids
from tarry.tasks.arguments.codec import refuse_sealed
from tarry.tasks.lazy_asyncio import asyncio

LONGEST_WAIT = 60.0
"""Seconds that a result may be waited for in one request."""


class ResultQuery(Struct, forbid_unknown_fields=True):
    """How long to wait for a result."""

    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0.0
    """Seconds."""


class ResultAnswer(Struct, frozen=True):
    """How a job ended, if it has ended."""

    id: str
    state: State
    finished: bool
    result: Any = None
    """What the task returned, once it is done."""
    error: Any = None
    """Why it is dead or was cancelled: an object with `type` and `message`."""


@api_method(
    "GET /v1/jobs/{id}/result",
    Scope.READ,
    errors=(errors.JobNotFound, errors.PayloadLost, errors.ValueSealed),
    also={202: "It has not ended yet."},
)
async def wait_for_result(call: ApiCall, path: JobPath, query: ResultQuery) -> ResultAnswer:
    """Waits for the end of a job, and tells its result."""
    job = await call.run(fetch_job, call, path)
    if not job.state.finished and query.wait:
        job = await _wait(call, job, query.wait)
    if not job.state.finished:
        call.status = 202
    if is_apart(job.note):
        job = await call.run(call.service.client.load_result, job)
    is_done = job.state is State.DONE
    if is_done:
        # A program would take what is said in its place for the result.
        refuse_sealed(job.note, f"the result of {job.task} {ids.text(job.id)}")
    note = decode_json(job.note)
    return ResultAnswer(
        ids.text(job.id),
        job.state,
        job.state.finished,
        note if is_done else None,
        note if job.state.finished and not is_done else None,
    )


async def _wait(call: ApiCall, job: Job, seconds: float) -> Job:
    """The job as it is at its end, or after so many seconds."""
    call.waits_for(f"the end of job {ids.text(job.id)}")
    waiting = asyncio.ensure_future(call.service.client.await_end(job.id, seconds))
    draining = asyncio.ensure_future(call.service.until_draining())
    try:
        await asyncio.wait({waiting, draining}, return_when=asyncio.FIRST_COMPLETED)
        is_over, ended = waiting.result() if waiting.done() else (False, None)
    finally:
        for task in (waiting, draining):
            task.cancel()
    # It may have been moved to another queue meanwhile.
    if is_over and (ended is None or not call.allows(ended.queue)):
        raise job_not_found(ids.text(job.id))
    # Not at its end yet: its state may have changed meanwhile, which the store would have to be asked for.
    return job if ended is None else ended


METHODS = (wait_for_result,)

"""Methods for programs that take jobs, in whatever language they are written."""

import asyncio
import base64
import contextlib
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType
from starlette.requests import ClientDisconnect

from tarry import errors
from tarry.model.change import Change
from tarry.model.checks.decoders import decode_json
from tarry.model.duration import DAY, SECOND, Span, microseconds
from tarry.model.flow.wiring import split
from tarry.model.job import Job, State
from tarry.model.outcome import Outcome, Raised, Released, Returned, Snoozed, outcome_note
from tarry.model.quantity import over_max_body
from tarry.operate.access import Scope
from tarry.operate.problem import NOT_JSON, RequestError, checking
from tarry.server.claims import Claims
from tarry.server.http.method import ApiCall, api_method
from tarry.server.http.problem import Problem, problem_of
from tarry.server.http.request_reader import check_depth, until_gone
from tarry.store.rules import ids
from tarry.store.rules.ids import IdText
from tarry.tasks.arguments.options import Name
from tarry.tasks.progress import MAX_MESSAGE, Progress

LONGEST_WAIT = 60.0
"""Seconds."""
LONGEST_LEASE = 7 * DAY
MOST_JOBS = 1000
MOST_QUEUES = 100
MOST_ENDS = 1000
MOST_SENT = 1_000_000
"""Characters of a message, or of a traceback; of a long one only a part is kept."""

Text = Annotated[str, Meta(max_length=MOST_SENT)]
Epoch = Annotated[int, Meta(ge=1, le=2**62)]
_ENDED = (errors.JobNotFound, errors.NotHeld, errors.Draining)


class ClaimPath(Struct):
    """The queue of a path."""

    queue: Name


class ClaimJobsRequest(Struct, forbid_unknown_fields=True):
    """How many jobs to take, for how long, and how long to wait for them."""

    limit: Annotated[int, Meta(ge=1, le=MOST_JOBS)] = 1
    lease: Span = 60.0
    """For so long the jobs are the caller's, unless it extends: seconds, or text such as "5m"."""
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0.0
    """Seconds to wait for the first job."""


class ClaimManyOrder(ClaimJobsRequest, kw_only=True):
    """The same, of several queues."""

    queues: Annotated[list[Name], Meta(min_length=1, max_length=MOST_QUEUES)]


class ClaimedJob(Struct, frozen=True):
    """A job that the caller has taken. Times are seconds since the epoch; null: none."""

    id: str
    epoch: int
    """The number of this claim: the caller says it with all that it does with the job."""
    task: str
    queue: str
    priority: int
    attempt: int
    """The number of this attempt, from 1."""
    key: str | None
    created: float
    due: float
    args: Raw
    """Its arguments: a list, or an object by name; null if they are no JSON."""
    binary: str | None
    """In base64, arguments that are no JSON; null: they are."""
    headers: Raw
    """What travels beside the arguments, such as a trace: an object of text by name."""


class ClaimAnswer(Struct, frozen=True):
    """The jobs that were taken."""

    jobs: list[ClaimedJob]


class JobError(Struct, forbid_unknown_fields=True):
    """Why an attempt failed."""

    type: Annotated[str, Meta(min_length=1, max_length=200)] = "Error"
    """The kind of error: retry rules may name it."""
    message: Text = ""
    traceback: Text = ""


class FinishOrder(Struct, forbid_unknown_fields=True, kw_only=True):
    """The job is done."""

    epoch: Epoch
    result: (
        Annotated[Raw, Meta(extra_json_schema={"type": ["object", "array", "string", "number", "boolean", "null"]})]
        | UnsetType
    ) = UNSET
    """Any JSON; for whoever asks for the job's result."""


class FailOrder(Struct, forbid_unknown_fields=True, kw_only=True):
    """The attempt failed. The rule of the task says whether and when there is another."""

    epoch: Epoch
    error: JobError = msgspec.field(default_factory=JobError)
    retry_after: Span | None = None
    """Try again after so long, instead of when the rule says. The most attempts of the rule hold all the same."""
    final: bool = False
    """Do not try again, whatever the rule says."""


class ReleaseOrder(Struct, forbid_unknown_fields=True, kw_only=True):
    """The job is given back; no attempt is counted."""

    epoch: Epoch
    delay: Span | None = None
    """It is ready after so long, instead of at once."""


class ExtendOrder(Struct, forbid_unknown_fields=True, kw_only=True):
    """The job is still worked on."""

    epoch: Epoch
    lease: Span = 60.0
    """From now on for so long."""


class ProgressOrder(Struct, forbid_unknown_fields=True, kw_only=True):
    """How far the job is."""

    epoch: Epoch
    value: Annotated[float, Meta(ge=0, le=1)]
    text: Annotated[str, Meta(max_length=MAX_MESSAGE)] = ""


class FinishEnd(FinishOrder, tag_field="end", tag="finish"):
    """One that is done."""

    id: IdText


class FailEnd(FailOrder, tag_field="end", tag="fail"):
    """One that failed."""

    id: IdText


class ReleaseEnd(ReleaseOrder, tag_field="end", tag="release"):
    """One that is given back."""

    id: IdText


class SettleOrder(Struct, forbid_unknown_fields=True):
    """How many jobs ended."""

    ends: Annotated[list[FinishEnd | FailEnd | ReleaseEnd], Meta(min_length=1, max_length=MOST_ENDS)]


class SettledJob(Struct, frozen=True):
    """What a job has become."""

    id: str
    state: State | None
    """Null: it has ended, and is not kept."""
    due: float | None = None
    """When the next attempt may start, in seconds since the epoch; null: there is none."""
    problem: Problem | None = None
    """Why nothing was changed; null: it was."""


class SettleAnswer(Struct, frozen=True):
    """What became of each job, in the order in which they were sent."""

    ends: list[SettledJob]


class TakenPath(Struct):
    """The job of a path."""

    id: IdText


@api_method("POST /v1/queues/{queue}/claim", Scope.TAKE, tag="claims", errors=(errors.Draining,))
async def claim_of_queue(call: ApiCall, path: ClaimPath, body: ClaimJobsRequest) -> ClaimAnswer:
    """Takes jobs of a queue.

    They are the caller's for the time of its lease. Then the attempt counts as a time-out, and another taker gets the
    job; so extend the lease of what takes longer. Jobs that were not finished for whatever reason come again: at least
    once is promised, not exactly once."""
    return await _claim(call, [path.queue], body)


@api_method("POST /v1/claim", Scope.TAKE, tag="claims", errors=(errors.Draining,))
async def claim_of_queues(call: ApiCall, body: ClaimManyOrder) -> ClaimAnswer:
    """Takes jobs of several queues, of each its share."""
    return await _claim(call, body.queues, body)


@api_method("POST /v1/jobs/{id}/finish", Scope.TAKE, tag="claims", errors=(*_ENDED, errors.BodyTooLarge))
async def finish_job(call: ApiCall, path: TakenPath, body: FinishOrder) -> SettledJob:
    """Ends a job that the caller has taken: it is done."""
    return await _settle(call, path.id, body.epoch, _outcome(call, body))


@api_method("POST /v1/jobs/{id}/fail", Scope.TAKE, tag="claims", errors=_ENDED)
async def fail_job(call: ApiCall, path: TakenPath, body: FailOrder) -> SettledJob:
    """Ends an attempt that failed; the rule of the task says what follows."""
    return await _settle(call, path.id, body.epoch, _outcome(call, body))


@api_method("POST /v1/jobs/{id}/release", Scope.TAKE, tag="claims", errors=_ENDED)
async def release_job(call: ApiCall, path: TakenPath, body: ReleaseOrder) -> SettledJob:
    """Gives back a job that the caller has taken; no attempt is counted."""
    return await _settle(call, path.id, body.epoch, _outcome(call, body))


@api_method("POST /v1/jobs/{id}/extend", Scope.TAKE, tag="claims", errors=_ENDED)
async def extend_lease(call: ApiCall, path: TakenPath, body: ExtendOrder) -> None:
    """Prolongs the lease of a job that the caller has taken.

    A conflict says that the job is not the caller's any more, for instance because somebody cancelled it: stop."""
    lease, claims = _lease(body.lease), await _claims(call)
    await claims.extend(_key(path.id), body.epoch, lease, call.allows)


@api_method("POST /v1/jobs/{id}/progress", Scope.TAKE, tag="claims", errors=_ENDED)
async def report_progress(call: ApiCall, path: TakenPath, body: ProgressOrder) -> None:
    """Says how far a job is that the caller has taken."""
    claims = await _claims(call)
    await claims.progress(_key(path.id), body.epoch, Progress(body.value, body.text), call.allows)


@api_method("POST /v1/settle", Scope.TAKE, tag="claims", errors=(errors.Draining,))
async def settle_jobs(call: ApiCall, body: SettleOrder) -> SettleAnswer:
    """Ends many jobs that the caller has taken, each by itself: `finish`, `fail` or `release`."""
    await _claims(call)
    return SettleAnswer(await asyncio.gather(*(_settle_one(call, end) for end in body.ends)))


async def _claims(call: ApiCall) -> Claims:
    # The first request of the process opens the store.
    await call.service.start()
    return call.service.claims


async def _claim(call: ApiCall, queues: Sequence[str], order: ClaimJobsRequest) -> ClaimAnswer:
    for queue in queues:
        call.check(queue)
    lease, claims = _lease(order.lease), await _claims(call)
    if not order.wait:
        found = await claims.claim(queues, limit=order.limit, lease=lease, wait=0)
        return _answer(call, claims, found)
    call.waits_for(f"jobs of {', '.join(queues)}")
    taking = asyncio.ensure_future(claims.claim(queues, limit=order.limit, lease=lease, wait=order.wait))
    leaving = asyncio.ensure_future(until_gone(call.request))
    draining = asyncio.ensure_future(call.service.until_draining())
    try:
        await asyncio.wait({taking, leaving, draining}, return_when=asyncio.FIRST_COMPLETED)
        if draining.done() and not taking.done() and not leaving.done():
            # Another process of this server has the next request.
            return ClaimAnswer([])
        if not leaving.done():
            return _answer(call, claims, taking.result())
        if taking.done() and taking.exception() is None:
            claims.give_back(taking.result())
        raise ClientDisconnect
    finally:
        # Nobody is there to get the jobs, or to hear that the client has left.
        for task in (taking, leaving, draining):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await task


def _answer(call: ApiCall, claims: Claims, jobs: Sequence[Job]) -> ClaimAnswer:
    try:
        call.check_again({job.queue for job in jobs})
    except errors.TarryError:
        claims.give_back(jobs)
        raise
    return ClaimAnswer([_claimed_job(call.shown(job)) for job in jobs])


async def _settle_one(call: ApiCall, end: FinishEnd | FailEnd | ReleaseEnd) -> SettledJob:
    try:
        return await _settle(call, end.id, end.epoch, _outcome(call, end))
    except Exception as error:
        return SettledJob(end.id, None, problem=problem_of(error, call.request.url.path))


async def _settle(call: ApiCall, id: str, epoch: int, outcome: Outcome) -> SettledJob:
    key, claims = _key(id), await _claims(call)
    _, change = await claims.settle(key, epoch, outcome, call.allows)
    return SettledJob(ids.text(key), change.to, _next_start(change))


def _next_start(change: Change) -> float | None:
    return None if change.due is None else change.due / SECOND


def _outcome(call: ApiCall, order: FinishOrder | FailOrder | ReleaseOrder) -> Outcome:
    if isinstance(order, FinishOrder):
        result = b"null" if order.result is UNSET else bytes(order.result)
        most = call.service.app.config.max_body
        if len(result) > most:
            raise errors.BodyTooLarge(over_max_body("the result takes", len(result), most))
        _check_json(result)
        return Returned(result)
    if isinstance(order, ReleaseOrder):
        return Released(has_started=True) if order.delay is None else Snoozed(_span(order.delay, "delay"))
    error, after = order.error, None if order.retry_after is None else _span(order.retry_after, "retry_after")
    note = outcome_note(error.type, error.message, error.traceback)
    return Raised(note, (error.type,), order.final, after)


def _claimed_job(job: Job) -> ClaimedJob:
    _, body = split(job.id, job.body)
    args = _json(body)
    return ClaimedJob(
        ids.text(job.id),
        job.epoch,
        job.task,
        job.queue,
        job.priority,
        job.attempt,
        job.key,
        job.created / SECOND,
        job.due / SECOND,
        Raw(b"null") if args is None else args,
        base64.b64encode(body).decode() if args is None else None,
        _json(job.headers) or Raw(b"{}"),
    )


def _json(text: bytes) -> Raw | None:
    """The text as it is if it is JSON, else None."""
    try:
        # What is inside of strings is not looked at by the decoder.
        text.decode()
        decode_json(text, Raw)
    except NOT_JSON:
        return None
    return Raw(text)


def _check_json(result: bytes) -> None:
    """RequestError if a program that asks for the result could not read it."""
    check_depth(result, "result")
    # The body was decoded, but not what is in the strings of this part of it.
    try:
        msgspec.json.decode(result)
    except NOT_JSON as error:
        raise RequestError(f"body: result: {error}", "result", 422) from None


def _lease(value: Span) -> int:
    with checking("lease"):
        lease = microseconds(value, "lease")
        if not 0 < lease <= LONGEST_LEASE:
            raise ValueError(f"{value!r}: more than nothing, and a week at most, is possible")
        return lease


def _span(value: Span, name: str) -> int:
    with checking(name):
        return microseconds(value, name)


def _key(id: str) -> bytes:
    with checking("id"):
        return ids.parse(id)


METHODS: tuple[Any, ...] = (
    claim_of_queue,
    claim_of_queues,
    finish_job,
    fail_job,
    release_job,
    extend_lease,
    report_progress,
    settle_jobs,
)

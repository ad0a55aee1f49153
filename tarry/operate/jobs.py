"""Methods about single jobs, and the list of them."""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from tarry import errors
from tarry.client.job_records import (
    JobDetail,
    JobRecord,
    JobTerms,
    job_detail,
    job_record,
    most_attempts,
    version_of,
)
from tarry.keeper.waiting_reasons import WaitingReason
from tarry.model import lifecycle
from tarry.model.duration import microseconds
from tarry.model.flow_rules import refusal
from tarry.model.job import MAX_PRIORITY, Job, State
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.method import method, methods_of
from tarry.operate.problem import RequestError, checking
from tarry.push.delivery.delivery_record import AttemptRecord, records_of
from tarry.push.endpoint_reasons import why_waiting
from tarry.store.queries.job_search import (
    JobSearch,
    SearchLine,
    id_before,
    id_range,
    parse_moment,
    ranges_after,
    search_jobs,
)
from tarry.store.queries.newest_jobs import newest_jobs
from tarry.store.rules import ids
from tarry.store.rules.base import Query
from tarry.store.rules.ids import IdText
from tarry.store.rules.partial_result import reachable_part
from tarry.tasks.arguments.options import Name, Options

_ERRORS = (errors.JobNotFound, lifecycle.NotPossible)


class JobPath(Struct):
    """The job of a path."""

    id: IdText

    def key(self) -> bytes:
        """The id as the store has it; RequestError."""
        with checking("id"):
            return ids.parse(self.id)


class JobsQuery(JobTerms, forbid_unknown_fields=True):
    """Which jobs to list."""

    q: SearchLine = ""
    """The same in one line, such as `state:dead task:shop.* error:timeout since:2d customer:7`."""
    order: Literal["oldest", "newest"] = "oldest"
    """Which come first, by the time of their put."""
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    cursor: Short | None = None
    """`next` of the page before."""


class JobPage(Struct, frozen=True):
    """Some of the jobs that match."""

    jobs: list[JobRecord]
    next: str | None
    """The cursor of the next page; null: there is none."""
    missing: str | None = None
    """Why some jobs are not listed: a store that is away; null: all are."""
    examined: int = 0
    """How many jobs were looked at."""
    q: str = ""
    """The filters in one line, as they were understood."""


class JobAnswer(JobDetail, frozen=True):
    """A job, with what it printed, and the attempts to deliver it."""

    deliveries: list[AttemptRecord]
    """Of an HTTP task: the attempts on record, the oldest first."""


class CancelRequest(Struct, forbid_unknown_fields=True):
    """Why a job is cancelled."""

    reason: Annotated[str, Meta(max_length=1000)] = ""


class CancelAnswer(Struct, frozen=True):
    """What became of a cancel."""

    id: str
    cancelled: bool
    """False: it had ended already, and is unchanged."""
    sent: bool | None = None
    """Of an HTTP task: whether an attempt was sent at least in part; null: not known, or another kind of task."""
    detail: str = ""
    """The same in one line, for people."""


class MoveRequest(Struct, forbid_unknown_fields=True):
    """Where and when a waiting job is to run instead; what is left out stays."""

    delay: float | Short | None = None
    """So long from now: seconds, or text such as "1h30m"."""
    at: datetime | float | None = None
    """A time with its zone, or seconds since the epoch."""
    queue: Name | None = None
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = None


class EditRequest(Struct, forbid_unknown_fields=True):
    """Other arguments for a job."""

    args: Any
    """A list, or an object by name; of an HTTP task any JSON, which is sent."""
    version: Short
    """The `version` of the job as it was seen: if it is another by now, nothing is changed."""
    retry: bool = False
    """Whether it is made ready, too, as by retry."""


class CloneRequest(Struct, forbid_unknown_fields=True):
    """What a clone has of its own; what is left out is as in the job."""

    args: Any = UNSET
    """Other arguments: a list, or an object by name; of an HTTP task any JSON."""
    with_key: bool = False
    """Whether it has the key of the job, too."""


class WhyAnswer(Struct, frozen=True):
    """Why a job does not run."""

    id: str
    state: State
    reasons: list[WaitingReason]
    """What matters most first; at least one."""


def terms_of(query: JobsQuery) -> JobTerms:
    """What the query looks for, its line and its fields together; RequestError."""
    given = JobTerms(**{name: getattr(query, name) for name in JobTerms.__struct_fields__})
    if not query.q.strip():
        return given
    from tarry.client.operations.search_line import merge_line  # noqa: PLC0415 - many lists have no line

    with checking("q"):
        return merge_line(given, query.q)


def _exists(call: MethodCall, path: JobPath, body: object = None) -> None:
    fetch_job(call, path)


@method("GET /v1/jobs", Scope.READ, command="jobs list")
def list_jobs(call: MethodCall, query: JobsQuery) -> JobPage:
    """Lists jobs, page by page, the oldest first or the newest."""
    from tarry.client.operations.line_words import format_line  # noqa: PLC0415 - only lists need it

    client, terms = call.client, terms_of(query)
    if terms.queue is not None:
        call.check(terms.queue)
    search, cursor = _search(call, terms, query.limit), _cursor(query)
    if query.order == "newest":
        found = newest_jobs(client.store, search, cursor)
    else:
        after_it = replace(search, query=replace(search.query, after=max(search.query.after, cursor)))
        found = search_jobs(client.store, after_it, is_whole=call.may_take_long)
    call.find_tasks(found.jobs)
    seen = [_record(call, job) for job in found.jobs]
    following = None if found.next is None else ids.text(found.next)
    away = str(found.away) if found.away else None
    return JobPage(seen, following, away, found.examined, format_line(terms))


@method("GET /v1/jobs/{id}", Scope.READ, errors=(errors.JobNotFound,), command="jobs show")
def show_job(call: MethodCall, path: JobPath) -> JobAnswer:
    """Shows a job, with its arguments, how its last attempt ended, and what it printed."""
    job = fetch_job(call, path)
    call.find_tasks([job])
    return _answer(call, job)


def _answer(call: MethodCall, job: Job) -> JobAnswer:
    detail = job_detail(call.shown(job), _most_attempts(call, job))
    task = call.app.tasks.get(job.task)
    records = list(records_of(job)) if task is not None and task.runner is not None else []
    return JobAnswer(**{name: getattr(detail, name) for name in detail.__struct_fields__}, deliveries=records)


@method("GET /v1/jobs/{id}/why", Scope.READ, errors=(errors.JobNotFound,), command="jobs why")
def explain_job(call: MethodCall, path: JobPath) -> WhyAnswer:
    """Tells why a job does not run: what holds it back, until when, and which jobs have the place that it needs."""
    job, client, app = fetch_job(call, path), call.client, call.app
    call.sync_tasks()
    reasons = why_waiting(client.store, job, client.clock.now(), app.tasks, app.http.endpoints)
    return WhyAnswer(ids.text(job.id), job.state, [_visible_reason(call, reason) for reason in reasons])


@method("POST /v1/jobs/{id}/cancel", Scope.OPERATE, errors=_ERRORS, command="jobs cancel", check=_exists)
def cancel_job(call: MethodCall, path: JobPath, body: CancelRequest) -> CancelAnswer:
    """Cancels a job, and tells whether it was ever sent.

    A task that runs is interrupted. The worker of an HTTP task that is being sent is asked how far it came, which may
    take some seconds."""
    job, app = fetch_job(call, path), call.app
    name, task = ids.text(job.id), app.find(job.task)
    if task is not None and task.runner is not None:
        told = app.http.cancel(job.id, body.reason)
        return CancelAnswer(name, told.cancelled, told.sent, told.said)
    if why := refusal(job):
        raise RequestError(f"the job is not cancelled: {why}", None, 409)
    is_cancelled = call.client.cancel(job.id, body.reason)
    state = "" if is_cancelled else f"it is {fetch_job(call, path).state} already"
    return CancelAnswer(name, is_cancelled, None, state)


@method("POST /v1/jobs/{id}/retry", Scope.OPERATE, errors=_ERRORS, command="jobs retry", check=_exists)
def retry_job(call: MethodCall, path: JobPath) -> JobRecord:
    """Makes a job ready now; one that has ended gets all its attempts again."""
    job = fetch_job(call, path)
    return _record_after(call, path, call.client.retry(job.id), "is not made ready")


@method("POST /v1/jobs/{id}/move", Scope.OPERATE, errors=_ERRORS, command="jobs move", check=_exists)
def move_job(call: MethodCall, path: JobPath, body: MoveRequest) -> JobRecord:
    """Gives a waiting job another time, queue or priority."""
    client, job = call.client, fetch_job(call, path)
    due = None
    if body.delay is not None or body.at is not None:
        with checking("at" if body.delay is None else "delay"):
            due = Options(body.delay, body.at).check().due(client.clock.now(), client.clock.unsure)
    if body.queue is not None:
        call.check(body.queue)
    is_moved = client.move(job.id, due=due, queue=body.queue, priority=body.priority)
    return _record_after(call, path, is_moved, "is not moved")


@method(
    "PATCH /v1/jobs/{id}",
    Scope.OPERATE,
    errors=(*_ERRORS, errors.ArgumentError, errors.BodyTooLarge),
    command="jobs edit",
    check=_exists,
)
def edit_job(call: MethodCall, path: JobPath, body: EditRequest) -> JobAnswer:
    """Gives a job that waits, is dead or was cancelled other arguments, and makes it ready if so wanted.

    They are checked as those of a new job. The ones before are kept with the job, if they are short."""
    from tarry.client.operations import job_editing  # noqa: PLC0415 - few commands edit

    job = _put_job(call, path)
    if version_of(job) != body.version:
        raise RequestError("the job is not changed: it has changed since; look at it again", "version", 409)
    with _of_arguments(call):
        arguments = job_editing.encode_arguments(call.client, job, body.args)
    try:
        edited = job_editing.edit_job(call.client, job, arguments, run=body.retry)
    except lifecycle.NotPossible as error:
        raise RequestError(f"the job is not changed: {error}", None, 409) from None
    if edited is None:
        raise RequestError("the job is not changed: it has changed since; look at it again", "version", 409)
    return _answer(call, edited)


@method(
    "POST /v1/jobs/{id}/clone",
    Scope.OPERATE,
    status=201,
    errors=(*_ERRORS, errors.ArgumentError, errors.BodyTooLarge, errors.QueueFull),
    command="jobs clone",
    check=_exists,
)
def clone_job(call: MethodCall, path: JobPath, body: CloneRequest) -> JobRecord:
    """Puts a new job with the task, arguments, queue, priority, labels and rules of this one, due now.

    Its record says whose clone it is. It has the key of the job only if so wanted."""
    from tarry.client.operations import job_cloning, job_editing  # noqa: PLC0415 - few commands clone

    job, client = _put_job(call, path), call.client
    if body.with_key and job.key is not None and call.caller.namespace and call.shown(job) is job:
        raise errors.NotAllowed("its key is not one of this caller's own: clone it without its key")
    with _of_arguments(call):
        arguments = None if body.args is UNSET else job_editing.encode_arguments(client, job, body.args)
    try:
        handle = job_cloning.clone_job(client, job, arguments, with_key=body.with_key)
    except lifecycle.NotPossible as error:
        raise RequestError(f"the job is not cloned: {error}", None, 409) from None
    if handle.is_new is False:
        raise RequestError(f"the job is not cloned: job {handle.id} holds its key", "with_key", 409)
    return _record(call, fetch_job(call, JobPath(handle.id)))


def _put_job(call: MethodCall, path: JobPath) -> Job:
    """The job, if the caller may put jobs of its task: JobNotFound, NotAllowed. With arguments of its own it could
    do by another's job what it may not do by one that it puts."""
    job = fetch_job(call, path)
    call.sync_tasks()
    task = call.app.tasks.get(job.task)
    call.caller.check_task(job.task, None if task is None else task.queue)
    return job


@contextlib.contextmanager
def _of_arguments(call: MethodCall) -> Iterator[None]:
    """Makes errors of arguments those of the field `args`."""
    try:
        yield
    except errors.ArgumentError as error:
        raise RequestError(f"args: {error}", "args", 422) from None


@method("DELETE /v1/jobs/{id}", Scope.OPERATE, errors=_ERRORS, command="jobs delete", check=_exists)
def delete_job(call: MethodCall, path: JobPath) -> None:
    """Deletes a job that does not run."""
    job = fetch_job(call, path)
    if not call.client.forget(job.id):
        _record_after(call, path, False, "is not deleted")


def _search(call: MethodCall, terms: JobTerms, limit: int) -> JobSearch:
    """What to look for, of what the caller may see; RequestError."""
    from tarry.client.operations.operation import JobFilter  # noqa: PLC0415 - only lists need it

    now = call.client.clock.now()
    for name in ("since", "until", "created_since", "created_until"):
        if (value := getattr(terms, name)) is not None:
            with checking(name):
                parse_moment(value, now)
    with checking("flow"):
        flow = None if terms.flow is None else ids.text(ids.parse(terms.flow))
    with checking("older"):
        microseconds(terms.older or 0, "older")
    with checking("label"):
        search = JobFilter.of(replace(terms, flow=flow), now).search(now)
    own = () if terms.key is None or not call.caller.namespace else (call.own_key(terms.key),)
    query = replace(search.query, limit=limit, queues=call.queues)
    found = replace(search, query=query, until=query.until, other_keys=own)
    return _after_parent(call, terms, _with_id(call, terms.id, found))


def _after_parent(call: MethodCall, terms: JobTerms, search: JobSearch) -> JobSearch:
    """The search, of jobs that come right after that one in its flow; RequestError."""
    if terms.parent is None:
        return search
    with checking("parent"):
        (parent,) = call.client.fetch([ids.parse(terms.parent)])
        if parent is None or not call.allows(parent.queue):
            raise ValueError(f"no job {terms.parent}")
    # Where nothing comes after it, a range without ids finds nothing.
    ranges = ranges_after(parent) or ((parent.id, bytes(16)),)
    first, last = id_before(min(first for first, _ in ranges)), max(last for _, last in ranges)
    query = replace(search.query, after=max(search.query.after, first), until=min(search.query.until or last, last))
    return replace(search, query=query, until=query.until, ranges=ranges)


def _cursor(query: JobsQuery) -> bytes:
    """Where the page begins; empty: with the first one. RequestError."""
    with checking("cursor"):
        return b"" if query.cursor is None else ids.parse(query.cursor)


def _with_id(call: MethodCall, part: str, search: JobSearch) -> JobSearch:
    """The search, of jobs whose ids begin or end with these digits."""
    digits = part.replace("-", "").lower()
    if not digits:
        return search
    if len(digits) > 32:
        raise RequestError(f"id: {part} is longer than an id", "id", 422)
    low, high = id_range(digits)
    begins = Query(after=low, until=high, limit=1, queues=call.queues)
    if not reachable_part(lambda: call.client.store.find(begins)):
        return replace(search, end=digits)
    until = min(high, search.until) if search.until else high
    return replace(search, query=replace(search.query, after=max(search.query.after, low)), until=until)


def fetch_job(call: MethodCall, path: JobPath) -> Job:
    """The job, if the caller may do this with its queue; JobNotFound."""
    return found_jobs(call, [path.key()])[0]


def found_jobs(call: MethodCall, wanted: Sequence[bytes]) -> list[Job]:
    """The jobs with these ids; JobNotFound if one is not there, or the caller may not see it."""
    found = []
    for id, job in zip(wanted, call.client.fetch(wanted), strict=True):
        # The same answer: whoever may not see a job does not learn that there is one.
        if job is None or not call.allows(job.queue):
            raise job_not_found(ids.text(id))
        call.check(job.queue)
        found.append(job)
    return found


def allowed_jobs(call: MethodCall, names: Sequence[str]) -> list[Job]:
    """The jobs with these ids, without those that are not there or that the caller may not see; RequestError."""
    with checking("id"):
        wanted = [ids.parse(name) for name in names]
    found = [job for job in call.client.fetch(wanted) if job is not None and call.allows(job.queue)]
    for job in found:
        call.check(job.queue)
    return found


def job_not_found(id: str) -> errors.JobNotFound:
    """The answer where there is no such job, or none that the caller may see."""
    return errors.JobNotFound(f"no job {id}: it never existed, or its time of keeping is over")


def _record_after(call: MethodCall, path: JobPath, is_made: bool, what: str) -> JobRecord:
    """The record of a job after a change; 409 if the change was not made."""
    job = fetch_job(call, path)
    if not is_made:
        raise RequestError(f"the job {what}: {refusal(job) or f'it is {job.state}'}", None, 409)
    return _record(call, job)


def _visible_reason(call: MethodCall, reason: WaitingReason) -> WaitingReason:
    """The reason, with those jobs that the caller may see."""
    return replace(reason, holders=[one for one in reason.holders if call.allows(one.queue)])


def _record(call: MethodCall, job: Job) -> JobRecord:
    return job_record(call.shown(job), _most_attempts(call, job))


def _most_attempts(call: MethodCall, job: Job) -> int | None:
    return most_attempts(job, call.app.tasks, call.app.rules)


METHODS = methods_of(__name__)

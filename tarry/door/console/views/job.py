"""One job: what has happened to it, why it waits, and its call as code."""

import inspect
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from tarry.door.console.act import ConsoleAct
from tarry.door.console.page import ConsolePage, PageData, console_page
from tarry.door.console.rendering import without_secrets
from tarry.door.console.views.code import curl_call, python_call
from tarry.door.http.method import ApiCall
from tarry.door.http.methods.jobs import (
    CancelAnswer,
    JobAnswer,
    JobPath,
    cancel_job,
    delete_job,
    explain_job,
    move_job,
    retry_job,
    show_job,
)
from tarry.keeper.waiting_reasons import SENTENCES
from tarry.model.job import FINISHED, State
from tarry.push.delivery.record import AttemptRecord

WAITING = (State.SCHEDULED, State.READY)
_SCHEDULED_AFTER = 1.0
"""Seconds between its put and its time from which a job counts as one that was put for later."""
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class StateStep(Struct, frozen=True):
    """A state in the diagram of a job. kind: `was`, `now`, or `next` for one that may still come."""

    state: State
    kind: str


class JobMoment(Struct, frozen=True):
    """A line of what is known of a job, in the order of time. kind: which sentence tells it. at: seconds since the
    epoch; None: it is not known when."""

    kind: str
    at: float | None = None
    count: int = 0
    attempt: AttemptRecord | None = None


@console_page("/jobs/{id}", "job.html")
def job_page(call: ApiCall, path: JobPath) -> PageData:
    """One job."""
    job = show_job.handler(call, path)
    task = call.service.app.tasks.get(job.task)
    is_http = task is not None and task.runner is not None
    raw = job.args if is_http or task is None else name_arguments(task, job.args)
    arguments = without_secrets(raw)
    exchanges = deliveries(job) if is_http else []
    return {
        "job": job,
        "is_waiting": job.state in WAITING,
        "is_http": is_http,
        "reasons": explain_job.handler(call, path).reasons if job.state in WAITING else [],
        "sentences": SENTENCES,
        "steps": state_steps(job),
        "moments": list(moments(job, exchanges)),
        "exchanges": exchanges,
        "arguments": arguments,
        "has_secrets": arguments != raw,
        "curl": curl_call(job, arguments, is_http, _place(call), call.service.access.needs_token),
        "python": python_call(job, arguments, is_http),
    }


def name_arguments(task: Any, args: Any) -> Any:
    """The arguments of a task's function by name, where they were given by position and the names are known."""
    # So a password is known as one, however it was given.
    if not isinstance(args, list) or task.batch:
        return args
    known = [each.name for each in inspect.signature(task.fn).parameters.values() if each.kind in _POSITIONAL]
    return args if len(args) > len(known) else dict(zip(known, args, strict=False))


def deliveries(job: JobAnswer) -> list[AttemptRecord]:
    """All attempts to deliver a job of an HTTP task that are on record, the oldest first."""
    if job.state is not State.DONE:
        return job.deliveries
    try:
        return [*job.deliveries, msgspec.convert(job.note, AttemptRecord)]
    except msgspec.ValidationError:
        # A program that took the job has ended it with a result of its own.
        return job.deliveries


def state_steps(job: JobAnswer) -> list[StateStep]:
    """The states of the job from its put to its end; without those that it surely or perhaps passed over."""
    end = job.state if job.state in FINISHED else State.DONE
    way = (State.SCHEDULED, State.READY, State.RUNNING, end)
    here = way.index(job.state)
    before = [StateStep(state, "was") for state in way[:here] if _was_in(job, state)]
    after = [StateStep(state, "was" if _was_in(job, state) else "next") for state in way[here + 1 :]]
    return [*before, StateStep(job.state, "now"), *after]


def _was_in(job: JobAnswer, state: State) -> bool:
    """Whether the job has surely been in this state."""
    if state is State.SCHEDULED:
        return job.failures > 0 or job.due - job.created > _SCHEDULED_AFTER
    # Whoever was claimed was ready, and then running. A job that was never claimed may have been cancelled at once.
    return job.epoch > 0 and state in (State.READY, State.RUNNING)


def moments(job: JobAnswer, exchanges: Sequence[AttemptRecord]) -> Iterator[JobMoment]:
    """What is known of the job, in the order of time."""
    yield JobMoment("put", job.created)
    yield from (JobMoment("attempt", _seconds(one.at), attempt=one) for one in exchanges)
    unrecorded = job.failures - job.losses - len(exchanges)
    if unrecorded > 0:
        yield JobMoment("failed", count=unrecorded)
    if job.losses:
        yield JobMoment("lost", count=job.losses)
    yield JobMoment(job.state, job.since)
    if job.state is State.SCHEDULED:
        yield JobMoment("due", job.due)
    if job.expires and job.state in WAITING:
        yield JobMoment("expires", job.expires)


def _seconds(moment: str) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return None


def _place(call: ApiCall) -> str:
    """The address below which the API is, as the reader's browser has it."""
    return str(call.request.base_url).rstrip("/")


def _cancelled(answer: CancelAnswer) -> str:
    if answer.detail:
        return "{detail}"
    return "The job is cancelled." if answer.cancelled else "The job had ended already."


PAGES: tuple[ConsolePage, ...] = (job_page,)
ACTS = (
    ConsoleAct(retry_job, "The job is ready."),
    ConsoleAct(cancel_job, _cancelled),
    ConsoleAct(move_job, "The job is moved."),
    ConsoleAct(delete_job, "The job is deleted.", lambda _: "/jobs"),
)

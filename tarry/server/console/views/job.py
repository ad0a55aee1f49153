"""One job: what has happened to it (`job_course`), why it waits, and its call as code."""

from tarry.client.flows.approvals import ApprovalRecord, approval_of, approval_record
from tarry.client.job_records import JobActRecord
from tarry.errors import TarryError
from tarry.keeper.host_requests import HostAct
from tarry.keeper.keeper_records import RequestRecord
from tarry.keeper.waiting_reasons import SENTENCES
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.moving import NEVER
from tarry.operate.hosts import list_job_requests
from tarry.operate.jobs import (
    CancelAnswer,
    JobAnswer,
    JobPath,
    cancel_job,
    clone_job,
    delete_job,
    edit_job,
    explain_job,
    move_job,
    retry_job,
    show_job,
)
from tarry.server.console.act import ConsoleAct, Form, FormPage
from tarry.server.console.page import ConsolePage, PageData, console_page
from tarry.server.console.views.arguments import masked_arguments, named_arguments, on_a_line, on_lines
from tarry.server.console.views.code import curl_call, python_call
from tarry.server.console.views.job_course import WAITING, deliveries, moments, shown_attempts, state_steps
from tarry.server.console.views.job_flow import place_of
from tarry.server.http.method import ApiCall
from tarry.store.rules import ids
from tarry.tasks.arguments.masking import without_secrets

EDITABLE = (State.READY, State.SCHEDULED, State.DEAD, State.CANCELLED)
"""States in which a job can have other arguments."""
MOST_STEPS = 100
"""Durable steps of a job that its page lists: the last ones."""


@console_page("/jobs/{id}", "job.html")
def job_page(call: ApiCall, path: JobPath) -> PageData:
    """One job."""
    job = show_job.handler(call, path)
    task = call.service.app.tasks.get(job.task)
    is_http = task is not None and task.runner is not None
    raw = named_arguments(call, job.task, job.args)
    arguments = without_secrets(raw)
    attempts = shown_attempts(job, deliveries(job) if is_http else [])
    place = place_of(call, job)
    return {
        "job": job,
        "place": place,
        "steps_taken": [(one, on_a_line(one.value)) for one in job.steps[-MOST_STEPS:]],
        "asking": _asked_of(call, job),
        "is_endless": job.state is State.SCHEDULED and job.due >= NEVER / SECOND,
        # It changes with its flow only.
        "is_bound": job.state is State.BLOCKED or job.flow == job.id,
        "is_waiting": job.state in WAITING,
        "is_http": is_http,
        "reasons": explain_job.handler(call, path).reasons if job.state in WAITING else [],
        "sentences": SENTENCES,
        "steps": [] if job.flow == job.id else state_steps(job),
        "moments": list(moments(job, attempts)),
        "attempts": attempts,
        "has_exchanges": any(one.delivery for one in attempts),
        "asked": stack_requests(call, path) if job.state is State.RUNNING else [],
        "arguments": arguments,
        "is_editable": job.state in EDITABLE,
        "typed": on_lines(job.args if arguments == raw else arguments),
        "seen": job.version,
        "wrong": "",
        "acts": [(one, _detail(call, job, one)) for one in reversed(job.acts)],
        "has_secrets": arguments != raw,
        "curl": curl_call(job, arguments, is_http, _place(call), call.service.access.needs_token),
        "python": python_call(job, arguments, is_http),
    }


def _detail(call: ApiCall, job: JobAnswer, act: JobActRecord) -> str:
    """What stands beside an act: of an edit the arguments before, without secrets."""
    return "" if act.before is None else on_a_line(masked_arguments(call, job.task, act.before))


def _show_again(call: ApiCall, form: Form, error: Exception) -> PageData | None:
    """The page of the job, with the arguments that were typed."""
    typed = dict(form)
    try:
        page = job_page.method.handler(call, path=JobPath(call.request.path_params["id"]))
    # It is gone, or the reader may not see it: the first error says so.
    except TarryError:
        return None
    # The page shows the job as it is now: so the next try is an edit of that.
    seen = page["seen"] if getattr(error, "field", None) == "version" else typed.get("version", "")
    return {**page, "typed": typed.get("args:json", ""), "seen": seen, "wrong": str(error)}


def _asked_of(call: ApiCall, job: JobAnswer) -> ApprovalRecord | None:
    """The decision that it waits for; None: for none."""
    # Only a job that waits for a time or a signal may wait for one.
    if job.state is not State.SCHEDULED:
        return None
    found = approval_of(call.service.client.store, ids.parse(job.id))
    return None if found is None else approval_record(found)


def stack_requests(call: ApiCall, path: JobPath) -> list[RequestRecord]:
    """The requests for the stack of its present attempt, the newest first."""
    return [one for one in list_job_requests.handler(call, path).requests if one.act is HostAct.STACK]


def _place(call: ApiCall) -> str:
    """The address below which the API is, as the reader's browser has it."""
    return str(call.request.base_url).rstrip("/")


def _cancel_text(answer: CancelAnswer) -> str:
    if answer.detail:
        return "{detail}"
    return "The job is cancelled." if answer.cancelled else "The job had ended already."


PAGES: tuple[ConsolePage, ...] = (job_page,)
ACTS = (
    ConsoleAct(retry_job, "The job is ready."),
    ConsoleAct(cancel_job, _cancel_text),
    ConsoleAct(move_job, "The job is moved."),
    ConsoleAct(edit_job, "The job has other arguments.", None, FormPage("job.html", _show_again)),
    ConsoleAct(clone_job, "This is the clone.", lambda clone: f"/jobs/{clone.id}"),
    ConsoleAct(delete_job, "The job is deleted.", lambda _: "/jobs"),
)

"""What people and programs see of a job, and how they say which jobs they want: `tarry jobs`, and the HTTP API."""

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tarry.model.attempts import EDITED, Attempt, JobAct, acts_of, attempts_of
from tarry.model.checks.unreadable import UNREADABLE, explain, is_apart, is_sealed, sealed_note, token_of
from tarry.model.duration import SECOND
from tarry.model.flow.node_ids import flow_of, is_node
from tarry.model.flow.wiring import split
from tarry.model.history.counting import Fingerprint
from tarry.model.job import MOST_LABELS, Job, LabelText, State, States
from tarry.model.lifecycle import Rules
from tarry.model.overrides import cost_of, retry_of
from tarry.model.quantity import Short
from tarry.model.retry import Retry
from tarry.store.queries.job_search import MOST_TEXTS, SearchText
from tarry.store.rules import ids
from tarry.tasks.arguments.json_depth import is_too_deep
from tarry.tasks.arguments.options import Name
from tarry.tasks.durable.step_records import JobStepRecord, step_records
from tarry.tasks.output import Output
from tarry.tasks.progress import Progress, decode_output, decode_progress

_UNKNOWN = Retry(None)


class JobTerms(Struct, forbid_unknown_fields=True):
    """Which jobs; a field that is left out matches all."""

    state: States = []
    """In one of these states; may be given several times."""
    queue: Name | None = None
    task: Name | None = None
    """Of this task; `*` stands for any characters, as in `shop.*`."""
    key: Name | None = None
    label: Annotated[list[LabelText], Meta(max_length=MOST_LABELS)] = []
    """With this label, such as `customer=7`; of several, with all."""
    older: float | Short | None = None
    """In their state for longer than this: seconds, or text such as "1h"."""
    since: float | Short | None = None
    """In their state since then or later: how long ago ("2h", or seconds), or a time (2026-11-24T16:00Z)."""
    until: float | Short | None = None
    """In their state since before then: how long ago, or a time."""
    created_since: float | Short | None = None
    """Made then or later: how long ago, such as "2h" or seconds, or a time such as 2026-11-24T16:00Z."""
    created_until: float | Short | None = None
    """Made before then."""
    text: SearchText = ""
    """Text in their arguments. A request looks at some thousands of jobs: a page may have few or none, and a next."""
    id: Annotated[str, Meta(max_length=36, pattern=r"^([0-9a-fA-F-]{6,})?$")] = ""
    """Ids that begin with these 6 or more hexadecimal digits; where none does, ids that end with them: for that each
    request looks at some thousands of jobs."""
    error: Fingerprint | None = None
    """Whose last attempt failed by an error of this group. A request looks at some thousands of jobs, as for a text."""
    error_text: Annotated[list[SearchText], Meta(max_length=MOST_TEXTS)] = []
    """Whose last attempt failed by an error with this text in its class or message; of several, with all. A request
    looks at some thousands of jobs, as for a text."""
    flow: Short | None = None
    """Jobs of this flow: its id, or that of any of its jobs."""
    node: SearchText = ""
    """What people call a job in its flow: its label, or else its task. Without `flow` or `parent` a request looks at
    some thousands of jobs."""
    parent: Short | None = None
    """Jobs that come right after the job with this id in its flow."""


class JobRecord(Struct, frozen=True):
    """A job. Times are seconds since the epoch; null: none."""

    id: str
    task: str
    queue: str
    state: State
    priority: int
    attempt: int
    """The number of the attempt that runs or comes next, from 1; of a dead job, of the last one."""
    max_attempts: int | None
    """The most that it may have; null: no limit, or not known here."""
    failures: int
    """Attempts that failed."""
    losses: int
    """How many workers died while it was running."""
    epoch: int
    """How often it was claimed."""
    key: str | None
    created: float
    due: float
    """It does not start before. While it is blocked: how long after its release, if that is less than 30 years."""
    since: float
    """In its present state since."""
    expires: float | None
    """It does not start then or later."""
    owner: str | None
    """Who runs it."""
    progress: Progress | None
    args: Any
    """Its arguments: a list, or an object by name."""
    note: Any
    """Its result when it is done; else how the last attempt ended: an object with `type`, `message`, `traceback`."""
    labels: dict[str, str]
    """By name."""
    cost: int
    """How many starts a rate counts for it."""


class JobAttempt(Struct, frozen=True):
    """An attempt of a job. Times are seconds since the epoch; null: not known, or not yet."""

    attempt: int
    """Its number, from 1: the failures before it, and itself."""
    epoch: int
    """How often the job had been claimed: the fence of the attempt's lease."""
    started: float | None
    ended: float | None
    outcome: str
    """`running`, `done`, `failed`, `retry` (the task asked for another), `timeout`, `lost` (its worker died while it
    was on), `lease_lost` (its worker died or was away, while others were on), `interrupted` (its worker stopped),
    `snoozed`, `cancelled`, `expired`, `unknown_task`, `no_key` (its worker could not open it), `payload_away`
    (its worker could not read its arguments at the place of `[payloads]`), `quarantined`, `given_back` or `buried`."""
    worker: str | None
    host: str | None
    error: str
    """In short; empty: there is none."""


class JobActRecord(Struct, frozen=True):
    """What somebody did to a job by hand. at: seconds since the epoch."""

    at: float
    act: str
    """`retried`, `cancelled`, `moved`, `edited` or `cloned`."""
    who: str
    """The name of a token, or of the user of a command; empty: not known."""
    address: str
    """Of the client, or the host of a command or program; empty: not known."""
    via: str
    """`http`, `console`, `command`, `operation` or `program`."""
    before: Any = None
    """Of `edited`: the arguments before. Null: they took more than 4,000 bytes, or five later edits have theirs."""
    of: str | None = None
    """Of `cloned`: the job whose clone this is."""


class JobDetail(JobRecord, frozen=True):
    """A job, with its attempts, and what it printed and logged."""

    output: Output | None
    """The last lines of the present or last attempt."""
    attempts: list[JobAttempt]
    """The last ones, the oldest first. Of one that was done at the first try, start and worker are not kept."""
    attempts_left_out: int
    """How many attempts came before these."""
    acts: list[JobActRecord]
    """The last 20 things that were done to it by hand, the oldest first."""
    flow: str | None
    """The flow of which it is a job."""
    steps: list[JobStepRecord]
    """Its durable steps that are done, and the one that it waits in if that has a time limit."""
    version: str
    """Another one whenever its arguments, its state or its attempt are others: an edit names the one that it saw."""


def job_record(job: Job, attempts: int | None = None) -> JobRecord:
    """The record of a job. attempts: `most_attempts`."""
    return JobRecord(**job_fields(job, attempts))


def job_detail(job: Job, attempts: int | None = None) -> JobDetail:
    """The same, with its output and its attempts."""
    known = attempts_of(job)
    return JobDetail(
        **job_fields(job, attempts),
        output=decode_output(job.progress),
        attempts=[_attempt(one) for one in known.attempts],
        attempts_left_out=known.left_out,
        acts=list(map(_act, acts_of(job))),
        flow=ids.text(flow_of(job.id)) if is_node(job.id) else None,
        steps=step_records(job),
        version=version_of(job),
    )


def version_of(job: Job) -> str:
    """What tells this job from the same one after an edit, an attempt or another change of its state."""
    return blake2b(f"{job.epoch} {job.state} ".encode() + job.body, digest_size=8).hexdigest()


def _act(one: JobAct) -> JobActRecord:
    before = decode_json(one.detail.encode()) if one.act == EDITED else None
    of = one.detail if one.act == "cloned" else None
    return JobActRecord(one.at / SECOND, one.act, one.who, one.address, one.via, before, of)


def _attempt(one: Attempt) -> JobAttempt:
    return JobAttempt(
        one.number,
        one.epoch,
        one.started / SECOND or None,
        one.ended / SECOND or None,
        one.outcome,
        one.owner or None,
        one.host or None,
        one.error,
    )


def most_attempts(job: Job, tasks: Mapping[str, Any], rules: Callable[[str, str], Rules]) -> int | None:
    """The most attempts that the job may have; None: no limit, or this process does not know its task."""
    rule = rules(job.task, job.queue).retry if job.task in tasks else _UNKNOWN
    return retry_of(job.headers, rule).attempts


def job_fields(job: Job, attempts: int | None) -> dict[str, Any]:
    """The fields of a JobRecord. attempts: `most_attempts`."""
    return {
        "id": ids.text(job.id),
        "task": job.task,
        "queue": job.queue,
        "state": job.state,
        "priority": job.priority,
        "attempt": job.attempt,
        "max_attempts": attempts,
        "failures": job.failures,
        "losses": job.crashes,
        "epoch": job.epoch,
        "key": job.key,
        "created": job.created / SECOND,
        "due": job.due / SECOND,
        "since": job.state_since / SECOND,
        "expires": job.expires / SECOND or None,
        "owner": job.owner or None,
        "progress": decode_progress(job.progress),
        "args": decode_json(split(job.id, job.body)[1]),
        "note": decode_json(job.note),
        "labels": job.labels,
        "cost": cost_of(job.headers),
    }


def decode_json(text: bytes) -> Any:
    """The value; None for no text. As text: what is no JSON, or nested so deeply that not everybody can read it; and
    that a value is sealed, or where it is kept."""
    if not text:
        return None
    if is_sealed(text):
        return sealed_note(text) or explain(token_of(text))
    if is_apart(text):
        from tarry.store.rules.payload_reference import describe_apart  # noqa: PLC0415 - few jobs have any

        return describe_apart(text)
    try:
        if not is_too_deep(text):
            return msgspec.json.decode(text)
    except UNREADABLE:
        pass
    return text.decode("utf-8", "replace")

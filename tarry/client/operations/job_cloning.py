"""Clones: a new job with the call of another. What came from arguments or from the time of the call is made anew."""

from typing import Any

from msgspec.structs import replace

from tarry.client.acting import job_act
from tarry.client.client import Client
from tarry.client.handle import Handle
from tarry.client.job_factory import unique_for
from tarry.errors import ArgumentError
from tarry.model import lifecycle
from tarry.model.attempts import with_act
from tarry.model.duration import SECOND
from tarry.model.flow.wiring import split
from tarry.model.job import LABEL_PREFIX, LEADING, ORDER_LABEL, Job
from tarry.model.lifecycle import NotPossible
from tarry.model.overrides import COST, FOLLOWS, LATEST, cost_of
from tarry.store.rules import ids
from tarry.tasks.arguments import headers as job_headers
from tarry.tasks.arguments.options import IDEMPOTENCY, INTERNAL, Options

_MADE_ANEW = (LABEL_PREFIX + ORDER_LABEL, COST, LATEST, FOLLOWS)
"""Headers that come from the arguments or from the time of the call."""


def clone_job(client: Client, job: Job, arguments: bytes | None, *, with_key: bool) -> Handle[Any]:
    """Puts a new job with the call of this one, or with other arguments, due now; NotPossible, ArgumentError,
    StoreError. with_key: it has its key, too; if another job holds that, the handle is that job's."""
    if job.task.startswith(INTERNAL):
        raise NotPossible(f"{job.task} is tarry's own")
    # Of large ones the clone has a copy, since either job may be deleted first.
    job = client.load_arguments(job) if arguments is None else job
    lifecycle.refuse_without_arguments(job)
    body = split(job.id, job.body)[1] if arguments is None else arguments
    if job.task not in client.factory.tasks and job.lane is not None:
        raise NotPossible(f"task {job.task} is not known here, and only it says in which line the clone waits")
    options = _options(job, is_same=arguments is None, with_key=with_key)
    new = client.make_job(job.task, body, options)
    act = job_act("cloned", client.clock.now(), ids.text(job.id))
    new = replace(new, headers=_headers(job, new), attempts=with_act(new.attempts, act))
    return client.insert_jobs([new], options)[0]


def _options(job: Job, *, is_same: bool, with_key: bool) -> Options:
    """The options of the call of a job, as far as a later call can have them."""
    if with_key and job.key is not None and job.key.startswith((IDEMPOTENCY, LEADING)):
        raise NotPossible("its key is that of one request: clone it without its key")
    key = job.key if with_key else None
    return Options(
        delay=0,
        queue=job.queue,
        priority=job.priority,
        key=key,
        unique_for=None if key is None else unique_for(job),
        expires=(job.expires - job.due) / SECOND if job.expires > job.due else None,
        labels=job.labels,
        cost=cost_of(job.headers) if is_same else None,
    ).check()


def _headers(job: Job, new: Job) -> bytes:
    """What travels beside the arguments of the job, and what is made anew for the clone."""
    try:
        old = job_headers.decode_headers(job.headers)
    except ArgumentError:
        return new.headers
    kept = {name: value for name, value in old.items() if name not in _MADE_ANEW}
    return job_headers.encode_headers(job.task, kept | job_headers.decode_headers(new.headers))

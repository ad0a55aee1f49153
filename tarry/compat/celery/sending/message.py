"""What travels with a job beside its arguments: the app's own headers, and whom to call if it fails for good.

Also the two signals of an enqueue, which see a call as Celery's message has it.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tarry.client.handle import Handle
from tarry.client.job_factory import encode_call
from tarry.compat.celery import signals
from tarry.compat.celery.sending.values import from_json, to_json
from tarry.model.job import Job
from tarry.store import ids
from tarry.tasks import headers as job_headers
from tarry.tasks.arguments.results import results_in
from tarry.tasks.new_job import NewJob

HEADER = "celery"
"""The header of a job that has all of it, as JSON."""
_STANDARD = ("lang", "task", "id", "eta", "expires", "retries", "root_id", "parent_id", "argsrepr", "kwargsrepr")


class Envelope(Struct, frozen=True):
    """headers: the app's own. errbacks: signatures as dicts."""

    headers: Mapping[str, Any] = {}
    errbacks: Sequence[Mapping[str, Any]] = ()

    def as_headers(self) -> dict[str, str]:
        """As headers of a job; empty if there is nothing; TypeError for what cannot be JSON."""
        if not self.headers and not self.errbacks:
            return {}
        return {HEADER: json.dumps(to_json({"headers": self.headers, "errbacks": list(self.errbacks)}))}


NOTHING = Envelope()


def read_envelope(headers: Mapping[str, str]) -> Envelope:
    """Out of the headers of a job."""
    text = headers.get(HEADER)
    if text is None:
        return NOTHING
    found = from_json(json.loads(text))
    return Envelope(found["headers"], found["errbacks"])


class EnvelopedArguments(dict[str, Any]):
    """The named arguments of a call of a flow, with its envelope: a flow's own calls have no place for one."""

    envelope: Envelope = NOTHING


def add_envelope(job: NewJob, call_next: Any) -> Any:
    """Middleware for the calls of chains, groups and chords."""
    if not isinstance(job.kwargs, EnvelopedArguments):
        return call_next(job)
    envelope = job.kwargs.envelope
    job.headers.update(envelope.as_headers())
    handle = call_next(job)
    # Its job is made and not stored yet. It may wait for results, which nobody has yet.
    known = [value for value in job.args if next(results_in([value]), None) is None]
    _announce(job.task, handle.id, from_json(known), from_json(dict(job.kwargs)), envelope)
    return handle


def store_announced(client: Any, new: NewJob) -> Handle[Any]:
    """Stores the job; handlers of `before_task_publish` may change its arguments and headers."""
    job = client.factory.make_from(new)
    envelope = read_envelope(new.headers)
    args, kwargs = from_json(list(new.args)), from_json(dict(new.kwargs))
    headers = _announce(new.task, ids.text(job.id), args, kwargs, envelope)
    body, lane = encode_call(new.definition, to_json(args), to_json(kwargs))
    if body != job.body:
        job = replace(job, body=body, lane=lane)
    job = with_headers(job, Envelope(_own(headers), envelope.errbacks))
    handle: Handle[Any] = client.insert_jobs([job], new.options)[0]
    signals.after_task_publish.send(
        new.task, body=(args, kwargs, {}), headers=headers, exchange="", routing_key=job.queue
    )
    return handle


def announced() -> bool:
    """Whether somebody wants to hear of each enqueue."""
    return bool(signals.before_task_publish.receivers or signals.after_task_publish.receivers)


def with_headers(job: Job, envelope: Envelope) -> Job:
    """The job with this envelope."""
    known = {**job_headers.decode_headers(job.headers), **envelope.as_headers()}
    return replace(job, headers=job_headers.encode_headers(job.task, known))


def _announce(task: str, id: str, args: list[Any], kwargs: dict[str, Any], envelope: Envelope) -> dict[str, Any]:
    """Sends `before_task_publish`; returns the headers as its handlers left them."""
    headers = {
        "lang": "py", "task": task, "id": id, "eta": None, "expires": None, "retries": 0, "root_id": id,
        "parent_id": None, "argsrepr": repr(args), "kwargsrepr": repr(kwargs), **envelope.headers,
    }  # fmt: skip
    signals.before_task_publish.send(
        task, body=(args, kwargs, {}), headers=headers, exchange="", routing_key="", declare=[],
        properties={"correlation_id": id}, retry_policy={},
    )  # fmt: skip
    return headers


def _own(headers: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in headers.items() if name not in _STANDARD}

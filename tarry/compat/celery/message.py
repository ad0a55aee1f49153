"""What travels with a job beside its arguments: the app's own headers, and whom to call if it fails for good.

Also the two signals of an enqueue, which see a call as Celery's message has it.

Values as Celery's JSON has them: what JSON does not know is `{"__type__": "datetime", "__value__": "..."}`.

The same form as kombu's, so that a job from Celery's broker is a job here without a change.
"""

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from tarry.client.handle import Handle
from tarry.client.job_factory import encode_call
from tarry.compat.celery import signals
from tarry.model.job import Job
from tarry.store.rules import ids
from tarry.tasks.arguments import headers as job_headers
from tarry.tasks.arguments.pending_results import results_in
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


def is_announced() -> bool:
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


_PLAIN = (str, int, float, bool, type(None))
# datetime before date, since it is one, too.
_TO_TEXT: tuple[tuple[type, str, Callable[[Any], Any]], ...] = (
    (datetime, "datetime", datetime.isoformat),
    (date, "date", date.isoformat),
    (time, "time", time.isoformat),
    (Decimal, "decimal", str),
    (UUID, "uuid", lambda value: {"hex": value.hex}),
)
_FROM_TEXT: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": lambda text: datetime.fromisoformat(text).date(),
    "time": time.fromisoformat,
    "decimal": Decimal,
    "uuid": lambda parts: UUID(**parts),
    "bytes": lambda text: text.encode(),
    "base64": base64.b64decode,
}


def to_json(value: Any) -> Any:
    """The value of plain types alone; TypeError if it cannot be JSON, ValueError for nan and infinity."""
    if type(value) in _PLAIN:
        return _finite(value)
    if isinstance(value, Mapping):
        return {_key(key): to_json(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_json(value._asdict())
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    return _mark_type(value)


def _mark_type(value: Any) -> Any:
    for kind, name, encode in _TO_TEXT:
        if isinstance(value, kind):
            return {"__type__": name, "__value__": encode(value)}
    if isinstance(value, bytes):
        try:
            return {"__type__": "bytes", "__value__": value.decode()}
        except UnicodeDecodeError:
            return {"__type__": "base64", "__value__": base64.b64encode(value).decode()}
    return _subclass(value)


def _subclass(value: Any) -> Any:
    if hasattr(value, "__json__"):
        return to_json(value.__json__())
    # Enums of text and numbers, and text of Django that is translated late.
    for kind in (str, int, float):
        if isinstance(value, kind):
            return _finite(kind(getattr(value, "value", value)))
    if type(value).__module__.startswith("django.utils.functional"):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not JSON serializable: pass an id or plain data instead of {value!r}")


def _key(key: Any) -> str:
    """The key as Python's own JSON writes it."""
    if isinstance(key, str):
        return str(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, int | float):
        return repr(key)
    raise TypeError(f"keys must be text or numbers, not {type(key).__name__}")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("JSON has no nan and no infinity")
    return value


def from_json(value: Any) -> Any:
    """What `to_json` was given; a marker of a kind that is not known stays a dict."""
    if isinstance(value, list | tuple):
        return type(value)(from_json(each) for each in value)
    if not isinstance(value, dict):
        return value
    if value.keys() == {"__type__", "__value__"} and value["__type__"] in _FROM_TEXT:
        return _FROM_TEXT[value["__type__"]](value["__value__"])
    return {key: from_json(each) for key, each in value.items()}

"""Other arguments for a job: what of a call is fixed once it is stored, and so refuses some."""

from typing import TYPE_CHECKING, Any

import msgspec

from tarry.client.acting import sign_change
from tarry.client.client import Client, bring_forward_behind
from tarry.client.job_records import decode_json
from tarry.errors import ArgumentError, BodyTooLarge
from tarry.model import lifecycle
from tarry.model.attempts import EDITED, kept_detail
from tarry.model.checks.unreadable import is_apart
from tarry.model.flow.wiring import split
from tarry.model.job import Job
from tarry.model.lifecycle import NotPossible
from tarry.model.overrides import cost_of
from tarry.model.quantity import over_max_body
from tarry.tasks.arguments.json_depth import is_too_deep
from tarry.tasks.arguments.masking import HIDDEN, has_hidden, name_arguments
from tarry.tasks.arguments.options import INTERNAL, NO_OPTIONS

if TYPE_CHECKING:
    from tarry.tasks.definition import TaskDefinition


def encode_arguments(client: Client, job: Job, value: Any) -> bytes:
    """Arguments as the job keeps them; ArgumentError if they do not fit its task, BodyTooLarge. value: a list, or an
    object by name; of an HTTP task any JSON, which is sent."""
    task, most = client.factory.tasks.get(job.task), client.factory.largest
    is_body = task is not None and task.runner is not None
    if not is_body and not isinstance(value, list | dict):
        raise ArgumentError(f"{job.task}: arguments are a list, or an object by name")
    own = split(job.id, job.body)[1]
    if is_apart(own) and value == decode_json(own):
        raise ArgumentError(f"{job.task}: write the arguments themselves: {value} is where the ones before are")
    text = msgspec.json.encode(value)
    if is_too_deep(text):
        raise ArgumentError(f"{job.task}: the arguments are nested too deeply")
    if HIDDEN.encode() in text:
        value = _with_kept_secrets(task, client.load_arguments(job), value)
    # As push/delivery/body.py keeps it: an object as it is, another value as the only argument.
    text = msgspec.json.encode(value if isinstance(value, dict) or not is_body else [value])
    if len(text) > most:
        raise BodyTooLarge(over_max_body(f"{job.task}: the arguments take", len(text), most))
    if task is not None:
        task.codec.decode(text)
    return text


def _with_kept_secrets(task: "TaskDefinition[Any, Any] | None", job: Job, value: Any) -> Any:
    """The value with the secrets of the job where a page showed that it hides them; ArgumentError if it has none."""
    old = decode_json(split(job.id, job.body)[1])
    if task is not None and task.runner is None and isinstance(value, dict):
        old = name_arguments(task, old)
    found = _fill_in(value, old)
    if has_hidden(found):
        raise ArgumentError(f"{job.task}: write the value in place of {HIDDEN}: there is none before to keep")
    return found


def _fill_in(value: Any, old: Any) -> Any:
    if value == HIDDEN and isinstance(old, dict | list):
        # It was nested too deeply to be shown.
        return old
    if isinstance(value, dict) and isinstance(old, dict):
        return {
            name: old[name] if one == HIDDEN and name in old else _fill_in(one, old.get(name))
            for name, one in value.items()
        }
    if isinstance(value, list) and isinstance(old, list) and len(value) == len(old):
        return list(map(_fill_in, value, old))
    return value


def edit_job(client: Client, job: Job, arguments: bytes, *, run: bool) -> Job | None:
    """Gives the job these arguments, and makes it ready if so wanted; the job as it is then. None: it has changed since
    it was seen. NotPossible: the rules do not allow it."""
    if job.task.startswith(INTERNAL):
        raise NotPossible(f"{job.task} is tarry's own")
    _refuse_another_line(client, job, arguments)
    now, before = client.clock.now(), split(job.id, job.body)[1]
    change = sign_change(job, lifecycle.edit(job, arguments, now, run=run), EDITED, now, kept_detail(before))
    if run:
        change = sign_change(job, change, "retried", now)
    if not client.store.apply([change], now)[0]:
        return None
    edited = change.apply_to(job)
    if client.listener is not None:
        client.listener.on_accepted([edited], changed=True)
        if run:
            client.listener.on_manual_change([edited], "retried")
    if run:
        bring_forward_behind(client.store, [job], now)
    return edited


def _refuse_another_line(client: Client, job: Job, arguments: bytes) -> None:
    """NotPossible if a limit or an order takes other arguments for another key, or they cost something else: the store
    has both from when the job was put."""
    task = client.factory.tasks.get(job.task)
    way_out = "clone the job with the new arguments, and delete this one"
    if task is None:
        if job.lane is not None:
            raise NotPossible(f"task {job.task} is not known here, and only it says in which line the job waits")
        return
    if task.lane is not None and task.lane(*task.codec.decode(arguments)) != job.lane:
        raise NotPossible(
            f"by limit_by= or order_by= the new arguments have another key, and its line is fixed: {way_out}"
        )
    if task.cost is not None and _cost(task, arguments) != cost_of(job.headers):
        raise NotPossible(f"the new arguments have another cost, and its cost is fixed: {way_out}")


def _cost(task: "TaskDefinition[Any, Any]", arguments: bytes) -> int:
    return task.with_cost(NO_OPTIONS, *task.codec.decode(arguments)).cost or 1

"""`beat_schedule` and `add_periodic_task`: lines of Celery's beat as schedules of tarry's tasks."""

import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from tarry.client.tasks.task import Task
from tarry.compat.celery.apps import running_app
from tarry.compat.celery.calling import ONCE, zone_of
from tarry.compat.celery.differences import differs
from tarry.compat.celery.message import from_json, to_json
from tarry.compat.celery.schedules import as_cron
from tarry.errors import ConfigError
from tarry.model.schedules.schedule import MAX_NAME as MAX_SCHEDULE_NAME
from tarry.model.schedules.schedule import Cron, schedules
from tarry.tasks.arguments.options import MAX_NAME
from tarry.tasks.running import current_job

RELAY = "tarry.compat.celery.beat"
"""The task that enqueues what a line with options asks for; one for each queue: a colon and its name follow."""
_HARMLESS = frozenset({"exchange", "routing_key", "delivery_mode", "serializer", "ignore_result", "retry"})


def set_schedules(app: Any) -> None:
    """Gives the tasks of the app the lines of its `beat_schedule`, and takes away what they had before. ConfigError."""
    lines = dict(app.conf.beat_schedule)
    for name in app._celery_tasks:
        own = {label: line for label, line in lines.items() if line["task"] == name and not _options(line)}
        _set(app.tasks[name], [_as_cron(app, label, line) for label, line in own.items()])
    relayed: dict[str, list[Cron]] = {}
    for label, line in lines.items():
        if line["task"] not in app.tasks:
            differs(f"beat_schedule[{label!r}]: this app has no task {line['task']}; it is for workers that have it")
        elif line["task"] in app._celery_tasks and not _options(line):
            continue
        relayed.setdefault(_queue(app, line), []).append(_relay(app, label, line))
    for queue, crons in relayed.items():
        _set(_relay_task(app, queue), crons)


def add_periodic_task(
    app: Any, schedule: Any, sig: Any, args: Any = (), kwargs: Any = None, name: str | None = None, **options: Any
) -> str:
    """Adds a line; returns its name."""
    label = name or _label(repr(sig))
    app.conf.beat_schedule = {
        **app.conf.beat_schedule,
        label: {
            "task": sig.task,
            "schedule": schedule,
            "args": (*(args or ()), *sig.args),
            "kwargs": {**sig.kwargs, **(kwargs or {})},
            "options": {**sig.options, **options},
        },
    }
    return label


def _label(call: str) -> str:
    """The call as the name of its line. A long one is cut, and told from others by a digest of all of it."""
    if len(call) <= MAX_SCHEDULE_NAME:
        return call
    digest = hashlib.blake2b(call.encode(errors="replace"), digest_size=8).hexdigest()
    return f"{call[: MAX_SCHEDULE_NAME - len(digest) - 1]}~{digest}"


def relay(app: Any, task: str, args: Any, kwargs: Any, options: Mapping[str, Any]) -> None:
    """What the task RELAY does. An attempt that is repeated finds the job that is there."""
    once = {ONCE: {"key": f"beat:{current_job().id}", "unique_for": "1h"}}
    found = app.find_celery_task(task)
    # The task's own method, which a class may override.
    send = app.send_task if found is None else found.apply_async
    more = (task,) if found is None else ()
    send(*more, from_json(args), from_json(kwargs), **{**from_json(options), **once})


def _relay(app: Any, label: str, line: Mapping[str, Any]) -> Cron:
    call = (line["task"], to_json(list(line.get("args") or ())), to_json(dict(line.get("kwargs") or {})))
    return _cron(app, label, line, (*call, to_json(_options(line))), {})


def _as_cron(app: Any, label: str, line: Mapping[str, Any]) -> Cron:
    args, kwargs = to_json(list(line.get("args") or ())), to_json(dict(line.get("kwargs") or {}))
    return _cron(app, label, line, args, kwargs)


def _cron(app: Any, label: str, line: Mapping[str, Any], args: Any, kwargs: Any) -> Cron:
    try:
        return as_cron(label, line["schedule"], args, kwargs, zone_of(app))
    except ValueError as error:
        raise ConfigError(f"beat_schedule[{label!r}]: {error}") from error


def _options(line: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a line that change anything. Its expiry in seconds, since a date would pass once for all."""
    given = {name: value for name, value in (line.get("options") or {}).items() if name not in _HARMLESS}
    if isinstance(given.get("expires"), timedelta):
        given["expires"] = given["expires"].total_seconds()
    if isinstance(given.get("expires"), datetime):
        differs(f"beat_schedule of {line['task']}: expires= is a moment; after it, all jobs of the line expire at once")
    return given


def _queue(app: Any, line: Mapping[str, Any]) -> str:
    found = app.tasks.get(line["task"])
    own = app.conf.task_default_queue if found is None else found.queue
    queue = _options(line).get("queue") or own or "default"
    return str(getattr(queue, "name", queue))


def _relay_task(app: Any, queue: str) -> Task[Any, Any]:
    name = f"{RELAY}:{queue}"[:MAX_NAME]
    if name not in app.tasks:
        app.native_task(name=name, queue=queue[:MAX_NAME])(enqueue_line)
    found: Task[Any, Any] = app.tasks[name]
    return found


def enqueue_line(task: str, args: list[Any], kwargs: dict[str, Any], options: dict[str, Any]) -> None:
    """Enqueues what a line of beat_schedule asks for."""
    relay(running_app(), task, args, kwargs, options)


def _set(native: Task[Any, Any], crons: list[Cron]) -> None:
    native.schedules = schedules(native.name, crons or None, None, None, native.codec.encode)

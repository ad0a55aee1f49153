"""What the settings say of a task: its queue, and its limits (`task_annotations`, time limits)."""

from collections.abc import Mapping
from typing import Any

from tarry.client.task import Task
from tarry.compat.celery.differences import differs
from tarry.compat.celery.sending.calling import priority
from tarry.compat.celery.sending.routes import find_route, name_of_queue
from tarry.compat.celery.task import MAP, STARMAP, CeleryTask
from tarry.errors import ConfigError
from tarry.model.quantity import shorten
from tarry.tasks.options import MAX_NAME


def limits_of(app: Any, task: CeleryTask) -> dict[str, Any]:
    """The settings of tarry's task that Celery's has on itself."""
    found: dict[str, Any] = {}
    if task.rate_limit:
        found["rate"] = as_rate(task.rate_limit)
    return found


def tell_limits(task: CeleryTask) -> CeleryTask:
    """Says what differs of the limits of a new task; returns it."""
    if task.rate_limit:
        differs(f"{task.name}: rate_limit is for all workers together; with Celery it is for each worker")
    return task


def as_rate(limit: str | float) -> str:
    """`10`, `"10"`, `"10/m"` or `"0.5/s"` as tarry's rate; ValueError."""
    number, _, unit = str(limit).partition("/")
    count = float(number)
    seconds = {"": 1, "s": 1, "m": 60, "h": 3600}[unit]
    if count <= 0:
        raise ValueError(f"rate_limit={limit!r}: more than 0")
    if count == int(count):
        return f"{int(count)}/{seconds}s"
    return f"1/{seconds / count:g}s"


def apply_settings(app: Any, task: CeleryTask, native: Task[Any, Any]) -> None:
    """Gives tarry's task its queue, priority, timeout and expiry, by the task and the app's settings."""
    # Functions of the app's own need not know these names.
    route = {} if task.name in (MAP, STARMAP) else find_route(app.conf, task.name)
    queue = name_of_queue(task.queue or route.get("queue") or app.conf.task_default_queue)
    native.queue = queue or "default"
    if len(native.queue) > MAX_NAME:
        raise ConfigError(f"{task.name}: queue {shorten(queue)}: names have at most {MAX_NAME} characters")
    wanted = task.priority if task.priority is not None else route.get("priority", app.conf.task_default_priority)
    native.priority = priority(app, wanted) or 0
    notes = annotations(app.conf.task_annotations, task.name)
    for name in ("time_limit", "soft_time_limit", "max_retries", "default_retry_delay"):
        if name in notes:
            setattr(task, name, notes[name])
    limits = (task.soft_time_limit, task.time_limit, app.conf.task_soft_time_limit, app.conf.task_time_limit)
    native.timeout = next((float(limit) for limit in limits if limit), None)
    if isinstance(task.expires, int | float):
        native.expires = float(task.expires)
    if not task.ignore_result and app.conf.task_ignore_result:
        task.ignore_result = True


def annotations(given: Any, task: str) -> Mapping[str, Any]:
    """What `task_annotations` says of a task, that of "*" first."""
    if not isinstance(given, Mapping):
        return {}
    found = {**given.get("*", {}), **given.get(task, {})}
    if "rate_limit" in found:
        differs(f"task_annotations: rate_limit of {task}: set it on the task, @app.task(rate_limit=...)")
    return found

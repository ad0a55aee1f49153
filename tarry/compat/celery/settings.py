"""`app.conf`: Celery's settings, as attributes and as a dict. What has no meaning here warns once.

What the settings say of a task: its queue, and its limits (`task_annotations`, time limits).
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from tarry.client.tasks.task import Task
from tarry.compat.celery.calling import find_route, name_of_queue, priority
from tarry.compat.celery.differences import differs
from tarry.compat.celery.task import MAP, STARMAP, CeleryTask
from tarry.errors import ConfigError
from tarry.model.quantity import shorten
from tarry.tasks.arguments.options import MAX_NAME

DEFAULTS: Mapping[str, Any] = {
    "beat_schedule": {},
    "broker_url": None,
    "imports": (),
    "include": (),
    "result_backend": None,
    "task_always_eager": False,
    "task_annotations": None,
    "task_default_priority": None,
    "task_default_queue": "default",
    "task_eager_propagates": False,
    "task_ignore_result": False,
    "task_queues": None,
    "task_routes": None,
    "task_soft_time_limit": None,
    "task_time_limit": None,
    "task_serializer": "json",
    "accept_content": ("json",),
    "result_serializer": "json",
    "timezone": None,
    "enable_utc": True,
}
"""The settings that have a meaning here, with what they are if nothing is said."""

HARMLESS = frozenset({
    "task_track_started", "task_acks_late", "task_reject_on_worker_lost", "result_extended",
    "worker_prefetch_multiplier", "broker_connection_retry", "broker_connection_retry_on_startup",
    "worker_hijack_root_logger", "task_send_sent_event", "worker_send_task_events", "broker_heartbeat",
    "broker_pool_limit", "task_create_missing_queues", "broker_connection_max_retries",
    "broker_connection_timeout", "redis_max_connections", "beat_max_loop_interval", "task_default_exchange",
    "task_default_exchange_type", "task_default_routing_key", "event_queue_expires", "beat_schedule_filename",
    "cache_backend", "worker_state_db", "worker_cancel_long_running_tasks_on_connection_loss",
})  # fmt: skip
"""Settings that need no warning: tarry always does so, or has no such part."""

ELSEWHERE: Mapping[str, str] = {
    "broker_url": "jobs are kept in tarry's store: Celery(store=...), TARRY_STORE, or `store` in tarry.toml",
    "result_backend": "results are kept with their jobs, in tarry's store",
    "broker_transport": "jobs are kept in tarry's store: Celery(store=...), TARRY_STORE, or `store` in tarry.toml",
    "broker_transport_options": "there is no visibility timeout: a worker that lives keeps its jobs",
    "worker_concurrency": "write `workers` and `threads` under [pools.default] in tarry.toml",
    "worker_max_tasks_per_child": "write `max_jobs` under [pools.default] in tarry.toml",
    "worker_max_memory_per_child": "write `max_memory` under [pools.default] in tarry.toml",
    "result_expires": 'write `keep = { done = "1h" }` under [queues.NAME] in tarry.toml',
    "beat_scheduler": "schedules are those of beat_schedule; every host has them, and no beat process runs",
    "task_publish_retry_policy": "an enqueue waits up to [client] timeout for a store that is away",
    "task_default_rate_limit": "write rate_limit= on the tasks, or `rate` under [queues.NAME] in tarry.toml",
    "task_queue_max_priority": "a priority is any integer within +-2^40",
}
QUEUES = (
    "task_queues: queues need no declaration, and their exchanges, arguments and limits have no effect; which workers "
    "serve which queue stands under [pools.NAME] in tarry.toml; all serve all by default"
)
_OLD = {
    "celerybeat_schedule": "beat_schedule", "celery_routes": "task_routes", "celery_imports": "imports",
    "celery_default_queue": "task_default_queue", "celery_timezone": "timezone", "celery_queues": "task_queues",
    "celery_always_eager": "task_always_eager", "celery_task_serializer": "task_serializer",
    "celery_result_backend": "result_backend", "celery_ignore_result": "task_ignore_result",
    "celeryd_concurrency": "worker_concurrency", "celeryd_task_time_limit": "task_time_limit",
    "celeryd_task_soft_time_limit": "task_soft_time_limit", "celery_accept_content": "accept_content",
    "celery_result_serializer": "result_serializer", "celery_enable_utc": "enable_utc",
    "celery_acks_late": "task_acks_late",
}  # fmt: skip
"""The names that settings had before Celery 4."""
_SERIALIZERS = ("task_serializer", "result_serializer", "accept_content")


class CelerySettings(MutableMapping[str, Any]):
    """The settings of one app. changed: called after a change."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._values: dict[str, Any] = {}
        self._later: list[tuple[Any, str]] = []
        self._changed = changed
        self.namespace = ""

    def given(self) -> set[str]:
        """The names of the settings that were given."""
        self._load()
        return set(self._values)

    def load_later(self, source: Any, namespace: str) -> None:
        """Settings of a module, a class, an object or a dict, read when one is first needed. namespace: of names that
        begin with it, and an underscore, only these are read, without it."""
        self._later.append((source, namespace))

    def _load(self) -> None:
        while self._later:
            source, namespace = self._later.pop(0)
            for name, value in _pairs(source, namespace):
                self[name] = value

    def __getitem__(self, name: str) -> Any:
        self._load()
        if name == "beat_schedule":
            # Apps add lines to what they get here.
            return self._values.setdefault(name, {})
        return self._values[name] if name in self._values else DEFAULTS[name]

    def __setitem__(self, name: str, value: Any) -> None:
        key = _modern(name)
        _check(key, value)
        self._values[key] = value
        self._changed()

    def __delitem__(self, name: str) -> None:
        del self._values[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter({**DEFAULTS, **self._values})

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __getattr__(self, name: str) -> Any:
        """A setting; AttributeError if it is none."""
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[_modern(name)]
        except KeyError:
            raise AttributeError(f"no setting {name} was made") from None

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets a setting, as `app.conf.task_routes = {...}`."""
        if name.startswith("_") or name == "namespace":
            super().__setattr__(name, value)
        else:
            self[name] = value


def _modern(name: str) -> str:
    lower = name.lower()
    return _OLD.get(lower, lower)


def _check(name: str, value: Any) -> None:
    """Warns of a setting that is not used, and of one that cannot be followed."""
    if name in _SERIALIZERS:
        given = [value] if isinstance(value, str) else list(value)
        if other := [kind for kind in given if kind not in ("json", "application/json")]:
            differs(f"{name}={other[0]!r}: arguments travel as JSON only; what cannot be JSON fails at .delay()")
    elif name == "task_queues":
        if value:
            differs(QUEUES)
    elif name in ELSEWHERE:
        if value is not None:
            differs(f"{name} has no effect: {ELSEWHERE[name]}")
    elif name not in DEFAULTS and name not in HARMLESS and value is not None:
        differs(f"{name} has no effect with tarry")


def _pairs(source: Any, namespace: str) -> Iterator[tuple[str, Any]]:
    found = _resolve(source)
    names = list(found) if isinstance(found, Mapping) else dir(found)
    prefix = f"{namespace}_" if namespace else ""
    for name in names:
        # Without a namespace a module may have anything in it: only what is a setting counts.
        if name.startswith(prefix) if prefix else _is_setting(name):
            value = found[name] if isinstance(found, Mapping) else getattr(found, name)
            yield name[len(prefix) :], value


def _is_setting(name: str) -> bool:
    key = _modern(name)
    return not name.startswith("_") and (key in DEFAULTS or key in HARMLESS or key in ELSEWHERE)


def _resolve(source: Any) -> Any:
    """The object that `"module"`, `"module:attribute"` or `"module.attribute"` names; another one is itself."""
    if not isinstance(source, str):
        return source
    module, _, attribute = source.partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError:
        parent, _, attribute = module.rpartition(".")
        if not parent or attribute == "":
            raise
        found = importlib.import_module(parent)
    return getattr(found, attribute) if attribute else found


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

"""From `apply_async(...)` to a job: Celery's options as those of tarry.

`task_routes`: which queue a task's jobs wait in.
"""

import importlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
from msgspec import Struct

from tarry.compat.celery.differences import CeleryNotSupported, differs
from tarry.compat.celery.message import NOTHING, Envelope, is_announced, store_announced, to_json, with_headers
from tarry.compat.celery.result import AsyncResult
from tarry.tasks.arguments.options import NO_OPTIONS, Options
from tarry.tasks.new_job import NewJob

_HARMLESS = frozenset({
    "retry", "retry_policy", "serializer", "compression", "add_to_parent", "shadow", "producer", "connection",
    "publisher", "ignore_result", "exchange", "delivery_mode", "mandatory", "root_id", "parent_id", "routing_key",
    "task_type", "argsrepr", "kwargsrepr", "replaced_task_nesting",
})  # fmt: skip
ONCE = "tarry_key"
"""An option for own use: those of tarry that make a call be stored once."""
_ELSEWHERE = frozenset({"headers", "link", "link_error"})
"""Options that are read where the job, or its flow, is made."""
_REFUSED = {
    "chain": "write chain(first.s(...), second.s())",
    "chord": "write chord(header, body)",
}


class SendOptions(Struct, frozen=True):
    """A call with options of `apply_async`."""

    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    options: Mapping[str, Any]

    @classmethod
    def of(cls, args: Any, kwargs: Any, task_id: str | None, options: Mapping[str, Any]) -> "SendOptions":
        """As `apply_async` is called."""
        if isinstance(args, str | bytes):
            raise TypeError("task args must be a list or tuple")
        return cls(tuple(args or ()), dict(kwargs or {}), {**options, "task_id": task_id})


def send(app: Any, native: Any, sending: SendOptions) -> AsyncResult:
    """Stores the job of that call; returns its AsyncResult."""
    args, kwargs = to_json(sending.args), to_json(sending.kwargs)
    options, envelope = options_of(app, native.name, sending.options), envelope_of(sending.options)
    if envelope is NOTHING and not is_announced():
        return AsyncResult(app.client.enqueue(native, args, kwargs, options).id, app=app)
    new = NewJob(native, args, kwargs, options, partial(store_announced, app.client), False)
    new.headers.update(envelope.as_headers())
    return AsyncResult(native.app_hooks.enqueue_chain[False](new).id, app=app)


def send_by_name(app: Any, name: str, sending: SendOptions) -> AsyncResult:
    """Stores a job of a task that this app does not have; the worker that has it checks the arguments."""
    if sending.args and sending.kwargs:
        raise CeleryNotSupported(f"{name}: this app does not have it, so give its arguments all by name, or none")
    queue = find_route(app.conf, name).get("queue") or app.conf.task_default_queue
    options = options_of(app, name, {"queue": queue, **sending.options})
    job = app.client.make_job(name, msgspec.json.encode(to_json(sending.kwargs or sending.args)), options)
    if (envelope := envelope_of(sending.options)) is not NOTHING:
        job = with_headers(job, envelope)
    return AsyncResult(app.client.insert_jobs([job], options)[0].id, app=app)


def envelope_of(options: Mapping[str, Any]) -> Envelope:
    """The app's own headers, and `link_error`."""
    headers, errbacks = dict(options.get("headers") or {}), as_list(options.get("link_error"))
    if not headers and not errbacks:
        return NOTHING
    return Envelope(headers, [errback.as_dict() for errback in errbacks])


def as_list(given: Any) -> list[Any]:
    """Signatures, of which one may stand alone."""
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def options_of(app: Any, task: str, given: Mapping[str, Any]) -> Options:
    """Tarry's options for these of Celery; CeleryNotSupported for one that would be lost."""
    wanted = {name: value for name, value in given.items() if value is not None and name not in _ELSEWHERE}
    for name, instead in _REFUSED.items():
        if wanted.pop(name, None):
            raise CeleryNotSupported(f"{task}: {name}=: {instead}")
    delay = _delay(app, wanted.pop("countdown", None), wanted.pop("eta", None))
    made = {
        "delay": delay,
        "queue": name_of_queue(wanted.pop("queue", None)),
        "priority": priority(app, wanted.pop("priority", None)),
        "expires": _expires(app, wanted.pop("expires", None), delay or 0.0),
        "timeout": _first(wanted.pop("soft_time_limit", None), wanted.pop("time_limit", None)),
        **_key(task, wanted.pop("task_id", None)),
        **(wanted.pop(ONCE, None) or {}),
    }
    if unknown := [name for name in wanted if name not in _HARMLESS]:
        differs(f"{task}.apply_async({unknown[0]}=...) has no effect with tarry")
    found = {name: value for name, value in made.items() if value is not None}
    return Options(**found).check() if found else NO_OPTIONS


def _key(task: str, task_id: str | None) -> dict[str, Any]:
    if task_id is None:
        return {}
    differs(f"{task}.apply_async(task_id=...): the job gets an id of its own, and holds this one as its key for a day")
    return {"key": task_id, "unique_for": "1d"}


def priority(app: Any, given: int | None) -> int | None:
    """A higher number is earlier here. On a Redis broker it is later with Celery, and 0 is the first."""
    if given is None:
        return None
    return -given if str(app.conf.broker_url or "").startswith(("redis", "rediss", "sentinel")) else int(given)


def zone_of(app: Any) -> str:
    """The time zone of the app."""
    return str(app.conf.timezone or "UTC")


def _delay(app: Any, countdown: float | timedelta | None, eta: datetime | str | None) -> float | None:
    if eta is not None:
        return max(0.0, (moment_of(app, eta) - datetime.now(UTC)).total_seconds())
    if isinstance(countdown, timedelta):
        countdown = countdown.total_seconds()
    return None if countdown is None else max(0.0, float(countdown))


def _expires(app: Any, expires: Any, delay: float) -> float | None:
    """Seconds after the job is due; Celery counts from the enqueue."""
    if expires is None:
        return None
    if isinstance(expires, timedelta):
        expires = expires.total_seconds()
    if isinstance(expires, datetime | str):
        expires = (moment_of(app, expires) - datetime.now(UTC)).total_seconds()
    return max(0.0, float(expires) - delay)


def moment_of(app: Any, given: datetime | str) -> datetime:
    """The moment; one without a zone is in that of the app."""
    moment = datetime.fromisoformat(given) if isinstance(given, str) else given
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=ZoneInfo(zone_of(app)))


def _first(*values: float | None) -> float | None:
    return next((value for value in values if value), None)


def name_of_queue(queue: Any) -> str | None:
    """The name of a queue, which may be a kombu.Queue."""
    return None if queue is None else str(getattr(queue, "name", queue))


class KombuExchange:
    """`kombu.Exchange`, by its name; it has no effect."""

    def __init__(self, name: str = "", type: str = "", **arguments: Any) -> None:
        self.name, self.type, self.arguments = name, type, arguments


class KombuQueue:
    """`kombu.Queue`, as one of `task_queues`: a route with its routing key leads to it. All else has no effect."""

    def __init__(self, name: str = "", exchange: Any = None, routing_key: str = "", **arguments: Any) -> None:
        self.name, self.exchange, self.routing_key, self.arguments = name, exchange, routing_key, arguments


def find_route(conf: Any, task: str) -> Mapping[str, Any]:
    """The route of a task by `task_routes`; its queue also by the routing key that one of `task_queues` has."""
    route = route_of(conf.task_routes, task)
    if "queue" in route or "routing_key" not in route:
        return route
    for queue in _queues(conf.task_queues):
        if getattr(queue, "routing_key", None) == route["routing_key"]:
            return {**route, "queue": queue.name}
    differs("task_routes: a routing_key that is not exactly that of one of task_queues has no effect: name the queue")
    return route


def _queues(given: Any) -> Iterable[Any]:
    return given if isinstance(given, list | tuple | set | frozenset) else ()


def route_of(routes: Any, task: str) -> Mapping[str, Any]:
    """The route of a task: `{"feeds.*": {"queue": "feeds"}}`, a list of pairs, a function, or several of these."""
    if not routes:
        return {}
    if isinstance(routes, Mapping):
        return _of_patterns(routes.items(), task)
    if isinstance(routes, str):
        module, _, name = routes.replace(":", ".").rpartition(".")
        return route_of(getattr(importlib.import_module(module), name), task)
    if callable(routes):
        return _as_route(routes(task, (), {}, {}))
    if isinstance(routes, list | tuple) and all(map(_is_pair, routes)):
        return _of_patterns(routes, task)
    for one in routes:
        if found := route_of(one, task):
            return found
    return {}


def _is_pair(one: Any) -> bool:
    # A list of two pairs has two elements, too.
    return isinstance(one, list | tuple) and len(one) == 2 and isinstance(one[0], str | re.Pattern)


def _of_patterns(pairs: Iterable[Any], task: str) -> Mapping[str, Any]:
    known = list(pairs)
    exact = next((route for pattern, route in known if pattern == task), None)
    if exact is not None:
        return _as_route(exact)
    return next((_as_route(route) for pattern, route in known if _matches(pattern, task)), {})


def _matches(pattern: Any, task: str) -> bool:
    return bool(pattern.match(task)) if isinstance(pattern, re.Pattern) else fnmatchcase(task, pattern)


def _as_route(route: Any) -> Mapping[str, Any]:
    if route is None:
        return {}
    if isinstance(route, str):
        return {"queue": route}
    found: Mapping[str, Any] = route
    return found

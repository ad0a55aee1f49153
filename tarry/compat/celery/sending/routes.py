"""`task_routes`: which queue a task's jobs wait in."""

import importlib
import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tarry.compat.celery.differences import differs


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

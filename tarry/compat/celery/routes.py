"""`task_routes`: which queue a task's jobs wait in."""

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from tarry.compat.celery.differences import differs


def name_of_queue(queue: Any) -> str | None:
    """The name of a queue, which may be a kombu.Queue."""
    return None if queue is None else str(getattr(queue, "name", queue))


def find_route(routes: Any, task: str) -> Mapping[str, Any]:
    """The route of a task: `{"feeds.*": {"queue": "feeds"}}`, a list of pairs, a function, or several of these."""
    if not routes:
        return {}
    if isinstance(routes, Mapping):
        return _of_patterns(routes.items(), task)
    if callable(routes):
        return _as_route(routes(task, (), {}, {}))
    if isinstance(routes, list | tuple) and all(map(_is_pair, routes)):
        return _of_patterns(routes, task)
    for one in routes:
        if found := find_route(one, task):
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
    if "queue" not in route and "routing_key" in route:
        differs("task_routes: a routing_key without a queue has no effect: name the queue")
    found: Mapping[str, Any] = route
    return found

"""What a task says about limits: how many at once, how fast, and by what key of its arguments."""

import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tarry.model.limit import EACH, TASK, Limit, limited

LaneOf = Callable[[Sequence[Any], Mapping[str, Any]], str]
LONGEST = 100


def limits_of(
    task: str, most: int | None, rate: str | None, by: object, most_in_all: int | None, rate_in_all: str | None
) -> dict[str, Limit]:
    """The limits by name that these settings of a task make; ValueError for what cannot be."""
    if by is None and (most_in_all is not None or rate_in_all is not None):
        raise ValueError(f"{task}: limit_all= and rate_all= stand beside limit_by=; without it say limit= and rate=")
    found = {(TASK if by is None else EACH) + task: limited(most, rate)}
    if by is not None:
        found[TASK + task] = limited(most_in_all, rate_in_all)
    return {name: limit for name, limit in found.items() if limit is not None}


def lane_of(task: str, fn: Callable[..., Any], by: Callable[..., Any] | None, limited: bool) -> LaneOf | None:
    """From the arguments of a call to the lane that its job waits in; None if its jobs wait in the open line.

    `by` takes the task's arguments: those that it names, or all if it says `*args` or `**kwargs`. Its answer, text or
    a whole number, is the key.
    """
    if by is None:
        return _only_lane if limited else None
    if not callable(by):
        raise TypeError(f"{task}: limit_by={by!r}: a function of the task's arguments")
    choose = _choosing(task, fn, by)

    def lane(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        key = choose(args, kwargs)
        if not isinstance(key, str | int):
            raise TypeError(f"{task}: limit_by gave {key!r}: the key must be text or a whole number")
        return _short(str(key))

    return lane


def _only_lane(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return ""


def _choosing(task: str, fn: Callable[..., Any], by: Callable[..., Any]) -> Callable[..., Any]:
    """Calls `by` with the arguments that it has names for, defaults filled in."""
    named, whole = inspect.signature(by).parameters.values(), inspect.signature(fn)
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in named):
        return lambda args, kwargs: by(*args, **kwargs)
    names = [parameter.name for parameter in named]
    if unknown := [name for name in names if name not in whole.parameters]:
        raise TypeError(f"{task}: limit_by asks for {', '.join(unknown)}, which the task has no parameter for")

    def chosen(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        bound = whole.bind(*args, **kwargs)
        bound.apply_defaults()
        return by(*(bound.arguments[name] for name in names))

    return chosen


def _short(key: str) -> str:
    """Long keys by their hash: a lane's name is in an index."""
    if len(key) <= LONGEST:
        return key
    return key[: LONGEST - 33] + "~" + hashlib.blake2b(key.encode(), digest_size=16).hexdigest()

"""The limits of a task: how many jobs run at once, how many start in a period, and by which key."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any, Literal

from tarry.model.bound import checked_max_waiting
from tarry.model.limit import EACH, TASK, Limit, parse_limit
from tarry.tasks.arguments.options import refuse_unfit
from tarry.tasks.arguments.signature import bind, read_signature

LaneFunction = Callable[[Sequence[Any], Mapping[str, Any]], str]
"""Takes the arguments of a call, and returns the lane in which its job waits."""
OnDead = Literal["skip", "hold"]
"""What a dead job of an ordered task does to those of its key that were enqueued after it."""
MAX_KEY = 100


def make_limits(
    task: str,
    limit: int | None,
    rate: str | None,
    weight: int | None,
    *,
    by: object,
    limit_all: int | None,
    rate_all: str | None,
) -> dict[str, Limit]:
    """The limits of a task by name, from its settings; ValueError."""
    if by is None and (limit_all is not None or rate_all is not None):
        raise ValueError(f"{task}: limit_all= and rate_all= stand beside limit_by=; without it say limit= and rate=")
    if by is None and weight is not None:
        raise ValueError(f"{task}: weight= stands beside limit_by=: it is that of each key which has none of its own")
    found = {(TASK if by is None else EACH) + task: parse_limit(limit, rate, weight)}
    if by is not None:
        found[TASK + task] = parse_limit(limit_all, rate_all)
    return {name: limit for name, limit in found.items() if limit not in (None, Limit())}


def check_max_waiting(task: str, most: int | None, *, by: object) -> int | None:
    """How many jobs of each key of a task may wait; ValueError."""
    if most is not None and by is None:
        raise ValueError(
            f"{task}: max_waiting= stands beside limit_by= or order_by=: it is that of each key; for a whole"
            " queue it is max_waiting of [queues.NAME] in tarry.toml"
        )
    return checked_max_waiting(most, f"{task}: ")


def make_lane_function(
    task: str, fn: Callable[..., Any], by: Callable[..., Any] | None, *, is_limited: bool, is_ordered: bool
) -> LaneFunction | None:
    """The lane function of a task; None if its jobs are in no lane. is_ordered: `by` is its order_by=.

    `by` takes some of the task's arguments, by name; or all of them if it takes `*args` or `**kwargs`. It returns the
    key: text or a whole number.
    """
    if by is None:
        return _only_lane if is_limited else None
    setting = "order_by" if is_ordered else "limit_by"
    if not callable(by):
        raise TypeError(f"{task}: {setting}={by!r}: a function of the task's arguments")
    call_by = with_chosen_arguments(task, setting, fn, by)

    def lane(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        return key_lane(f"{task}: {setting}", call_by(args, kwargs))

    return lane


def lane_of_key(task: str, lane: LaneFunction | None, key: object) -> str:
    """The lane of jobs of this task with this key. TypeError, ValueError: the task has no keys, or it cannot be one."""
    if lane is None or lane is _only_lane:
        raise ValueError(f"{task} has no tenants: give it limit_by=, which says from its arguments whose a job is")
    return key_lane(f"{task}: tenant", key)


def check_number_of_key(task: str, at_once: int | None, *, keeps_order: bool) -> None:
    """ValueError: a key of this task may not have so many at once."""
    if keeps_order and at_once is not None and at_once > 1:
        raise ValueError(f"{task} does the jobs of a key one after another, in their order: one at once, or 0")


def key_lane(place: str, key: object) -> str:
    """The lane of jobs with this key. TypeError, ValueError: it cannot be one; they begin with `place`."""
    if not isinstance(key, str | int):
        raise TypeError(f"{place} gave {key!r}: the key must be text or a whole number")
    text = str(key)
    refuse_unfit(place, text)
    return _shorten(text)


def _only_lane(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return ""


def with_chosen_arguments(
    task: str, setting: str, fn: Callable[..., Any], by: Callable[..., Any]
) -> Callable[..., Any]:
    """A function that calls `by` with the arguments that it names, defaults filled in. setting: whose it is, for the
    errors."""
    wanted = read_signature(f"{task}: {setting}", by).parameters.values()
    signature = read_signature(task, fn)
    if any(parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD) for parameter in wanted):
        return lambda args, kwargs: by(*args, **kwargs)
    names = [parameter.name for parameter in wanted]
    if unknown := [name for name in names if name not in signature.parameters]:
        raise TypeError(f"{task}: {setting} asks for {', '.join(unknown)}, which the task has no parameter for")

    at_once = _by_position(signature, names)

    def call_by(args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if not kwargs and at_once and len(args) in at_once.counts:
            return by(*at_once.choose(args))
        bound = bind(signature, args, kwargs)
        # The key must be the same whether the caller gives a default or leaves it out.
        bound.apply_defaults()
        return by(*(bound.arguments[name] for name in names))

    return call_by


class _ByPosition:
    """Chooses arguments of calls that give all of them by position, so that these need not be bound to their names.

    counts: how many such a call has.
    """

    # To bind them takes longer than all else that an enqueue does with its arguments.

    def __init__(self, counts: range, places: Sequence[tuple[int, Any]]) -> None:
        self.counts, self._places = counts, places

    def choose(self, args: Sequence[Any]) -> list[Any]:
        """The arguments that are asked for, defaults filled in."""
        given = len(args)
        return [args[place] if place < given else default for place, default in self._places]


def _by_position(signature: Signature, names: Sequence[str]) -> _ByPosition | None:
    """None: a call by position alone may lack something, or some of these names are of another kind."""
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    parameters = list(signature.parameters.values())
    found = [parameter for parameter in parameters if parameter.kind in kinds]
    must_be_named = [one for one in parameters if one.kind is Parameter.KEYWORD_ONLY and one.default is Parameter.empty]
    by_name = {parameter.name: (place, parameter.default) for place, parameter in enumerate(found)}
    if must_be_named or not by_name.keys() >= set(names):
        return None
    required = sum(parameter.default is Parameter.empty for parameter in found)
    return _ByPosition(range(required, len(found) + 1), [by_name[name] for name in names])


def _shorten(key: str) -> str:
    """The key; a long one is cut and ends with a hash."""
    # Stores have the name of a lane in an index, so it must be short. The hash keeps long keys apart.
    if len(key) <= MAX_KEY:
        return key
    return key[: MAX_KEY - 33] + "~" + hashlib.blake2b(key.encode(), digest_size=16).hexdigest()

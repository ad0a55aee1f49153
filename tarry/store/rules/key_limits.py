"""The limits that single keys of a task have: a tenant's own numbers.

`Store.limit_key` keeps each as a named value, behind a prefix under the name of the level that it is about. The limit
for each key says whether there are any (`Limit.has_key_limits`): where there are none, no claim looks for them. Of
several stores each one has all of them.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

import msgspec
from msgspec.structs import replace

from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.limit import EACH, MOST_WEIGHT, KeyLimit, Limit, Weight
from tarry.store.rules.base import Store
from tarry.store.rules.lanes import lane_level, limit_name, task_and_lane

PREFIX = "key-limit:"
"""What the names of these values begin with. `lua/limits.lua` has it too."""
WEIGHTS = "key-weights:"
"""What the name of the value begins with that has the weights of all keys of a task: a claim needs all of them."""
MOST_WEIGHTS = 1000
"""So many keys of a task may have weights of their own."""
_VALUE = re.compile(rb"(-|\d{1,10}) (-|\d{1,10}) (\d{1,18}) \d{1,18} \d{1,18} ([01])(?: (-|\d{1,4}))?")
"""How many at once, the rate's count and period, two numbers that follow from these for Redis' scripts, whether it is
paused, and its weight, which older values do not have; `-`: as the limit for each key says."""


def value_name(task: str, lane: str) -> str:
    """The name of the value of one key."""
    return PREFIX + lane_level(task, lane)


def prefix_of(task: str) -> str:
    """What the names of the values of all keys of a task begin with."""
    return value_name(task, "")


def read_key_limits(store: Store, task: str) -> dict[str, KeyLimit]:
    """The limits that keys of the task have, by lane. StoreError."""
    found = store.kv_list(prefix_of(task)).items()
    return {task_and_lane(name.removeprefix(PREFIX))[1]: decode(value) for name, value in found}


def read_key_limit(store: Store, task: str, lane: str) -> KeyLimit | None:
    """The limit that this key has; None: that for each key. StoreError."""
    value = store.kv_get(value_name(task, lane))
    return None if value is None else decode(value)


def effective(values: Iterable[tuple[str, bytes]], limits: Mapping[str, Limit]) -> dict[str, Limit]:
    """The limits that hold for these keys, by the names of their levels. values: the named values. limits: as they are
    set, with those for each key."""
    levels = ((name.removeprefix(PREFIX), value) for name, value in values)
    return {
        level: decode(value).over(limits[limit_name(level)]) for level, value in levels if limit_name(level) in limits
    }


def for_each(limit: Limit | None, has_key_limits: bool, has_weights: bool) -> Limit | None:
    """What a store keeps as the limit for each key of a task, of which `limit` was asked for."""
    if limit is None and not has_key_limits:
        return None
    return replace(limit or Limit(), has_key_limits=has_key_limits, has_weights=has_weights)


def changed_weights(value: bytes | None, lane: str, limit: KeyLimit | None) -> bytes | None:
    """The value that has the weights of all keys of a task, after this key has this limit; None: no key has one."""
    weights = {name: weight for name, weight in decode_weights(value).items() if name != lane}
    if limit is not None and limit.weight is not None:
        weights[lane] = limit.weight
    return msgspec.json.encode(dict(sorted(weights.items()))) if weights else None


def check_weights(store: Store, task: str, lane: str) -> None:
    """ValueError: so many other keys have weights that this one may not have one, too. StoreError."""
    # Two processes at once may come to some more: that costs claims a little, and nothing else.
    weights = decode_weights(store.kv_get(WEIGHTS + task))
    if lane not in weights and len(weights) >= MOST_WEIGHTS:
        raise ValueError(
            f"{task}: {MOST_WEIGHTS} keys have weights of their own, and no more may; let the weight for each key be"
            f" that of most keys (limits set {EACH}{task} --weight), and reset these"
        )


@lru_cache(maxsize=100)
def decode_weights(value: bytes | None) -> Mapping[str, int]:
    """The weights in such a value, by lane; none, if it is none."""
    if value is None:
        return {}
    try:
        return decode_json(value, dict[str, Weight])
    except UNREADABLE:
        # It must not stop all jobs of the task: lanes take equal turns then.
        return {}


def encode(limit: KeyLimit) -> bytes:
    """The named value."""
    rate = Limit(None, limit.count or 0, limit.period)
    numbers = limit.most, limit.count, limit.period, rate.at_once, rate.spacing if rate.count else 0
    words = (*numbers, int(limit.is_paused), limit.weight)
    return " ".join("-" if number is None else str(number) for number in words).encode()


@lru_cache(maxsize=1000)
def decode(value: bytes) -> KeyLimit:
    """The limit in a named value; one that says nothing, if it is none."""
    found = _VALUE.fullmatch(value)
    if found is None:
        # It must not stop all jobs of the task.
        return KeyLimit()
    most, count, period = (None if number == b"-" else int(number) for number in found.groups()[:3])
    weight = None if found[5] in (None, b"-") else min(max(1, int(found[5])), MOST_WEIGHT)
    return KeyLimit(most, count, period or 0, found[4] == b"1", weight)

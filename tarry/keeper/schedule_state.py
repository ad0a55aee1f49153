"""The state of each schedule: how far it has come and whether it is paused. The store keeps it for all hosts."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.errors import StoreBusy
from tarry.model.checks.decoders import convert_to, decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.job import StoredTime
from tarry.model.schedules.schedule import Schedule, StoredRuns, newest
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import reachable_part

PREFIX = "cron:"
_TRIES = 20


class ScheduleState(Struct, frozen=True, omit_defaults=True):
    """Times are microseconds since the epoch."""

    rule: str
    """The rule of the schedule, in words, as the last writer had it."""
    after: StoredTime
    """All ticks up to this time are done."""
    seen: StoredTime
    """When a host last had this schedule, accurate to a day."""
    last: StoredTime = 0
    """The newest tick that became a job; 0: none yet."""
    paused: bool = False
    runs: StoredRuns = []
    """The last ones, the oldest first."""


_UNREADABLE = ScheduleState("", 0, 0)
"""As if the schedule had just been changed: it ticks from now on."""


StoredState = tuple[ScheduleState, bytes]
"""A state, and the content of its cell."""


def read(store: Store) -> dict[str, StoredState]:
    """All states by the name of the schedule, from the shards that are available."""
    # A state on a shard that is away could not be written either.
    cells = reachable_part(lambda: store.kv_list(PREFIX))
    return {name.removeprefix(PREFIX): (_decode(cell), cell) for name, cell in cells.items()}


def _decode(cell: bytes) -> ScheduleState:
    try:
        written = decode_json(cell, dict[str, Any])
        try:
            state = convert_to(ScheduleState, written)
        except UNREADABLE:
            # Whatever stands there for runs: the schedule must tick all the same.
            state = convert_to(ScheduleState, written | {"runs": []})
    except UNREADABLE:
        return _UNREADABLE
    return replace(state, runs=newest(state.runs))


def write(store: Store, name: str, state: ScheduleState | None, expected: bytes | None) -> bool:
    """Writes the state, or removes it (None); False if the cell no longer has the expected content."""
    return store.kv_cas(PREFIX + name, None if state is None else msgspec.json.encode(state), expected)


def initial_state(schedule: Schedule, now: int) -> ScheduleState:
    """The state of a new schedule: it ticks from now on."""
    return ScheduleState(schedule.rule, now, now)


def pause(store: Store, schedule: Schedule, now: int) -> None:
    """Pauses a schedule on all hosts until it is resumed."""
    _update(store, schedule, now, lambda state: replace(state, paused=True))


def resume(store: Store, schedule: Schedule, now: int) -> None:
    """Resumes a paused schedule: it ticks from now on, and ticks during the pause are skipped."""
    _update(store, schedule, now, lambda state: replace(state, paused=False, after=now) if state.paused else state)


def _update(store: Store, schedule: Schedule, now: int, change: Callable[[ScheduleState], ScheduleState]) -> None:
    for _ in range(_TRIES):
        state, expected = read(store).get(schedule.name) or (initial_state(schedule, now), None)
        if write(store, schedule.name, change(state), expected):
            return
    raise StoreBusy(f"schedule {schedule.name} changes all the time; try again")

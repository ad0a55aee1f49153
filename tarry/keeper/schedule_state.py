"""How far each schedule has come, and whether it is paused: kept in the store, for all hosts and over restarts."""

from collections.abc import Callable

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.errors import StoreBusy
from tarry.model.schedule import Schedule
from tarry.store.base import Store
from tarry.store.shared.partly import there

PREFIX = "cron:"
_TRIES = 20


class ScheduleState(Struct, frozen=True, omit_defaults=True):
    """Times are microseconds since the epoch."""

    rule: str
    """When the schedule ticked, in words, as whoever wrote this had it."""
    after: int
    """All ticks up to this one are dealt with."""
    seen: int
    """When, to the day, a host last had this schedule."""
    last: int = 0
    """The newest tick that became a job; 0: none yet."""
    paused: bool = False


StoredState = tuple[ScheduleState, bytes]
"""A bookmark, and how the store has it."""


def read(store: Store) -> dict[str, StoredState]:
    """Every bookmark, by the schedule's name. Of several stores, those of the ones that are there: where one is away,
    what it has cannot be written either."""
    cells = there(lambda: store.cells(PREFIX))
    return {
        name.removeprefix(PREFIX): (msgspec.json.decode(cell, type=ScheduleState), cell) for name, cell in cells.items()
    }


def write(store: Store, name: str, state: ScheduleState | None, expected: bytes | None) -> bool:
    """Sets it, or removes it (None), unless it changed meanwhile."""
    return store.write(PREFIX + name, None if state is None else msgspec.json.encode(state), expected)


def initial_state(schedule: Schedule, now: int) -> ScheduleState:
    """Where a schedule begins that nobody has seen before: it ticks from now on."""
    return ScheduleState(schedule.rule, now, now)


def pause(store: Store, schedule: Schedule, now: int) -> None:
    """Until it is resumed, on no host does it make a job."""
    _update(store, schedule, now, lambda state: replace(state, paused=True))


def resume(store: Store, schedule: Schedule, now: int) -> None:
    """It ticks from now on; what fell into the pause is not made up for. Nothing, if it is not paused."""
    _update(store, schedule, now, lambda state: replace(state, paused=False, after=now) if state.paused else state)


def _update(store: Store, schedule: Schedule, now: int, change: Callable[[ScheduleState], ScheduleState]) -> None:
    for _ in range(_TRIES):
        state, expected = read(store).get(schedule.name) or (initial_state(schedule, now), None)
        if write(store, schedule.name, change(state), expected):
            return
    raise StoreBusy(f"schedule {schedule.name} changes all the time; try again")

"""Puts, changes and removes schedules in a store."""

from collections.abc import Mapping
from typing import Any

from msgspec.structs import asdict

from tarry.client.acting import current_actor
from tarry.client.client import Client
from tarry.client.handle import Handle
from tarry.errors import BodyTooLarge, ConfigError, OtherDatabase, ScheduleNotFound
from tarry.model.checks.decoders import convert_to
from tarry.model.duration import Duration, microseconds
from tarry.model.quantity import over_max_body
from tarry.model.schedules import stored as rules
from tarry.model.schedules.definition import LARGEST_BODY, CallOptions, ScheduleDefinition, check_name
from tarry.model.schedules.schedule import cached_timetable
from tarry.model.schedules.stored import StoredSchedule
from tarry.store.queries import stored_schedules
from tarry.store.queries.stored_schedules import ScheduleChange, Values
from tarry.tasks.arguments.codec import refuse_sealed
from tarry.tasks.arguments.options import NO_OPTIONS, Options
from tarry.tasks.definition import TaskDefinition

_KEPT = frozenset(CallOptions.__struct_fields__)


def put(client: Client, name: str, definition: ScheduleDefinition, connection: Any = None) -> StoredSchedule:
    """Stores the schedule, in place of one with that name; within the transaction of `connection` if one is given.
    ValueError, ArgumentError, BodyTooLarge, TooManySchedules, StoreError. ConfigError: code has one of that name."""
    check_name(name)
    if task := _in_code(client.tasks, name):
        raise ConfigError(f"schedule {name}: the code of task {task} has one of this name, which only code changes")
    _check_call(client, name, definition)
    now, by = client.clock.now(), current_actor().name[:200]
    within = _within(client, connection)

    def replace(old: StoredSchedule | None) -> StoredSchedule:
        new = rules.put(name, old, definition, now, by)
        if old is None:
            client.schedule_room.take(name)
        return new

    stored = stored_schedules.change(client.store, name, replace, within)
    assert stored is not None
    return stored


def change(client: Client, name: str, make: ScheduleChange) -> StoredSchedule:
    """Makes something else of a schedule; ScheduleNotFound, StoreError."""
    found = stored_schedules.change(client.store, name, make)
    if found is None:
        raise ScheduleNotFound(f"no schedule {name} in the store")
    return found


def pause(client: Client, name: str) -> StoredSchedule:
    """Pauses it until it is resumed; ScheduleNotFound, StoreError."""
    now = client.clock.now()
    return change(client, name, lambda old: old and rules.pause(name, old, now))


def resume(client: Client, name: str) -> StoredSchedule:
    """It ticks from now on; ScheduleNotFound, StoreError."""
    now = client.clock.now()
    return change(client, name, lambda old: old and rules.resume(name, old, now))


def run_now(client: Client, definition: ScheduleDefinition) -> Handle[Any]:
    """Enqueues its call now; ArgumentError, ValueSealed, StoreError."""
    refuse_sealed(definition.body, f"the call of a schedule of {definition.task}")
    options = Options(**asdict(definition.options))
    return client.insert_jobs([client.make_job(definition.task, definition.body, options)], options)[0]


def delete(client: Client, name: str, connection: Any = None) -> bool:
    """Whether it was there; StoreError."""
    within = _within(client, connection)
    was_there = False

    def remove(old: StoredSchedule | None) -> None:
        nonlocal was_there
        was_there = old is not None

    stored_schedules.change(client.store, name, remove, within)
    return was_there


def call_options(options: Options) -> CallOptions:
    """What a schedule keeps of the options of its call; ValueError for others."""
    if options is NO_OPTIONS:
        return CallOptions()
    given = {field: value for field, value in asdict(options).items() if value != getattr(NO_OPTIONS, field)}
    if others := sorted(given.keys() - _KEPT):
        known = ", ".join(sorted(_KEPT))
        raise ValueError(f"{others[0]}= is not for the call of a schedule; it can have: {known}")
    spans = {
        field: _seconds(value, field) if field in ("expires", "timeout") else value for field, value in given.items()
    }
    return convert_to(CallOptions, spans)


def _seconds(duration: Duration, name: str) -> float:
    return microseconds(duration, name) / 1_000_000


def _check_call(client: Client, name: str, definition: ScheduleDefinition) -> None:
    if len(definition.body) > LARGEST_BODY:
        raise BodyTooLarge(over_max_body(f"schedule {name}: the arguments take", len(definition.body), LARGEST_BODY))
    # Also where the zone has no effect, a wrong one is a mistake.
    cached_timetable("@daily", definition.zone)
    # Only for its errors: they should come now, and not at the first tick.
    client.make_job(definition.task, definition.body, Options(**asdict(definition.options)).check())


def _in_code(tasks: Mapping[str, TaskDefinition[Any, Any]], name: str) -> str:
    """The task of which a schedule in code has this name; empty: none has."""
    found = (task.name for task in list(tasks.values()) if any(one.name == name for one in task.schedules))
    return next(found, "")


def _within(client: Client, connection: Any) -> Values | None:
    if connection is None:
        return None
    try:
        return client.store.kv_within(connection)
    except OtherDatabase as error:
        raise OtherDatabase(f"{error}: put the schedule without connection=, once you have committed") from None

"""What needs attention of settings that hold jobs back, and of schedules that made no job."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

from tarry.errors import StoreError
from tarry.keeper import schedule_state
from tarry.keeper.keeper_records import LimitRecord
from tarry.model.duration import SECOND
from tarry.model.limit import QUEUE, TASK
from tarry.model.schedules.stored import missed_at, newest_end
from tarry.model.values.console_paths import LIMITS, schedule_path
from tarry.operate.limits import LimitsQuery, list_limits
from tarry.operate.schedules import ScheduleQuery, list_schedules, stored_queue
from tarry.push.task_records import TaskRecord
from tarry.server.console.concerns.concerns import Concern
from tarry.server.http.method import ApiCall
from tarry.store.queries.missed_schedules import read_missed


def setting_concerns(call: ApiCall, tasks: Sequence[TaskRecord]) -> Iterator[Concern]:
    """What needs attention. Nothing is said of what a store knows that is away: it has a line of its own."""
    # Limits of these are 0 while their endpoints rest, or are disabled: that has a line of its own.
    pushed = {TASK + task.task for task in tasks if task.kind == "http"}
    with suppress(StoreError):
        yield from stopped_limits(list_limits.handler(call, LimitsQuery()).limits, pushed)
    with suppress(StoreError):
        yield from _missed_schedules(call)
    with suppress(StoreError):
        yield from _missed_in_store(call)


def stopped_limits(limits: Sequence[LimitRecord], others: Collection[str]) -> Iterator[Concern]:
    """Queues and tasks of which nothing starts, since their limit is 0. others: limits that are told elsewhere."""
    for one in limits:
        if one.at_once == 0 and one.limit.startswith((QUEUE, TASK)) and one.limit not in others:
            yield Concern("stopped", one.limit, 0, LIMITS)


def _missed_schedules(call: ApiCall) -> Iterator[Concern]:
    states = schedule_state.read(call.service.client.store)
    missed = {name: state for name, (state, _) in states.items() if state.runs and state.runs[-1].is_missed}
    # Seldom any: only then is it asked which of them the reader may see.
    for one in list_schedules.handler(call, ScheduleQuery(source="code")).schedules if missed else ():
        if one.name in missed and not one.paused:
            last = missed[one.name].runs[-1]
            yield Concern("schedule", one.name, last.tick / SECOND, schedule_path(one.name), last.end)


def _missed_in_store(call: ApiCall) -> Iterator[Concern]:
    for name, one in read_missed(call.service.client.store).items():
        if call.allows(stored_queue(call, one)):
            yield Concern(
                "schedule", name, missed_at(one) / SECOND, schedule_path(name), one.problem or newest_end(one)
            )

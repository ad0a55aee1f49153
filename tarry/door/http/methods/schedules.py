"""Methods about schedules: list, show, pause, resume and run them."""

from collections.abc import Callable

from msgspec import Struct

from tarry.door.http.method import ApiCall, ApiMethod, api_method
from tarry.door.http.problem import RequestError
from tarry.door.identity.access import Scope
from tarry.keeper import schedule_state
from tarry.keeper.cron import run_now, schedules_of
from tarry.keeper.records import ScheduleDetail, ScheduleRecord, schedule_detail, schedule_records
from tarry.model.nearest import did_you_mean
from tarry.model.schedule import Schedule
from tarry.store.base import Store
from tarry.tasks.options import Name


class SchedulePath(Struct, frozen=True):
    """Names a schedule."""

    schedule: Name


class ScheduleList(Struct, frozen=True):
    """Schedules, by name."""

    schedules: list[ScheduleRecord]


class ScheduleRun(Struct, frozen=True):
    """The job that a schedule made."""

    id: str


@api_method("GET /v1/schedules", Scope.READ)
def list_schedules(call: ApiCall) -> ScheduleList:
    """Lists the schedules of the app's tasks."""
    return ScheduleList(_records(call, _visible(call)))


@api_method("GET /v1/schedules/{schedule}", Scope.READ)
def get_schedule(call: ApiCall, path: SchedulePath) -> ScheduleDetail:
    """Shows a schedule, and what became of its last ticks: the job of each, how late it started and how it ended."""
    schedule, client = _known(call, path.schedule), call.service.client
    return schedule_detail(client.store, schedule, client.clock.now())


@api_method("POST /v1/schedules/{schedule}/run", Scope.OPERATE, status=201)
def run_schedule(call: ApiCall, path: SchedulePath) -> ScheduleRun:
    """Enqueues the call of a schedule now, also of a paused one; its ticks stay as they are."""
    return ScheduleRun(run_now(call.service.client, _known(call, path.schedule)).id)


@api_method("POST /v1/schedules/{schedule}/pause", Scope.OPERATE)
def pause_schedule(call: ApiCall, path: SchedulePath) -> ScheduleRecord:
    """Pauses a schedule on all hosts, also after a restart."""
    return _change(call, path.schedule, schedule_state.pause)


@api_method("POST /v1/schedules/{schedule}/resume", Scope.OPERATE)
def resume_schedule(call: ApiCall, path: SchedulePath) -> ScheduleRecord:
    """Resumes a paused schedule: it ticks from now on, and what fell into the pause is not made up for."""
    return _change(call, path.schedule, schedule_state.resume)


def _schedules(call: ApiCall) -> dict[str, Schedule]:
    app = call.service.app
    return schedules_of(app.tasks, app.config.named_calendars)


def _visible(call: ApiCall) -> dict[str, Schedule]:
    """Those whose task's queue the caller may use."""
    return {name: one for name, one in _schedules(call).items() if call.allows(_queue(call, one))}


def _queue(call: ApiCall, schedule: Schedule) -> str:
    return call.service.app.tasks[schedule.task].queue


def _known(call: ApiCall, name: str) -> Schedule:
    known = _visible(call)
    if name not in known:
        near = did_you_mean(name, known)
        raise RequestError(f"no schedule {name} in this app{near or '; GET /v1/schedules lists them'}", "schedule", 404)
    call.check(_queue(call, known[name]))
    return known[name]


def _change(call: ApiCall, name: str, change: Callable[[Store, Schedule, int], None]) -> ScheduleRecord:
    schedule, client = _known(call, name), call.service.client
    change(client.store, schedule, client.clock.now())
    return _records(call, {name: schedule})[0]


def _records(call: ApiCall, schedules: dict[str, Schedule]) -> list[ScheduleRecord]:
    client = call.service.client
    return schedule_records(client.store, schedules, client.clock.now())


METHODS: tuple[ApiMethod, ...] = (list_schedules, get_schedule, run_schedule, pause_schedule, resume_schedule)

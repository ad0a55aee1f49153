"""Methods about schedules: list, show, pause, resume and run them."""

from collections.abc import Callable

from msgspec import Struct

from tarry.keeper import schedule_state
from tarry.keeper.cron import run_now, schedules_of
from tarry.keeper.keeper_records import ScheduleDetail, ScheduleRecord, schedule_detail, schedule_records
from tarry.model.nearest import did_you_mean
from tarry.model.schedules.schedule import Schedule
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.method import method, methods_of
from tarry.operate.problem import RequestError
from tarry.store.rules.base import Store
from tarry.tasks.arguments.options import Name


class SchedulePath(Struct, frozen=True):
    """Names a schedule."""

    schedule: Name


class ScheduleList(Struct, frozen=True):
    """Schedules, by name."""

    schedules: list[ScheduleRecord]


class ScheduleRun(Struct, frozen=True):
    """The job that a schedule made."""

    id: str


def _known(call: MethodCall, path: SchedulePath, body: object = None) -> Schedule:
    known = _visible(call)
    if path.schedule not in known:
        near = did_you_mean(path.schedule, known) or f"; {call.way_to(list_schedules)} lists them"
        raise RequestError(f"no schedule {path.schedule} in this app{near}", "schedule", 404)
    call.check(_queue(call, known[path.schedule]))
    return known[path.schedule]


@method("GET /v1/schedules", Scope.READ, command="schedules list")
def list_schedules(call: MethodCall) -> ScheduleList:
    """Lists the schedules of the app's tasks."""
    return ScheduleList(_records(call, _visible(call)))


@method("GET /v1/schedules/{schedule}", Scope.READ, command="schedules show", check=_known)
def get_schedule(call: MethodCall, path: SchedulePath) -> ScheduleDetail:
    """Shows a schedule, and what became of its last ticks: the job of each, how late it started and how it ended."""
    schedule, client = _known(call, path), call.client
    return schedule_detail(client.store, schedule, client.clock.now())


@method("POST /v1/schedules/{schedule}/run", Scope.OPERATE, status=201, command="schedules run", check=_known)
def run_schedule(call: MethodCall, path: SchedulePath) -> ScheduleRun:
    """Enqueues the call of a schedule now, also of a paused one; its ticks stay as they are."""
    return ScheduleRun(run_now(call.client, _known(call, path)).id)


@method("POST /v1/schedules/{schedule}/pause", Scope.OPERATE, command="schedules pause", check=_known)
def pause_schedule(call: MethodCall, path: SchedulePath) -> ScheduleRecord:
    """Pauses a schedule on all hosts, also after a restart."""
    return _change(call, path, schedule_state.pause)


@method("POST /v1/schedules/{schedule}/resume", Scope.OPERATE, command="schedules resume", check=_known)
def resume_schedule(call: MethodCall, path: SchedulePath) -> ScheduleRecord:
    """Resumes a paused schedule: it ticks from now on, and what fell into the pause is not made up for."""
    return _change(call, path, schedule_state.resume)


def _schedules(call: MethodCall) -> dict[str, Schedule]:
    app = call.app
    return schedules_of(app.tasks, app.config.named_calendars)


def _visible(call: MethodCall) -> dict[str, Schedule]:
    """Those whose task's queue the caller may use."""
    return {name: one for name, one in _schedules(call).items() if call.allows(_queue(call, one))}


def _queue(call: MethodCall, schedule: Schedule) -> str:
    return call.app.tasks[schedule.task].queue


def _change(call: MethodCall, path: SchedulePath, change: Callable[[Store, Schedule, int], None]) -> ScheduleRecord:
    schedule, client = _known(call, path), call.client
    change(client.store, schedule, client.clock.now())
    return _records(call, {path.schedule: schedule})[0]


def _records(call: MethodCall, schedules: dict[str, Schedule]) -> list[ScheduleRecord]:
    client = call.client
    return schedule_records(client.store, schedules, client.clock.now())


METHODS = methods_of(__name__)

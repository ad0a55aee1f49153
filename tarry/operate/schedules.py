"""Methods about schedules: list, show, put, pause, resume, run and delete them."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from tarry.errors import ArgumentError, BodyTooLarge, ConfigError, NotAllowed, TarryError, TooManySchedules, ValueSealed
from tarry.keeper import schedule_state
from tarry.keeper.cron import run_now, schedules_of
from tarry.keeper.keeper_records import ScheduleDetail, ScheduleRecord, schedule_detail, schedule_records
from tarry.model.duration import SECOND, Span, microseconds
from tarry.model.job import MOST_LABELS
from tarry.model.limit import MAX_COST
from tarry.model.nearest import did_you_mean
from tarry.model.quantity import Short
from tarry.model.schedules.schedule import Missed, Schedule
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import method, methods_of
from tarry.operate.problem import RequestError, named_option
from tarry.tasks.arguments.options import Name

# A command loads of what keeps schedules only what it needs.
if TYPE_CHECKING:
    from tarry.model.schedules.definition import ScheduleDefinition
    from tarry.model.schedules.stored import StoredSchedule

MOST_LISTED = 1000
_NO_NUL = r"^[^\x00]*$"
MOST_ARGS = 32 * 1024
"""Arguments that fit into 64 KB."""
_PAGES = 10
"""Pages of schedules that are read for one answer, of which the caller may see some."""


class SchedulePath(Struct, frozen=True):
    """Names a schedule."""

    schedule: Name


class ScheduleQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which schedules to list."""

    prefix: Annotated[str, Meta(max_length=100, pattern=_NO_NUL)] = ""
    """How their names begin."""
    source: Literal["code", "stored"] | None = None
    """`code`: lines of the app; `stored`: put while it ran."""
    after: Annotated[str, Meta(max_length=200, pattern=_NO_NUL)] = ""
    """Only those behind this name: `next` of the answer before."""
    limit: Annotated[int, Meta(ge=1, le=MOST_LISTED)] = MOST_LISTED


class ScheduleList(Struct, frozen=True):
    """Schedules, by name."""

    schedules: list[ScheduleRecord]
    next: str | None = None
    """There are more: send it as `after`."""


class NewSchedule(Struct, frozen=True, forbid_unknown_fields=True):
    """A call, and when it is made: one of cron, every and at."""

    task: Name
    """The task's full name."""
    args: Annotated[list[Any], Meta(max_length=MOST_ARGS)] | Annotated[dict[str, Any], Meta(max_length=MOST_ARGS)] = []
    """Its arguments: a list, or an object by name; for an HTTP task an object, or a list of the one value, to send."""
    cron: Short | None = None
    """An expression such as "0 7 * * 1-5"."""
    every: Span | None = None
    """A period: seconds, or text such as "90s"."""
    at: datetime | float | None = None
    """Once: a time with its zone, or seconds since the epoch."""
    zone: Short = "UTC"
    """Of cron, such as Europe/Paris."""
    until: datetime | float | None = None
    """No tick comes after this time."""
    jitter: Span | None = None
    """Each job is due up to so much later than its tick."""
    catch_up: Missed = "last"
    """What runs for ticks that were missed for more than a minute: `skip`: nothing; `last`: one job for all; `all`: one
    for each."""
    queue: Name | None = None
    """Of its jobs; without it the task's."""
    priority: int | None = None
    """Of its jobs, higher first; without it the task's."""
    expires: Span | None = None
    """A job is cancelled unless started within so long of when it is due."""
    timeout: Span | None = None
    """How long an attempt may take."""
    cost: Annotated[int, Meta(ge=1, le=MAX_COST)] | None = None
    """How many starts a rate counts for a job; without it as the task says."""
    labels: Annotated[dict[str, str], Meta(max_length=MOST_LABELS)] | None = None
    """Values by name, by which people find the jobs."""

    def definition(self) -> "ScheduleDefinition":
        """ValueError."""
        from tarry.model.schedules.definition import CallOptions, ScheduleDefinition  # noqa: PLC0415 - as above
        from tarry.model.schedules.given import expression_of, jitter_of, moment  # noqa: PLC0415 - as above

        given = (("expires", self.expires), ("timeout", self.timeout))
        expires, timeout = (None if span is None else microseconds(span, name) / SECOND for name, span in given)
        return ScheduleDefinition(
            self.task,
            msgspec.json.encode(self.args),
            expression_of(self.cron, self.every, self.at),
            self.zone,
            self.catch_up,
            jitter_of(self.jitter),
            0 if self.until is None else moment("until", self.until),
            CallOptions(self.queue, self.priority, expires, timeout, self.labels, self.cost),
        )


class ScheduleRun(Struct, frozen=True):
    """The job that a schedule made."""

    id: str


class ScheduleRemoval(Struct, frozen=True):
    """A schedule that was deleted."""

    schedule: str


def _known(call: MethodCall, path: SchedulePath, body: object = None) -> "Schedule | StoredSchedule":
    """The one of code, if there is one of that name; else the one in the store."""
    in_code = _visible(call)
    if found := in_code.get(path.schedule):
        call.check(_queue(call, found))
        return found
    stored = _in_store(call, path.schedule)
    if stored is None or not call.allows(stored_queue(call, stored)):
        near = did_you_mean(path.schedule, in_code) or f"; {call.way_to(list_schedules)} lists them"
        raise RequestError(f"no schedule {path.schedule} in this app{near}", "schedule", 404)
    call.check(stored_queue(call, stored))
    return stored


@method("GET /v1/schedules", Scope.READ, command="schedules list")
def list_schedules(call: MethodCall, query: ScheduleQuery) -> ScheduleList:
    """Lists the schedules: those of the app's code, and those that were put while it ran."""
    call.sync_tasks()
    code = {name: one for name, one in _visible(call).items() if name.startswith(query.prefix) and name > query.after}
    found, last = ([] if query.source == "stored" else _records(call, code)), None
    if query.source != "code":
        stored, last = _stored_records(call, query)
        found = sorted([*found, *stored], key=lambda one: one.name)
    if last is not None:
        # Those of code behind it come with the stored ones behind it.
        found = [one for one in found if one.name <= last]
    shown = found[: query.limit]
    return ScheduleList(shown, shown[-1].name if len(found) > query.limit else last)


@method("GET /v1/schedules/{schedule}", Scope.READ, command="schedules show", check=_known)
def get_schedule(call: MethodCall, path: SchedulePath) -> ScheduleDetail:
    """Shows a schedule, and what became of its last ticks: the job of each, how late it started and how it ended."""
    found, client = _known(call, path), call.client
    if isinstance(found, Schedule):
        return schedule_detail(client.store, found, client.clock.now())
    from tarry.keeper.stored_records import stored_detail  # noqa: PLC0415 - as above

    return stored_detail(client.store, path.schedule, found, client.clock.now())


@method(
    "PUT /v1/schedules/{schedule}",
    Scope.ADMIN,
    errors=(ConfigError, ArgumentError, BodyTooLarge, TooManySchedules),
    command="schedules put",
)
def put_schedule(call: MethodCall, path: SchedulePath, body: NewSchedule) -> ScheduleRecord:
    """Puts a schedule into the store, in place of one with that name; what it has already, is not stored again."""
    from tarry.client.schedules import storing  # noqa: PLC0415 - as above
    from tarry.operate.tasks import check_outside  # noqa: PLC0415 - as above

    check_outside(body.task)
    call.sync_tasks()
    _check_put(call, path.schedule, body)
    client = call.client
    try:
        storing.put(client, path.schedule, body.definition())
    except ArgumentError as error:
        error.field = "args" + error.at
        raise
    except TarryError:
        raise
    except ValueError as error:
        raise RequestError(str(error), named_option(error), 422) from None
    stored = _in_store(call, path.schedule)
    if stored is None:
        raise RequestError(f"schedule {path.schedule}: somebody has just deleted it", "schedule", 404)
    return _stored_record(call, path.schedule, stored)


@method("DELETE /v1/schedules/{schedule}", Scope.ADMIN, errors=(ConfigError,), command="schedules delete", check=_known)
def delete_schedule(call: MethodCall, path: SchedulePath) -> ScheduleRemoval:
    """Deletes a schedule from the store. Jobs that it has made stay."""
    from tarry.client.schedules import storing  # noqa: PLC0415 - as above

    stored = _in_store(call, path.schedule)
    found = stored or _known(call, path)
    if isinstance(found, Schedule):
        raise ConfigError(
            f"schedule {path.schedule} is a line of task {found.task}: take it out of the code, or pause it"
        )
    _check_stored(call, path.schedule, found)
    storing.delete(call.client, path.schedule)
    return ScheduleRemoval(path.schedule)


@method(
    "POST /v1/schedules/{schedule}/run",
    Scope.OPERATE,
    errors=(ValueSealed,),
    status=201,
    command="schedules run",
    check=_known,
)
def run_schedule(call: MethodCall, path: SchedulePath) -> ScheduleRun:
    """Enqueues the call of a schedule now, also of a paused one; its ticks stay as they are."""
    from tarry.client.schedules import storing  # noqa: PLC0415 - as above

    found, client = _known(call, path), call.client
    if isinstance(found, Schedule):
        return ScheduleRun(run_now(client, found).id)
    call.sync_tasks()
    return ScheduleRun(storing.run_now(client, found.definition).id)


@method("POST /v1/schedules/{schedule}/pause", Scope.OPERATE, command="schedules pause", check=_known)
def pause_schedule(call: MethodCall, path: SchedulePath) -> ScheduleRecord:
    """Pauses a schedule on all hosts, also after a restart."""
    return _change(call, path, "pause")


@method("POST /v1/schedules/{schedule}/resume", Scope.OPERATE, command="schedules resume", check=_known)
def resume_schedule(call: MethodCall, path: SchedulePath) -> ScheduleRecord:
    """Resumes a paused schedule: it ticks from now on, and what fell into the pause is not made up for."""
    return _change(call, path, "resume")


def _schedules(call: MethodCall) -> dict[str, Schedule]:
    app = call.app
    return schedules_of(app.tasks, app.config.named_calendars)


def _visible(call: MethodCall) -> dict[str, Schedule]:
    """Those of code whose task's queue the caller may use."""
    return {name: one for name, one in _schedules(call).items() if call.allows(_queue(call, one))}


def _queue(call: MethodCall, schedule: Schedule) -> str:
    return call.app.tasks[schedule.task].queue


def stored_queue(call: MethodCall, one: "StoredSchedule") -> str:
    """The queue whose users may see a schedule of the store."""
    definition = one.definition
    task = call.app.tasks.get(definition.task)
    # Whose queue nobody knows here is for who may use all.
    return definition.options.queue or (EVERY_QUEUE if task is None else task.queue)


def _stored_records(call: MethodCall, query: ScheduleQuery) -> tuple[list[ScheduleRecord], str | None]:
    """One more than are wanted, if there are more; and the name at which the look for them ended, None: there are no
    more, or enough were found."""
    from tarry.store.queries import stored_schedules  # noqa: PLC0415 - as above

    store, after = call.client.store, query.after
    found: list[ScheduleRecord] = []
    for _ in range(_PAGES):
        page = stored_schedules.page(store, query.prefix, after, query.limit + 1)
        visible = {name: one for name, one in page.items() if call.allows(stored_queue(call, one))}
        found += [_stored_record(call, name, one) for name, one in visible.items()]
        if len(found) > query.limit or len(page) <= query.limit:
            return found[: query.limit + 1], None
        after = max(page)
    return found, after


def _check_put(call: MethodCall, name: str, body: NewSchedule) -> None:
    """RequestError if there is no such task. NotAllowed if the caller may not use its queue, or that of the schedule
    that has the name."""
    task = call.app.tasks.get(body.task)
    if task is None:
        near = did_you_mean(body.task, call.app.tasks)
        raise RequestError(f"task: no task {body.task} in this app{near}", "task", 422)
    call.check(body.queue or task.queue)
    call.caller.check_task(body.task, task.queue)
    if (stored := _in_store(call, name)) is not None:
        _check_stored(call, name, stored)


def _check_stored(call: MethodCall, name: str, stored: "StoredSchedule") -> None:
    queue = stored_queue(call, stored)
    if not call.allows(queue):
        raise NotAllowed(f"the name {name} is that of a schedule that this token may not change: choose another one")
    call.check(queue)


def _change(call: MethodCall, path: SchedulePath, act: Literal["pause", "resume"]) -> ScheduleRecord:
    from tarry.client.schedules import storing  # noqa: PLC0415 - as above

    found, client = _known(call, path), call.client
    if isinstance(found, Schedule):
        change = schedule_state.pause if act == "pause" else schedule_state.resume
        change(client.store, found, client.clock.now())
        return _records(call, {path.schedule: found})[0]
    change_stored = storing.pause if act == "pause" else storing.resume
    return _stored_record(call, path.schedule, change_stored(client, path.schedule))


def _in_store(call: MethodCall, name: str) -> "StoredSchedule | None":
    from tarry.store.queries import stored_schedules  # noqa: PLC0415 - as above

    return stored_schedules.get(call.client.store, name)


def _stored_record(call: MethodCall, name: str, one: "StoredSchedule") -> ScheduleRecord:
    from tarry.keeper.stored_records import stored_record  # noqa: PLC0415 - as above

    return stored_record(name, one, call.client.clock.now())


def _records(call: MethodCall, schedules: dict[str, Schedule]) -> list[ScheduleRecord]:
    client = call.client
    return schedule_records(client.store, schedules, client.clock.now())


METHODS = methods_of(__name__)

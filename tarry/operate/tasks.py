"""Methods about tasks: list them; add, edit, remove and try HTTP tasks."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct
from msgspec.structs import replace

from tarry.errors import ConfigError, NotAllowed, Outdated, UnknownTask
from tarry.model.job import DEFAULT_QUEUE
from tarry.model.nearest import did_you_mean
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.method import method, methods_of
from tarry.operate.problem import RequestError
from tarry.push.editing import HttpTaskEditor, TriedAnswer, read_answer
from tarry.push.task_records import TaskRecord, task_records
from tarry.store.base import Tally
from tarry.tasks.arguments.options import INTERNAL, Name

WrittenSettings = dict[str, Any]
MOST_SAMPLE = 1_000_000
"""Characters of an answer to try a rule with."""


class TaskPath(Struct, frozen=True):
    """Names a task."""

    task: Name


class TaskQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """Which tasks to list."""

    search: Annotated[str, Meta(max_length=200)] = ""
    """Text that the name, the queue, the owner, the description or the URL holds; capitals make no difference."""
    kind: Short | None = None
    """`sync`, `async` or `http`."""


class TaskList(Struct, frozen=True):
    """Tasks, by name."""

    tasks: list[TaskRecord]


class NewTask(Struct, frozen=True, forbid_unknown_fields=True):
    """An HTTP task to add."""

    task: Name
    """Its name."""
    settings: WrittenSettings
    """As in `[tasks.NAME]` of tarry.toml; `url` at least."""


class EditQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """How to change a task."""

    if_version: Short | None = None
    """The `version` that the caller saw: if the task has changed since then, nothing is done, and the answer is 412."""


class TaskChange(Struct, frozen=True):
    """A task as it is after a change."""

    task: TaskRecord
    warnings: list[str]
    """Settings that may be mistakes."""


class TaskRemoval(Struct, frozen=True):
    """What removing a task leaves."""

    task: str
    waiting: int
    """Its unfinished jobs, of the queues that the caller may see: they wait until there is such a task again."""


class SampleAnswer(Struct, frozen=True, forbid_unknown_fields=True):
    """An answer of an endpoint, to try a task's rule with."""

    body: Annotated[str, Meta(max_length=MOST_SAMPLE)] = ""
    """Its body, or all of it as `curl -i` prints it."""
    status: int | None = None
    """Of a body alone; 200 if it is not said."""


@method("GET /v1/tasks", Scope.READ, command="tasks list")
def list_tasks(call: MethodCall, query: TaskQuery) -> TaskList:
    """Lists the tasks: functions of the app, and HTTP tasks."""
    return TaskList([record for record in _records(call) if _matches(record, query) and call.allows(record.queue)])


@method("GET /v1/tasks/{task}", Scope.READ, errors=(UnknownTask,), command="tasks show")
def get_task(call: MethodCall, path: TaskPath) -> TaskRecord:
    """Shows a task."""
    record = _known(call, path.task)
    call.check(record.queue)
    return record


@method("POST /v1/tasks", Scope.ADMIN, status=201, errors=(ConfigError, UnknownTask), command="tasks add")
def add_task(call: MethodCall, body: NewTask) -> TaskChange:
    """Adds an HTTP task, which sends its jobs to a URL. Every worker has it within a second."""
    call.subject = body.task
    check_outside(body.task)
    _check_change(call, body.task, _queue_of(body.settings))
    endpoint = _editor(call).add(body.task, body.settings)
    return TaskChange(_known(call, body.task), list(endpoint.warnings()))


@method("PUT /v1/tasks/{task}", Scope.ADMIN, errors=(ConfigError, Outdated))
def put_task(call: MethodCall, path: TaskPath, query: EditQuery, body: WrittenSettings) -> TaskChange:
    """Gives an HTTP task these settings in place of all that it has; adds it if there is none.

    A hidden value (`***`, or `?...` at the end of the URL) that is sent as it was shown stays."""
    check_outside(path.task)
    editor, now = _editor(call), call.app.http.endpoints.get(path.task)
    _check_change(call, path.task, _queue_of(body))
    if now is None and query.if_version is not None:
        raise Outdated(f"{path.task} is not there any more; without if_version it is added")
    if now is None or call.app.http.is_configured(path.task):
        endpoint = editor.add(path.task, body)
    else:
        endpoint = editor.replace(path.task, body, query.if_version)
    return TaskChange(_known(call, path.task), list(endpoint.warnings()))


@method("PATCH /v1/tasks/{task}", Scope.ADMIN, errors=(ConfigError, UnknownTask, Outdated), command="tasks edit")
def edit_task(call: MethodCall, path: TaskPath, query: EditQuery, body: WrittenSettings) -> TaskChange:
    """Changes some settings of an HTTP task; null takes a setting out.

    A hidden value (`***`, or `?...` at the end of the URL) that is sent as it was shown stays. A task of
    tarry.toml can only be disabled and enabled here: `{"enabled": false}`."""
    if not body:
        raise RequestError("edit what? Send settings, as in tarry.toml", "body", 422)
    editor = _editor(call)
    _known(call, path.task)
    _check_change(call, path.task, _queue_of(body) if "queue" in body else None)
    endpoint = editor.edit(path.task, body, query.if_version)
    return TaskChange(_known(call, path.task), [] if endpoint is None else list(endpoint.warnings()))


@method("DELETE /v1/tasks/{task}", Scope.ADMIN, status=200, errors=(ConfigError, UnknownTask), command="tasks remove")
def remove_task(call: MethodCall, path: TaskPath) -> TaskRemoval:
    """Removes an HTTP task. Its jobs stay."""
    editor = _editor(call)
    _known(call, path.task)
    _check_change(call, path.task, None)
    seen = sum(one.count for one in call.look(0).counts if _is_left(call, one, path.task))
    waiting = editor.remove(path.task)
    return TaskRemoval(path.task, seen if call.queues else waiting)


@method("POST /v1/tasks/{task}/try", Scope.READ, errors=(UnknownTask,), command="tasks try")
def try_task(call: MethodCall, path: TaskPath, body: SampleAnswer) -> TriedAnswer:
    """Says what the rule of an HTTP task makes of an answer. Nothing is sent."""
    call.check(_known(call, path.task).queue)
    return _editor(call).try_answer(path.task, read_answer(body.body.encode(), body.status))


def check_outside(task: str) -> None:
    """RequestError if this is the name of a task of tarry's own."""
    if task.startswith(INTERNAL):
        said = f"task: names that begin with {' or '.join(INTERNAL)} are for tarry's own tasks: choose another one"
        raise RequestError(said, "task", 422)


def _editor(call: MethodCall) -> HttpTaskEditor:
    call.sync_tasks()
    app = call.app
    # `[push] secrets` are not for those who may use some queues only.
    return HttpTaskEditor(app.http, call.client.store, app.declare_limits, may_write_places=not call.queues)


def _queue_of(settings: WrittenSettings) -> str:
    """The queue that a task with these settings has."""
    queue = settings.get("queue")
    # What is no text is refused with the other settings.
    return queue if isinstance(queue, str) else DEFAULT_QUEUE


def _check_change(call: MethodCall, name: str, queue: str | None) -> None:
    """NotAllowed if the caller may not use the queue of the task as it is now, or as it is to be. None: it stays."""
    task = call.app.tasks.get(name)
    if task is not None and not call.allows(task.queue):
        raise NotAllowed(f"the name {name} is that of a task that this token may not change: choose another one")
    if task is not None:
        call.check(task.queue)
    if queue is not None:
        call.check(queue)
        # A task that it may not put it may not make either. Of one that is not known here, jobs of others may wait, or
        # come: so not its queue decides, which the caller chooses, but the names that its token has.
        call.caller.check_task(name, None if task is None else queue)


def _is_left(call: MethodCall, tally: Tally, task: str) -> bool:
    """Whether these jobs wait for the task, as far as the caller may see."""
    return tally.task == task and not tally.state.finished and call.allows(tally.queue)


def _records(call: MethodCall) -> list[TaskRecord]:
    call.sync_tasks()
    app, store = call.app, call.client.store
    counts = [one for one in call.look(0).counts if call.allows(one.queue)]
    found = task_records(list(app.tasks.values()), app.retry, app.http, store, counts)
    return [one if call.caller.allows(Scope.ADMIN, one.queue) else replace(one, version=UNSET) for one in found]


def _known(call: MethodCall, name: str) -> TaskRecord:
    records = {record.task: record for record in _records(call) if call.allows(record.queue)}
    if name not in records:
        near = did_you_mean(name, records)
        raise UnknownTask(f"no task {name}{near or f'; {call.way_to(list_tasks)} lists them'}")
    return records[name]


def _matches(record: TaskRecord, query: TaskQuery) -> bool:
    texts = (record.task, record.queue, record.owner, record.description, str(record.url or ""))
    wanted = query.search.casefold()
    return query.kind in (None, record.kind) and any(wanted in text.casefold() for text in texts)


METHODS = methods_of(__name__)

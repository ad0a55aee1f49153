"""`AsyncResult`: a job by Celery's names."""

import builtins
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec

from tarry.client.flows.flow_handle import FlowHandle
from tarry.client.handle import Handle
from tarry.compat.celery import signals
from tarry.compat.celery.apps import current_app
from tarry.compat.celery.differences import CeleryNotSupported
from tarry.compat.celery.message import from_json
from tarry.compat.celery.request import TaskRequest, state_of
from tarry.compat.celery.states import FAILURE, PENDING, READY_STATES, RETRY, REVOKED, STARTED, SUCCESS
from tarry.errors import JobCancelled, JobFailed, JobNotFound
from tarry.model.duration import SECOND
from tarry.model.flow.node_ids import is_root
from tarry.model.flow.wiring import unwrap
from tarry.model.job import Job, State
from tarry.tasks.arguments.codec import refuse_sealed

_STATES = {State.RUNNING: STARTED, State.DONE: SUCCESS, State.DEAD: FAILURE, State.CANCELLED: REVOKED}


_INSTEAD = {
    "as_tuple": "keep result.id, and ask AsyncResult(id)",
    "collect": "the jobs of a flow are result.flow.nodes()",
    "graph": "the console draws a flow; its jobs are result.flow.nodes()",
    "then": "write link=, or a chain",
    "save": "it is kept in the store; by its id alone, AsyncResult(id).get() gives the list of a group",
    "restore": "AsyncResult(id).get() gives the list of a group by its id",
}
"""What Celery has on results, and what to write."""


class ResultMixin:
    """What AsyncResult, FlowResult and EagerResult have in common."""

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED."""
        raise NotImplementedError

    @property
    def status(self) -> str:
        """The state."""
        return self.state

    def ready(self) -> bool:
        """Whether it has ended."""
        return self.state in READY_STATES

    def successful(self) -> bool:
        """Whether it ended well."""
        return self.state == SUCCESS

    def failed(self) -> bool:
        """Whether it failed for good."""
        return self.state == FAILURE

    def __getattr__(self, name: str) -> Any:
        """AttributeError, or CeleryNotSupported for what Celery has here."""
        if name in _INSTEAD:
            raise CeleryNotSupported(f"{type(self).__name__}.{name}: {_INSTEAD[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class AsyncResult(ResultMixin):
    """A job by its id. An id that is not known is PENDING, as with Celery."""

    def __init__(self, id: str, app: Any = None, **ignored: Any) -> None:
        self.id = self.task_id = str(id)
        self.app = app or current_app()
        self.parent: Any = None

    @property
    def handle(self) -> Handle[Any]:
        """The job; ValueError if the id is none of tarry's."""
        found: Handle[Any] = self.app.get(self.id)
        return found

    def _record(self) -> Job | None:
        try:
            return self.handle.record()
        except (JobNotFound, ValueError):
            return None

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED; or what `update_state` said while it runs."""
        job = self._record()
        if job is None:
            return PENDING
        if job.state is State.RUNNING and (said := self._said()) is not None:
            return said[0]
        waiting = RETRY if job.failures else PENDING
        return _STATES.get(job.state, waiting)

    def _said(self) -> tuple[str, Any] | None:
        return state_of(self.handle.progress)

    def get(self, timeout: float | None = None, propagate: bool = True, **ignored: Any) -> Any:
        """Waits for the result; raises what the task raised, if that can be made again from its name and text, else
        JobFailed. TimeoutError. propagate=False: returns the error."""
        try:
            return from_json(self._value(timeout))
        except JobFailed as failure:
            error = self._error(failure)
        except JobCancelled as cancelled:
            error = cancelled
        if propagate:
            raise error
        return error

    wait = get

    def _value(self, timeout: float | None) -> Any:
        handle = self.handle
        # The id of a group is that of its flow.
        return FlowHandle(self.app.client, handle).result(timeout) if is_root(handle.raw_id) else handle.result(timeout)

    def _error(self, failure: JobFailed) -> Exception:
        return error_of_job(self._record(), failure)

    @property
    def result(self) -> Any:
        """The result, or the error; None while there is none. While it runs, what `update_state` was given."""
        if self.ready():
            return self.get(timeout=5, propagate=False)
        said = None if self._record() is None else self._said()
        return None if said is None else said[1]

    @property
    def info(self) -> Any:
        """The result."""
        return self.result

    @property
    def traceback(self) -> str | None:
        """The traceback of its last failure."""
        job = self._record()
        note = msgspec.json.decode(job.note) if job is not None and job.note and job.state is not State.DONE else {}
        return note.get("traceback") if isinstance(note, dict) else None

    def revoke(self, terminate: bool = False, signal: str | None = None, **ignored: Any) -> None:
        """Cancels the job. One that runs is interrupted, also without terminate=True; an id that nobody knows is passed
        over, as with Celery."""
        job = self._record()
        if job is not None and self.handle.cancel("revoked"):
            request = TaskRequest(self.id, job.task, called_directly=False)
            sender = self.app.find_celery_task(job.task)
            was_running = job.state is State.RUNNING
            signals.task_revoked.send(
                sender, request=request, terminated=was_running and terminate, signum=None, expired=False
            )

    def forget(self) -> None:
        """Deletes the job if it has ended, with its result."""
        if self.ready():
            self.app.client.forget(self.handle.raw_id)

    def maybe_throw(self, propagate: bool = True, **ignored: Any) -> Any:
        """Raises what the task raised, if it has failed; else the result."""
        return self.get(propagate=propagate) if self.ready() else None

    maybe_reraise = maybe_throw

    @property
    def name(self) -> str | None:
        """The name of the task; None: nobody knows the job."""
        job = self._record()
        return None if job is None else job.task

    @property
    def queue(self) -> str | None:
        """The queue that it came from."""
        job = self._record()
        return None if job is None else job.queue

    @property
    def worker(self) -> str | None:
        """The worker that runs it."""
        job = self._record()
        return None if job is None else job.owner or None

    @property
    def retries(self) -> int | None:
        """How often it was tried again."""
        job = self._record()
        return None if job is None else max(0, job.failures - job.crashes)

    @property
    def args(self) -> Any:
        """Its positional arguments."""
        return self._call()[0]

    @property
    def kwargs(self) -> Any:
        """Its arguments by name."""
        return self._call()[1]

    def _call(self) -> tuple[Any, Any]:
        job = self._record()
        if job is None:
            return None, None
        body, task = unwrap(self.app.client.load_arguments(job).body)[1], self.app.tasks.get(job.task)
        if task is not None:
            args, kwargs = task.codec.decode(body)
        else:
            # Of a module that this process has not imported: a list is by place, an object by name.
            refuse_sealed(body, f"the call of {job.task}")
            found = msgspec.json.decode(body)
            args, kwargs = (found, {}) if isinstance(found, list) else ((), found)
        return from_json(tuple(args)), from_json(dict(kwargs))

    @property
    def date_done(self) -> datetime | None:
        """When it ended, in UTC; None: it has not."""
        job = self._record()
        if job is None or not job.state.finished:
            return None
        return datetime.fromtimestamp(job.state_since / SECOND, UTC)

    children: Any = None
    """Of a job of a chain, what follows it there; None else: the calls that follow it are in its flow."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"


class EagerResult(ResultMixin):
    """What a call gave that ran at once in this process."""

    def __init__(self, id: str, value: Any, state: str, traceback: str | None = None) -> None:
        self.id = self.task_id = id
        self._value, self._state, self.traceback = value, state, traceback
        self.parent: Any = None

    @property
    def state(self) -> str:
        """SUCCESS, FAILURE or REVOKED."""
        return self._state

    def get(self, timeout: float | None = None, propagate: bool = True, **ignored: Any) -> Any:
        """The result; raises what the task raised."""
        if propagate and isinstance(self._value, BaseException):
            raise self._value
        return self._value

    wait = get

    @property
    def result(self) -> Any:
        """The result, or the error."""
        return self._value

    info = result

    def revoke(self, *args: Any, **ignored: Any) -> None:
        """Nothing: it has ended."""

    def forget(self) -> None:
        """Nothing: it is kept nowhere."""

    def __str__(self) -> str:
        return self.id


class GroupResult(ResultMixin):
    """Results side by side."""

    def __init__(self, id: str, results: Sequence[Any], app: Any = None, parent: Any = None) -> None:
        self.id, self.app, self.parent = id, app, parent
        self.results = list(results)

    @property
    def children(self) -> list[Any]:
        """The results that it is made of."""
        return self.results

    @property
    def state(self) -> str:
        """SUCCESS if all are, else the first other end of one; STARTED until all have ended."""
        states = [each.state for each in self.results]
        if not all(each.ready() for each in self.results):
            return STARTED
        return next((state for state in states if state != SUCCESS), SUCCESS)

    def failed(self) -> bool:
        """Whether one failed for good."""
        return any(each.failed() for each in self.results)

    def waiting(self) -> bool:
        """Whether one has not ended."""
        return not all(each.ready() for each in self.results)

    def get(self, timeout: float | None = None, propagate: bool = True, **ignored: Any) -> Any:
        """Waits for the results, up to `timeout` seconds for each; raises what one raised. propagate=False: the errors
        stand among the results."""
        return [each.get(timeout, propagate=propagate) for each in self.results]

    def join(self, *args: Any, **options: Any) -> Any:
        """`get`."""
        return self.get(*args, **options)

    wait = join_native = join

    @property
    def result(self) -> Any:
        """The results, with the errors among them; None until all have ended."""
        return self.get(timeout=5, propagate=False) if self.ready() else None

    info = result

    def completed_count(self) -> int:
        """How many are done."""
        return sum(each.successful() for each in self.results)

    def revoke(self, *args: Any, **options: Any) -> None:
        """Cancels what has not ended."""
        for each in self.results:
            each.revoke(*args, **options)

    def forget(self) -> None:
        """Deletes what has ended."""
        for each in self.results:
            each.forget()

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.results)

    def __getitem__(self, index: Any) -> Any:
        return self.results[index]

    def __bool__(self) -> bool:
        return True  # a group of nothing has a result, too

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GroupResult) and (other.id, other.results) == (self.id, self.results)

    def __hash__(self) -> int:
        return hash(self.id)

    def __str__(self) -> str:
        return self.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.id} {self.results}>"


class EagerGroup(GroupResult):
    """What a group gave that ran at once in this process."""

    def __init__(self, results: Sequence[EagerResult]) -> None:
        super().__init__(results[0].id if results else "", results)
        self.task_id = self.id


def error_of_job(job: Job | None, failure: JobFailed) -> Exception:
    """The task's own exception, made again from its class and text; the failure if that cannot be done."""
    return error_of_note(msgspec.json.decode(job.note) if job is not None and job.note else {}, failure)


def error_of_note(note: Any, failure: JobFailed) -> Exception:
    """The exception of the type and the text in a note; the failure if it cannot be made."""
    module, _, name = str(note.get("type", "")).rpartition(".")
    # Only what is imported already: a name in the store must not load code.
    kind = getattr(builtins if not module else sys.modules.get(module), name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        return failure
    try:
        error = kind(note.get("message"))
    except Exception:
        return failure
    error.__cause__ = failure
    return error


@contextmanager
def allow_join_result() -> Iterator[None]:
    """Nothing: a task may wait for another one, if there is a worker left to run that."""
    yield

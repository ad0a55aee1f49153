"""`AsyncResult`: a job by Celery's names."""

import builtins
import sys
from collections.abc import Iterable
from typing import Any

import msgspec

from tarry.client.handle import Handle
from tarry.compat.celery.apps import current_app
from tarry.compat.celery.differences import CeleryNotSupported
from tarry.compat.celery.progress import state_of
from tarry.compat.celery.values import from_json
from tarry.errors import JobCancelled, JobFailed, JobNotFound
from tarry.model.job import Job, State

PENDING, STARTED, SUCCESS, FAILURE, RETRY, REVOKED = "PENDING", "STARTED", "SUCCESS", "FAILURE", "RETRY", "REVOKED"
_STATES = {State.RUNNING: STARTED, State.DONE: SUCCESS, State.DEAD: FAILURE, State.CANCELLED: REVOKED}
READY_STATES = frozenset({SUCCESS, FAILURE, REVOKED})


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


class AsyncResult(ResultMixin):
    """A job by its id. An id that is not known is PENDING, as with Celery."""

    def __init__(self, id: str, app: Any = None, **ignored: Any) -> None:
        self.id = self.task_id = str(id)
        self.app = app or current_app()
        self.parent = None

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
            return from_json(self.handle.result(timeout))
        except JobFailed as failure:
            error = _error_of(self._record(), failure)
        except JobCancelled as cancelled:
            error = cancelled
        if propagate:
            raise error
        return error

    wait = get

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
        """Cancels the job. One that runs is interrupted, also without terminate=True."""
        self.handle.cancel("revoked")

    def forget(self) -> None:
        """Nothing: the job is deleted when its time of keeping is over."""

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
        self.parent = None

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


def _error_of(job: Job | None, failure: JobFailed) -> Exception:
    """The task's own exception, made again from its class and text; the failure if that cannot be done."""
    note = msgspec.json.decode(job.note) if job is not None and job.note else {}
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


_INSTEAD = {
    "rate_limit": "`tarry limits set task:NAME --rate 10/m`",
    "inspect": "`tarry status`, `tarry top`, `tarry queues`, or the HTTP API",
    "ping": "`tarry status` or `tarry hosts`",
    "shutdown": "`tarry stop`",
    "purge": "`tarry queues purge NAME`",
    "broadcast": "`task.native.broadcast(...)`",
}


class Control:
    """Revokes jobs. All else raises CeleryNotSupported, with the command that does it."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def revoke(self, task_id: str | Iterable[str], terminate: bool = False, **ignored: Any) -> None:
        """Cancels these jobs; one that runs is interrupted."""
        for id in [task_id] if isinstance(task_id, str) else task_id:
            AsyncResult(id, app=self._app).revoke()

    def __getattr__(self, name: str) -> Any:
        """AttributeError, or CeleryNotSupported for what Celery has here."""
        if name in _INSTEAD:
            raise CeleryNotSupported(f"app.control.{name}: {_INSTEAD[name]}")
        raise AttributeError(name)

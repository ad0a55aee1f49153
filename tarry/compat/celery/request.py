"""`self.request`: what a task sees of its job, by Celery's names.

`update_state` and `AsyncResult.info` over tarry's progress: a fraction, and a message with state and data.
"""

import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any

from msgspec import Struct

from tarry.compat.celery.differences import differs
from tarry.compat.celery.message import from_json, read_envelope, to_json
from tarry.model.flow.node_ids import flow_of, is_node
from tarry.store.rules import ids
from tarry.tasks.progress import Progress
from tarry.tasks.running import Batch, CurrentJob, current, current_job


class TaskRequest(Struct, frozen=True):
    """One attempt of one job; without a job, as in a plain call, `called_directly` is true and `id` is None."""

    id: str | None = None
    task: str = ""
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = {}
    retries: int = 0
    delivery_info: Mapping[str, Any] = {}
    headers: Mapping[str, Any] = {}
    """The app's own, by `apply_async(headers=...)`; each is an attribute, too."""
    hostname: str = ""
    is_eager: bool = False
    called_directly: bool = True
    eta: None = None
    expires: None = None
    root_id: str | None = None
    parent_id: None = None
    group: None = None
    chord: None = None
    callbacks: None = None
    errbacks: None = None

    @property
    def correlation_id(self) -> str | None:
        """The id, as Celery has it here."""
        return self.id

    def get(self, name: str, default: Any = None) -> Any:
        """The value of that name, as of a dict."""
        return getattr(self, name, default)

    def __getattr__(self, name: str) -> Any:
        """A header of the app's own; AttributeError."""
        if name.startswith("__") or name not in self.headers:
            raise AttributeError(f"the request has no {name}")
        return self.headers[name]


eager: ContextVar[TaskRequest | None] = ContextVar("tarry_celery_eager", default=None)
"""The call that `apply` makes in this process."""
arguments: ContextVar[tuple[Sequence[Any], Mapping[str, Any]]] = ContextVar("tarry_celery_arguments", default=((), {}))
"""The arguments of the attempt that runs here, as the task got them."""


def request_of(task: str) -> TaskRequest:
    """The attempt of that task which runs this code."""
    running = current.get()
    own = eager.get()
    if own is not None and own.task == task:
        return own
    if running is None or isinstance(running, Batch) or running.job.task != task:
        return TaskRequest(task=task)
    job, (args, kwargs) = CurrentJob(running), arguments.get()
    record = running.job
    # A worker's death is no retry of the task's own.
    retries = max(0, record.failures - record.crashes)
    info = {"routing_key": job.queue, "exchange": "", "priority": record.priority, "redelivered": record.epoch > 1}
    own_headers = read_envelope(job.headers).headers if record.headers else {}
    root = ids.text(flow_of(record.id)) if is_node(record.id) else job.id
    return TaskRequest(
        job.id, task, args, kwargs, retries, info, own_headers, record.owner, called_directly=False, root_id=root
    )


MOST = 200
"""Characters of a message that are kept."""


def report_state(state: str, meta: Any) -> None:
    """Reports a state of the app's own, such as PROGRESS, with its data."""
    if current.get() is None:
        return
    message = f"{state} {json.dumps(to_json(meta), ensure_ascii=False)}"
    if len(message) > MOST:
        differs(f"update_state(meta=...): {len(message)} characters; the first {MOST} of state and data are kept")
    current_job().progress(_fraction(meta), message)


def _fraction(meta: Any) -> float:
    if not isinstance(meta, Mapping):
        return 0.0
    done, total = meta.get("current", meta.get("done")), meta.get("total")
    if not (isinstance(done, int | float) and isinstance(total, int | float) and total > 0):
        return 0.0
    return min(1.0, max(0.0, done / total))


def state_of(progress: Progress | None) -> tuple[str, Any] | None:
    """The state and its data as `report_state` was given them; None: the task reported none."""
    if progress is None:
        return None
    state, _, text = progress.message.partition(" ")
    if not state.isupper():
        return None
    try:
        return state, from_json(json.loads(text))
    except ValueError:
        return None

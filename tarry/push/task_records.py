"""What people and programs see of tasks, functions and HTTP tasks: `tarry tasks --json`, and the HTTP API."""

import inspect
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.structs import replace

from tarry.client.queue_records import waiting_by
from tarry.client.tasks.task import Task
from tarry.model.retry import Retry
from tarry.push import health
from tarry.store.rules.base import Store, Tally

if TYPE_CHECKING:
    from tarry.push.catalog import HttpTaskCatalog
    from tarry.push.endpoint.endpoint_settings import Endpoint
    from tarry.push.endpoint.flow import FlowState


class TaskRecord(Struct, frozen=True):
    """A task. `url` and what follows is there only for HTTP tasks; it holds no secrets."""

    task: str
    kind: str
    """`sync`, `async` or `http`."""
    queue: str
    priority: int
    timeout: float | None
    """Seconds; null: none."""
    retries: int | None
    """null: no limit."""
    owner: str
    """Who answers for an HTTP task; empty: nobody is named."""
    description: str
    """Of a function: the first line of its documentation; empty: none."""
    url: str | UnsetType = UNSET
    enabled: bool | UnsetType = UNSET
    source: str | UnsetType = field(default=UNSET, name="from")
    """`configuration` or `store`."""
    at_once: int | UnsetType | None = UNSET
    """How many requests the endpoint may get at once now; null: not known yet."""
    circuit: str | UnsetType = UNSET
    """See `health.EndpointHealth`."""
    trouble: str | UnsetType | None = UNSET
    """The last error; null: none."""
    waiting: int | UnsetType = UNSET
    """Jobs that are ready or scheduled."""
    settings: Mapping[str, Any] | UnsetType = UNSET
    version: str | UnsetType = UNSET
    """Names these settings: an edit that sends it is refused if they are others by then. Of a task in the store, for
    those who may edit it."""


def task_records(
    tasks: "Iterable[Task[Any, Any]]", retry: Retry, catalog: "HttpTaskCatalog", store: Store, counts: Sequence[Tally]
) -> list[TaskRecord]:
    """The records of the tasks, by name. retry: of tasks that have no rule of their own. StoreError."""
    from tarry.push.endpoint import endpoint_cells  # noqa: PLC0415 - the app may have no HTTP tasks

    endpoints = catalog.endpoints
    flows = endpoint_cells.read_flows(store) if endpoints else {}
    waiting = waiting_by(counts, lambda tally: tally.task)
    found = []
    for task in sorted(tasks, key=lambda task: task.name):
        record = _record(task, retry)
        if (endpoint := endpoints.get(task.name)) is not None:
            state = flows[task.name][0] if task.name in flows else None
            source = "configuration" if catalog.is_configured(task.name) else "store"
            record = _with_endpoint(record, endpoint, state, source, waiting.get(task.name, 0))
        found.append(record)
    return found


def _record(task: Task[Any, Any], retry: Retry) -> TaskRecord:
    return TaskRecord(
        task.name,
        "http" if task.runner is not None else "async" if task.is_async else "sync",
        task.queue,
        task.priority,
        task.timeout,
        (task.retry or retry).limit,
        "",
        "" if task.runner is not None else _first_line(task.fn),
    )


def _first_line(fn: object) -> str:
    return (inspect.getdoc(fn) or "").partition("\n")[0]


def _with_endpoint(
    record: TaskRecord, endpoint: "Endpoint", state: "FlowState | None", source: str, waiting: int
) -> TaskRecord:
    return replace(
        record,
        timeout=endpoint.timeout,
        owner=endpoint.owner,
        description=endpoint.description,
        url=endpoint.url.shown,
        enabled=endpoint.enabled,
        source=source,
        at_once=health.at_once(endpoint, state),
        circuit=health.circuit(state),
        trouble=(state.why if state else "") or None,
        waiting=waiting,
        settings=endpoint.display_settings(),
        version=endpoint.version if source == "store" else UNSET,
    )

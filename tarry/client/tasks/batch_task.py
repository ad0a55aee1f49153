"""Batch tasks, whose function runs many jobs in one call: `@app.task(batch=100)`."""

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tarry.client.tasks.task import AsyncTask, SyncTask, Task
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.nearest import did_you_mean
from tarry.tasks.arguments.element_codec import ElementCodec
from tarry.tasks.definition import TaskDefinition

if TYPE_CHECKING:
    from tarry.client.client import Client

D = TypeVar("D")
R = TypeVar("R")

WAIT = 0.5
"""Seconds that the first job of a call waits for others, by default."""
MAX_BATCH = 10_000
# Read from the signature, so that a setting that is added there is not refused here.
_SETTINGS = (
    *(
        name
        for name, parameter in inspect.signature(TaskDefinition.__init__).parameters.items()
        if parameter.kind is parameter.KEYWORD_ONLY
    ),
    "batch",
    "wait",
)


class BatchTask(Task[[D], R]):
    """A function of one list. Each job has one element of the list as its argument, and its own outcome and result."""

    codec_class = ElementCodec

    def __init__(
        self,
        fn: Callable[[list[D]], Any],
        client: "Callable[[], Client]",
        *,
        batch: int,
        wait: Duration = WAIT,
        **settings: Any,
    ) -> None:
        super().__init__(fn, client, **settings)  # type: ignore[arg-type]
        if type(batch) is not int or not 1 <= batch <= MAX_BATCH:
            raise ValueError(f"{self.name}: batch={batch!r}: how many jobs a call gets at most, 1 to {MAX_BATCH}")
        self.batch = batch
        self.wait = microseconds(wait) / SECOND


class SyncBatchTask(BatchTask[D, R]):
    """A batch task made of a `def`."""

    def __call__(self, items: list[D], /) -> Sequence[R | Exception | BaseException] | None:  # type: ignore[override]
        """Calls the plain function in this process, with the whole list."""
        results: Sequence[R | Exception | BaseException] | None = self.fn(items)  # type: ignore[arg-type]
        return results


class AsyncBatchTask(BatchTask[D, R]):
    """A batch task made of an `async def`."""

    def __call__(self, items: list[D], /) -> Awaitable[Sequence[R | Exception | BaseException] | None]:  # type: ignore[override]
        """Calls the plain coroutine function in this process, with the whole list."""
        results: Awaitable[Sequence[R | Exception | BaseException] | None] = self.fn(items)  # type: ignore[arg-type]
        return results


def task_class(fn: Callable[..., Any], settings: Mapping[str, Any]) -> type[Task[Any, Any]]:
    """The class for a task with this function and these settings; TypeError for an unknown setting."""
    is_async = inspect.iscoroutinefunction(fn)
    for name in settings:
        if name not in _SETTINGS:
            near = did_you_mean(name, _SETTINGS) or f"; there are {', '.join(_SETTINGS)}"
            raise TypeError(f"@app.task has no setting {name}{near}")
    # After the check of the names: a misspelt setting gets its own error, not one about wait=.
    if "batch" in settings:
        return AsyncBatchTask if is_async else SyncBatchTask
    if "wait" in settings:
        raise TypeError("wait= says how long a call of many jobs waits to be filled: give batch= too")
    return AsyncTask if is_async else SyncTask

"""`@app.task`, with its types."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from tarry.client.tasks.batch_task import WAIT, AsyncBatchTask, SyncBatchTask
from tarry.client.tasks.task import AsyncTask, SyncTask, Task
from tarry.model.duration import Duration
from tarry.model.retry import RetryRule
from tarry.model.schedules.schedule import Cron, Missed
from tarry.tasks.task_limits import OnDead

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

Add = Callable[[Callable[..., Any], dict[str, Any]], Task[Any, Any]]
"""Makes a task of a function and settings, and adds it to an app."""


class Decorator:
    """`@app.task(...)` with settings, waiting for its function."""

    def __init__(self, add: Add, settings: dict[str, Any]) -> None:
        self._add = add
        self._settings = settings

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...

    def __call__(self, fn: Callable[..., Any], /) -> Any:
        """The task."""
        return self._add(fn, self._settings)


class BatchDecorator:
    """`@app.task(batch=...)`, waiting for its function. It takes a list, and returns None or a result for each item."""

    def __init__(self, add: Add, settings: dict[str, Any]) -> None:
        self._add = add
        self._settings = settings

    @overload
    def __call__(self, fn: Callable[[list[D]], Coroutine[Any, Any, None]], /) -> AsyncBatchTask[D, None]: ...

    @overload
    def __call__(
        self, fn: Callable[[list[D]], Coroutine[Any, Any, Sequence[R | Exception | BaseException] | None]], /
    ) -> AsyncBatchTask[D, R]: ...

    @overload
    def __call__(self, fn: Callable[[list[D]], None], /) -> SyncBatchTask[D, None]: ...

    @overload
    def __call__(
        self, fn: Callable[[list[D]], Sequence[R | Exception | BaseException] | None], /
    ) -> SyncBatchTask[D, R]: ...

    def __call__(self, fn: Callable[..., Any], /) -> Any:
        """The task."""
        return self._add(fn, self._settings)


class TaskDecoratorMixin(ABC):
    """The decorator of an app."""

    @abstractmethod
    def _add_task(self, fn: Callable[..., Any], settings: dict[str, Any]) -> Task[Any, Any]:
        """See `Add`."""

    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def task(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...

    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        timeout: Duration | None = None,
        retry: RetryRule = "default",
        expires: Duration | None = None,
        limit: int | None = None,
        rate: str | None = None,
        limit_by: Callable[..., Any] | None = None,
        limit_all: int | None = None,
        rate_all: str | None = None,
        weight: int | None = None,
        max_waiting: int | None = None,
        cost: Callable[..., int] | int | None = None,
        order_by: Callable[..., Any] | None = None,
        on_dead: OnDead | None = None,
        cron: str | Cron | Sequence[str | Cron] | None = None,
        zone: str | None = None,
        missed: Missed | None = None,
        encrypt: bool = True,
    ) -> Decorator: ...

    @overload
    def task(
        self,
        *,
        batch: int,
        wait: Duration = WAIT,
        name: str | None = None,
        queue: str = "default",
        priority: int = 0,
        timeout: Duration | None = None,
        retry: RetryRule = "default",
        expires: Duration | None = None,
        limit: int | None = None,
        rate: str | None = None,
        limit_by: Callable[..., Any] | None = None,
        limit_all: int | None = None,
        rate_all: str | None = None,
        weight: int | None = None,
        max_waiting: int | None = None,
        cost: Callable[..., int] | int | None = None,
        order_by: Callable[..., Any] | None = None,
        on_dead: OnDead | None = None,
        cron: str | Cron | Sequence[str | Cron] | None = None,
        zone: str | None = None,
        missed: Missed | None = None,
        encrypt: bool = True,
    ) -> BatchDecorator: ...

    def task(self, *fn: Callable[..., Any], **settings: Any) -> Any:
        """Makes a function a task: `@app.task` or `@app.task(queue="mail", timeout=30, retry=Retry(5))`.

        name: default `module.function`. queue, priority: where its jobs wait. timeout: seconds that an attempt may
        take. retry: when to try again after a failure: a Retry, a number of times, or None for never; the app's rule
        by default. expires: a job that has not started this long after it was due is cancelled.

        limit: how many run at once, over all hosts. rate: how many start in a period: "100/s", "10/m", "5/2h".
        limit_by: a function of some arguments, by their names, that returns a key: then limit and rate apply to each
        key, and keys take turns. limit_all, rate_all: for all keys together. weight: how many turns a key has beside
        one that has a weight of its own (`task.tenant`). max_waiting: so many jobs of a key may wait, and an enqueue of
        one more raises TenantFull. cost: how many starts a rate counts for a job: a number, or a function of some
        arguments. Limits delay jobs; nothing else fails.

        order_by: as limit_by; the jobs of a key run one at a time, in the order of their enqueue, and one that is tried
        again holds back those behind it. on_dead: what a dead job does to those: "skip" (the default), they go on;
        "hold", they wait until somebody retries or deletes it.

        cron: one schedule or several that enqueue the task: "*/5 * * * *", "@every 90s", "@daily", or a Cron with
        arguments. zone: the time zone of its hours; UTC by default. missed: what happens to ticks at which no host
        ran: "last" (the default), one run for all of them; "skip", none; "all", a run for each of the newest hundred.

        encrypt: False: what its jobs say is not sealed, though `[encryption]` has keys.

        batch: the function takes a list, and one call is for up to this many jobs. Each job is enqueued with one
        element of the list, and has its own outcome. wait: how long the first job of a call waits for others.
        """
        if fn:
            return self._add_task(fn[0], settings)
        return (BatchDecorator if "batch" in settings else Decorator)(self._add_task, settings)

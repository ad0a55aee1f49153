"""A task as its app has it: a function that can be called, or enqueued."""

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar

from tarry.client.handle import Handle
from tarry.model.duration import Duration
from tarry.model.nearest import did_you_mean
from tarry.model.retry import RetryRule
from tarry.tasks.call import AnyCall, Call
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.options import NOW, Options
from tarry.tasks.running import CurrentJob

if TYPE_CHECKING:
    from tarry.client.client import Client

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_ELSEWHERE = dict.fromkeys(
    ("delay", "apply_async", "send", "schedule", "defer", "perform_async"),
    ("enqueue(...), or .using(delay=...).enqueue(...) for later"),
) | {"delay_on_commit": "using(connection=...).enqueue(...)", "map": "enqueue_many([...])"}
"""What other libraries call the way to put a job, and what it is here."""


class Task(TaskDefinition[P, R]):
    """A function that can be called later: `send.enqueue(...)`; called directly it is just the function."""

    def __init__(self, fn: Callable[P, Any], client: "Callable[[], Client]", **settings: Any) -> None:
        super().__init__(fn, **settings)
        self._client = client

    if not TYPE_CHECKING:  # else every name would be right

        def __getattr__(self, name: str) -> Any:
            """AttributeError; of what other queues call it, with what to write here."""
            own = _ELSEWHERE.get(name)
            how = f": write .{own}" if own else ("" if name.startswith("_") else did_you_mean(name, dir(type(self))))
            raise AttributeError(f"the task {self.__dict__.get('name', '')} has no {name}{how}")

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Puts one call; returns when the store has it for sure. ArgumentError if the arguments do not fit."""
        return self._client().enqueue(self, args, kwargs, NOW)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """The same, awaited."""
        return await self._client().aenqueue(self, args, kwargs, NOW)

    def enqueue_many(self, calls: Iterable[AnyCall[P]]) -> list[Handle[R]]:
        """Puts many calls in one round trip: each made by `call`, or a tuple of positional arguments, or a mapping by
        name. All or none: ArgumentError if the arguments of one do not fit."""
        return self._client().enqueue_many(self, calls, NOW)

    async def aenqueue_many(self, calls: Iterable[AnyCall[P]]) -> list[Handle[R]]:
        """The same, awaited."""
        return await self._client().aenqueue_many(self, calls, NOW)

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[P]:
        """One call for `enqueue_many`, checked by type checkers: `send.enqueue_many(send.call(to) for to in all)`."""
        return Call(self, args, kwargs)

    def on_success(self, fn: Callable[[CurrentJob, R], T]) -> Callable[[CurrentJob, R], T]:
        """`@task.on_success`: a hook, called with the job and what the task returned.

        Hooks run right after the task, where it ran, before the store is told of its end: so, like the task itself, at
        least once. They may be `def` or `async def`. First the task's own are called, in the order of registration,
        then the app's. One that raises is logged and changes nothing.

        The task's timeout is not for them. They have a minute in all: an `async def` is stopped then; a `def` that
        still runs counts as stuck, and a master kills its worker. `current_job()` is there for them, and carried
        variables are set.
        """
        self._hook("success", fn)
        return fn

    def on_failure(self, fn: Callable[[CurrentJob, BaseException], T]) -> Callable[[CurrentJob, BaseException], T]:
        """`@task.on_failure`: a hook, called with the job and the error after each attempt that failed, whether there
        will be another or not; it timed out if the error is a TimeLimit. Not called for a job that was cancelled,
        expired, snoozed, or interrupted by us.

        When a worker dies of its job, or is killed since the job did not end, the keeper process calls it, once, with
        a JobFailed that says so. For all else see `on_success`.
        """
        self._hook("failure", fn)
        return fn

    def on_dead(self, fn: Callable[[CurrentJob, BaseException], T]) -> Callable[[CurrentJob, BaseException], T]:
        """`@task.on_dead`: a hook, called with the job and the error once there will be no other attempt; after
        `on_failure`, and as that is."""
        self._hook("dead", fn)
        return fn

    def using(  # noqa: PLR0913 - options, by name
        self,
        *,
        delay: Duration | None = None,
        at: datetime | float | None = None,
        key: str | None = None,
        priority: int | None = None,
        queue: str | None = None,
        expires: Duration | None = None,
        unique_for: Duration | Literal["waiting", "unfinished"] | None = None,
        on_duplicate: Literal["return", "replace", "postpone"] = "return",
        idempotency: str | None = None,
        window: Duration = "1d",
        connection: Any = None,
        durable: Literal["replica"] | None = None,
        timeout: Duration | None = None,
        retry: RetryRule = "default",
    ) -> "Using[P, R]":
        """The task with other settings for the calls that follow.

        delay: seconds, timedelta or text ("5m"). at: a datetime with a zone, or seconds since the epoch. priority:
        within +-2^40, higher first. expires: must start within so long, else it is cancelled.

        timeout: how long an attempt of these jobs may take, shorter or longer than the task's; unless given, as the
        task says. retry: when they are tried again; None for never, "default" for what the task says. Not for HTTP
        tasks, whose endpoint has a timeout and a schedule; a batch task's calls have one timeout for all.

        key: at most one job of this task holds it. unique_for: how long: "waiting", until a worker takes the job;
        "unfinished", until it has ended; a duration, for so long after that. on_duplicate: what an enqueue does while
        another job holds the key: "return" that job; "replace" its call by this one (debounce); "postpone" it to when
        this one would have been due (throttle). The latter two hold the key while "waiting", unless you say otherwise.

        idempotency: the name of this very request: sent again, within `window` after its job has ended too, it
        returns the first job, and IdempotencyError if the arguments are not the same.

        connection: your own connection to the database that is the store: the job is there if, and only if, you
        commit.

        durable: "replica": return only once a replica of the store has the job too (Redis). StoreUnavailable if none
        says so within 5 s: the job is stored then, by one server alone.
        """
        options = Options(
            delay, at, key, priority, queue, expires, unique_for, on_duplicate, idempotency, window, connection,
            durable, timeout, retry,
        )  # fmt: skip
        return Using(self, self._client, options.checked())


class AsyncTask(Task[P, R]):
    """A task made of an `async def`: called directly it gives the coroutine."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """The plain coroutine function, here and now."""
        result: Awaitable[R] = self.fn(*args, **kwargs)
        return result


class SyncTask(Task[P, R]):
    """A task made of a `def`."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """The plain function, here and now."""
        result: R = self.fn(*args, **kwargs)
        return result


class Using(Generic[P, R]):
    """A task with the settings of one call, or of a few alike."""

    def __init__(self, task: Task[P, R], client: "Callable[[], Client]", options: Options) -> None:
        self._task = task
        self._client = client
        self._options = options

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Puts one call; returns when the store has it for sure."""
        return self._client().enqueue(self._task, args, kwargs, self._options)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """The same, awaited."""
        return await self._client().aenqueue(self._task, args, kwargs, self._options)

    def enqueue_many(self, calls: Iterable[AnyCall[P]]) -> list[Handle[R]]:
        """Puts many calls in one round trip."""
        return self._client().enqueue_many(self._task, calls, self._options)

    async def aenqueue_many(self, calls: Iterable[AnyCall[P]]) -> list[Handle[R]]:
        """The same, awaited."""
        return await self._client().aenqueue_many(self._task, calls, self._options)

"""A task of an app: a function that can be called, or enqueued.

`task.broadcast(...)`: one job for each master or worker that is there, as a flow whose result says who gave what.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, Protocol, TypeVar, overload

from tarry.client.flows.flow_handle import FlowHandle
from tarry.client.handle import Handle
from tarry.client.operations.collection import find_holder
from tarry.errors import StoreError
from tarry.model.duration import Duration
from tarry.model.nearest import did_you_mean
from tarry.model.retry import RetryRule
from tarry.tasks.arguments.options import NO_OPTIONS, Options
from tarry.tasks.call import AnyCall, Call, Then
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.running import CurrentJob
from tarry.tasks.task_limits import lane_of_key

if TYPE_CHECKING:
    from tarry.client.client import Client
    from tarry.client.limits.tenant import Tenant
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tarry.client.flows.build import FlowBuilder
from tarry.client.flows.flow_options import FlowOptions
from tarry.client.flows.root import RootBody
from tarry.client.flows.storing import astore, store
from tarry.client.live_workers import BroadcastTarget
from tarry.model.flow.own_queues import BROADCAST
from tarry.model.flow.wiring import GO_ON, Ref

if TYPE_CHECKING:
    from tarry.client.client import Client

P = ParamSpec("P")
Q = ParamSpec("Q")
R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

_OTHER_LIBRARIES = dict.fromkeys(
    ("delay", "apply_async", "send", "schedule", "defer", "perform_async"),
    ("enqueue(...), or .using(delay=...).enqueue(...) for later"),
) | {"delay_on_commit": "using(connection=...).enqueue(...)", "map": "enqueue_many([...])"}
"""Names of `enqueue` and the like in other libraries, with what to write here."""


class Task(TaskDefinition[P, R]):
    """A function that can be called later with `send.enqueue(...)`. A direct call just calls the function."""

    def __init__(self, fn: Callable[P, Any], client: "Callable[[], Client]", **settings: Any) -> None:
        super().__init__(fn, **settings)
        self._client = client

    @property
    def client(self) -> "Client":
        """The client of its app; for tarry's own use."""
        return self._client()

    if not TYPE_CHECKING:  # else every name would be right

        def __getattr__(self, name: str) -> Any:
            """Raises AttributeError; for the names that other libraries use, it says what to write here."""
            ours = _OTHER_LIBRARIES.get(name)
            how = f": write .{ours}" if ours else ("" if name.startswith("_") else did_you_mean(name, dir(type(self))))
            raise AttributeError(f"the task {self.__dict__.get('name', '')} has no {name}{how}")

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueues one call; returns once it is stored. ArgumentError if the arguments do not fit."""
        return self._client().enqueue(self, args, kwargs, NO_OPTIONS)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """The same, awaited."""
        return await self._client().aenqueue(self, args, kwargs, NO_OPTIONS)

    def enqueue_many(self, calls: Iterable[AnyCall[R]], *, over: Duration | None = None) -> list[Handle[R]]:
        """Enqueues many calls in one round trip. Each is made by `call`, or is a tuple of positional arguments, or a
        mapping by name. over: they are due evenly over that time, the first at once, or when `using` says.
        ArgumentError if the arguments of one do not fit, ValueError; then none is stored."""
        return self._client().enqueue_many(self, calls, NO_OPTIONS, over)

    async def aenqueue_many(self, calls: Iterable[AnyCall[R]], *, over: Duration | None = None) -> list[Handle[R]]:
        """The same, awaited."""
        return await self._client().aenqueue_many(self, calls, NO_OPTIONS, over)

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A call as a value, for `enqueue_many` and for flows: `send.enqueue_many(send.call(to) for to in all)`. In a
        chain or a chord the first argument is left out: it is the result of the call before."""
        return Call(self, args, kwargs)

    def by_key(self, key: str) -> Handle[R] | None:
        """The unfinished job that holds this key; None: there is none. StoreError."""
        return find_holder(self._client(), self.name, key)

    async def aby_key(self, key: str) -> Handle[R] | None:
        """The same, awaited."""
        return await asyncio.to_thread(self.by_key, key)

    def tenant(self, key: str | int) -> "Tenant":
        """One key of a task with `limit_by=`, to give it numbers of its own, or to pause it while everything runs:
        `bill.tenant("whale").set(limit=20)`. TypeError, ValueError: this is no key."""
        from tarry.client.limits.tenant import Tenant  # noqa: PLC0415 - few programs change limits

        return Tenant(self._client, self.name, lane_of_key(self.name, self.lane, key), self.keeps_order)

    def broadcast(self, /, *args: P.args, **kwargs: P.kwargs) -> FlowHandle[dict[str, R | None]]:
        """Enqueues the call once for each host that has a worker which is ready, or with `using(per="worker")` for each
        of these workers. The result is a dict: for each, by its name in the store, what the task returned; None if it
        failed, or did not start within a minute (`using(expires=...)`), as when its host died.

        HostNotFound if there is no such host: only workers of a master (`tarry start`) get broadcasts.
        """
        return broadcast(self._client(), self, args, kwargs, NO_OPTIONS)

    async def abroadcast(self, /, *args: P.args, **kwargs: P.kwargs) -> FlowHandle[dict[str, R | None]]:
        """The same, awaited."""
        return await abroadcast(self._client(), self, args, kwargs, NO_OPTIONS)

    def on_success(self, fn: Callable[[CurrentJob, R], T]) -> Callable[[CurrentJob, R], T]:
        """`@task.on_success`: a hook, called with the job and what the task returned.

        Hooks run right after the task, in the same thread or event loop, and before the end of the attempt is stored.
        So each runs at least once, like the task itself. They may be `def` or `async def`. The task's own hooks are
        called first, in the order of registration, then the app's. If a hook raises, the error is logged and nothing
        else changes.

        The task's timeout does not apply to hooks. All hooks together have a minute. After it an `async def` is
        stopped; a `def` that still runs counts as stuck, and a master kills its worker. `current_job()` works in
        hooks, and carried variables are set.
        """
        self._add_hook("success", fn)
        return fn

    def on_failure(self, fn: Callable[[CurrentJob, BaseException], T]) -> Callable[[CurrentJob, BaseException], T]:
        """`@task.on_failure`: a hook, called with the job and the error after each failed attempt, also if there will
        be another attempt. After a timeout the error is a TimeLimit. Not called for a job that was cancelled, expired,
        snoozed, or interrupted because a worker stops.

        If the job's worker died, or was killed because the job did not end, the keeper process calls the hook once,
        with a JobFailed that says so. See also `on_success`.
        """
        self._add_hook("failure", fn)
        return fn

    def on_dead(self, fn: Callable[[CurrentJob, BaseException], T]) -> Callable[[CurrentJob, BaseException], T]:
        """`@task.on_dead`: a hook, called with the job and the error if there will be no other attempt. Called after
        the hooks of `on_failure`, in the same way."""
        self._add_hook("dead", fn)
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
        per: Literal["host", "worker"] | None = None,
        max_delay: Duration | None = None,
        labels: Mapping[str, str] | None = None,
        running: Literal["return", "cancel"] = "return",
        cost: int | None = None,
        leading: bool = False,
    ) -> "Using[P, R]":
        """The task with options for the calls that follow.

        delay: seconds, timedelta or text ("5m"). at: a datetime with a zone, or seconds since the epoch. priority:
        within +-2^40, higher first. expires: cancelled if not started this long after it was due. labels: text by name,
        by which it is found; inherited by what it enqueues. timeout, retry: as the task's. per: for `broadcast`, a job
        for each "host" or "worker". cost: how many starts a rate counts. key: at most one job of this task holds it.
        unique_for: how long: "waiting", until a worker takes it; "unfinished", until it has ended; a duration: so long
        after its end. on_duplicate: while another job holds the key: "return" it; "replace" its call by this one
        (debounce); "postpone" it to when this would be due (throttle). Both make unique_for "waiting", and put it off
        for at most `max_delay`. leading: the first call is due at once, others are put off until the key is quiet for
        `delay`. running: "cancel": a running job is cancelled for this one, a waiting one replaced. idempotency: its
        name. A second one, up to `window` after the first ended, returns that; IdempotencyError if arguments differ.
        connection: yours, whose commit makes it exist. durable="replica": confirmed by one in 5 s."""
        return Using(self, self._client, Options(
            delay, at, key, priority, queue, expires, unique_for, on_duplicate, idempotency, window, connection,
            durable, timeout, retry, per, max_delay, labels, running, cost, leading).check())  # fmt: skip


class AsyncTask(Task[P, R]):
    """A task made of an `async def`. A direct call returns the coroutine."""

    if TYPE_CHECKING:
        # The type of `self` must be a callable: with a Task, mypy would find nothing out about T.
        @overload
        def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...  # type: ignore[overload-overlap]
        @overload
        def call(self: Callable[Concatenate[T, Q], Awaitable[R]], *args: Q.args, **kwargs: Q.kwargs) -> Then[T, R]: ...
        def call(self, *args: Any, **kwargs: Any) -> Any: ...

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[R]:
        """Calls the plain coroutine function in this process."""
        result: Awaitable[R] = self.fn(*args, **kwargs)
        return result


class SyncTask(Task[P, R]):
    """A task made of a `def`."""

    if TYPE_CHECKING:
        # As above.
        @overload
        def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...  # type: ignore[overload-overlap]
        @overload
        def call(self: Callable[Concatenate[T, Q], R], *args: Q.args, **kwargs: Q.kwargs) -> Then[T, R]: ...
        def call(self, *args: Any, **kwargs: Any) -> Any: ...

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the plain function in this process."""
        result: R = self.fn(*args, **kwargs)
        return result


class _TakesArguments(Protocol[T_contra, Q, S]):
    """What can be enqueued with a T_contra as its first argument."""

    def enqueue(self, first: T_contra, /, *args: Q.args, **kwargs: Q.kwargs) -> Handle[S]: ...


class Using(Generic[P, R]):
    """A task with options for one call, or for several alike."""

    if TYPE_CHECKING:

        @overload
        def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]: ...  # type: ignore[overload-overlap]
        @overload
        def call(self: _TakesArguments[T, Q, S], *args: Q.args, **kwargs: Q.kwargs) -> Then[T, S]: ...
        def call(self, *args: Any, **kwargs: Any) -> Any: ...

    def __init__(self, task: Task[P, R], client: "Callable[[], Client]", options: Options) -> None:
        self._task = task
        self._client = client
        self._options = options

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueues one call; returns once it is stored."""
        return self._client().enqueue(self._task, args, kwargs, self._options)

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """The same, awaited."""
        return await self._client().aenqueue(self._task, args, kwargs, self._options)

    def enqueue_many(self, calls: Iterable[AnyCall[R]], *, over: Duration | None = None) -> list[Handle[R]]:
        """Enqueues many calls in one round trip."""
        return self._client().enqueue_many(self._task, calls, self._options, over)

    async def aenqueue_many(self, calls: Iterable[AnyCall[R]], *, over: Duration | None = None) -> list[Handle[R]]:
        """The same, awaited."""
        return await self._client().aenqueue_many(self._task, calls, self._options, over)

    def broadcast(self, /, *args: P.args, **kwargs: P.kwargs) -> FlowHandle[dict[str, R | None]]:
        """Enqueues the call once for each host, or for each worker: `using(per="worker")`; see `Task.broadcast`."""
        return broadcast(self._client(), self._task, args, kwargs, self._options)

    async def abroadcast(self, /, *args: P.args, **kwargs: P.kwargs) -> FlowHandle[dict[str, R | None]]:
        """The same, awaited."""
        return await abroadcast(self._client(), self._task, args, kwargs, self._options)

    if not TYPE_CHECKING:

        def call(self, /, *args: Any, **kwargs: Any) -> Call[R]:
            """A call with these options, for a flow; see `Task.call`."""
            return Call(self._task, args, kwargs, self._options)


EXPIRES = "1m"
"""For so long the job of a worker that died, or that has no free slot, is waited for."""
_NOT_FOR_ALL = ("key", "queue", "unique_for", "idempotency", "durable")


def broadcast(
    client: "Client", task: TaskDefinition[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any], options: Options
) -> FlowHandle[dict[str, Any]]:
    """Stores the call once for each target. HostNotFound if there is none; ArgumentError, ValueError, StoreError."""
    _check(task, options)
    builder, body = _build(client, client.find_targets(options.per or "host"), Call(task, args, kwargs, options))
    handle: FlowHandle[dict[str, Any]] = FlowHandle(client, store(client, builder, body))
    _wake_all(client, options)
    return handle


async def abroadcast(
    client: "Client", task: TaskDefinition[Any, Any], args: Sequence[Any], kwargs: Mapping[str, Any], options: Options
) -> FlowHandle[dict[str, Any]]:
    """The same, awaited."""
    _check(task, options)
    targets = await asyncio.to_thread(client.find_targets, options.per or "host")
    builder, body = _build(client, targets, Call(task, args, kwargs, options))
    handle: FlowHandle[dict[str, Any]] = FlowHandle(client, await astore(client, builder, body))
    await asyncio.to_thread(_wake_all, client, options)
    return handle


def _wake_all(client: "Client", options: Options) -> None:
    """Makes all workers look at once: the jobs are in queues of their own, and new work wakes one of them."""
    # Within a transaction of the caller there is nothing to see yet.
    if options.connection is None:
        with contextlib.suppress(StoreError):
            client.store.wake_for_recall()


def _check(task: TaskDefinition[Any, Any], options: Options) -> None:
    for name in _NOT_FOR_ALL:
        if getattr(options, name) is not None:
            raise ValueError(f"{task.name}: {name}= is not for a broadcast: it has a job for each host or worker")


def _build(client: "Client", targets: Sequence[BroadcastTarget], call: Call[Any]) -> tuple[FlowBuilder, RootBody]:
    options = call.options
    builder = FlowBuilder(client.factory, BROADCAST, FlowOptions(connection=options.connection, labels=options.labels))
    each = replace(options, per=None, connection=None, expires=EXPIRES if options.expires is None else options.expires)
    for target in targets:
        own = replace(each, queue=target.queue)
        builder.add(Call(call.task, call.args, call.kwargs, own), on_failure=GO_ON, label=target.label)
    return builder, RootBody(Ref(1, len(targets)), names=[target.name for target in targets])

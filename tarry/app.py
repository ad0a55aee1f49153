"""The app: tasks, and the store that their jobs are kept in."""

import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from tarry.client.batch_task import WAIT, AsyncBatchTask, SyncBatchTask, task_class
from tarry.client.client import Client
from tarry.client.clock import Clock
from tarry.client.handle import Handle
from tarry.client.task import AsyncTask, SyncTask, Task
from tarry.config import Config, load
from tarry.embedded import mixin
from tarry.errors import ConfigError, UnknownTask
from tarry.keeper import limits
from tarry.keeper.cron import ScheduleTicker, check_names
from tarry.model.duration import Duration
from tarry.model.lifecycle import Rules
from tarry.model.limit import Limit
from tarry.model.nearest import did_you_mean
from tarry.model.retry import Retry, RetryRule, retry_rule
from tarry.model.schedule import Cron, Missed
from tarry.store import django_tests
from tarry.store.base import Store
from tarry.store.opening import open_store
from tarry.tasks import reachable
from tarry.tasks.around import Around, Side
from tarry.tasks.lazily import asyncio
from tarry.tasks.middleware import Middleware
from tarry.tasks.running import CurrentJob
from tarry.tasks.shield import shielded

if TYPE_CHECKING:
    from tarry.client.witness import Witness
    from tarry.keeper.chores import Keeper
    from tarry.push.catalog import HttpTaskCatalog
    from tarry.push.delivery.coordinator import DeliveryCoordinator
    from tarry.push.journal.logs import Logs
    from tarry.store.outbox import Outbox

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")
T = TypeVar("T")
M = TypeVar("M", bound=Middleware)

_apps: "weakref.WeakSet[App]" = weakref.WeakSet()


class App(mixin.EmbeddedMixin):
    """Where tasks are declared.

    store: a URL, or several for shards. Left out, it is TARRY_STORE, or what tarry.toml says, or `sqlite:///tarry.db`
    in the working directory. Nothing is opened before the first enqueue.

    outbox: a file on this host in which jobs are kept while the store is away, up to `[client] outbox_bytes`; they are
    forwarded, each once, when it is back. Without it, and without `[client] outbox`, the enqueue fails then.

    retry: when failed jobs are tried again, unless the task says otherwise: a Retry, how many times, or None for never.
    Left out: as `[defaults] retry` in tarry.toml, or 12 times over some 15 hours, as `model.retry.DEFAULT` has it.

    closures: tasks may be closures, lambdas and bound methods: for tests and notebooks. A worker finds no such task.
    """

    def __init__(
        self,
        store: str | Sequence[str] | Store | None = None,
        *,
        retry: RetryRule = "default",
        outbox: str | Path | None = None,
        closures: bool = False,
    ) -> None:
        self.tasks: dict[str, Task[Any, Any]] = {}
        self._given = store
        self._retry_given = retry_rule(retry)
        self._outbox_given = outbox
        self._outbox: Outbox | None = None
        self._closures = closures
        self._config: Config | None = None
        self._client: Client | None = None
        self._clock: Clock | None = None
        self._lock = threading.Lock()
        self._known_rules: dict[tuple[str, str], Rules] = {}
        self._around = Around()
        self._catalog: HttpTaskCatalog | None = None
        self._logs: dict[Path, Logs] = {}
        self._at_close: list[Callable[[], Any]] = []
        super().__init__()
        _apps.add(self)
        django_tests.remember()

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
        cron: str | Cron | Sequence[str | Cron] | None = None,
        zone: str | None = None,
        missed: Missed | None = None,
    ) -> "Decorator": ...

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
        cron: str | Cron | Sequence[str | Cron] | None = None,
        zone: str | None = None,
        missed: Missed | None = None,
    ) -> "BatchDecorator": ...

    def task(self, *fn: Callable[..., Any], **settings: Any) -> Any:
        """Makes a function a task: `@app.task` or `@app.task(queue="mail", timeout=30, retry=Retry(5))`.

        name: `module.function` unless given. queue, priority: where its jobs wait. timeout: seconds an attempt may
        take. retry: when to try again after a failure: a Retry, how many times, or None for never; unless given, as
        the app says. expires: a job that has not started within so long after it was due is cancelled.

        limit: how many run at once, over all hosts. rate: how many start in a period: "100/s", "10/m", "5/2h".
        limit_by: a function of some of the arguments, by their names, whose answer is a key: limit and rate are for
        each key then, and keys take turns. limit_all, rate_all: for all keys together. Limits delay; nothing fails.

        cron: when it is enqueued by itself, one schedule or several: "*/5 * * * *", "@every 90s", "@daily", or a Cron
        with arguments. zone: in which its hours are meant; UTC unless given. missed: what becomes of ticks at which
        nothing ran: "last", one run for all of them, unless given; "skip", none; "all", up to the newest hundred.

        batch: the function takes a list, and one call is for up to so many jobs, each enqueued with one element of it
        and each with its own outcome. wait: for how long the first of a call waits for others.
        """
        if fn:
            return self._add(fn[0], settings)
        return (BatchDecorator if "batch" in settings else Decorator)(self, settings)

    def enqueue(self, name: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Enqueues by the task's name; UnknownTask if this app has none such."""
        return self.named(name).enqueue(*args, **kwargs)

    async def aenqueue(self, name: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """The same, awaited."""
        task = self.tasks.get(name)
        if task is None or (task.steered and not self.http.get_cached(name)):
            task = await asyncio.to_thread(self.named, name)
        return await task.aenqueue(*args, **kwargs)

    def on_success(self, fn: Callable[[CurrentJob, Any], T]) -> Callable[[CurrentJob, Any], T]:
        """`@app.on_success`: a hook for all tasks of this app, called after each task's own; see `Task.on_success`."""
        self._around.hook("success", fn)
        return fn

    def on_failure(self, fn: Callable[[CurrentJob, BaseException], T]) -> Callable[[CurrentJob, BaseException], T]:
        """`@app.on_failure`: a hook for all tasks of this app, called after each task's own; see `Task.on_failure`."""
        self._around.hook("failure", fn)
        return fn

    def on_dead(self, fn: Callable[[CurrentJob, BaseException], T]) -> Callable[[CurrentJob, BaseException], T]:
        """`@app.on_dead`: a hook for all tasks of this app, called after each task's own; see `Task.on_dead`."""
        self._around.hook("dead", fn)
        return fn

    def middleware(self, side: Side) -> Callable[[M], M]:
        """`@app.middleware("enqueue")` or `@app.middleware("run")`: a function of `(job, call_next)` that is called
        in place of each enqueue, or each run, and returns `call_next(job)`, or what it makes of it.

        "enqueue": `job` is a NewJob, whose arguments, options and headers may be changed; `call_next` gives the handle
        that the caller will get. "run": `job` is the CurrentJob; `call_next` gives what the task returns, or raises
        what it raises; the timeout is for all of it.

        The first that is registered is the outermost. One function serves both kinds: an `async def` awaits
        `call_next(job)`, whatever the task is; in a `def`, `call_next(job)` gives an awaitable where `job.is_async`,
        to be returned as it is. A `def` costs well under a microsecond; an `async def` around what is not async runs
        on an event loop that each thread has for it, which costs some 15.
        """

        def add(fn: M) -> M:
            self._around.use(side, fn)
            return fn

        return add

    @overload
    def carry(self, var: ContextVar[str], name: str | None = None) -> None: ...

    @overload
    def carry(
        self, var: ContextVar[T], name: str | None = None, *, encode: Callable[[T], str], decode: Callable[[str], T]
    ) -> None: ...

    def carry(
        self,
        var: ContextVar[Any],
        name: str | None = None,
        *,
        encode: Callable[[Any], str] | None = None,
        decode: Callable[[str], Any] | None = None,
    ) -> None:
        """Makes a context variable travel with each job: the value that it has at the enqueue, it has while the task,
        its middleware and its hooks run. A variable that is not set, or None, does not travel.

        name: of the header that it travels in; the variable's own unless given. encode, decode: to text and back, for
        values that are no text.
        """
        self._around.carry(var, name, encode, decode)

    def get(self, id: str | bytes) -> Handle[Any]:
        """A job by its id."""
        return self.client.get(id)

    @property
    def config(self) -> Config:
        """The settings in force: from `tarry.toml`, or what `configure` was given."""
        if self._config is None:
            self._config = load()
        return self._config

    def configure(self, config: Config) -> None:
        """Sets the settings, before the store is opened: what `tarry -c FILE` does."""
        self._config = config

    @property
    def retry(self) -> Retry:
        """When jobs are tried again whose task does not say it."""
        return self._retry_given or self.config.defaults.retry.rule

    @property
    def store_url(self) -> str | Sequence[str]:
        """Where the jobs are kept; a store that was given opened says its own URL."""
        if mixin.test_backend is not None or isinstance(self._given, Store):
            return self.open_store().url
        return self._given or self.config.stores

    def open_store(self, durable: bool = True, patient: bool = False) -> Store:
        """A connection of one's own to the app's store. patient: one that cannot be reached now is opened later."""
        if mixin.test_backend is not None:
            return mixin.test_backend.store(self)
        return self._given if isinstance(self._given, Store) else open_store(self.store_url, durable, patient)

    @property
    def outbox(self) -> "Outbox | None":
        """Where jobs are kept while the store is away, if anywhere."""
        path = self._outbox_given or self.config.client.outbox
        if self._outbox is None and path is not None and mixin.test_backend is None:
            from tarry.store.outbox import Outbox  # noqa: PLC0415 - most processes have none

            self._outbox = Outbox(Path(path), self.config.client.outbox_bytes)
        return self._outbox

    def connection(self) -> tuple[Store, bool]:
        """A store to work on, and whether it is the worker's own to close: one in memory is there only once."""
        shared = mixin.test_backend is not None or isinstance(self._given, Store) or "memory:" in str(self.store_url)
        return (self.client.store, False) if shared else (self.open_store(durable=False), True)

    @property
    def client(self) -> Client:
        """What enqueues and asks; opens the store at its first use."""
        client = self._client
        return client if client is not None else self._connected()

    def rules(self, task: str, queue: str) -> Rules:
        """What the task and the queue say about the life of a job."""
        known = self._known_rules.get((task, queue))
        if known is None:
            keep = self.config.keep(queue)
            found = self.tasks.get(task)
            known = Rules((found and found.retry) or self.retry, keep.done, keep.dead)
            self._known_rules[task, queue] = known
        return known

    def named(self, name: str) -> Task[Any, Any]:
        """The task of that name, to put jobs of it: `app.named("order.timeout").using(delay="1h").enqueue(...)`.
        UnknownTask; StoreError if only the store could say whether there is one."""
        task = self.find(name)
        if task is None:
            known = ", ".join(sorted(self.tasks)) or "none"
            raise UnknownTask(f"no task {name!r} in this app{did_you_mean(name, self.tasks) or '; it has: ' + known}")
        return task

    def find(self, name: str) -> Task[Any, Any] | None:
        """The task of that name, also if it is registered in the store; StoreError if only that could say."""
        task = self.tasks.get(name)
        if task is not None and not task.steered:
            return task
        with shielded:
            return self.http.find(name)

    @property
    def http(self) -> "HttpTaskCatalog":
        """Its HTTP tasks: those of the configuration, and those that are registered in its store."""
        if self._catalog is None:
            from tarry.push.catalog import HttpTaskCatalog  # noqa: PLC0415 - many apps have none

            changed, client, logs = self._known_rules.clear, lambda: self.client, lambda: self.logs
            self._catalog = HttpTaskCatalog(self.tasks, lambda: self.config, client, self._around.take, changed, logs)
        return self._catalog

    @property
    def logs(self) -> "Logs | None":
        """Of its HTTP tasks, if the settings name a directory for them."""
        directory = self.config.push.log
        if directory is None or mixin.test_backend is not None:
            return None
        if (logs := self._logs.get(directory)) is None:
            from tarry.push.journal.logs import Logs  # noqa: PLC0415 - few apps have any

            logs = self._logs.setdefault(directory, Logs(directory))
            logs.attach()
        return logs

    def _witness(self) -> "Witness | None":
        return None if self.logs is None else self.logs.request_log(self.tasks)

    def deliveries(self, store: Store, slots: int, clock: Clock | None = None) -> "DeliveryCoordinator":
        """What delivers the jobs of HTTP tasks in this process, until it is closed. slots: async jobs at once."""
        return self.http.start_coordinator(store, slots, clock)

    @property
    def limits(self) -> dict[str, Limit]:
        """What tasks and configuration say, by the limit's name."""
        return {**limits.limits_of_tasks(self.tasks), **self.config.limits}

    def declare_limits(self, store: Store) -> None:
        """Makes the store keep the limits of code and configuration, except those that were set by hand."""
        plain = {name: task for name, task in self.tasks.items() if not task.steered}
        limits.declare(store, {**limits.limits_of_tasks(plain), **self.config.limits}, plain)

    def keeper(self, store: Store, clock: Clock | None = None) -> "Keeper":
        """What does the chores there: brings back the jobs of the dead, forgets old ones, makes those of schedules."""
        from tarry.keeper.chores import Keeper  # noqa: PLC0415
        from tarry.keeper.death_hooks import DeathHooks  # noqa: PLC0415 - as in EmbeddedMixin

        config, witness = self.config, self._witness()
        client = Client(store, self.tasks, clock=clock, max_body=config.max_body, rules=self.rules, witness=witness)
        outbox = self.outbox
        return Keeper(
            store,
            clock=clock,
            rules=self.rules,
            kept_bytes={name: queue.keep.bytes for name, queue in self.config.queues.items()},
            batch_tasks=[task.name for task in self.tasks.values() if task.batch],
            ticker=ScheduleTicker(client),
            death_hooks=DeathHooks(self.tasks),
            declare=lambda: self.declare_limits(store),
            forward=None if outbox is None else client.forwards(outbox).forward,
        )

    def on_close(self, action: Callable[[], T]) -> Callable[[], T]:
        """`@app.on_close`: called whenever the app is closed, as every worker and keeper process does at its end,
        unless it is killed: the place to send what is still to be sent."""
        self._at_close.append(action)
        return action

    def close(self) -> None:
        """Gives back the store; the next use opens it again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()
        for action in self._at_close:
            action()
        while self._logs:
            self._logs.popitem()[1].detach()

    def _connected(self) -> Client:
        with shielded, self._lock:
            if self._client is None:
                stage, outbox = mixin.test_backend, self.outbox
                self._client = (Client if stage is None else stage.client)(
                    self.open_store(patient=outbox is not None),
                    self.tasks,
                    clock=self._clock if stage is None else stage.clock,
                    max_body=self.config.max_body,
                    rules=self.rules,
                    timeout=self.config.client.timeout,
                    outbox=outbox,
                    witness=self._witness(),
                )
            return self._client

    def _add(self, fn: Callable[..., Any], settings: dict[str, Any]) -> Task[Any, Any]:
        reachable.check(fn, self._closures)
        task: Task[Any, Any] = task_class(fn, settings)(fn, lambda: self.client, **settings)
        if task.name in self.tasks and not _same_place(self.tasks[task.name].fn, fn):
            raise ConfigError(f"two tasks are named {task.name}: give one of them another with @app.task(name=...)")
        check_names(self.tasks, task)
        self.tasks[task.name] = task
        self._around.take(task)
        return task

    def _forget_connection(self) -> None:
        """In a forked child: the parent's connection and threads are not ours, and not ours to close."""
        self._lock = threading.Lock()
        self._workers.clear()
        if self._client is not None:
            self._client.inherit(lambda: self.client)
        self._client = None
        if self._outbox is not None:
            _inherited.append(self._outbox)
        self._outbox = None
        if self._catalog is not None:
            self._catalog.reset_after_fork()
        if isinstance(self._given, Store):
            _inherited.append(self._given)
            self._given = self._given.opened_by or self._given.url


class Decorator:
    """`@app.task(...)` with settings, waiting for its function."""

    def __init__(self, app: App, settings: dict[str, Any]) -> None:
        self._app = app
        self._settings = settings

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...  # type: ignore[overload-overlap]

    @overload
    def __call__(self, fn: Callable[P, R], /) -> SyncTask[P, R]: ...

    def __call__(self, fn: Callable[..., Any], /) -> Any:
        """The task."""
        return self._app._add(fn, self._settings)


class BatchDecorator:
    """`@app.task(batch=...)`, waiting for its function: one of a list, returning None or a list of as many results."""

    def __init__(self, app: App, settings: dict[str, Any]) -> None:
        self._app = app
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
        return self._app._add(fn, self._settings)


_inherited: "list[Store | Outbox]" = []
"""Kept alive on purpose: were they collected, a driver might say goodbye on its parent's connection."""


def _same_place(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """The same function again, as when a notebook's cell or a module is run a second time."""
    return getattr(one, "__module__", 1) == getattr(other, "__module__", 2) and getattr(
        one, "__qualname__", 1
    ) == getattr(other, "__qualname__", 2)


def _after_fork() -> None:
    for app in list(_apps):
        app._forget_connection()


os.register_at_fork(after_in_child=_after_fork)

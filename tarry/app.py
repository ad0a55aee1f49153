"""The app: tasks, and the store that their jobs are kept in."""

import threading
import weakref
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tarry.client.bounds import declare_bounds
from tarry.client.client import Client
from tarry.client.clock import CHECKED_EVERY, Clock
from tarry.client.flows.flow_signals import SignalSender
from tarry.client.flows.maker import FlowMaker
from tarry.client.handle import Handle
from tarry.client.operations.collection import JobFinder
from tarry.client.tasks.batch_task import task_class
from tarry.client.tasks.task import Task
from tarry.client.tasks.task_decorator import TaskDecoratorMixin
from tarry.config.config import Config, Pool, current_config
from tarry.embedded import mixin
from tarry.errors import ConfigError, UnknownTask
from tarry.keeper import limits
from tarry.keeper.cron import ScheduleTicker, check_names
from tarry.model.flow.wiring import MAP_TASK
from tarry.model.lifecycle import Rules
from tarry.model.limit import Limit
from tarry.model.nearest import did_you_mean
from tarry.model.retry import Retry, RetryRule, retry_rule
from tarry.platform import at_fork
from tarry.store import django_tests
from tarry.store.opening import open_store
from tarry.store.rules.base import Store
from tarry.tasks import importable
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.middleware import Middleware
from tarry.tasks.running import CurrentJob
from tarry.tasks.shield import shielded
from tarry.tasks.task_hooks import Side, TaskHooks

if TYPE_CHECKING:
    from tarry.client.enqueue_listener import EnqueueListener
    from tarry.client.limits.app_limits import AppLimits
    from tarry.client.schedules.app_schedules import AppSchedules
    from tarry.keeper.chores import Keeper
    from tarry.push.catalog import HttpTaskCatalog
    from tarry.push.delivery.coordinator import DeliveryCoordinator
    from tarry.push.journal.logs import Logs
    from tarry.store.outbox import Outbox

T = TypeVar("T")
M = TypeVar("M", bound=Middleware)

# For the fork handler. Weak, so that it keeps no app alive.
_apps: "weakref.WeakSet[App]" = weakref.WeakSet()


class App(TaskDecoratorMixin, FlowMaker, SignalSender, JobFinder, mixin.EmbeddedMixin):
    """Where tasks are declared.

    store: a URL, or several for shards. Default: TARRY_STORE, else the setting in tarry.toml, else `sqlite:///tarry.db`
    in the working directory. It is opened at its first use.

    outbox: a file on this host that keeps jobs while the store is away, up to `[client] outbox_bytes`. When the store
    is back, each is forwarded once. Without this and without `[client] outbox`, an enqueue fails while the store is
    away.

    retry: when failed jobs are tried again, unless the task says otherwise: a Retry, how many times, or None for never.
    Default: `[defaults] retry` in tarry.toml, else 12 times over about 15 hours (`model.retry.DEFAULT`).

    closures: tasks may be closures, lambdas and bound methods. For tests and notebooks: a worker cannot find such a
    task.
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
        self._around = TaskHooks()
        self._catalog: HttpTaskCatalog | None = None
        self._limits: AppLimits | None = None
        self._logs: dict[Path, Logs] = {}
        self._at_close: list[Callable[[], Any]] = []
        self._at_keeper: list[Callable[[], Any]] = []
        super().__init__()
        _apps.add(self)
        django_tests.remember()

    def enqueue(self, name: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Enqueues by the task's name; UnknownTask if this app has no such task."""
        return self.named(name).enqueue(*args, **kwargs)

    async def aenqueue(self, name: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """The same, awaited."""
        task = self.tasks.get(name)
        if task is None or (task.runner is not None and not self.http.get_cached(name)):
            # `named` may read files and the store, which would block the event loop.
            task = await asyncio.to_thread(self.named, name)
        return await task.aenqueue(*args, **kwargs)

    def on_success(self, fn: Callable[[CurrentJob, Any], T]) -> Callable[[CurrentJob, Any], T]:
        """`@app.on_success`: a hook for all tasks of this app, called after each task's own; see `Task.on_success`."""
        self._around.add_hook("success", fn)
        return fn

    def on_failure(self, fn: Callable[[CurrentJob, BaseException], T]) -> Callable[[CurrentJob, BaseException], T]:
        """`@app.on_failure`: a hook for all tasks of this app, called after each task's own; see `Task.on_failure`."""
        self._around.add_hook("failure", fn)
        return fn

    def on_dead(self, fn: Callable[[CurrentJob, BaseException], T]) -> Callable[[CurrentJob, BaseException], T]:
        """`@app.on_dead`: a hook for all tasks of this app, called after each task's own; see `Task.on_dead`."""
        self._around.add_hook("dead", fn)
        return fn

    def middleware(self, side: Side) -> Callable[[M], M]:
        """`@app.middleware("enqueue")` or `@app.middleware("run")`: a function of `(job, call_next)` that is called
        in place of each enqueue, or each run, and returns what `call_next(job)` returns, or something else.

        "enqueue": `job` is a NewJob, whose arguments, options and headers may be changed; `call_next` gives the handle
        that the caller will get. "run": `job` is the CurrentJob; `call_next` gives what the task returns, or raises
        what it raises; the timeout is for all of it.

        The one registered first is the outermost. One function serves both kinds: an `async def` awaits
        `call_next(job)`, whatever the task is; in a `def`, `call_next(job)` gives an awaitable if `job.is_async`;
        return it unchanged. A `def` costs well under a microsecond. An `async def` around a sync task runs on an
        event loop of its thread, which costs about 15.
        """

        def add(fn: M) -> M:
            self._around.add_middleware(side, fn)
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
        """Makes a context variable travel with each job. While the task, its middleware and its hooks run, it has the
        value that it had at the enqueue. A variable that is not set, or is None, does not travel.

        name: the header that carries it; default: the variable's name. encode, decode: to text and back, for values
        that are not text.
        """
        self._around.add_carried(var, name, encode, decode)

    def get(self, id: str | bytes) -> Handle[Any]:
        """The job with this id."""
        return self.client.get(id)

    @property
    def config(self) -> Config:
        """The settings in force: those of `configure`, or of `tarry.toml`."""
        if self._config is None:
            self._config = current_config()
        return self._config

    def configure(self, config: Config) -> None:
        """Sets the settings, as `tarry -c FILE` does. Call it before the store is opened."""
        self._config = config

    @property
    def retry(self) -> Retry:
        """The retry rule for tasks that have none of their own."""
        return self._retry_given or self.config.defaults.retry.rule

    @property
    def store_url(self) -> str | Sequence[str]:
        """The URL or URLs of the store."""
        if (store := self._open_store) is not None:
            return store.url
        given = self._given
        # From where the settings are: a daemon runs in "/".
        return self.config.stores if given is None or isinstance(given, Store) else self.config.resolve_store(given)

    @property
    def _open_store(self) -> Store | None:
        return mixin.backend.find_store(self, self._given if isinstance(self._given, Store) else None)

    def open_store(self, durable: bool = True, patient: bool = False) -> Store:
        """Opens a new connection to the app's store. patient: a store that is unreachable now is opened later."""
        # First: without its keys no store is made.
        seal, keep_apart = self._store_sealer(), self._payload_keeper()
        return seal(keep_apart(self._open_store or open_store(self.store_url, durable, patient)))

    def _payload_keeper(self) -> Callable[[Store], Store]:
        """Makes of a store one that keeps large arguments and results elsewhere, if there is a place for them."""
        payloads = self.config.payloads
        if not payloads.to or not mixin.backend.writes_files:
            return lambda store: store
        from tarry.store.payloads.payload_store import payload_keeper  # noqa: PLC0415 - most apps keep all in the store

        return payload_keeper(payloads.to, payloads.over, payloads.most)

    def _store_sealer(self) -> Callable[[Store], Store]:
        """Makes of a store what this app uses."""
        keys = self.config.encryption.keys
        if not keys or not mixin.backend.seals:
            return lambda store: store
        from tarry.store.sealing.sealed_store import store_sealer  # noqa: PLC0415 - most apps seal nothing

        return store_sealer(keys, self._seals)

    def _seals(self, name: str) -> bool:
        """Whether the jobs of a task of that name are sealed: all but those of tasks that do without."""
        task = self.tasks.get(name.removeprefix(MAP_TASK))
        return task is None or task.encrypt

    @property
    def outbox(self) -> "Outbox | None":
        """The file that keeps jobs while the store is away; None: there is none."""
        path = self._outbox_given or self.config.client.outbox
        if self._outbox is None and path is not None and mixin.backend.writes_files:
            from tarry.store.outbox import Outbox  # noqa: PLC0415 - most processes have none

            self._outbox = Outbox(self.config.directory / path, self.config.client.outbox_bytes)
            if keys := self.config.encryption.keys:
                from tarry.store.sealing.sealed_store import sealed_outbox  # noqa: PLC0415 - most apps seal nothing

                self._outbox = sealed_outbox(self._outbox, keys, self._seals)
        return self._outbox

    def connection(self) -> tuple[Store, bool]:
        """The store for a worker, and whether the worker has to close it."""
        # A store in memory exists only once, so it is shared.
        shared = self._open_store is not None or "memory:" in str(self.store_url)
        return (self.client.store, False) if shared else (self.open_store(durable=False), True)

    @property
    def client(self) -> Client:
        """Enqueues and looks up jobs. The first use opens the store."""
        client = self._client
        return client if client is not None else self._connect()

    def rules(self, task: str, queue: str) -> Rules:
        """The rules for a job of this task in this queue: retry, and how long it is kept."""
        known = self._known_rules.get((task, queue))
        if known is None:
            keep = self.config.keep(queue)
            found = self.tasks.get(task)
            known = Rules((found and found.retry) or self.retry, keep.done, keep.dead)
            self._known_rules[task, queue] = known
        return known

    def named(self, name: str) -> Task[Any, Any]:
        """The task of that name, to enqueue its jobs: `app.named("order.timeout").using(delay="1h").enqueue(...)`.
        UnknownTask; StoreError if only the store knows, and it is away."""
        task = self.find(name)
        if task is None:
            known = ", ".join(sorted(self.tasks)) or "none"
            raise UnknownTask(f"no task {name!r} in this app{did_you_mean(name, self.tasks) or '; it has: ' + known}")
        return task

    def find(self, name: str) -> Task[Any, Any] | None:
        """The task of that name, also one that is registered in the store; None: there is none. StoreError if only the
        store knows, and it is away."""
        task = self.tasks.get(name)
        if task is not None and task.runner is None:
            return task
        # This takes a lock, which an interrupt of the calling task must not leave held.
        with shielded:
            return self.http.find(name)

    @property
    def http(self) -> "HttpTaskCatalog":
        """The HTTP tasks of the configuration, and those that are registered in the store."""
        if self._catalog is None:
            from tarry.push.catalog import HttpTaskCatalog  # noqa: PLC0415 - many apps have none

            changed, client, logs = self._known_rules.clear, lambda: self.client, lambda: self.logs
            self._catalog = HttpTaskCatalog(self.tasks, lambda: self.config, client, self._around.attach, changed, logs)
        return self._catalog

    @property
    def logs(self) -> "Logs | None":
        """The logs of HTTP tasks; None: the settings name no directory for them."""
        directory = self.config.push.log
        if directory is None or not mixin.backend.writes_files:
            return None
        if (logs := self._logs.get(directory)) is None:
            from tarry.push.journal.logs import Logs  # noqa: PLC0415 - few apps have any

            logs = self._logs.setdefault(directory, Logs(directory))
            logs.attach()
        return logs

    def _enqueue_listener(self) -> "EnqueueListener | None":
        return None if self.logs is None else self.logs.request_log(self.tasks)

    def deliveries(self, store: Store, slots: int, clock: Clock | None = None) -> "DeliveryCoordinator":
        """Delivers the jobs of HTTP tasks in this process until it is closed. slots: async jobs at once."""
        return self.http.start_coordinator(store, slots, clock)

    @property
    def limits(self) -> "AppLimits":
        """Limits of tasks and configuration, by name. `app.limits.take` takes a place under one outside of a job."""
        if self._limits is None:
            from tarry.client.limits.app_limits import AppLimits  # noqa: PLC0415 - many apps use none

            def declare() -> None:
                self.declare_limits(self.client.store)

            self._limits = AppLimits(self._find_limits, lambda: self.client, declare)
        return self._limits

    @property
    def schedules(self) -> "AppSchedules":
        """The schedules that are kept in the store: made, changed and removed while everything runs."""
        from tarry.client.schedules.app_schedules import AppSchedules  # noqa: PLC0415 - many apps use none

        return AppSchedules(lambda: self.client)

    def _find_limits(self) -> dict[str, Limit]:
        return {**limits.limits_of_tasks(self.tasks), **self.config.limits}

    def declare_limits(self, store: Store) -> None:
        """Makes the store keep the limits of code and configuration, except those that were set by hand, and bounds."""
        # A coordinator sets the limits of HTTP tasks, by the state of their endpoints.
        plain = {name: task for name, task in list(self.tasks.items()) if task.runner is None}
        limits.declare(store, {**limits.limits_of_tasks(plain), **self.config.limits}, plain)
        declare_bounds(store, self.config.bounds)
        # Imported by workers and keepers only.
        from tarry.client.limits.key_numbers import declare_key_bounds  # noqa: PLC0415 - see above

        declare_key_bounds(store, plain)

    def keeper(self, store: Store, clock: Clock | None = None) -> "Keeper":
        """Does the chores of that store: brings back the jobs of dead workers, prunes, and enqueues scheduled jobs."""
        from tarry.keeper.chores import Keeper  # noqa: PLC0415
        from tarry.keeper.death_hooks import DeathHooks  # noqa: PLC0415 - as in EmbeddedMixin
        from tarry.keeper.stored_ticks import StoredTicker  # noqa: PLC0415 - as above

        for action in self._at_keeper:
            action()
        config, listener = self.config, self._enqueue_listener()
        # One for both: each asks the store by itself.
        clock = clock or Clock(store.time, CHECKED_EVERY)
        client = Client(store, self.tasks, clock=clock, max_body=config.max_body, rules=self.rules, listener=listener)
        outbox = self.outbox

        def forward() -> None:
            # By the client's store, not the keeper's: that one need not be durable, and what leaves the outbox must be.
            if outbox is not None and outbox.content().jobs and self.client.forwarder is not None:
                self.client.forwarder.forward()

        keeper = Keeper(
            store,
            clock=clock,
            rules=self.rules,
            kept_bytes={name: queue.keep.bytes for name, queue in self.config.queues.items()},
            batch_tasks=[task.name for task in list(self.tasks.values()) if task.batch],
            ticker=ScheduleTicker(client, config.named_calendars),
            death_hooks=DeathHooks(self.tasks, store),
            declare=lambda: self.declare_limits(store),
            forward=None if outbox is None else _not_held_up(store, forward),
            lease=max((pool.lease for pool in config.pools.values()), default=Pool().lease),
        )
        keeper.stored_ticker = StoredTicker(client, self.find)
        if store.most_apart:
            from tarry.store.payloads.sweep import register  # noqa: PLC0415 - most apps keep all in the store

            register(keeper.register_chore, store, clock.now)
        return keeper

    def on_keeper(self, action: Callable[[], T]) -> Callable[[], T]:
        """`@app.on_keeper`: called when a keeper begins in this process: that of a master, one on each host, or that of
        an app that runs jobs itself. For what looks at the whole store, such as a gauge."""
        self._at_keeper.append(action)
        return action

    def on_close(self, action: Callable[[], T]) -> Callable[[], T]:
        """`@app.on_close`: called whenever the app is closed, as every worker and keeper process does at its end,
        unless it is killed. Use it to send what is left."""
        self._at_close.append(action)
        return action

    def close(self) -> None:
        """Closes the store; the next use opens it again."""
        self._close_operations()
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()
        for action in self._at_close:
            action()
        while self._logs:
            self._logs.popitem()[1].detach()

    def _connect(self) -> Client:
        with shielded, self._lock:
            if self._client is None:
                self._client = mixin.backend.make_client(
                    self.open_store(patient=self.outbox is not None),
                    self.tasks,
                    clock=mixin.backend.clock or self._clock,
                    max_body=self.config.max_body,
                    rules=self.rules,
                    timeout=self.config.client.timeout,
                    outbox=self.outbox,
                    listener=self._enqueue_listener(),
                    bounds=self.config.bounds,
                    limits=self.config.limits,
                )
                self._client.max_schedules = self.config.max_schedules
            return self._client

    def _add_task(self, fn: Callable[..., Any], settings: dict[str, Any]) -> Task[Any, Any]:
        importable.check_importable(fn, self._closures)
        task: Task[Any, Any] = task_class(fn, settings)(fn, lambda: self.client, **settings)
        if task.name in self.tasks and not importable.is_same_place(self.tasks[task.name].fn, fn):
            raise ConfigError(f"two tasks are named {task.name}: give one of them another with @app.task(name=...)")
        check_names(self.tasks, task)
        self.tasks[task.name] = task
        self._around.attach(task)
        return task

    def _forget_connection(self) -> None:
        """Called in a forked child."""
        # The connection and the threads are the parent's: the child must neither use nor close them.
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


# Never collected: the destructor of a driver could say goodbye on the connection of the parent.
_inherited: "list[Store | Outbox]" = []


def _after_fork() -> None:
    for app in list(_apps):
        app._forget_connection()


at_fork(after_in_child=_after_fork)


def _not_held_up(store: Store, chore: Callable[[], bool | None]) -> Callable[[], bool | None]:
    """The chore, which may wait for the place of large payloads if there is one."""
    if not store.most_apart:
        return chore
    from tarry.store.payloads.aside import Aside  # noqa: PLC0415 - most apps keep all in the store

    return Aside(chore, chore.__name__)

"""The app: tasks, and the store that their jobs are kept in."""

import inspect
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, ParamSpec, TypeVar, overload

from tarry.config import Config, load
from tarry.engine.client import Client
from tarry.engine.clock import Clock
from tarry.engine.handle import Handle
from tarry.engine.task import AsyncTask, SyncTask, Task
from tarry.errors import ConfigError, UnknownTask
from tarry.model.duration import Duration
from tarry.model.lifecycle import Rules
from tarry.model.retry import NEVER, Retry
from tarry.store.base import Store
from tarry.store.opening import open_store

P = ParamSpec("P")
R = TypeVar("R")

_apps: "weakref.WeakSet[App]" = weakref.WeakSet()


class App:
    """Where tasks are declared.

    store: a URL, or several for shards. Left out, it is TARRY_STORE, or what tarry.toml says, or `sqlite:///tarry.db`
    in the working directory. Nothing is opened before the first enqueue.
    """

    def __init__(self, store: str | Sequence[str] | Store | None = None) -> None:
        self.tasks: dict[str, Task[Any, Any]] = {}
        self._given = store
        self._config: Config | None = None
        self._client: Client | None = None
        self._clock: Clock | None = None
        self._lock = threading.Lock()
        self._known_rules: dict[tuple[str, str], Rules] = {}
        _apps.add(self)

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
        retry: Retry | int | None = None,
        expires: Duration | None = None,
    ) -> "Decorator": ...

    def task(self, *fn: Callable[..., Any], **settings: Any) -> Any:
        """Makes a function a task: `@app.task` or `@app.task(queue="mail", timeout=30, retry=Retry(5))`.

        name: `module.function` unless given. queue, priority: where its jobs wait. timeout: seconds an attempt may
        take. retry: when to try again; never, unless given. expires: a job that has not started within so long after
        it was due is cancelled.
        """
        return self._add(fn[0], settings) if fn else Decorator(self, settings)

    def enqueue(self, name: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """Enqueues by the task's name; UnknownTask if this app has none such."""
        return self._named(name).enqueue(*args, **kwargs)

    async def aenqueue(self, name: str, /, *args: Any, **kwargs: Any) -> Handle[Any]:
        """The same, awaited."""
        return await self._named(name).aenqueue(*args, **kwargs)

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
    def store_url(self) -> str | Sequence[str]:
        """Where the jobs are kept; a store that was given opened says its own URL."""
        if isinstance(self._given, Store):
            return self._given.url
        return self._given or self.config.stores

    def open_store(self, durable: bool = True) -> Store:
        """A connection of one's own to the app's store."""
        return self._given if isinstance(self._given, Store) else open_store(self.store_url, durable)

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
            known = Rules(found.retry if found else NEVER, keep.done, keep.dead)
            self._known_rules[task, queue] = known
        return known

    def close(self) -> None:
        """Gives back the store; the next use opens it again."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = Client(
                    self.open_store(),
                    self.tasks,
                    clock=self._clock,
                    max_body=self.config.max_body,
                    rules=self.rules,
                )
            return self._client

    def _named(self, name: str) -> Task[Any, Any]:
        task = self.tasks.get(name)
        if task is None:
            known = ", ".join(sorted(self.tasks)) or "none"
            raise UnknownTask(f"no task {name!r} in this app; it has: {known}")
        return task

    def _add(self, fn: Callable[..., Any], settings: dict[str, Any]) -> Task[Any, Any]:
        kind = AsyncTask if inspect.iscoroutinefunction(fn) else SyncTask
        task: Task[Any, Any] = kind(fn, lambda: self.client, **settings)
        if task.name in self.tasks and not _same_place(self.tasks[task.name].fn, fn):
            raise ConfigError(f"two tasks are named {task.name}: give one of them another with @app.task(name=...)")
        self.tasks[task.name] = task
        return task

    def _forget_connection(self) -> None:
        """In a forked child: the parent's connection and threads are not ours, and not ours to close."""
        self._lock = threading.Lock()
        if self._client is not None:
            _inherited.append(self._client)
        self._client = None
        if isinstance(self._given, Store):
            _inherited.append(self._given)
            self._given = self._given.url


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


_inherited: list[Client | Store] = []
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

"""Which HTTP tasks there are: those of the configuration, and those that are registered in the store. It keeps an app's
tasks in step with both."""

import logging
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, cast

from tarry.config import Config
from tarry.embedded import mixin
from tarry.errors import ConfigError
from tarry.push.delivery.deliver import HttpTask, Post
from tarry.push.delivery.withdraw import WORD_WITHIN, Withdrawal, parsed, withdraw
from tarry.push.endpoint.endpoint import Endpoint, EndpointError
from tarry.push.http.guard import Guard
from tarry.push.registry import CELL, OFF, cells, checked, decoded
from tarry.push.trust import trusted
from tarry.store.base import Store
from tarry.tasks.task import Task

if TYPE_CHECKING:
    from tarry.client.client import Client
    from tarry.client.clock import Clock
    from tarry.model.job import Job
    from tarry.push.delivery.office import Office
    from tarry.push.delivery.record import Record
    from tarry.push.journal.logs import Logs

log = logging.getLogger("tarry.push")

LOOK_EVERY = 0.5
"""Seconds between two looks at the store, while there is reason to look."""


class Book:
    """Of one app. tasks: the app's, by name. take: told of each new one. changed: told when any has come or changed."""

    def __init__(
        self,
        tasks: MutableMapping[str, Task[Any, Any]],
        config: Callable[[], Config],
        client: "Callable[[], Client]",
        take: Callable[[HttpTask], None],
        changed: Callable[[], None],
        logs: "Callable[[], Logs | None]" = lambda: None,
    ) -> None:
        self.tasks = tasks
        self.config = config
        self._client = client
        self._take = take
        self._changed = changed
        self._logs = logs
        self._filed: dict[str, Endpoint] = {}
        """Of the configuration."""
        self._cells: dict[str, bytes] | None = None
        """As they were at the last look; None: there was none."""
        self._looked = 0.0
        self.trust = b""
        """Certificates of one's own authorities, PEM; once it is loaded thoroughly."""
        self._loaded = False
        self._lock = threading.RLock()
        self._offices: list[Office] = []
        """Of the workers in this process; the last one delivers for all."""

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """All, by name."""
        tasks = list(self.tasks.values())
        return {task.name: task.endpoint for task in tasks if isinstance(task, HttpTask)}

    def in_file(self, name: str) -> bool:
        """It stands in the configuration."""
        return name in self._filed

    def load(self, thoroughly: bool = False) -> None:
        """Those of the configuration. ConfigError, with the place, for what is wrong. thoroughly: also what is found
        only with the extra `push`, as who delivers does, not who enqueues."""
        with self._lock:
            if self._loaded and not thoroughly:
                return
            config = self.config()
            guard = Guard(config.push.allow)
            self.trust = trusted(config) if thoroughly else b""
            for name, table in config.tasks.items():
                self._filed[name] = self._read(name, table, guard if thoroughly else None)
                if not isinstance(self.tasks.get(name, self), HttpTask | Book):
                    raise ConfigError(
                        f"{config.place('tasks', name)}: a function is the task {name} already; rename one"
                    )
                self._put(self._filed[name])
            self._loaded = True

    def at_hand(self, name: str) -> HttpTask | None:
        """The task of that name, if it is known for sure without a look at the store."""
        known = self._loaded and (name in self._filed or time.monotonic() - self._looked < LOOK_EVERY)
        task = self.tasks.get(name) if known else None
        return task if isinstance(task, HttpTask) else None

    def find(self, name: str) -> HttpTask | None:
        """The task of that name, for who enqueues: of the store as it was half a second ago, or as it is now."""
        self.load()
        if self.at_hand(name) is None:
            self.look(self._client().store)
        task = self.tasks.get(name)
        return task if isinstance(task, HttpTask) else None

    def look(self, store: Store) -> None:
        """Brings the tasks in step with the store; StoreError."""
        with self._lock:
            found = cells(store, CELL)
            self._looked = time.monotonic()
            if found == self._cells:
                return
            before, self._cells = self._cells or {}, found
            for name in before.keys() - found.keys():
                self._gone(name)
            for name, cell in found.items():
                if before.get(name) != cell:
                    self._come(name, cell)

    def follow(self, store: Store) -> Callable[[], None]:
        """`look`, as a chore for the keeper."""

        def look_at_http_tasks() -> None:
            self.look(store)

        return look_at_http_tasks

    def serve(self, store: Store, slots: int, clock: "Clock | None" = None) -> "Office":
        """What delivers here, for as long as a worker works. slots: how many deliveries at once. ConfigError."""
        from tarry.push.delivery.office import Office  # noqa: PLC0415 - only for who delivers

        self.load(thoroughly=True)
        self._logs()
        office = Office(self, store, slots, clock)
        self.look(store)
        if self.endpoints:
            office.start()
        self._offices.append(office)
        return office

    def left(self, office: "Office") -> None:
        """It delivers no more."""
        if office in self._offices:
            self._offices.remove(office)

    def withdraw(self, job: str | bytes, reason: str = "", within: float = WORD_WITHIN) -> Withdrawal:
        """Cancels a job, by its id, and says whether it was ever sent, for which it waits up to so many seconds for the
        job's worker. JobNotFound; StoreError."""
        self.load()
        self.look(self._client().store)
        return withdraw(self._client(), parsed(job), reason, within)

    def forked(self) -> None:
        """In a forked child: the parent's threads are not ours."""
        self._lock = threading.RLock()
        self._offices, self._looked = [], 0.0

    def look_anew(self) -> None:
        """The store is another one now."""
        self._looked = -LOOK_EVERY

    @property
    def store(self) -> Store:
        """Where the app's jobs are; StoreError."""
        return self._client().store

    def _post(self) -> Post:
        if mixin.test_backend is not None:
            return cast("Post", mixin.test_backend.post(self))
        if not self._offices:
            raise ConfigError(
                "nothing is sent here: HTTP tasks are delivered by workers, as of `tarry start` or app.run()"
            )
        return self._offices[-1]

    def _note(self, job: "Job", record: "Record", ended: bool) -> None:
        logs = self._logs()
        if logs is not None:
            logs.attempted(job, record, ended)

    def _read(self, name: str, table: Any, guard: Guard | None) -> Endpoint:
        try:
            return Endpoint.parse(name, table, checked=False) if guard is None else checked(name, table, guard)
        except EndpointError as error:
            keys = ("tasks", name, error.field) if error.field else ("tasks", name)
            raise ConfigError(f"{self.config().place(*keys)}: {error}") from None

    def _come(self, name: str, cell: bytes) -> None:
        """What cannot be read is told, and changes nothing: perhaps a newer release wrote it."""
        try:
            settings = decoded(cell)
            if name in self._filed:
                self._put(self._filed[name] if settings != OFF else _disabled(self._filed[name]))
            elif settings == OFF:
                return  # it stood in the configuration once, or does on another host
            elif isinstance(self.tasks.get(name, self), HttpTask | Book):
                # Whoever may write to the store may not thereby read this process's environment and files.
                self._put(Endpoint.parse(name, settings, checked=False).confined(self.config().push.secrets))
            else:
                log.warning("the HTTP task %s of the store is not delivered here: a function is that task", name)
        except ConfigError as error:
            log.error("the HTTP task %s of the store: %s", name, error)

    def _gone(self, name: str) -> None:
        if name in self._filed:
            self._put(self._filed[name])
        elif isinstance(self.tasks.get(name), HttpTask):
            del self.tasks[name]
            log.warning("the HTTP task %s was removed; its jobs wait until there is one of that name", name)
            self._changed()

    def _put(self, endpoint: Endpoint) -> None:
        old = self.tasks.get(endpoint.name)
        if isinstance(old, HttpTask) and old.endpoint == endpoint:
            return
        task = HttpTask(endpoint, self._client, self._post, self._note)
        if isinstance(old, HttpTask):
            task.hooks = old.hooks
        self._take(task)
        self.tasks[endpoint.name] = task
        self._changed()
        for office in self._offices:
            office.start(at_once=False)


def _disabled(endpoint: Endpoint) -> Endpoint:
    return Endpoint.parse(endpoint.name, {**endpoint.settings, **OFF}, checked=False)

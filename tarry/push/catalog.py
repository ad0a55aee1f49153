"""Which HTTP tasks there are: those of the configuration, and those that are registered in the store. It keeps an app's
tasks in step with both."""

import logging
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, cast

from tarry.client.task import Task
from tarry.config import Config
from tarry.embedded import workplace
from tarry.errors import ConfigError
from tarry.push.certificates import load_certificates
from tarry.push.delivery.cancel import REPORT_TIMEOUT, CancelResult, cancel, parse_id
from tarry.push.delivery.task import DeliveryPort, HttpTask
from tarry.push.endpoint.settings import Endpoint, EndpointError
from tarry.push.http.guard import AddressGuard
from tarry.push.registry import OFF, TASK_CELL, check_endpoint, decode_settings, read_cells
from tarry.store.base import Store

if TYPE_CHECKING:
    from tarry.client.client import Client
    from tarry.client.clock import Clock
    from tarry.model.job import Job
    from tarry.push.delivery.coordinator import DeliveryCoordinator
    from tarry.push.delivery.record import AttemptRecord
    from tarry.push.journal.logs import Logs

log = logging.getLogger("tarry.push")

SYNC_INTERVAL = 0.5
"""Seconds between two looks at the store, while there is reason to look."""


class HttpTaskCatalog:
    """Of one app. tasks: the app's, by name. take: told of each new one. changed: told when any has come or changed."""

    def __init__(
        self,
        tasks: MutableMapping[str, Task[Any, Any]],
        config: Callable[[], Config],
        client: "Callable[[], Client]",
        on_new: Callable[[HttpTask], None],
        on_change: Callable[[], None],
        logs: "Callable[[], Logs | None]" = lambda: None,
    ) -> None:
        self.tasks = tasks
        self.config = config
        self._client = client
        self._on_new = on_new
        self._on_change = on_change
        self._logs = logs
        self._configured: dict[str, Endpoint] = {}
        """Of the configuration."""
        self._cells: dict[str, bytes] | None = None
        """As they were at the last look; None: there was none."""
        self._synced_at = 0.0
        self.trust = b""
        """Certificates of one's own authorities, PEM; once it is loaded thoroughly."""
        self._loaded = False
        self._lock = threading.RLock()
        self._coordinators: list[DeliveryCoordinator] = []
        """Of the workers in this process; the last one delivers for all."""

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """All, by name."""
        tasks = list(self.tasks.values())
        return {task.name: task.endpoint for task in tasks if isinstance(task, HttpTask)}

    def is_configured(self, name: str) -> bool:
        """It stands in the configuration."""
        return name in self._configured

    def load(self, thoroughly: bool = False) -> None:
        """Those of the configuration. ConfigError, with the place, for what is wrong. thoroughly: also what is found
        only with the extra `push`, as who delivers does, not who enqueues."""
        with self._lock:
            if self._loaded and not thoroughly:
                return
            config = self.config()
            guard = AddressGuard(config.push.allow)
            self.trust = load_certificates(config) if thoroughly else b""
            for name, table in config.tasks.items():
                self._configured[name] = self._read(name, table, guard if thoroughly else None)
                if not isinstance(self.tasks.get(name, self), HttpTask | HttpTaskCatalog):
                    raise ConfigError(
                        f"{config.place('tasks', name)}: a function is the task {name} already; rename one"
                    )
                self._put(self._configured[name])
            self._loaded = True

    def get_cached(self, name: str) -> HttpTask | None:
        """The task of that name, if it is known for sure without a look at the store."""
        known = self._loaded and (name in self._configured or time.monotonic() - self._synced_at < SYNC_INTERVAL)
        task = self.tasks.get(name) if known else None
        return task if isinstance(task, HttpTask) else None

    def find(self, name: str) -> HttpTask | None:
        """The task of that name, for who enqueues: of the store as it was half a second ago, or as it is now."""
        self.load()
        if self.get_cached(name) is None:
            self.sync(self._client().store)
        task = self.tasks.get(name)
        return task if isinstance(task, HttpTask) else None

    def sync(self, store: Store) -> None:
        """Brings the tasks in step with the store; StoreError."""
        with self._lock:
            found = read_cells(store, TASK_CELL)
            self._synced_at = time.monotonic()
            if found == self._cells:
                return
            before, self._cells = self._cells or {}, found
            for name in before.keys() - found.keys():
                self._remove(name)
            for name, cell in found.items():
                if before.get(name) != cell:
                    self._apply_cell(name, cell)

    def sync_chore(self, store: Store) -> Callable[[], None]:
        """`look`, as a chore for the keeper."""

        def look_at_http_tasks() -> None:
            self.sync(store)

        return look_at_http_tasks

    def start_coordinator(self, store: Store, slots: int, clock: "Clock | None" = None) -> "DeliveryCoordinator":
        """What delivers here, for as long as a worker works. slots: how many deliveries at once. ConfigError."""
        from tarry.push.delivery.coordinator import DeliveryCoordinator  # noqa: PLC0415 - only for who delivers

        self.load(thoroughly=True)
        self._logs()
        coordinator = DeliveryCoordinator(self, store, slots, clock)
        self.sync(store)
        if self.endpoints:
            coordinator.start()
        self._coordinators.append(coordinator)
        return coordinator

    def remove_coordinator(self, coordinator: "DeliveryCoordinator") -> None:
        """It delivers no more."""
        if coordinator in self._coordinators:
            self._coordinators.remove(coordinator)

    def cancel(self, job: str | bytes, reason: str = "", timeout: float = REPORT_TIMEOUT) -> CancelResult:
        """Cancels a job, by its id, and says whether it was ever sent, for which it waits up to so many seconds for the
        job's worker. JobNotFound; StoreError."""
        self.load()
        self.sync(self._client().store)
        return cancel(self._client(), parse_id(job), reason, timeout)

    def reset_after_fork(self) -> None:
        """In a forked child: the parent's threads are not ours."""
        self._lock = threading.RLock()
        self._coordinators, self._synced_at = [], 0.0

    def expire_cache(self) -> None:
        """The store is another one now."""
        self._synced_at = -SYNC_INTERVAL

    @property
    def store(self) -> Store:
        """Where the app's jobs are; StoreError."""
        return self._client().store

    def _delivery_port(self) -> DeliveryPort:
        if workplace.stage is not None:
            return cast("DeliveryPort", workplace.stage.post(self))
        if not self._coordinators:
            raise ConfigError(
                "nothing is sent here: HTTP tasks are delivered by workers, as of `tarry start` or app.run()"
            )
        return self._coordinators[-1]

    def _log_attempt(self, job: "Job", record: "AttemptRecord", ended: bool) -> None:
        logs = self._logs()
        if logs is not None:
            logs.log_attempt(job, record, ended)

    def _read(self, name: str, table: Any, guard: AddressGuard | None) -> Endpoint:
        try:
            return Endpoint.parse(name, table, checked=False) if guard is None else check_endpoint(name, table, guard)
        except EndpointError as error:
            keys = ("tasks", name, error.field) if error.field else ("tasks", name)
            raise ConfigError(f"{self.config().place(*keys)}: {error}") from None

    def _apply_cell(self, name: str, cell: bytes) -> None:
        """What cannot be read is told, and changes nothing: perhaps a newer release wrote it."""
        try:
            settings = decode_settings(cell)
            if name in self._configured:
                self._put(self._configured[name] if settings != OFF else _disable(self._configured[name]))
            elif settings == OFF:
                return  # it stood in the configuration once, or does on another host
            elif isinstance(self.tasks.get(name, self), HttpTask | HttpTaskCatalog):
                # Whoever may write to the store may not thereby read this process's environment and files.
                self._put(Endpoint.parse(name, settings, checked=False).confine(self.config().push.secrets))
            else:
                log.warning("the HTTP task %s of the store is not delivered here: a function is that task", name)
        except ConfigError as error:
            log.error("the HTTP task %s of the store: %s", name, error)

    def _remove(self, name: str) -> None:
        if name in self._configured:
            self._put(self._configured[name])
        elif isinstance(self.tasks.get(name), HttpTask):
            del self.tasks[name]
            log.warning("the HTTP task %s was removed; its jobs wait until there is one of that name", name)
            self._on_change()

    def _put(self, endpoint: Endpoint) -> None:
        old = self.tasks.get(endpoint.name)
        if isinstance(old, HttpTask) and old.endpoint == endpoint:
            return
        task = HttpTask(endpoint, self._client, self._delivery_port, self._log_attempt)
        if isinstance(old, HttpTask):
            task.hooks = old.hooks
        self._on_new(task)
        self.tasks[endpoint.name] = task
        self._on_change()
        for coordinator in self._coordinators:
            coordinator.start(at_once=False)


def _disable(endpoint: Endpoint) -> Endpoint:
    return Endpoint.parse(endpoint.name, {**endpoint.settings, **OFF}, checked=False)

"""The HTTP tasks of an app: those of the configuration and those registered in the store.

The catalog keeps the app's task table in step with both.
"""

import logging
import threading
import time
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, cast

from tarry.client.tasks.task import Task
from tarry.config.config import Config
from tarry.embedded import mixin
from tarry.errors import ConfigError
from tarry.push.certificates import load_certificates
from tarry.push.delivery.cancel import REPORT_TIMEOUT, CancelResult, cancel, parse_id
from tarry.push.delivery.http_task import DeliveryPort, HttpTask
from tarry.push.endpoint.endpoint_cells import OFF, TASK_CELL, check_endpoint, decode_settings, read_cells
from tarry.push.endpoint.endpoint_settings import Endpoint, EndpointError
from tarry.push.http.address_guard import AddressGuard
from tarry.store.rules.base import Store

if TYPE_CHECKING:
    from tarry.client.client import Client
    from tarry.client.clock import Clock
    from tarry.model.job import Job
    from tarry.push.delivery.coordinator import DeliveryCoordinator
    from tarry.push.delivery.delivery_record import AttemptRecord
    from tarry.push.journal.logs import Logs

log = logging.getLogger("tarry.push")

SYNC_INTERVAL = 0.5
"""Seconds between two reads of the store by `find`."""


class HttpTaskCatalog:
    """The HTTP tasks of one app.

    tasks: the app's table, by name. on_new: called with each new task. on_change: called when a task was added,
    changed or removed.
    """

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
        """The endpoints of the configuration, by name."""
        self._cells: dict[str, bytes] | None = None
        """The cells as they were at the last read; None: not read yet."""
        self._synced_at = 0.0
        self.trust = b""
        """Certificates of extra authorities, PEM; set by a thorough `load`."""
        self._loaded = False
        self._lock = threading.RLock()
        self._coordinators: list[DeliveryCoordinator] = []
        """One for each worker in this process. The last one delivers for all."""

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """All endpoints, by name."""
        tasks = list(self.tasks.values())
        return {task.name: task.endpoint for task in tasks if isinstance(task, HttpTask)}

    def is_configured(self, name: str) -> bool:
        """Whether the configuration has this task."""
        return name in self._configured

    def is_disabled_by_file(self, name: str) -> bool:
        """Whether the configuration itself disables this task."""
        return name in self._configured and not self._configured[name].enabled

    def load(self, thoroughly: bool = False) -> None:
        """Loads the tasks of the configuration; ConfigError with the place of a mistake.

        thoroughly: also runs the checks that need the extra `push`. Workers do that, producers do not.
        """
        with self._lock:
            if self._loaded and not thoroughly:
                return
            config = self.config()
            guard = AddressGuard(config.push.allow)
            self.trust = load_certificates(config) if thoroughly else b""
            for name, table in config.tasks.items():
                self._configured[name] = self._read(name, table, guard if thoroughly else None)
                # `self` stands for a name that no task has.
                if not isinstance(self.tasks.get(name, self), HttpTask | HttpTaskCatalog):
                    raise ConfigError(
                        f"{config.place('tasks', name)}: a function is the task {name} already; rename one"
                    )
                self._put(self._configured[name])
            self._loaded = True

    def get_cached(self, name: str) -> HttpTask | None:
        """The task of that name, if the cached state is fresh enough to answer without the store."""
        # For an enqueue a configured task is always up to date: the store can only disable it, and then its jobs wait.
        known = self._loaded and (name in self._configured or time.monotonic() - self._synced_at < SYNC_INTERVAL)
        task = self.tasks.get(name) if known else None
        return task if isinstance(task, HttpTask) else None

    def find(self, name: str) -> HttpTask | None:
        """The task of that name, for a producer. The answer is at most `SYNC_INTERVAL` old."""
        self.load()
        if self.get_cached(name) is None:
            self.sync(self._client().store)
        task = self.tasks.get(name)
        return task if isinstance(task, HttpTask) else None

    def sync(self, store: Store) -> None:
        """Updates the tasks from the store; StoreError."""
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

    def sync_chore(self, store: Store) -> Callable[[], bool]:
        """`sync`, as a chore for the keeper. It answers False where the store has no task."""

        # The keeper logs this name if the chore fails.
        def look_at_http_tasks() -> bool:
            self.sync(store)
            return bool(self._cells)

        return look_at_http_tasks

    def start_coordinator(self, store: Store, slots: int, clock: "Clock | None" = None) -> "DeliveryCoordinator":
        """Starts the coordinator of one worker, to be closed by it. slots: deliveries at once. ConfigError."""
        from tarry.push.delivery.coordinator import DeliveryCoordinator  # noqa: PLC0415 - only workers deliver

        self.load(thoroughly=True)
        # Opens the logs: from now on error.log gets this process's warnings.
        self._logs()
        coordinator = DeliveryCoordinator(self, store, slots, clock)
        self.sync(store)
        # Without HTTP tasks no thread is needed. `_put` starts it with the first one.
        if self.endpoints:
            coordinator.start()
        self._coordinators.append(coordinator)
        return coordinator

    def remove_coordinator(self, coordinator: "DeliveryCoordinator") -> None:
        """Forgets a coordinator that was closed."""
        if coordinator in self._coordinators:
            self._coordinators.remove(coordinator)

    def cancel(self, job: str | bytes, reason: str = "", timeout: float = REPORT_TIMEOUT) -> CancelResult:
        """Cancels a job, by its id, and says whether it was ever sent.

        timeout: seconds to wait for the report of the job's worker. JobNotFound; StoreError.
        """
        self.load()
        self.sync(self._client().store)
        return cancel(self._client(), parse_id(job), reason, timeout)

    def reset_after_fork(self) -> None:
        """Resets the state in a forked child, which has none of the parent's threads."""
        # Another thread of the parent may hold the old lock. In the child nobody would release it.
        self._lock = threading.RLock()
        self._coordinators, self._synced_at = [], 0.0

    def expire_cache(self) -> None:
        """Makes the next `find` read the store: the app has another store now."""
        self._synced_at = -SYNC_INTERVAL

    @property
    def store(self) -> Store:
        """The store of the app's jobs; StoreError."""
        return self._client().store

    def _delivery_port(self) -> DeliveryPort:
        port = mixin.backend.find_port(self)
        if port is not None:
            return cast("DeliveryPort", port)
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
        """Applies one cell. One that cannot be read is logged and skipped."""
        try:
            settings = decode_settings(cell)
            if name in self._configured:
                self._put(self._configured[name] if settings != OFF else _disable(self._configured[name]))
            elif settings == OFF:
                return  # left by a configuration that had the task, or by another host that still has it
            elif isinstance(self.tasks.get(name, self), HttpTask | HttpTaskCatalog):
                # Write access to the store must not give read access to this process's environment and files.
                self._put(Endpoint.parse(name, settings, checked=False).confine(self.config().push.secrets))
            else:
                log.warning("the HTTP task %s of the store is not delivered here: a function is that task", name)
        except ConfigError as error:
            # A newer release may have written it.
            log.error("the HTTP task %s of the store: %s", name, error)

    def _remove(self, name: str) -> None:
        if name in self._configured:
            # Its cell has only disabled it.
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
            # The app's code has registered them on the old task, and does not run again.
            task.hooks = old.hooks
        self._on_new(task)
        self.tasks[endpoint.name] = task
        self._on_change()
        for coordinator in self._coordinators:
            coordinator.start(at_once=False)


def _disable(endpoint: Endpoint) -> Endpoint:
    return Endpoint.parse(endpoint.name, {**endpoint.settings, **OFF}, checked=False)

"""The methods of an app that run jobs in its own process, without a master."""

# The modules that run jobs are imported when they are needed: most processes that import an app only enqueue.

import signal
import weakref
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from tarry.client.client import Client
from tarry.client.clock import Clock
from tarry.client.tasks.task import Task
from tarry.config.config import Config, Pool
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.lifecycle import Rules
from tarry.store.rules.base import Store
from tarry.tasks.lazy_asyncio import asyncio
from tarry.worker.claim_plan import Queues

if TYPE_CHECKING:
    from tarry.embedded.service import Background, EmbeddedService, LocalWorker
    from tarry.keeper.chores import Keeper
    from tarry.worker.worker import ControlChannel, WorkerSettings


class Backend:
    """Where the apps of this process get their stores, clients and workers.

    Another one can take its place, as the pytest plugin does during a test. clock: the clock of all apps; None: each
    has its own. writes_files: apps write outboxes and logs. seals: they seal what jobs say, where
    `[encryption]` has keys.
    """

    clock: Clock | None = None
    writes_files = True
    seals = True

    def find_store(self, app: Any, given: Store | None) -> Store | None:
        """The store of the app, if it is open already. given: the one that the app was made with."""
        return given

    def make_client(self, store: Store, *args: Any, **kwargs: Any) -> Client:
        """Creates a client, as `Client` does."""
        return Client(store, *args, **kwargs)

    def drain(self, app: "EmbeddedMixin", timeout: Duration | None, queues: Queues | None) -> int:
        """Runs the jobs that are due in this app."""
        return _run_drain(app._build_drain(timeout, queues))

    async def adrain(self, app: "EmbeddedMixin", timeout: Duration | None, queues: Queues | None) -> int:
        """The same, awaited."""
        service = app._build_drain(timeout, queues)
        try:
            return await asyncio.to_thread(_run_drain, service)
        finally:
            # The thread cannot be cancelled. After `stop` it ends once the current job is finished.
            service.worker.stop()

    def find_port(self, catalog: Any) -> Any:
        """A `DeliveryPort` that sends the requests of these HTTP tasks; None: the workers of this process send them."""
        return None


backend = Backend()
"""The backend of all apps in this process."""


class Deliveries(Protocol):
    """Delivers the jobs of HTTP tasks for a worker."""

    def find(self, name: str) -> Task[Any, Any] | None:
        """Finds a task that the worker does not know yet."""

    def close(self) -> None:
        """Called when the worker has ended."""


class EmbeddedMixin(ABC):
    """Base class of an app: runs jobs in the process of the app."""

    tasks: dict[str, Task[Any, Any]]

    def __init__(self) -> None:
        # Weak: a long-lived app may open many workers, and only those that still exist can be stopped.
        self._workers: weakref.WeakSet[LocalWorker] = weakref.WeakSet()

    @property
    @abstractmethod
    def config(self) -> Config:
        """The settings in force."""

    @property
    @abstractmethod
    def client(self) -> Client:
        """The client that enqueues and queries."""

    @abstractmethod
    def rules(self, task: str, queue: str) -> Rules:
        """The rules that the task and the queue set for a job."""

    @abstractmethod
    def declare_limits(self, store: Store) -> None:
        """Makes the store keep the limits and bounds of code and configuration."""

    @abstractmethod
    def deliveries(self, store: Store, slots: int, clock: Clock | None = None) -> Deliveries:
        """Creates the deliveries of HTTP tasks."""

    @abstractmethod
    def connection(self) -> tuple[Store, bool]:
        """A store for a worker, and whether the worker has to close it."""

    @abstractmethod
    def keeper(self, store: Store, clock: Clock | None = None) -> "Keeper":
        """Creates a keeper for this store."""

    def run(self, *, queues: Queues | None = None, threads: int | None = None, coroutines: int | None = None) -> None:
        """Runs jobs in this process, no master needed, until INT, TERM, or `stop()` from another thread.

        queues: a name, several, or weights. threads: sync jobs at once, one of them in the calling thread.
        coroutines: async jobs at once. The default of each is [pools.default] of the settings.

        INT: finishes the running jobs first, as `stop()` does. TERM: the same within `[master] term_grace`; jobs that
        still run then are interrupted and requeued, and no attempt is counted. The same again: interrupts at once.
        Only the main thread gets signals. RuntimeError where it would block an event loop.
        """
        from tarry.embedded.service import handle_signals  # noqa: PLC0415 - see above

        if asyncio._get_running_loop() is not None:
            raise RuntimeError("app.run() would block this event loop: use `async with app.running():`")
        service = self._build_service(self._settings(queues, threads, coroutines), exits_process=True)
        with handle_signals(service.worker, signal.SIGINT, signal.SIGTERM):
            service.run()

    def running(
        self,
        *,
        queues: Queues | None = None,
        threads: int | None = None,
        coroutines: int | None = None,
        limit: Duration | None = None,
    ) -> "Background":
        """`with app.running():` or `async with app.running():` runs jobs in threads beside the block, as in the
        lifespan of a web server.

        At the end of the block the running jobs are finished, within `limit` (default: `[master] term_grace`). Jobs
        that still run then are interrupted and requeued, and no attempt is counted.
        """
        from tarry.embedded.service import Background  # noqa: PLC0415 - see above

        wanted = self._settings(queues, threads, coroutines)
        seconds = self.config.master.term_grace if limit is None else microseconds(limit) / SECOND
        return Background(lambda: self._build_service(wanted), seconds)

    def stop(self) -> None:
        """Ends `run`, `running` and `drain` in this process, once their running jobs are finished."""
        # A copy: other threads may open workers meanwhile.
        for worker in list(self._workers):
            worker.stop()

    def drain(self, timeout: Duration | None = None, queues: Queues | None = None) -> int:
        """Runs all due jobs until none is left; returns how many attempts.

        Sync tasks run in the calling thread, one after the other, and async ones at the same time. Jobs and retries
        that are due later stay. After `timeout` no more jobs begin. Ctrl-C ends it once the current job is finished.
        """
        return backend.drain(self, timeout, queues)

    async def adrain(self, timeout: Duration | None = None, queues: Queues | None = None) -> int:
        """The same, awaited: sync tasks run in a thread. If it is cancelled, no more jobs begin."""
        return await backend.adrain(self, timeout, queues)

    def embedded_service(self, pool: Pool, control: "ControlChannel", **wanted: Any) -> "EmbeddedService":
        """A worker with its keeper, for a process that handles signals itself: `tarry worker`."""
        from tarry.embedded.service import worker_settings  # noqa: PLC0415 - see above

        return self._build_service(
            worker_settings(pool, self.config.max_body, **wanted), exits_process=True, control=control
        )

    def _build_drain(self, timeout: Duration | None, queues: Queues | None) -> "EmbeddedService":
        within = float("inf") if timeout is None else microseconds(timeout) / SECOND
        return self._build_service(self._settings("*" if queues is None else queues, threads=1), until_idle=within)

    def _settings(
        self, queues: Queues | None, threads: int | None = None, coroutines: int | None = None
    ) -> "WorkerSettings":
        from tarry.embedded.service import worker_settings  # noqa: PLC0415 - see above

        pool = self.config.pools.get("default", Pool())
        return worker_settings(pool, self.config.max_body, queues, threads, coroutines)

    def _build_service(self, wanted: "WorkerSettings", **options: Any) -> "EmbeddedService":
        from tarry.embedded.service import EmbeddedService, LocalWorker  # noqa: PLC0415 - see above

        store, own = self.connection()
        clock = backend.clock
        try:
            deliveries = self.deliveries(store, wanted.coroutines, clock)
            self.declare_limits(store)
        except BaseException:
            # There is no service yet that would close the store.
            if own:
                store.close()
            raise
        grace, find = self.config.master.term_grace, deliveries.find
        worker = LocalWorker(
            store, self.tasks, wanted, grace=grace, rules=self.rules, clock=clock, find_task=find, **options
        )
        self._workers.add(worker)

        def close() -> None:
            deliveries.close()
            if own:
                store.close()

        return EmbeddedService(worker, self.keeper(store, clock), close)


def _run_drain(service: "EmbeddedService") -> int:
    from tarry.embedded.service import handle_signals  # noqa: PLC0415 - see above

    with handle_signals(service.worker, signal.SIGINT):
        attempts = service.drain()
    if service.worker.signals_received:
        # The handler took the signal, so the caller has not heard of the Ctrl-C yet.
        raise KeyboardInterrupt
    return attempts

"""The methods of an app that run jobs in its own process, without a master.

The modules that run jobs are imported when they are needed: most processes that import an app only enqueue.
"""

import signal
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from tarry.client.client import Client
from tarry.client.clock import Clock
from tarry.client.task import Task
from tarry.config import Config, Pool
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.lifecycle import Rules
from tarry.store.base import Store
from tarry.tasks.lazily import asyncio
from tarry.worker.shares import Queues

if TYPE_CHECKING:
    from tarry.embedded.service import Background, EmbeddedService, LocalWorker
    from tarry.keeper.chores import Keeper
    from tarry.worker.worker import Outside, Settings


class TestBackend(Protocol):
    """Replaces the stores and clocks of all apps during a test of tasks."""

    @property
    def clock(self) -> Clock:
        """The clock of all apps."""

    @property
    def client(self) -> Callable[..., Client]:
        """Creates clients, as `Client` does."""

    def store(self, app: Any) -> Store:
        """The store of the app during the test: the same for each call."""

    def drain(self, app: Any, queues: Queues | None) -> int:
        """Runs the jobs that are due in this app."""

    async def adrain(self, app: Any, queues: Queues | None) -> int:
        """The same, awaited."""

    def post(self, book: Any) -> Any:
        """Takes the requests of these HTTP tasks instead of sending them."""


class Deliveries(Protocol):
    """Delivers the jobs of HTTP tasks for a worker."""

    def find(self, name: str) -> Task[Any, Any] | None:
        """Finds a task that the worker does not know yet."""

    def close(self) -> None:
        """Called when the worker has ended."""


test_backend: TestBackend | None = None


class EmbeddedMixin(ABC):
    """Base class of an app: runs jobs in the process of the app."""

    tasks: dict[str, Task[Any, Any]]

    def __init__(self) -> None:
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
        """Makes the store keep the limits of code and configuration."""

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
        coroutines: async jobs at once. What is left out is as in [pools.default] of the settings.

        INT: what runs is finished first, as with `stop()`. TERM: within `[master] term_grace`; what still runs then
        is interrupted and requeued, and no attempt is counted. The second time: now. Only the main thread gets signals.
        RuntimeError where it would block an event loop.
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

        At the end of the block what runs is finished, within `limit` (else `[master] term_grace`); what still runs
        then is interrupted and requeued, and no attempt is counted.
        """
        from tarry.embedded.service import Background  # noqa: PLC0415 - see above

        wanted = self._settings(queues, threads, coroutines)
        seconds = self.config.master.term_grace if limit is None else microseconds(limit) / SECOND
        return Background(lambda: self._build_service(wanted), seconds)

    def stop(self) -> None:
        """Ends what `run`, `running` and `drain` began in this process, once what they run is finished."""
        for worker in list(self._workers):
            worker.stop()

    def drain(self, timeout: Duration | None = None, queues: Queues | None = None) -> int:
        """Runs what is due until nothing is left, here and now; how many attempts that were.

        Sync tasks run in the calling thread, one after the other, async ones beside them. Jobs and retries that are
        due later stay. After `timeout` no more are begun. Ctrl-C ends it, as soon as the job at hand is finished.
        """
        if test_backend is not None:
            return test_backend.drain(self, queues)
        return _run_drain(self._build_drain(timeout, queues))

    async def adrain(self, timeout: Duration | None = None, queues: Queues | None = None) -> int:
        """The same, awaited: sync tasks run in a thread. Cancelled, it takes nothing more."""
        if test_backend is not None:
            return await test_backend.adrain(self, queues)
        service = self._build_drain(timeout, queues)
        try:
            return await asyncio.to_thread(_run_drain, service)
        finally:
            service.worker.stop()

    def embedded_service(self, pool: Pool, outside: "Outside", **wanted: Any) -> "EmbeddedService":
        """A worker with its keeper, for a process that handles signals itself: `tarry worker`."""
        from tarry.embedded.service import worker_settings  # noqa: PLC0415 - see above

        return self._build_service(
            worker_settings(pool, self.config.max_body, **wanted), exits_process=True, outside=outside
        )

    def _build_drain(self, timeout: Duration | None, queues: Queues | None) -> "EmbeddedService":
        within = float("inf") if timeout is None else microseconds(timeout) / SECOND
        return self._build_service(self._settings("*" if queues is None else queues, threads=1), until_idle=within)

    def _settings(self, queues: Queues | None, threads: int | None = None, coroutines: int | None = None) -> "Settings":
        from tarry.embedded.service import worker_settings  # noqa: PLC0415 - see above

        pool = self.config.pools.get("default", Pool())
        return worker_settings(pool, self.config.max_body, queues, threads, coroutines)

    def _build_service(self, wanted: "Settings", **options: Any) -> "EmbeddedService":
        from tarry.embedded.service import EmbeddedService, LocalWorker  # noqa: PLC0415 - see above

        store, own = self.connection()
        clock = None if test_backend is None else test_backend.clock
        try:
            deliveries = self.deliveries(store, wanted.coroutines, clock)
            self.declare_limits(store)
        except BaseException:
            if own:
                store.close()
            raise
        grace, find = self.config.master.term_grace, deliveries.find
        worker = LocalWorker(
            store, self.tasks, wanted, grace=grace, rules=self.rules, clock=clock, find=find, **options
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
        raise KeyboardInterrupt
    return attempts

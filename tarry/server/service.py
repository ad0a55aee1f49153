"""What all doors of a process share."""

import contextvars
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from tarry.app import App
from tarry.client.audit.log import Act
from tarry.client.audit.writer import ActWriter
from tarry.client.client import Client
from tarry.client.operations.runner import OperationRunner
from tarry.config.server_settings import ConsoleMode
from tarry.errors import Busy, Draining, StoreError
from tarry.metrics.host_families import HostFigures
from tarry.metrics.process_figures import RequestFigures
from tarry.metrics.store_figures import FiguresReader
from tarry.metrics.store_health import read_health
from tarry.metrics.store_overview import CachedOverview, CachedRead, OverviewStore
from tarry.model.job import Job
from tarry.server.claims import Claims
from tarry.server.event_streams import EventStreams
from tarry.server.history_snapshot import HistorySnapshot, StoreProbe
from tarry.server.identity.access import DoorAccess, OpenAccess
from tarry.server.identity.request_rate import AddressRates
from tarry.server.open_connections.connection_registry import OpenConnections
from tarry.server.put_batcher import PutAnswers, PutBatcher
from tarry.store.rules import owner
from tarry.tasks.arguments.options import Options
from tarry.tasks.lazy_asyncio import asyncio

log = logging.getLogger("tarry.server")

TASKS_EVERY = 0.5
"""Seconds between two looks for HTTP tasks that were registered or removed."""
FLUSH_WITHIN = 0.5
"""Seconds that a reader of the log of acts waits for those that are on their way."""
CLOCK_EVERY = 10.0
"""Seconds between two looks at the store's clock: less than a measurement holds."""

_ENDING = "this server is ending: send the request again"

P = ParamSpec("P")
R = TypeVar("R")


class DoorSettings(Struct, frozen=True):
    """The bounds of the doors of one process."""

    threads: int = 16
    """Threads for calls that block."""
    most_calls: int = 1024
    """Calls that wait for one of these threads; any more are told that the server is busy."""
    max_request: int = 16 * 2**20
    """Bytes of the body of one request, unless it is streamed."""
    ring: int = 1024
    """Requests with puts that wait for their commit."""
    rate_per_address: str | None = None
    """Requests of one address in a period."""
    console: ConsoleMode = "on"
    """Whether the HTTP door has pages for people, and whether they may do more than look."""
    path: str = ""
    """Requests for paths below this one are served as well, as a proxy passes them on; empty: there is none."""
    looks_ahead: bool = False
    """Whether the store is looked at once when the server starts, so that the first page about a large store comes as
    soon as any other."""
    needs_local_host: bool = False
    """Whether only requests to an address, to localhost or to `host_names` are answered: the server has no tokens,
    so that nothing else tells its callers from the pages in their browsers."""
    host_names: tuple[str, ...] = ()
    """Names of this server; `*.example.com` for all below one, `*` for any."""


class DoorService:
    """The app, its client, and the threads that make blocking calls. Doors of one process have one of these."""

    def __init__(
        self,
        app: App,
        *,
        settings: DoorSettings | None = None,
        access: DoorAccess | None = None,
        host: Callable[[], HostFigures | None] = lambda: None,
    ) -> None:
        self.app = app
        self.settings = settings or DoorSettings()
        self.access: DoorAccess = access or OpenAccess()
        self._lock = threading.Lock()
        # Held while a store is opened, which may take long. The event loop's thread waits for `_lock`, never for this.
        self._opening = threading.Lock()
        self._threads: ThreadPoolExecutor | None = None
        self._calls, self._is_closed = 0, False
        self._claims: Claims | None = None
        self.address_rates = AddressRates(self.settings.rate_per_address)
        self.ring = PutBatcher(self._insert, self.settings.ring, is_large=self._is_large)
        self._refresher: threading.Thread | None = None
        self._ends = threading.Event()
        self.is_started = False
        self._operations: OperationRunner | None = None
        self._draining = asyncio.Event()
        self.look_store = OverviewStore(app.connection)
        self.look = CachedOverview(self.look_store)
        self.history = HistorySnapshot(self.look_store)
        self.health = CachedRead(lambda: read_health(self.client.store))
        self.probe = StoreProbe(partial(self.run, lambda: self.client.store.kv_get("readyz")))
        self.connections = OpenConnections()
        self.streams = EventStreams(lambda: self.is_draining or self._is_closed)
        self._acts = ActWriter(lambda: self.client)
        self.host = host
        """Tells of the master of this process; None: it has none."""
        self.reader = FiguresReader(app, self.look_store, self.look.read, self.history.totals)
        self.figures = RequestFigures()
        self.figures.show("tarry_event_streams", lambda: self.streams.open)
        self.figures.show("tarry_ring_waiting", lambda: self.ring.waiting)
        self.figures.show("tarry_puts_refused_total", lambda: self.ring.all_refused)
        self.figures.show("tarry_calls_under_way", lambda: self._calls)

    @property
    def client(self) -> Client:
        """The app's client. The first use opens the store, so it may block and raise StoreError."""
        return self.app.client

    @property
    def claims(self) -> Claims:
        """Jobs taken by other programs, on the event loop's thread. The first use opens a store, unless `start` did."""
        return self._claims or self._open_claims()

    async def run(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Makes a blocking call in one of the threads, and returns what it returns. Busy if too many calls wait;
        Draining after `close`."""
        # Checked here, since the queue of an executor has no bound.
        if self._calls >= self.settings.threads + self.settings.most_calls:
            raise Busy(f"{self._calls} calls wait for the store already: try again")
        # With what the caller's context knows, such as who acts.
        context = contextvars.copy_context()
        future = self._submit(lambda: context.run(call, *args, **kwargs))
        # Not when the caller stops waiting: the thread is taken as long as the call lasts.
        future.add_done_callback(self._end_call)
        return await asyncio.wrap_future(future)

    @property
    def is_broken(self) -> bool:
        """Whether a thread that it needs has ended, though nobody closed it."""
        return self._claims is not None and self._claims.is_broken

    @property
    def is_draining(self) -> bool:
        """Whether other processes are to get the requests from now on. What runs goes on."""
        return self._draining.is_set()

    def drain(self) -> None:
        """For whoever serves: from now on nobody waits here any longer for what may come. On the event loop's
        thread."""
        self._draining.set()

    async def until_draining(self) -> None:
        """Returns once `drain` was called."""
        await self._draining.wait()

    async def start(self) -> None:
        """Opens the store, and keeps at hand from now on what an enqueue needs besides it; StoreError. May be called
        again."""
        if not self.is_started:
            await self.run(self._start)

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more calls."""
        return self._is_closed

    @property
    def operations(self) -> OperationRunner:
        """Runs changes of many jobs in the background, from `start` or its first use on. Draining after `close`."""
        return self._start_operations()

    def _start_operations(self) -> OperationRunner:
        with self._lock:
            if self._is_closed:
                raise Draining(_ENDING)
            if self._operations is None:
                app = self.app
                self._operations = OperationRunner(lambda: app.client, owner.new_name(), prepare=self.sync_tasks)
                self._operations.start()
            return self._operations

    def sync_tasks(self) -> None:
        """Makes the app's table of tasks what the settings and the store have now; StoreError."""
        self.app.sync_tasks()

    def _is_large(self, job: Job) -> bool:
        return len(job.body) > self.client.store.keeps_apart_over

    def close(self) -> None:
        """Ends the threads, once the calls under way have ended and the puts that wait are committed. The app stays
        open: it is its owner's. Blocks."""
        self.ring.close()
        if self._claims is not None:
            self._claims.close()
        self._ends.set()
        if self._refresher is not None:
            self._refresher.join(timeout=5)
        with self._lock:
            self._is_closed = True
            threads, self._threads = self._threads, None
            operations, self._operations = self._operations, None
        if operations is not None:
            operations.close()
        if threads is not None:
            threads.shutdown(wait=True, cancel_futures=True)
        # Last: a call that was under way may have been an act.
        self._acts.close()
        self.look_store.close()

    def record_act(self, act: Act) -> None:
        """Has an act, which is now, written to the store's log of acts soon. Never fails."""
        # By this host's clock: to ask the store for its time might block.
        self._acts.record(replace(act, at=time.time_ns() // 1000))

    def flush_acts(self) -> None:
        """Waits until the log of acts has all that was recorded here, for a short time at most: a reader who has just
        acted looks for that."""
        self._acts.flush(FLUSH_WITHIN)

    def _insert(self, jobs: Sequence[Job], options: Sequence[Options]) -> PutAnswers:
        return self.client.insert_each(jobs, options)

    def _open_claims(self) -> Claims:
        with self._opening:
            if self._is_closed:
                raise Draining(_ENDING)
            if self._claims is None:
                # As workers have: what a power cut undoes of it is done again.
                store, is_own = self.app.connection()
                self._claims = Claims(self.client, store, owns_store=is_own)
            return self._claims

    def _start(self) -> None:
        self.client.clock.measure_ahead()
        self._open_claims()
        self.app.sync_tasks()
        with self._lock:
            if self._refresher is None and not self._is_closed:
                self._refresher = threading.Thread(target=self._keep_fresh, name="tarry-door-facts", daemon=True)
                self._refresher.start()
        # So that operations go on that another server left.
        self._start_operations()
        self.is_started = True

    def _keep_fresh(self) -> None:
        """Reads the store's time and its HTTP tasks ahead of need: on the event loop nothing may wait for the store."""
        measured_at = time.monotonic()
        if self.settings.looks_ahead:
            self._look_ahead()
        while not self._ends.wait(TASKS_EVERY):
            try:
                # Once: after a call that takes long, the app may be closed, and would open its store again.
                client = self.client
                if time.monotonic() - measured_at > CLOCK_EVERY:
                    measured_at = time.monotonic()
                    client.clock.measure_ahead()
                self.app.http.sync(client.store)
            except StoreError as error:
                # What is known goes on being used; puts tell their senders by themselves.
                log.debug("the HTTP tasks of the store cannot be read: %s", error)
            except Exception:
                # Without this thread the event loop itself would wait for the store, so nothing may end it.
                log.exception("the HTTP tasks of the store cannot be read")

    def _look_ahead(self) -> None:
        """See `DoorSettings.looks_ahead`."""
        try:
            self.look.read()
        except StoreError as error:
            log.debug("the store cannot be looked at: %s", error)
        except Exception:
            log.exception("the store cannot be looked at")

    def _submit(self, call: Callable[[], R]) -> Any:
        with self._lock:
            if self._is_closed:
                raise Draining(_ENDING)
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.settings.threads, thread_name_prefix="tarry-door")
            future = self._threads.submit(call)
            self._calls += 1
            return future

    def _end_call(self, _: object) -> None:
        with self._lock:
            self._calls -= 1

"""The monitor: checks stores, endpoints, queues and dead jobs every few seconds.

It has its own thread and its own connection. One host, the leader, reports what is in the store; it holds a lease
there. Each host reports for itself whether it can reach the stores.
"""

import contextlib
import itertools
import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tarry.alert.alarms import Alarms, AlarmStorage
from tarry.alert.alert_settings import AlertSettings
from tarry.alert.condition import Condition
from tarry.alert.deaths import Deaths
from tarry.alert.dispatcher import Dispatcher, Send
from tarry.alert.storage import CellStorage
from tarry.alert.stores import StoreChecks, all_shards, unavailable_condition
from tarry.alert.work import WorkChecks
from tarry.client.clock import Clock
from tarry.errors import StoreError
from tarry.model.duration import SECOND
from tarry.model.values.console_paths import STORES
from tarry.push.endpoint.endpoint_settings import Endpoint
from tarry.push.endpoint.recipient import Recipient
from tarry.store.rules import owner
from tarry.store.rules.base import Store
from tarry.store.shards.identity import StoreMemory
from tarry.store.shared.backoff import jitter

log = logging.getLogger("tarry.alerts")

CHECK_EVERY, SHARED_EVERY = 1.0, 5.0
"""Seconds between two checks of the stores themselves, and between two checks of what is in them."""
LEASE_FOR = 30 * SECOND
ENDS_WITHIN = 2.0
LEASE_NAME = "alert"


class MonitoredApp(Struct, frozen=True):
    """What the monitor needs to know of the app."""

    store_url: str
    """Without passwords, for messages."""
    connect: Callable[[], tuple[Store, bool]]
    """Returns a store, and whether the monitor has to close it."""
    endpoints: Callable[[], Mapping[str, Endpoint]]
    kept: Callable[[], Collection[int]]
    """The different times for which queues keep dead jobs, in microseconds."""
    memory: StoreMemory | None = None
    """What this host remembers of the stores; None: nothing."""


class Monitor:
    """The monitor of one host. storage: for the alarms that only this host reports."""

    def __init__(
        self, app: MonitoredApp, settings: AlertSettings, send: Send, storage: AlarmStorage, clock: Clock | None = None
    ) -> None:
        self._app, self._settings, self._clock = app, settings, clock
        self._name = owner.new_name()
        alerts = settings.alerts
        self._dispatcher = Dispatcher(send, alerts.group, alerts.every, socket.gethostname(), alerts.console)
        self._local_alarms = Alarms(storage)
        self._session: _WatchSession | None = None
        self._is_leader = self._is_loaded = False
        self._errors = 0
        self._last_time = _host_time(), time.monotonic()
        """The last time by the store's clock, and when it was read, by time.monotonic()."""
        self._stopped = threading.Event()
        # A thread of its own, so that the keeper never waits for a store that is away.
        self._thread = threading.Thread(target=self._run, name="tarry-alert", daemon=True)
        self._local_alarms.load()

    def start(self) -> None:
        """Checks in a thread until it is closed."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread. What it could not send, the next leader sends."""
        self._stopped.set()
        if self._thread.ident is None:
            self._shut_down()
        else:
            # Not longer: the thread may wait for a store that hangs.
            self._thread.join(ENDS_WITHIN)

    def check(self, shared: bool = True) -> None:
        """One check: finds what is wrong and sends what is due. shared: also check what is in the store."""
        began = time.monotonic()
        try:
            session = self._session = self._session or self._open_session()
        except StoreError as error:
            # The store has been away at least since the try began.
            ago = round((time.monotonic() - began) * SECOND)
            self._report_unreachable([replace(unavailable_condition(self._app.store_url, error), ago=ago, brief="")])
            return
        session.stores.check()
        now = self._now(session)
        self._local_alarms.update(_of_stores(session.stores.local_conditions), now, self)
        # A host that reaches no store must give up the lead at once.
        if shared or session.stores.is_unreachable:
            self._check_shared(session, now)
        self._dispatch(self._now(session))

    def _now(self, session: "_WatchSession") -> int:
        """The time by the store's clock, in microseconds since the epoch."""
        # While no store is available, its clock is not asked: that could take long.
        if not session.stores.is_unreachable or self._clock is not None:
            self._last_time = session.clock.now(), time.monotonic()
            return self._last_time[0]
        last, at = self._last_time
        return last + round((time.monotonic() - at) * SECOND)

    def recipient_ids(self, task: str) -> Sequence[str]:
        """Ids of the recipients for that task; with an empty name, for what concerns no task."""
        return list(dict.fromkeys(one.id for one in (*self._settings.to, *self._task_recipients(task))))

    def _task_recipients(self, task: str) -> list[Recipient]:
        endpoint = self._app.endpoints().get(task)
        return [] if endpoint is None else [Recipient.parse(text) for text in endpoint.alert]

    def _open_session(self) -> "_WatchSession":
        store, own = self._app.connect()
        try:
            clock = self._clock or Clock(store.time)
            # Asked at once: a store that does not answer makes no session.
            clock.now()
        except StoreError:
            if own:
                store.close()
            raise
        return _WatchSession(store, own, clock, self._settings, self._app)

    def _report_unreachable(self, conditions: Sequence[Condition]) -> None:
        """Reports while the store cannot be opened; times are by this host's clock."""
        now = _host_time() if self._clock is None else self._clock.now()
        self._local_alarms.update(_of_stores(conditions), now, self)
        self._dispatch(now)

    def _check_shared(self, session: "_WatchSession", now: int) -> None:
        """Checks what is in the store, if this host is the leader."""
        # First, so that no error below leaves a leader without a lease.
        self._is_leader = False
        try:
            if session.stores.is_unreachable or not self._take_lease(session, now):
                return
            if not self._is_loaded:
                session.shared_alarms.load()
                self._is_loaded = True
            complete = session.stores.is_complete
            of_stores = _of_stores(session.stores.shared_conditions())
            conditions = [*of_stores, *session.work.check(now, complete)]
            session.shared_alarms.update(conditions, now, self, ends=complete)
        except StoreError as error:
            log.debug("what is in the store cannot be watched: %s", error)
            return
        self._is_leader = True
        self._save(now)

    def _take_lease(self, session: "_WatchSession", now: int) -> bool:
        """Takes or renews the lease of the leader; False if another host holds it."""
        # Once another host has led, our copy of the state is out of date.
        held = session.store.hold(LEASE_NAME, self._name, now + LEASE_FOR, now)
        self._is_loaded = self._is_loaded and held
        return held

    def _dispatch(self, now: int) -> None:
        # Saved afterwards, so that a restart does not send the same notices again.
        self._dispatcher.deliver(self._own_alarms(), self._recipients, now)
        self._save(now)

    def _own_alarms(self) -> list[Alarms]:
        """The alarms that this host reports: its own, and while it leads, the shared ones."""
        if self._session is None or not self._is_leader:
            return [self._local_alarms]
        return [self._local_alarms, self._session.shared_alarms]

    def _recipients(self) -> dict[str, Recipient]:
        from_tasks = itertools.chain.from_iterable(map(self._task_recipients, self._app.endpoints()))
        return {one.id: one for one in (*self._settings.to, *from_tasks)}

    def _save(self, now: int) -> None:
        self._local_alarms.save(now)
        if self._session is not None and self._is_leader:
            # If the shard with the state is away, the state stays in this process.
            with contextlib.suppress(StoreError):
                self._is_leader = self._session.shared_alarms.save(now)

    def _run(self) -> None:
        shared_at = 0.0
        while not self._stopped.is_set():
            shared = time.monotonic() >= shared_at
            if shared:
                shared_at = time.monotonic() + SHARED_EVERY
            try:
                self.check(shared)
            except Exception:
                # The same error may come back at each check, once a second.
                if self._errors % 100 == 0:
                    log.exception("the alert monitor failed; it checks again")
                self._errors += 1
            # Without a connection, at random times: not all hosts should connect at the same moment.
            self._stopped.wait(jitter(CHECK_EVERY) if self._session is None else CHECK_EVERY)
        self._shut_down()

    def _shut_down(self) -> None:
        session = self._session
        if session is None:
            return
        with contextlib.suppress(StoreError):
            now = session.clock.now()
            self._dispatcher.flush(self._own_alarms(), now, ENDS_WITHIN / 2)
            self._save(now)
            if self._is_leader:
                # A lease that ends now lets another host lead at once.
                session.store.hold(LEASE_NAME, self._name, now, now)
        session.stores.close(session.own)
        self._session = None


class _WatchSession:
    """The checks over an open store."""

    def __init__(self, store: Store, own: bool, clock: Clock, settings: AlertSettings, app: MonitoredApp) -> None:
        self.store, self.own, self.clock = store, own, clock
        self.stores = StoreChecks(all_shards(store), settings.alerts, app.memory)
        self.shared_alarms = Alarms(CellStorage(store))
        deaths = Deaths(store, app.kept, settings.alerts.every)
        self.work = WorkChecks(store, settings.alerts, app.endpoints, deaths)


def _of_stores(conditions: Sequence[Condition]) -> list[Condition]:
    """The same, with the page that shows stores."""
    return [replace(one, where=STORES) for one in conditions]


def _host_time() -> int:
    return time.time_ns() // 1000

"""The watch: looks every few seconds at stores, endpoints, queues and the dead, in a thread of its own and over its own
connection, so that nothing the keeper does waits for it.

For what is in the store one host tells for all, whichever holds the lease; whether a store can be reached from here,
each host tells for itself.
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
from tarry.alert.condition import Condition
from tarry.alert.deaths import Deaths
from tarry.alert.dispatcher import Dispatcher, Send
from tarry.alert.settings import AlertSettings
from tarry.alert.storage import CellStorage
from tarry.alert.stores import StoreChecks, shards_of, unavailable_condition
from tarry.alert.work import WorkChecks
from tarry.client.clock import Clock
from tarry.errors import StoreError
from tarry.model.duration import SECOND
from tarry.push.endpoint.endpoint import Endpoint
from tarry.push.endpoint.recipient import Recipient
from tarry.store.base import Store
from tarry.store.shared.patience import about
from tarry.worker import owner

log = logging.getLogger("tarry.alerts")

CHECK_EVERY, SHARED_EVERY = 1.0, 5.0
"""Seconds between two looks whether the stores are there, and at what is in them."""
LEASE_FOR = 30 * SECOND
ENDS_WITHIN = 2.0
LEASE_NAME = "alert"


class MonitoredApp(Struct, frozen=True):
    """What the watch has to know of the app."""

    store_url: str
    """Fit to be shown."""
    connect: Callable[[], tuple[Store, bool]]
    """A store, and whether it is the watch's own to close."""
    endpoints: Callable[[], Mapping[str, Endpoint]]
    kept: Callable[[], Collection[int]]
    """How long dead jobs are kept, in microseconds: all the different answers."""


class Monitor:
    """Of one host. memory: for what this host alone tells."""

    def __init__(
        self, app: MonitoredApp, settings: AlertSettings, send: Send, storage: AlarmStorage, clock: Clock | None = None
    ) -> None:
        self._app, self._settings, self._clock = app, settings, clock
        self._name = owner.new_name()
        self._dispatcher = Dispatcher(send, settings.alerts.group, settings.alerts.every, socket.gethostname())
        self._local_alarms = Alarms(storage)
        self._session: _Session | None = None
        self._is_leader = self._is_loaded = False
        self._errors = 0
        self._last_time = _host_time(), time.monotonic()
        """A moment by the store's clock, and when that was."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tarry-alert", daemon=True)
        self._local_alarms.load()

    def start(self) -> None:
        """Looks, in a thread, until it is closed."""
        self._thread.start()

    def close(self) -> None:
        """What could not be told by now is told by whoever comes next."""
        self._stopped.set()
        if self._thread.ident is None:
            self._shut_down()
        else:
            self._thread.join(ENDS_WITHIN)

    def check(self, shared: bool = True) -> None:
        """Once: sees what is wrong, and tells what is due. lead: also what is in the store."""
        began = time.monotonic()
        try:
            session = self._session = self._session or self._open_session()
        except StoreError as error:
            ago = round((time.monotonic() - began) * SECOND)
            self._report_unreachable([replace(unavailable_condition(self._app.store_url, error), ago=ago, brief="")])
            return
        session.stores.check()
        now = self._now(session)
        self._local_alarms.update(session.stores.local_conditions, now, self)
        if shared or session.stores.is_unreachable:
            self._check_shared(session, now)
        self._dispatch(self._now(session))

    def _now(self, session: "_Session") -> int:
        """By the store's clock; which is not asked while there is no store, since that may take long."""
        if not session.stores.is_unreachable or self._clock is not None:
            self._last_time = session.clock.now(), time.monotonic()
            return self._last_time[0]
        last, at = self._last_time
        return last + round((time.monotonic() - at) * SECOND)

    def recipient_ids(self, task: str) -> Sequence[str]:
        """Who hears of that task's troubles, or, if it is empty, of what is no task's."""
        return list(dict.fromkeys(one.id for one in (*self._settings.to, *self._task_recipients(task))))

    def _task_recipients(self, task: str) -> list[Recipient]:
        endpoint = self._app.endpoints().get(task)
        return [] if endpoint is None else [Recipient.parse(text) for text in endpoint.alert]

    def _open_session(self) -> "_Session":
        store, own = self._app.connect()
        try:
            clock = self._clock or Clock(store.time)
            clock.now()
        except StoreError:
            if own:
                store.close()
            raise
        return _Session(store, own, clock, self._settings, self._app)

    def _report_unreachable(self, conditions: Sequence[Condition]) -> None:
        """Before the store could be opened: by this host's clock."""
        now = _host_time() if self._clock is None else self._clock.now()
        self._local_alarms.update(conditions, now, self)
        self._dispatch(now)

    def _check_shared(self, session: "_Session", now: int) -> None:
        """What one host does for all, if that is this one."""
        self._is_leader = False
        try:
            if session.stores.is_unreachable or not self._take_lease(session, now):
                return
            if not self._is_loaded:
                session.shared_alarms.load()
                self._is_loaded = True
            complete = session.stores.is_complete
            conditions = [*session.stores.shared_conditions(), *session.work.check(now, complete)]
            session.shared_alarms.update(conditions, now, self, ends=complete)
        except StoreError as error:
            log.debug("what is in the store cannot be watched: %s", error)
            return
        self._is_leader = True
        self._save(now)

    def _take_lease(self, session: "_Session", now: int) -> bool:
        """Whether it is. Whenever another has, what is remembered has to be read again."""
        held = session.store.hold(LEASE_NAME, self._name, now + LEASE_FOR, now)
        self._is_loaded = self._is_loaded and held
        return held

    def _dispatch(self, now: int) -> None:
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
            # Where the part of the store that remembers is away, this process does.
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
                if self._errors % 100 == 0:
                    log.exception("the watch stumbled, and goes on")
                self._errors += 1
            self._stopped.wait(about(CHECK_EVERY) if self._session is None else CHECK_EVERY)
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
                session.store.hold(LEASE_NAME, self._name, now, now)
        session.stores.close(session.own)
        self._session = None


class _Session:
    """What is watched, once the store could be opened."""

    def __init__(self, store: Store, own: bool, clock: Clock, settings: AlertSettings, app: MonitoredApp) -> None:
        self.store, self.own, self.clock = store, own, clock
        self.stores = StoreChecks(shards_of(store), settings.alerts)
        self.shared_alarms = Alarms(CellStorage(store))
        deaths = Deaths(store, app.kept, settings.alerts.every)
        self.work = WorkChecks(store, settings.alerts, app.endpoints, deaths)


def _host_time() -> int:
    return time.time_ns() // 1000

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

from tarry.alert.alarms import Alarms, Memory
from tarry.alert.condition import Condition
from tarry.alert.deaths import Deaths
from tarry.alert.dispatcher import Post, Send
from tarry.alert.settings import Terms
from tarry.alert.storage import CellMemory
from tarry.alert.stores import Stores, away, parts
from tarry.alert.work import Work
from tarry.client.clock import Clock
from tarry.errors import StoreError
from tarry.model.duration import SECOND
from tarry.push.endpoint.endpoint import Endpoint
from tarry.push.endpoint.recipient import Recipient
from tarry.store.base import Store
from tarry.store.shared.patience import about
from tarry.worker import owner

log = logging.getLogger("tarry.alerts")

LOOK_EVERY, LEAD_EVERY = 1.0, 5.0
"""Seconds between two looks whether the stores are there, and at what is in them."""
HELD_FOR = 30 * SECOND
ENDS_WITHIN = 2.0
HOLD = "alert"


class App(Struct, frozen=True):
    """What the watch has to know of the app."""

    store_url: str
    """Fit to be shown."""
    connect: Callable[[], tuple[Store, bool]]
    """A store, and whether it is the watch's own to close."""
    endpoints: Callable[[], Mapping[str, Endpoint]]
    kept: Callable[[], Collection[int]]
    """How long dead jobs are kept, in microseconds: all the different answers."""


class Watch:
    """Of one host. memory: for what this host alone tells."""

    def __init__(self, app: App, terms: Terms, send: Send, memory: Memory, clock: Clock | None = None) -> None:
        self._app, self._terms, self._clock = app, terms, clock
        self._name = owner.new_name()
        self._post = Post(send, terms.alerts.group, terms.alerts.every, socket.gethostname())
        self._here = Alarms(memory)
        self._scene: _Scene | None = None
        self._leads = self._knows = False
        self._stumbles = 0
        self._known = _wall(), time.monotonic()
        """A moment by the store's clock, and when that was."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tarry-alert", daemon=True)
        self._here.load()

    def start(self) -> None:
        """Looks, in a thread, until it is closed."""
        self._thread.start()

    def close(self) -> None:
        """What could not be told by now is told by whoever comes next."""
        self._over.set()
        if self._thread.ident is None:
            self._end()
        else:
            self._thread.join(ENDS_WITHIN)

    def look(self, lead: bool = True) -> None:
        """Once: sees what is wrong, and tells what is due. lead: also what is in the store."""
        began = time.monotonic()
        try:
            scene = self._scene = self._scene or self._opened()
        except StoreError as error:
            ago = round((time.monotonic() - began) * SECOND)
            self._see_here([replace(away(self._app.store_url, error), ago=ago, brief="")])
            return
        scene.stores.look()
        now = self._moment(scene)
        self._here.see(scene.stores.here, now, self)
        if lead or scene.stores.none:
            self._lead(scene, now)
        self._tell(self._moment(scene))

    def _moment(self, scene: "_Scene") -> int:
        """By the store's clock; which is not asked while there is no store, since that may take long."""
        if not scene.stores.none or self._clock is not None:
            self._known = scene.clock.now(), time.monotonic()
            return self._known[0]
        known, at = self._known
        return known + round((time.monotonic() - at) * SECOND)

    def of(self, task: str) -> Sequence[str]:
        """Who hears of that task's troubles, or, if it is empty, of what is no task's."""
        return list(dict.fromkeys(one.id for one in (*self._terms.to, *self._of_task(task))))

    def _of_task(self, task: str) -> list[Recipient]:
        endpoint = self._app.endpoints().get(task)
        return [] if endpoint is None else [Recipient.parse(text) for text in endpoint.alert]

    def _opened(self) -> "_Scene":
        store, own = self._app.connect()
        try:
            clock = self._clock or Clock(store.time)
            clock.now()
        except StoreError:
            if own:
                store.close()
            raise
        return _Scene(store, own, clock, self._terms, self._app)

    def _see_here(self, conditions: Sequence[Condition]) -> None:
        """Before the store could be opened: by this host's clock."""
        now = _wall() if self._clock is None else self._clock.now()
        self._here.see(conditions, now, self)
        self._tell(now)

    def _lead(self, scene: "_Scene", now: int) -> None:
        """What one host does for all, if that is this one."""
        self._leads = False
        try:
            if scene.stores.none or not self._holds(scene, now):
                return
            if not self._knows:
                scene.shared.load()
                self._knows = True
            whole = scene.stores.whole
            conditions = [*scene.stores.of_all(), *scene.work.look(now, whole)]
            scene.shared.see(conditions, now, self, ends=whole)
        except StoreError as error:
            log.debug("what is in the store cannot be watched: %s", error)
            return
        self._leads = True
        self._save(now)

    def _holds(self, scene: "_Scene", now: int) -> bool:
        """Whether it is. Whenever another has, what is remembered has to be read again."""
        held = scene.store.hold(HOLD, self._name, now + HELD_FOR, now)
        self._knows = self._knows and held
        return held

    def _tell(self, now: int) -> None:
        alarms = [self._here, *([self._scene.shared] if self._scene is not None and self._leads else [])]
        self._post.deliver(alarms, self._recipients, now)
        self._save(now)

    def _recipients(self) -> dict[str, Recipient]:
        of_tasks = itertools.chain.from_iterable(map(self._of_task, self._app.endpoints()))
        return {one.id: one for one in (*self._terms.to, *of_tasks)}

    def _save(self, now: int) -> None:
        self._here.save(now)
        if self._scene is not None and self._leads:
            # Where the part of the store that remembers is away, this process does.
            with contextlib.suppress(StoreError):
                self._leads = self._scene.shared.save(now)

    def _run(self) -> None:
        leads_at = 0.0
        while not self._over.is_set():
            leads = time.monotonic() >= leads_at
            if leads:
                leads_at = time.monotonic() + LEAD_EVERY
            try:
                self.look(leads)
            except Exception:
                if self._stumbles % 100 == 0:
                    log.exception("the watch stumbled, and goes on")
                self._stumbles += 1
            self._over.wait(about(LOOK_EVERY) if self._scene is None else LOOK_EVERY)
        self._end()

    def _end(self) -> None:
        scene = self._scene
        if scene is None:
            return
        with contextlib.suppress(StoreError):
            now = scene.clock.now()
            self._post.settle([self._here, *([scene.shared] if self._leads else [])], now, ENDS_WITHIN / 2)
            self._save(now)
            if self._leads:
                scene.store.hold(HOLD, self._name, now, now)
        scene.stores.close(scene.own)
        self._scene = None


class _Scene:
    """What is watched, once the store could be opened."""

    def __init__(self, store: Store, own: bool, clock: Clock, terms: Terms, app: App) -> None:
        self.store, self.own, self.clock = store, own, clock
        self.stores = Stores(parts(store), terms.alerts)
        self.shared = Alarms(CellMemory(store))
        deaths = Deaths(store, app.kept, terms.alerts.every)
        self.work = Work(store, terms.alerts, app.endpoints, deaths)


def _wall() -> int:
    return time.time_ns() // 1000

"""The backend of all apps during a test: stores in memory, and one clock that stands still."""

import contextlib
import gc
import time
import weakref
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tarry import app as apps_module
from tarry.app import App
from tarry.client.client import Client
from tarry.client.clock import FakeClock
from tarry.embedded import mixin
from tarry.embedded.mixin import Backend, EmbeddedMixin
from tarry.embedded.service import queue_weights
from tarry.model.duration import Duration
from tarry.store.base import Store
from tarry.testing.recording import DirectClient, RecordingStore
from tarry.testing.runs import KitRunner
from tarry.worker.claim_plan import Queues

if TYPE_CHECKING:
    from tarry.testing.endpoints import EndpointAnswers


class KitBackend(Backend):
    """Keeps the jobs of all apps in memory, and runs them in the calling thread.

    inline: what is enqueued runs at once: False: errors are handled as in a worker; True: the enqueue raises them;
    None: jobs run only when they are drained.
    """

    writes_files = False

    def __init__(self) -> None:
        self.time = FakeClock(time.time_ns() // 1000)
        self.clock = self.time
        self.runner = KitRunner(self.time)
        self.inline: bool | None = None
        self._stores: weakref.WeakKeyDictionary[App, RecordingStore] = weakref.WeakKeyDictionary()
        self._ports: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def install(self) -> Iterator[None]:
        """Makes this the backend of all apps for the block, also of apps that are created in it."""
        # Apps open a client once and keep it, so it is set aside for the block.
        clients = {app: client for app in self.apps() if (client := app._client) is not None}
        before, mixin.backend = mixin.backend, self
        self._set_clients({})
        try:
            yield
        finally:
            mixin.backend = before
            self._set_clients(clients)
            self.runner.close()

    def _set_clients(self, clients: dict[App, Client]) -> None:
        for app in self.apps():
            app._client = clients.get(app)
            if app._catalog is not None:
                # It may hold endpoints from the other store.
                app._catalog.expire_cache()

    def find_store(self, app: Any, given: Store | None) -> RecordingStore:
        """The store of the app during the test: the same for each call."""
        # `given` is left alone: a test must not touch the real store.
        store = self._stores.get(app)
        if store is None:
            store = self._stores[app] = RecordingStore(app, self.time)
        return store

    def make_client(self, store: Store, *args: Any, **kwargs: Any) -> Client:
        assert isinstance(store, RecordingStore)
        return DirectClient(self, store, *args, **kwargs)

    @cached_property
    def answers(self) -> "EndpointAnswers":
        """What endpoints answer."""
        from tarry.testing.endpoints import EndpointAnswers  # noqa: PLC0415 - most tests have no HTTP tasks

        return EndpointAnswers()

    def find_port(self, catalog: Any) -> Any:
        """What answers the requests of these HTTP tasks."""
        from tarry.testing.endpoints import FakeDelivery  # noqa: PLC0415 - as above

        if catalog not in self._ports:
            self._ports[catalog] = FakeDelivery(catalog, self.time, self.answers)
        return self._ports[catalog]

    def stores(self) -> list[RecordingStore]:
        """The stores of all apps that needed one so far."""
        return list(self._stores.values())

    def apps(self) -> list[App]:
        """All apps of the process."""
        return list(apps_module._apps)

    def apps_in_use(self) -> list[App]:
        """The same, without those of tests that are over."""
        # An app refers to its tasks and they to it, so it lives until the garbage collector comes, at whatever time.
        gc.collect()
        return self.apps()

    def has_workers(self) -> bool:
        """Whether workers run jobs beside the test."""
        return any(not worker.ended.is_set() for app in self.apps() for worker in list(app._workers))

    def drain(self, app: EmbeddedMixin, timeout: Duration | None = None, queues: Queues | None = None) -> int:
        return self._drain(app, queues, False)

    async def adrain(self, app: EmbeddedMixin, timeout: Duration | None = None, queues: Queues | None = None) -> int:
        return await self._adrain(app, queues, False)

    def drain_all(self, raising: bool) -> int:
        """Runs the due jobs of all apps until none is left; returns how many attempts. raising: as in `Jobs.drain`."""
        total = 0
        while stores := self.stores():
            attempts = sum(self._drain(store.app, None, raising) for store in stores)
            total += attempts
            # With several apps the jobs of one may enqueue jobs of another, so all are drained again.
            if not attempts or len(self.stores()) == 1:
                break
        return total

    async def adrain_all(self, raising: bool) -> int:
        """The same, awaited."""
        total = 0
        while stores := self.stores():
            attempts = sum([await self._adrain(store.app, None, raising) for store in stores])
            total += attempts
            if not attempts or len(self.stores()) == 1:
                break
        return total

    def on_enqueue(self) -> None:
        """Called after each enqueue."""
        if self.inline is not None:
            self.drain_all(self.inline)

    async def aon_enqueue(self) -> None:
        """The same, awaited."""
        if self.inline is not None:
            await self.adrain_all(self.inline)

    def _drain(self, app: Any, queues: Queues | None, raising: bool) -> int:
        return self.runner.drain(app, None if queues is None else queue_weights(queues), raising)

    async def _adrain(self, app: Any, queues: Queues | None, raising: bool) -> int:
        return await self.runner.adrain(app, None if queues is None else queue_weights(queues), raising)

"""What all apps stand on for the time of a test."""

import contextlib
import time
import weakref
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tarry import app as apps_module
from tarry.app import App
from tarry.client.client import Client
from tarry.client.clock import Clock, FakeClock
from tarry.embedded import mixin
from tarry.embedded.service import queue_weights
from tarry.testing.record import DirectClient, Record
from tarry.testing.runs import Runs
from tarry.worker.shares import Queues

if TYPE_CHECKING:
    from tarry.testing.answers import Answers


class Stage:
    """Stands in for the stores and clocks of all apps, those included that are made in the meantime."""

    def __init__(self) -> None:
        self.time = FakeClock(time.time_ns() // 1000)
        self.clock: Clock = self.time
        self.runs = Runs(self.time)
        self._posts: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
        self.inline: bool | None = None
        """What is enqueued runs at once: False, as in a worker; True, so that errors of tasks are raised."""
        self._records: weakref.WeakKeyDictionary[App, Record] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def set(self) -> Iterator[None]:
        """Every app is on it while inside, and has its own client, or none, afterwards."""
        own = {app: client for app in list(apps_module._apps) if (client := app._client) is not None}
        before, mixin.test_backend = mixin.test_backend, self
        self._put_back({})
        try:
            yield
        finally:
            mixin.test_backend = before
            self._put_back(own)
            self.runs.close()

    def _put_back(self, clients: dict[App, Client]) -> None:
        for app in list(apps_module._apps):
            app._client = clients.get(app)
            if app._catalog is not None:
                app._catalog.expire_cache()

    def client(self, store: Record, *args: Any, **kwargs: Any) -> Client:
        """An app's client."""
        return DirectClient(self, store, *args, **kwargs)

    def store(self, app: App) -> Record:
        """An app's store: the same until the test ends."""
        record = self._records.get(app)
        if record is None:
            record = self._records[app] = Record(app, self.time)
        return record

    @cached_property
    def answers(self) -> "Answers":
        """What endpoints answer."""
        from tarry.testing.answers import Answers  # noqa: PLC0415 - most tests have no HTTP tasks

        return Answers()

    def post(self, catalog: Any) -> Any:
        """What delivers the jobs of an app's HTTP tasks."""
        from tarry.testing.answers import Nowhere  # noqa: PLC0415 - as above

        if catalog not in self._posts:
            self._posts[catalog] = Nowhere(catalog, self.time, self.answers)
        return self._posts[catalog]

    def records(self) -> list[Record]:
        """Of the apps that had need of one so far."""
        return list(self._records.values())

    def apps(self) -> list[App]:
        """All that live."""
        return list(apps_module._apps)

    def working(self) -> bool:
        """Somebody runs jobs beside the test."""
        return any(not worker.ended.is_set() for app in self.apps() for worker in list(app._workers))

    def drain(self, app: App, queues: Queues | None, raising: bool = False) -> int:
        """Runs what is due in the app."""
        return self.runs.drain(app, None if queues is None else queue_weights(queues), raising)

    async def adrain(self, app: App, queues: Queues | None, raising: bool = False) -> int:
        """The same, awaited."""
        return await self.runs.adrain(app, None if queues is None else queue_weights(queues), raising)

    def drain_all(self, raising: bool) -> int:
        """Runs what is due in all apps, until nothing is left in any."""
        total = 0
        while records := self.records():
            ran = sum(self.drain(record.app, None, raising) for record in records)
            total += ran
            if not ran or len(self.records()) == 1:
                break
        return total

    async def adrain_all(self, raising: bool) -> int:
        """The same, awaited."""
        total = 0
        while records := self.records():
            ran = sum([await self.adrain(record.app, None, raising) for record in records])
            total += ran
            if not ran or len(self.records()) == 1:
                break
        return total

    def arrived(self) -> None:
        """Something was enqueued."""
        if self.inline is not None:
            self.drain_all(self.inline)

    async def aarrived(self) -> None:
        """The same, awaited."""
        if self.inline is not None:
            await self.adrain_all(self.inline)

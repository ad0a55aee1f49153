"""An app with HTTP tasks and workers that deliver them, on any store."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tarry import App
from tarry.client.handle import Handle
from tarry.config.config import Config, Push
from tarry.model.job import Job
from tarry.push.delivery.coordinator import DeliveryCoordinator
from tarry.push.delivery.delivery_record import AttemptRecord, records_of
from tarry.store.rules.base import Store
from tarry.worker.worker import WorkerSettings
from tests.push.server import Server
from tests.worker.bench import Bench, ThreadWorker

HERE = Push(["127.0.0.1"])


class DeliveryFixture(Bench):
    """An app, a server and workers. A task's url that begins with `/` is a path of the server."""

    def __init__(self, app: App, connect: Callable[[], Store], server: Server, directory: Path) -> None:
        super().__init__(app, connect)
        self.server, self.directory = server, directory
        self.coordinators: list[DeliveryCoordinator] = []
        self.at_last.append(self._close_coordinators)

    def settings(self, url: str = "/", **settings: Any) -> dict[str, Any]:
        return {"url": self.server.url() + url.removeprefix("/") if url.startswith("/") else url, **settings}

    def configure(self, app: App | None = None, **tasks: dict[str, Any]) -> None:
        """Configures tasks as tarry.toml does. Each value has the arguments of `settings`."""
        whole = {name: self.settings(**task) for name, task in tasks.items()}
        (app or self.app).configure(Config(tasks=whole, push=HERE, directory=self.directory))

    def deliver(self, app: App | None = None, slots: int = 20, **settings: Any) -> ThreadWorker:
        """A worker that delivers until the test ends."""
        app = app or self.app
        store = self.store()
        coordinator = app.deliveries(store, slots)
        self.coordinators.append(coordinator)
        app.declare_limits(store)
        made = WorkerSettings(threads=1, coroutines=slots, **settings)
        worker = ThreadWorker(store, app.tasks, made, rules=app.rules, main_thread=False, find_task=coordinator.find)
        self._workers.append(worker.start())
        return worker

    def job(self, handle: Handle[Any]) -> Job:
        found = handle.record()
        assert found is not None
        return found

    def records(self, handle: Handle[Any]) -> list[AttemptRecord]:
        return records_of(self.job(handle))

    def _close_coordinators(self) -> None:
        for coordinator in self.coordinators:
            coordinator.close()

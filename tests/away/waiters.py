"""Processes that wait, each of one kind, for a store that is about to go away:
`python -m tests.away.waiters KIND URL LOG [KIND URL LOG ...]`.

They are forks of one, since to import tarry takes most of the CPU of their start. It prints their pids; each prints
`ready` once it waits, and logs to its file; for one that ends by itself `ended PID` is printed. They are killed by
whoever started them.
"""

import asyncio
import faulthandler
import logging
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tarry import App
from tarry.alert.alarms import AlarmStorage
from tarry.alert.alert_settings import AlertSettings
from tarry.alert.monitor import Monitor, MonitoredApp
from tarry.config.config import Config
from tarry.keeper.chores import Keeper
from tarry.keeper.hosts import HostEntry
from tarry.model.lifecycle import DEFAULT
from tarry.server.claim_loop import ClaimLoop
from tarry.server.takers import ClaimTicket
from tarry.store.queries.hosts import Host
from tarry.worker.worker import Worker, WorkerSettings

READY_WITHIN = 100.0


def later() -> None:
    """A task that is never run here."""


def own_queue() -> str:
    """The queue of this process alone."""
    return f"own-{os.getpid()}"


class NoStorage(AlarmStorage):
    """Remembers nothing."""

    def read(self) -> bytes | None:
        return None

    def write(self, content: bytes | None) -> bool:
        return True


def ready() -> None:
    faulthandler.cancel_dump_traceback_later()
    os.write(1, b"ready\n")  # whole, also beside the others


def worker(app: App) -> None:
    worker = Worker(app.open_store(durable=False), app.tasks, WorkerSettings({"none": 1}))
    ready()
    worker.run()


def busy_worker(app: App) -> None:
    """One that holds a job that does not end."""
    worker = Worker(app.open_store(durable=False), app.tasks, WorkerSettings({own_queue(): 1}))
    app.tasks["sleeps"].enqueue()
    worker.run()


def result(app: App) -> None:
    job = app.tasks["later"].enqueue()
    with_ready(lambda: job.result(timeout=600))


def follow(app: App) -> None:
    job = app.tasks["later"].enqueue()
    with_ready(lambda: list(job.follow(timeout=600)))


def with_ready(call: Callable[[], object]) -> None:
    ready()
    call()


def outbox(app: App) -> None:
    app.tasks["later"].enqueue()
    ready()
    while True:
        time.sleep(3)
        app.tasks["later"].enqueue()


def ticking(keeper: Keeper) -> None:
    keeper.tick()
    ready()
    while True:
        time.sleep(keeper.tick())


def keeper(app: App) -> None:
    store = app.open_store(durable=False)
    keeper = app.keeper(store)
    ticking(keeper)


def hosts(app: App) -> None:
    store = app.open_store(durable=False)
    keeper = Keeper(store)
    register = HostEntry(store, lambda: Host("a|1:1", "a", 1, "pid", "1"))
    keeper.register_chore(1.0, register.register_host)
    ticking(keeper)


def limits(app: App) -> None:
    store = app.open_store(durable=False)
    keeper = Keeper(store)
    keeper.register_chore(1.0, lambda: app.declare_limits(store))
    ticking(keeper)


def claims(app: App) -> None:
    """The part of a server that other programs take jobs from, while one of them waits for a job."""
    store = app.open_store(durable=False)
    loop = asyncio.new_event_loop()
    claims = ClaimLoop(store, loop, lambda task, queue: DEFAULT, list)
    claims.wait(ClaimTicket(["none"], 1, None, lambda answer: None, claims.forget))
    ready()
    loop.run_forever()


def alerts(app: App) -> None:
    watched = MonitoredApp("it", lambda: (app.open_store(durable=False), True), dict, lambda: [1])
    monitor = Monitor(watched, AlertSettings.of(Config()), lambda to, message: None, NoStorage())
    monitor.check()
    monitor.start()
    ready()
    time.sleep(600)


KINDS: dict[str, Callable[[App], None]] = {
    kind.__name__: kind for kind in (worker, busy_worker, keeper, result, follow, outbox, limits, hosts, claims, alerts)
}


def main() -> None:
    words = sys.argv[1:]
    for kind, url, log in zip(words[::3], words[1::3], words[2::3], strict=True):
        if pid := os.fork():
            os.write(1, b"%d\n" % pid)
        else:
            os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
            wait(kind, url)
            return
    while True:
        os.write(1, b"ended %d\n" % os.wait()[0])


def wait(kind: str, url: str) -> None:
    """As one of that kind."""
    # One that is not ready in time says where it is, and ends.
    faulthandler.dump_traceback_later(READY_WITHIN, exit=True)
    logging.basicConfig(stream=sys.stderr, format="%(message)s", level=logging.INFO)
    directory = Path(tempfile.mkdtemp(prefix="tarry-waiter-"))
    app = App(url, outbox=directory / "outbox.db" if kind == "outbox" else None, closures=True)

    # Of its own: two busy workers of one server would wait for each other's job.
    @app.task(name="sleeps", queue=own_queue())
    def sleeps() -> None:
        ready()
        time.sleep(600)

    app.task(name="later")(later)
    KINDS[kind](app)


if __name__ == "__main__":
    main()

"""What the master's children do: a worker runs jobs, the keeper keeps order. Here the engine meets the processes."""

import logging
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

from msgspec.structs import replace

from tarry.app import App
from tarry.config import Alerts, Config, Pool
from tarry.embedded.service import worker_settings
from tarry.errors import TarryError
from tarry.keeper.backlog import REPORT_EVERY, BacklogReporter
from tarry.keeper.chores import Keeper
from tarry.model.duration import SECOND
from tarry.process import title
from tarry.process.deaf import Deaf
from tarry.process.loading import opened
from tarry.process.own_master import OwnMaster
from tarry.process.presence import Presence
from tarry.process.title import Title
from tarry.process.watching import watch
from tarry.runtime.demand import Range
from tarry.runtime.logs import logs
from tarry.runtime.logs.log_lines import tell_of
from tarry.runtime.role import CANARY, KEEPER, WATCHER, Child, Plan, Role, Wear
from tarry.runtime.scoreboard import named
from tarry.store.base import Store
from tarry.tasks import log_facts
from tarry.worker import owner
from tarry.worker.worker import Outside, Worker, memory

log = logging.getLogger("tarry.keeper")

SHORTEST_END = 1.0
"""Seconds that a worker that was told to end waits for its store at least. The rest of the grace is for the keeper."""


def plan(config: Config, app_name: str | None) -> Plan:
    """The keeper, the workers of every pool, perhaps a watcher, and the canary that goes before them at a reload."""
    booted = partial(partial, _booted, config, app_name)
    keeper = Role(KEEPER, "", 1, 1, booted(_keep))
    # One cell for each thread, one for the event loop, and one for a job in it that does not end.
    workers = [
        Role("worker", pool.name, pool.bounds.min, pool.threads + 2, booted(_worker(pool)), _wear(pool), _range(pool))
        for pool in config.pools.values()
    ]
    master = config.master
    canary = Role(CANARY, "", 1, 1, booted(_sing))
    watchers = [Role(WATCHER, "", 1, 1, partial(watch, config, app_name, time.time_ns()))] if master.watch else []
    return Plan([keeper, *workers, *watchers], canary, master.term_grace, master.reload_timeout, master.boot_timeout)


def _wear(pool: Pool) -> Wear:
    return Wear(pool.max_jobs, pool.max_age / SECOND, pool.max_memory, pool.kill_memory or 2 * pool.max_memory)


def _range(pool: Pool) -> Range | None:
    bounds = pool.bounds
    return Range(bounds.min, bounds.max, bounds.calm) if pool.follows else None


Body = Callable[[Child, App, Store], None]


def _booted(config: Config, app_name: str | None, body: Body, child: Child) -> int:
    """Imports the app and opens the store; what fails is told to the master, in a line."""
    single: dict[Body, str] = {_keep: KEEPER, _sing: CANARY}
    title.show(single.get(body) or named("worker", child.pool, child.number))
    if config.master.watch:
        # Python trusts what it compiled by the second and the size: two changes in one second would be one.
        sys.dont_write_bytecode = True
    try:
        app = opened(app_name, config)
        app.http.load(thoroughly=True)
        _check_alerts(config)
        if app.logs is not None:
            logs.reopen_also(app.logs.reopen)
        store = app.open_store(durable=False)
        if body is not _sing:
            app.declare_limits(store)
    except (TarryError, OSError) as error:
        return child.failed(str(error))
    body(child, app, store)
    app.close()
    store.close()
    return 0


def _check_alerts(config: Config) -> None:
    if config.alerts != Alerts():
        from tarry.alert.settings import AlertSettings  # noqa: PLC0415 - most have no such section

        AlertSettings.of(config)


def _worker(pool: Pool) -> Body:
    def work(child: Child, app: App, store: Store) -> None:
        name = owner.new_name()
        child.slot.own(name)
        tell_of(log_facts.here, worker=f"{child.pool}.{child.number}")
        deliveries, grace = app.deliveries(store, pool.async_), app.config.master.term_grace
        worker = Worker(
            store,
            app.tasks,
            replace(
                worker_settings(pool, app.config.max_body),
                end_within=max(SHORTEST_END, grace / 2),
                max_jobs=pool.max_jobs,
            ),
            rules=app.rules,
            gauge=child.slot,
            name=name,
            outside=FromMaster(child),
            find=deliveries.find,
        )
        worker.awaited = OwnMaster(app.config).is_ending
        child.ready()
        worker.run()
        deliveries.close()

    return work


class FromMaster(Outside):
    """The master's child, as the worker's outside."""

    def __init__(self, child: Child) -> None:
        self._child, self._title = child, Title(child)

    def filenos(self) -> Sequence[int]:
        """The master's line, and our signals."""
        return (self._child.parent_fd, self._child.signals.fileno())

    def signals(self) -> Sequence[int]:
        """Those that came."""
        self._title.show()
        return self._child.came()

    def parent_lives(self) -> bool:
        """False once the master's end of the line is closed."""
        self._child.lines()
        return not self._child.orphaned

    def is_open(self) -> bool:
        """False once a job has closed the master's line."""
        return self._child.is_open()

    def is_whole(self) -> bool:
        """False once a job has closed a descriptor of ours."""
        return self._child.is_whole()

    def cut_off(self) -> NoReturn:
        """Ends the process at once."""
        self._child.cut_off()


def _sing(child: Child, app: App, store: Store) -> None:
    """The app could be imported and the store reached: so can the others."""
    child.ready()


def _keep(child: Child, app: App, store: Store) -> None:
    from tarry.process.alerting import watch_of  # noqa: PLC0415 - only the keeper watches

    tell_of(log_facts.here, worker="keeper")
    keeper = app.keeper(store)
    presence = Presence(store, app.config)
    presence.employ(keeper)
    Deaf(store, app).employ(keeper)
    # So that it knows by what rules the jobs of HTTP tasks go on that it brings back.
    keeper.register_chore(1.0, app.http.follow(store))
    _look_at_backlogs(child, app, store, keeper)
    alerts = watch_of(app)
    child.ready()
    # First it learns which HTTP tasks there are, and so who is told of them.
    keeper.tick()
    alerts.start()
    owed: list[dict[str, Any]] = []
    away = ""
    while True:
        child.slot.beat(memory())
        owed = _heard(child, keeper, [*owed, *child.lines()])
        if child.over():
            if not keeper.away:
                keeper.close()
                presence.leave()
            alerts.close()
            return
        pause = keeper.tick()
        if keeper.away != away:
            away = keeper.away
            child.answer({"away": away})
        # What could not be done because the store is away is tried again soon.
        child.sleep(min(pause, 0.25) if owed else pause)


def _look_at_backlogs(child: Child, app: App, store: Store, keeper: Keeper) -> None:
    pools = app.config.pools.values()
    follow = {pool.name: None if "*" in pool.queues else [*pool.queues] for pool in pools if pool.follows}
    if follow:
        backlogs = BacklogReporter(store, follow, lambda told: child.tell({"backlog": told}))
        keeper.register_chore(REPORT_EVERY, backlogs.report_backlogs)


def _heard(child: Child, keeper: Keeper, lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Does what the master asks; answers what is still to do."""
    left: list[dict[str, Any]] = []
    for line in lines:
        answer = keeper.handle_message(line)
        if answer is None:
            left.append(line)
        else:
            child.answer(answer)
    return left

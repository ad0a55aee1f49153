"""What the master's children run: workers, the keeper, the canary. Connects the processes to workers and keeper."""

import contextlib
import gc
import importlib
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NoReturn

from msgspec.structs import replace

from tarry.app import App
from tarry.config.config import Alerts, Config, Pool
from tarry.embedded.service import worker_settings
from tarry.errors import TarryError
from tarry.keeper.backlog import REPORT_EVERY, BacklogReporter
from tarry.keeper.chores import SELDOM, Keeper
from tarry.keeper.cron import schedules_of
from tarry.model.duration import SECOND
from tarry.model.flow.own_queues import own_queue
from tarry.platform import resident_bytes
from tarry.process import title
from tarry.process.file_watcher import run_watcher
from tarry.process.host_heartbeat import HostHeartbeat
from tarry.process.loading import open_app
from tarry.process.metrics import KeeperMetrics, check_metrics
from tarry.process.parent_board import ParentBoard
from tarry.process.remote_control import RemoteControl
from tarry.process.server_process import check_server, run_server
from tarry.process.title import Title
from tarry.process.unresponsive import UnresponsiveWorkers
from tarry.runtime.autoscaler import Range
from tarry.runtime.board.reader import SERVER, process_name
from tarry.runtime.logs import handlers
from tarry.runtime.logs.formatting import set_job_facts
from tarry.runtime.pipe import PipeMessage
from tarry.runtime.role import CANARY, KEEPER, WATCHER, ChildContext, Plan, RecycleLimits, Role
from tarry.store.opening import import_stores
from tarry.store.rules import owner
from tarry.store.rules.base import Store
from tarry.tasks import log_facts
from tarry.worker.worker import ControlChannel, Worker

log = logging.getLogger("tarry.keeper")

MIN_STOP_TIME = 1.0
"""Seconds that an ending worker waits for its store, at least. The keeper gets the rest of the grace time."""

_IMPORTED = ("asyncio", "tarry.process.alerting", "tarry.push.catalog", "tarry.push.delivery.coordinator")
_IMPORTED_BY_PAYLOADS = ("tarry.store.payloads.payload_store", "tarry.worker.run.large_results")
# It takes a second.
_IMPORTED_BY_S3 = ("tarry.store.payloads.s3_place",)
_IMPORTED_BY_KEYS = "tarry.store.sealing.sealed_store", "tarry.store.sealing.key_ring"
_IMPORTED_BY_SERVERS = (
    "tarry.server.serving.server", "tarry.server.serving.application", "tarry.server.http.protocol",
    "tarry.server.beanstalk.beanstalk_connection",
)  # fmt: skip


def create_plan(config: Config, app_name: str | None) -> Plan:
    """The keeper, the workers of every pool, perhaps servers and a watcher; and the canary that a reload starts."""
    booted = partial(partial, _boot, config, app_name)
    keeper = Role(KEEPER, "", 1, 1, booted(_run_keeper), listens=config.metrics.addresses)
    workers = [_worker_role(pool, booted(_worker_body(pool))) for pool in config.pools.values()]
    master = config.master
    canary = Role(CANARY, "", 1, 1, booted(_run_canary))
    watchers = [Role(WATCHER, "", 1, 1, partial(run_watcher, config, app_name, time.time_ns()))] if master.watch else []
    return Plan(
        [keeper, *workers, *_server_roles(config, booted(_serve)), *watchers],
        canary,
        master.term_grace,
        master.reload_timeout,
        master.boot_timeout,
        config.server.backlog,
    )


def import_early(config: Config) -> None:
    """Imports what these children need, before any is forked: else each does, and at a reload that delays jobs. Opens
    nothing."""
    import_stores(config.stores)
    place = config.payloads.to or ""
    needed = {
        _IMPORTED: True,
        _IMPORTED_BY_SERVERS: config.server.is_on,
        _IMPORTED_BY_KEYS: bool(config.encryption.keys),
        _IMPORTED_BY_PAYLOADS: bool(place),
        _IMPORTED_BY_S3: place.startswith("s3:"),
    }
    for module in chain.from_iterable(modules for modules, is_needed in needed.items() if is_needed):
        # `check_server` tells which extra is missing.
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def _server_roles(config: Config, run: Callable[[ChildContext], int]) -> list[Role]:
    server = config.server
    least, most, calm = server.bounds.min, server.bounds.max, server.bounds.calm
    bounds = Range(least, most, calm) if server.follows else None
    return [Role(SERVER, "", least, 1, run, range=bounds, listens=server.addresses)] if server.is_on else []


def _worker_role(pool: Pool, run: Callable[[ChildContext], int]) -> Role:
    # One cell for each thread, one for the event loop, and one for a job in it that does not end.
    cells = pool.threads + 2
    return Role("worker", pool.name, pool.bounds.min, cells, run, _recycle_limits(pool), _range(pool))


def _recycle_limits(pool: Pool) -> RecycleLimits:
    return RecycleLimits(pool.max_jobs, pool.max_age / SECOND, pool.max_memory, pool.kill_memory or 2 * pool.max_memory)


def _range(pool: Pool) -> Range | None:
    bounds = pool.bounds
    return Range(bounds.min, bounds.max, bounds.calm) if pool.follows else None


Body = Callable[[ChildContext, App, Store], int | None]
"""Returns the exit status; None: 0."""


def _boot(config: Config, app_name: str | None, body: Body, child: ChildContext) -> int:
    """Imports the app, opens the store and runs the body. Reports a failure to the master."""
    single: dict[Body, str] = {_run_keeper: KEEPER, _run_canary: CANARY, _serve: f"{SERVER} {child.number}"}
    title.show(single.get(body) or process_name("worker", child.pool, child.number))
    if config.master.watch:
        # Python compares compiled files by second and size: it would miss the second of two changes in one second.
        sys.dont_write_bytecode = True
    try:
        app = open_app(app_name, config)
        # thoroughly: a wrong HTTP task must fail the start, not its jobs.
        app.http.load(thoroughly=True)
        _check_alerts(config)
        check_metrics(config)
        schedules_of(app.tasks, config.named_calendars)
        for pool in config.pools.values():
            worker_settings(pool, config.max_body)
        if app.logs is not None:
            handlers.on_reopen(app.logs.reopen)
        # durable=False: if a power cut takes an outcome away, the job only runs again. Not so what a server puts.
        store = app.client.store if body is _serve else app.open_store(durable=False)
        # A canary changes nothing in the store: its reload may still fail.
        if body is not _run_canary:
            app.declare_limits(store)
    except (TarryError, OSError) as error:
        return child.report_failure(error)
    status = body(child, app, store)
    app.close()
    store.close()
    return status or 0


def _check_alerts(config: Config) -> None:
    # Wrong settings must fail the start, not the first alert.
    if config.alerts != Alerts():
        from tarry.alert.alert_settings import AlertSettings  # noqa: PLC0415 - most have no such section

        AlertSettings.of(config)


def _worker_body(pool: Pool) -> Body:
    def work(child: ChildContext, app: App, store: Store) -> None:
        name = owner.new_name()
        child.slot.set_owner(name)
        set_job_facts(log_facts.current_facts, worker=f"{child.pool}.{child.number}")
        is_ending = ParentBoard(app.config).is_ending
        deliveries, grace = app.deliveries(store, pool.async_), app.config.master.term_grace
        settings = worker_settings(pool, app.config.max_body)
        worker = Worker(
            store,
            app.tasks,
            replace(
                settings,
                queues={**settings.queues, **_own_queues(name)},
                # The keeper needs the other half.
                end_within=max(MIN_STOP_TIME, grace / 2),
                max_jobs=pool.max_jobs,
            ),
            rules=app.rules,
            reporter=child.slot,
            name=name,
            control=MasterOutside(child, is_ending),
            find_task=deliveries.find,
        )
        # Only a stop limits the wait for a store that is away: a worker that a reload replaces waits as long as it
        # takes.
        worker.is_awaited = is_ending
        child.report_ready()
        # The app stays: without its objects a full collection takes microseconds, and delays no job.
        gc.freeze()
        worker.run()
        deliveries.close()

    return work


def _own_queues(worker: str) -> dict[str, int]:
    """The queues of this worker, and of its host, with their weights."""
    return dict.fromkeys((own_queue(worker), own_queue(owner.master_name(os.getppid()))), 0)


class MasterOutside(ControlChannel):
    """Connects a worker to the master, its parent process."""

    def __init__(self, child: ChildContext, is_ending: Callable[[], bool]) -> None:
        """is_ending: whether the master is."""
        self._child, self._title, self._is_ending = child, Title(child), is_ending
        self._requests: list[PipeMessage] = []

    def filenos(self) -> Sequence[int]:
        """The pipe to the master, and the signals."""
        return (self._child.parent_fd, self._child.signals.fileno())

    def signals(self) -> Sequence[int]:
        """The signals that came; also updates the title of the process."""
        self._title.show()
        return self._child.take_signals()

    def is_parent_alive(self) -> bool:
        """False once the master has closed its end of the pipe."""
        self._requests += self._child.receive()
        return not self._child.is_orphaned

    def is_asked(self) -> bool:
        """The master has asked for the end by the pipe."""
        return self._child.is_asked

    def is_term_wanted(self) -> bool:
        """The master has asked for the end, is ending or is gone."""
        self._requests += self._child.receive()
        return self._child.is_asked or self._child.is_orphaned or self._is_ending()

    def exit_unasked(self) -> NoReturn:
        """Ends the process at once."""
        self._child.exit_unasked()

    def confirm_stop(self) -> None:
        """Tells the master, if it has asked."""
        self._child.confirm_stop()

    def requests(self) -> Sequence[PipeMessage]:
        """What the master has asked for."""
        came, self._requests = self._requests, []
        return came

    def reply(self, answer: Mapping[str, Any]) -> None:
        """Sends it to the master."""
        self._child.try_send(dict(answer))

    def is_open(self) -> bool:
        """False once a job has closed the pipe to the master."""
        return self._child.is_open()

    def is_intact(self) -> bool:
        """False once a job has closed one of our descriptors."""
        return self._child.is_whole()

    def exit_process(self) -> NoReturn:
        """Ends the process at once."""
        self._child.cut_off()


def _run_canary(child: ChildContext, app: App, store: Store) -> int | None:
    """Becomes ready: the app could be imported and the store opened, and servers could serve."""
    try:
        if app.config.server.is_on:
            check_server(app, app.config.server)
    except TarryError as error:
        return child.report_failure(error)
    child.report_ready()
    return None


def _serve(child: ChildContext, app: App, store: Store) -> int:
    set_job_facts(log_facts.current_facts, worker=f"{SERVER} {child.number}")
    return run_server(child, app, app.config.server)


def _note_shards(store: Store, keeper: Keeper) -> None:
    """Makes it a chore to note what each of several stores holds."""
    # Imported for several stores only; one of them has no list.
    if isinstance(store.opened_by, str) or len(store.opened_by) < 2:
        return
    from tarry.store.shards.sharded import ShardedStore  # noqa: PLC0415
    from tarry.store.shards.topology import NOTED_EVERY  # noqa: PLC0415
    from tarry.store.shards.topology_follower import ShardNotes  # noqa: PLC0415

    if isinstance(store, ShardedStore):
        keeper.register_chore(NOTED_EVERY, ShardNotes(store).note_held)


def _run_keeper(child: ChildContext, app: App, store: Store) -> None:
    from tarry.process.alerting import create_watch  # noqa: PLC0415 - only the keeper watches

    set_job_facts(log_facts.current_facts, worker="keeper")
    keeper = app.keeper(store)
    presence = HostHeartbeat(store, app.config, keeper.clock)
    presence.register_chores(keeper)
    remote = RemoteControl(store, app.config, child.send, keeper.clock)
    remote.register_chores(keeper)
    UnresponsiveWorkers(store, app).register_chores(keeper)
    # The keeper needs the HTTP tasks: their rules say what becomes of jobs that it brings back.
    keeper.register_chore(1.0, app.http.sync_chore(store), SELDOM)
    _watch_backlogs(child, app, store, keeper)
    _note_shards(store, keeper)
    alerts = create_watch(app, store)
    metrics = KeeperMetrics(child, app, keeper)
    child.report_ready()
    # The first tick loads the HTTP tasks, and with them the recipients of alerts.
    keeper.tick()
    alerts.start()
    pending: list[dict[str, Any]] = []
    away = ""
    while True:
        child.slot.beat(resident_bytes())
        came = [message for message in child.receive() if not remote.handle(message)]
        pending = _handle_messages(child, keeper, [*pending, *came])
        if child.should_exit():
            # Both need the store.
            if not keeper.away:
                keeper.close()
                presence.deregister()
            metrics.close()
            alerts.close()
            return
        pause = keeper.tick()
        if keeper.away != away:
            away = keeper.away
            child.send({"away": away})
        # A message that could not be handled because the store is away is tried again soon.
        child.sleep(min(pause, 0.25) if pending else pause)


def _watch_backlogs(child: ChildContext, app: App, store: Store, keeper: Keeper) -> None:
    pools = app.config.pools.values()
    follow = {pool.name: None if "*" in pool.queues else [*pool.queues] for pool in pools if pool.follows}
    if follow:
        backlogs = BacklogReporter(store, follow, lambda backlog: child.try_send({"backlog": backlog}))
        keeper.register_chore(REPORT_EVERY, backlogs.report_backlogs)


def _handle_messages(child: ChildContext, keeper: Keeper, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Handles the master's messages and confirms them. Returns those that must be tried again."""
    left: list[dict[str, Any]] = []
    for message in messages:
        answer = keeper.handle_message(message)
        if answer is None:
            left.append(message)
        else:
            child.send(answer)
    return left

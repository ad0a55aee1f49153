"""What the keeper does with its master's scoreboard: registers the host, and renews leases of unresponsive workers."""

import contextlib
import time
from collections.abc import Mapping, Sequence

from tarry import __version__
from tarry.client.clock import Clock
from tarry.config.config import Config, Pool
from tarry.errors import StoreError
from tarry.keeper.chores import SELDOM, Keeper
from tarry.keeper.hosts import HostEntry
from tarry.keeper.lease_renewer import LeaseRenewer
from tarry.model.duration import SECOND
from tarry.platform import cpu_seconds
from tarry.process.parent_board import ParentBoard
from tarry.runtime.board.layout import GONE, QUITTING, READY, STOPPING
from tarry.runtime.board.master_status import PoolStatus
from tarry.runtime.board.reader import Board, ChildStatus
from tarry.runtime.master_report import longest_running
from tarry.store.queries.hosts import Host, PoolFigures, WorkerFigures
from tarry.store.rules import owner
from tarry.store.rules.base import Store

_LOOK_EVERY = 1.0
_MEASURED_EVERY = 0.9
"""Seconds between two measurements of a process, at least: the kernel counts in hundredths of a second."""
# The entries of all hosts are read at once.
MOST_WORKERS = 64
"""Workers that are told of."""
MOST_NAMED = 1000
"""Workers of which at least the name is told."""
MOST_JOBS = 2
"""Running jobs that are told of each."""
MOST_TEXT = 500
"""Characters of a failure that is told."""


class HostHeartbeat:
    """Belongs to the keeper's process, a child of the master."""

    def __init__(self, store: Store, config: Config, clock: Clock) -> None:
        self._store, self._config = store, config
        self._settings, self._master, self._pools = config.master, ParentBoard(config), config.pools
        self._cpu = CpuMeter()
        self._instance = owner.master_name(self._master.pid)
        self._host_entry = HostEntry(store, self.host, clock)
        self._lease_renewer = LeaseRenewer(store, self.unresponsive_leases, clock)

    def register_chores(self, keeper: Keeper) -> None:
        """Makes all that this is for chores of the keeper."""
        from tarry.process.deploy_mark import DeployMark  # noqa: PLC0415 - keepers alone leave marks

        keeper.register_chore(_LOOK_EVERY, DeployMark(self._store, self._config, keeper.clock).write, SELDOM)
        keeper.register_chore(_LOOK_EVERY, self._lease_renewer.renew_leases)
        keeper.register_chore(_LOOK_EVERY, self._host_entry.register_host)

    def deregister(self) -> None:
        """At the keeper's end: removes the host's entry if the master is stopping."""
        board = self._master.read()
        # Else the entry stays: a new keeper takes it over, or the host counts as lost.
        if board is not None and board.state in (STOPPING, QUITTING):
            with contextlib.suppress(StoreError):
                self._host_entry.remove()

    def host(self) -> Host | None:
        """The host's entry now; None: there is no scoreboard."""
        board = self._master.read()
        if board is None:
            return None
        workers = [child for child in board.children if child.role == "worker"]
        # The end of a traceback is the error.
        failure = board.notice.trouble[-MOST_TEXT:]
        return Host(
            instance=self._instance,
            name=self._instance.partition("|")[0],
            pid=board.pid,
            pid_file=str(self._settings.pid_file),
            version=__version__,
            state=board.state,
            started=round(board.started * SECOND),
            pools=pool_figures(board, self._pools),
            workers=self._workers(workers),
            more_workers=[child.owner for child in _by_place(workers)[MOST_WORKERS:MOST_NAMED] if child.boot == READY],
            worker_count=len(workers),
            generation=board.notice.generation,
            reloading=board.notice.reloading,
            reloaded=board.notice.reloaded,
            reload_failure=failure,
            remote_control=self._settings.remote_control,
        )

    def _workers(self, children: Sequence[ChildStatus]) -> list[WorkerFigures]:
        told = _by_place(children)[:MOST_WORKERS]
        shares = self._cpu.shares([child.pid for child in told if child.boot != GONE])
        return [_worker(child, shares.get(child.pid, 0.0)) for child in told]

    def unresponsive_leases(self) -> dict[str, int]:
        """The owners without a recent sign of life, with their leases."""
        return {child.owner: pool.lease for child, pool in self._master.unresponsive_workers()}


def _by_place(children: Sequence[ChildStatus]) -> list[ChildStatus]:
    return sorted(children, key=lambda child: (child.boot == GONE, child.pool, child.number))


def pool_figures(board: Board, settings: Mapping[str, Pool]) -> list[PoolFigures]:
    """The figures of the pools of that master. settings: by pool."""
    by_pool: dict[str, list[ChildStatus]] = {}
    for child in board.children:
        if child.role == "worker":
            by_pool.setdefault(child.pool, []).append(child)
    status = {pool.name: pool for pool in board.notice.pools}
    return [
        _figures(status.get(name, PoolStatus(name, 0)), children, settings.get(name))
        for name, children in by_pool.items()
    ]


def _worker(child: ChildStatus, cpu: float) -> WorkerFigures:
    is_gone = child.boot == GONE
    return WorkerFigures(
        child.pool,
        child.number,
        child.owner,
        0 if is_gone else child.pid,
        child.generation,
        child.boot,
        child.started,
        child.processed,
        child.failed,
        child.held,
        0 if is_gone else child.rss,
        cpu,
        max(0.0, child.heartbeat),
        child.last_exit,
        [job.id for job in longest_running(child)[:MOST_JOBS]],
    )


def _figures(status: PoolStatus, children: list[ChildStatus], settings: Pool | None) -> PoolFigures:
    ready = [child for child in children if child.boot == READY]
    return PoolFigures(
        status.name,
        workers=len(ready),
        busy=sum(bool(child.running) for child in ready),
        # Also of a process that has just died: its slot keeps these figures until the next one starts.
        processed=sum(child.processed for child in children),
        failed=sum(child.failed for child in children),
        memory=sum(child.rss for child in ready),
        # None: a pool of earlier settings, whose processes are ending.
        queues=None if settings is None else sorted(settings.queues),
        weights=settings.queues if settings is not None and isinstance(settings.queues, dict) else {},
        wanted=status.workers,
        least=status.least,
        most=status.most,
        failure=status.failed[-MOST_TEXT:],
        replaced=status.ended,
    )


class CpuMeter:
    """Measures how many cores each process has used since it was last asked about."""

    def __init__(self) -> None:
        self._before: dict[int, tuple[float, float]] = {}
        """By pid: the moment, and the seconds of processor time used until then."""
        self._shares: dict[int, float] = {}

    def shares(self, pids: Sequence[int]) -> dict[int, float]:
        """Cores in use by pid: 1.0 is one core. Processes that are measured for the first time are left out."""
        now = time.monotonic()
        for pid in pids:
            used, before = cpu_seconds(pid), self._before.get(pid)
            if before is None or used < before[1]:
                # A new process, perhaps with the number of an old one.
                self._before[pid] = now, used
                self._shares.pop(pid, None)
            elif now - before[0] >= _MEASURED_EVERY:
                self._before[pid] = now, used
                self._shares[pid] = (used - before[1]) / (now - before[0])
        for gone in self._before.keys() - set(pids):
            del self._before[gone]
            self._shares.pop(gone, None)
        return dict(self._shares)

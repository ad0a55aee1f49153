"""What the keeper sees of its own master on the scoreboard, and does with it: the host's entry, and leases."""

import contextlib

from tarry import __version__
from tarry.client.clock import CHECKED_EVERY, Clock
from tarry.config import Config
from tarry.errors import StoreError
from tarry.keeper.chores import Keeper
from tarry.keeper.hosts import Host, HostEntry, PoolFigures
from tarry.keeper.lease_renewer import LeaseRenewer
from tarry.model.duration import SECOND
from tarry.process.own_master import OwnMaster
from tarry.runtime.scoreboard import QUITTING, READY, STOPPING, Board, ChildStatus
from tarry.store.base import Store
from tarry.worker import owner

_LOOK_EVERY = 1.0


class Presence:
    """For the keeper's process, which is a child of the master."""

    def __init__(self, store: Store, config: Config) -> None:
        self._pid_file, self._master = config.master.pid_file, OwnMaster(config)
        self._instance = f"{owner.of_process(self._master.pid)}:0"
        clock = Clock(store.time, CHECKED_EVERY)
        self._host_entry = HostEntry(store, self.host, clock)
        self._lease_renewer = LeaseRenewer(store, self.silent, clock)

    def employ(self, keeper: Keeper) -> None:
        """Makes both chores of the keeper's."""
        keeper.register_chore(_LOOK_EVERY, self._lease_renewer.renew_leases)
        keeper.register_chore(_LOOK_EVERY, self._host_entry.register_host)

    def leave(self) -> None:
        """At the keeper's end: if the master stops as it should, the host is none any more. Else it is, and may be
        lost."""
        board = self._master.board()
        if board is not None and board.state in (STOPPING, QUITTING):
            with contextlib.suppress(StoreError):
                self._host_entry.remove()

    def host(self) -> Host | None:
        """The master as it is now; None without a scoreboard."""
        board = self._master.board()
        if board is None:
            return None
        return Host(
            instance=self._instance,
            name=self._instance.partition("|")[0],
            pid=board.pid,
            pid_file=str(self._pid_file),
            version=__version__,
            state=board.state,
            started=round(board.started * SECOND),
            pools=_pools(board),
        )

    def silent(self) -> dict[str, int]:
        """The owners that gave no sign of life lately, with their leases."""
        return {child.owner: pool.lease for child, pool in self._master.silent()}


def _pools(board: Board) -> list[PoolFigures]:
    by_pool: dict[str, list[ChildStatus]] = {}
    for child in board.children:
        if child.role == "worker":
            by_pool.setdefault(child.pool, []).append(child)
    return [_figures(name, children) for name, children in by_pool.items()]


def _figures(name: str, children: list[ChildStatus]) -> PoolFigures:
    ready = [child for child in children if child.boot == READY]
    return PoolFigures(
        name,
        workers=len(ready),
        busy=sum(bool(child.running) for child in ready),
        processed=sum(child.processed for child in children),
        failed=sum(child.failed for child in children),
        memory=sum(child.rss for child in ready),
    )

"""What the keeper sees of its own master on the scoreboard, and does with it: the host's entry, and leases."""

import contextlib
import os

from tarry import __version__
from tarry.config import Config, Pool
from tarry.engine import owner
from tarry.engine.clock import Clock
from tarry.engine.hosts import Host, PoolFigures, Register
from tarry.engine.keeper import Keeper
from tarry.engine.lifeline import Lifeline
from tarry.errors import MasterError, StoreError
from tarry.model.duration import SECOND
from tarry.runtime.scoreboard import QUITTING, READY, STOPPING, Board, ChildStatus, board_path, read
from tarry.store.base import Store

SILENT_AFTER = 2.5
"""Seconds. A worker gives a sign of life every second or two, and a lease of 15 s that it prolonged itself has at
least 6.5 s to run."""
_LOOK_EVERY = 1.0


class Presence:
    """For the keeper's process, which is a child of the master."""

    def __init__(self, store: Store, config: Config) -> None:
        self._config, self._master = config, os.getppid()
        self._instance = f"{owner.of_process(self._master)}:0"
        clock = Clock(store.time)
        self._register = Register(store, self.host, clock)
        self._lifeline = Lifeline(store, self.silent, clock)

    def employ(self, keeper: Keeper) -> None:
        """Makes both chores of the keeper's."""
        keeper.take_on(_LOOK_EVERY, self._lifeline.prolong_leases)
        keeper.take_on(_LOOK_EVERY, self._register.register_host)

    def leave(self) -> None:
        """At the keeper's end: if the master stops as it should, the host is none any more. Else it is, and may be
        lost."""
        board = self._board()
        if board is not None and board.state in (STOPPING, QUITTING):
            with contextlib.suppress(StoreError):
                self._register.leave()

    def host(self) -> Host | None:
        """The master as it is now; None without a scoreboard."""
        board = self._board()
        if board is None:
            return None
        return Host(
            instance=self._instance,
            name=self._instance.partition("|")[0],
            pid=board.pid,
            pid_file=str(self._config.master.pid_file),
            version=__version__,
            state=board.state,
            started=round(board.started * SECOND),
            pools=_pools(board),
        )

    def silent(self) -> dict[str, int]:
        """The owners that gave no sign of life lately, with their leases."""
        board = self._board()
        workers = () if board is None else [child for child in board.children if child.owner]
        return {child.owner: self._lease(child.pool) for child in workers if _is_silent(child)}

    def _lease(self, pool: str) -> int:
        """Also of a pool that came with a reload."""
        return self._config.pools.get(pool, Pool()).lease

    def _board(self) -> Board | None:
        """None also if it is that of a master that came after ours."""
        with contextlib.suppress(MasterError):
            board = read(board_path(self._config.master.pid_file))
            return board if board is not None and board.pid == self._master else None
        return None


def _is_silent(child: ChildStatus) -> bool:
    return not 0 <= child.heartbeat < SILENT_AFTER


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

"""What the keeper sees of its own master on the scoreboard."""

import contextlib
import os

from tarry.config import Config, Pool
from tarry.errors import MasterError
from tarry.runtime.scoreboard import QUITTING, STOPPING, Board, ChildStatus, board_path, read

UNRESPONSIVE_AFTER = 2.5
"""Seconds. A worker gives a sign of life every second or two, and a lease of 15 s that it prolonged itself has at
least 6.5 s to run."""


class ParentBoard:
    """For the process of a keeper or a worker, which is a child of the master."""

    def __init__(self, config: Config) -> None:
        self.pid = os.getppid()
        self.board_path = board_path(config.master.pid_file)
        self._pools = config.pools

    def read(self) -> Board | None:
        """None also if it is that of a master that came after ours."""
        with contextlib.suppress(MasterError):
            board = read(self.board_path)
            return board if board is not None and board.pid == self.pid else None
        return None

    def is_ending(self) -> bool:
        """Somebody told it to."""
        board = self.read()
        return board is not None and board.state in (STOPPING, QUITTING)

    def unresponsive_workers(self) -> list[tuple[ChildStatus, Pool]]:
        """The workers that gave no sign of life lately. A pool that came with a reload is taken for one like others."""
        board = self.read()
        children = () if board is None else board.children
        return [
            (child, self._pools.get(child.pool, Pool()))
            for child in children
            if child.owner and _is_unresponsive(child)
        ]


def _is_unresponsive(child: ChildStatus) -> bool:
    return not 0 <= child.heartbeat < UNRESPONSIVE_AFTER

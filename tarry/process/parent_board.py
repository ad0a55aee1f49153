"""What a child sees of its own master on the scoreboard."""

import contextlib
import os

from tarry.config.config import Config, Pool
from tarry.errors import MasterError
from tarry.runtime.board.layout import QUITTING, READY, STOPPING
from tarry.runtime.board.reader import SERVER, Board, ChildStatus, read
from tarry.runtime.board.scoreboard import DRAFT, aside_path, board_path, set_kill_time

# A worker gives a sign every second or two. A lease of 15 s that it prolonged itself runs for at least 6.5 s more.
UNRESPONSIVE_AFTER = 2.5
"""Seconds without a sign of life."""


class ParentBoard:
    """The board of the parent of this process, which is a keeper, a worker or a server."""

    def __init__(self, config: Config) -> None:
        self.pid = os.getppid()
        path = board_path(config.master.pid_file)
        # The second and third are that of a master before and after it takes part in an upgrade.
        self._paths = path, path.with_name(path.name + DRAFT), aside_path(path, self.pid)
        self._pools = config.pools

    def read(self) -> Board | None:
        """The scoreboard; None: it cannot be read."""
        for path in self._paths:
            with contextlib.suppress(MasterError):
                board = read(path)
                if board is not None and board.pid == self.pid:
                    return board
        return None

    def set_kill_time(self, owner: str, id: bytes, epoch: int, kill_at: float, reason: int) -> bool:
        """As that of the scoreboard, wherever it is by now."""
        # On another master's board nobody has that name.
        return any(set_kill_time(path, owner, id, epoch, kill_at, reason) for path in self._paths)

    def is_ending(self) -> bool:
        """True: the master is stopping."""
        board = self.read()
        return board is not None and board.state in (STOPPING, QUITTING)

    def count_servers(self) -> int:
        """How many server processes accept connections; 0: it is not known."""
        board = self.read()
        children = () if board is None else board.children
        return sum(child.role == SERVER and child.boot == READY for child in children)

    def unresponsive_workers(self) -> list[tuple[ChildStatus, Pool]]:
        """Workers without a recent sign of life, with their pools. A pool that a reload added gets the defaults."""
        board = self.read()
        children = () if board is None else board.children
        return [
            (child, self._pools.get(child.pool, Pool()))
            for child in children
            # Without an owner it has claimed no jobs yet.
            if child.owner and _is_unresponsive(child)
        ]


def _is_unresponsive(child: ChildStatus) -> bool:
    return not 0 <= child.heartbeat < UNRESPONSIVE_AFTER

"""Wake-up. The processes of one user on one host use a board, as for a SQLite file. Other hosts, and the program's own
transactions, use a table of numbers: each connection that writes raises its own number, and while a process here
sleeps, one thread looks at the sums, at first every 5 ms, in the end 4 times a second.
"""

import threading
import time
from collections.abc import Callable, Collection

from tarry import errors
from tarry.model.wake import WakeReason
from tarry.store.mysql.link.address import Address
from tarry.store.mysql.link.connection import COMMIT, MysqlConnection
from tarry.store.mysql.link.literals import text
from tarry.store.mysql.link.mysql_errors import Conflict
from tarry.store.mysql.settings import RAISE
from tarry.store.rules.sleeper import JoinedWakeup, Wakeup
from tarry.store.shared.wakeup.board import WakeupBoard
from tarry.store.shared.wakeup.board_directory import BoardDirectory
from tarry.store.shared.wakeup.hub import WakeupHub
from tarry.store.shared.wakeup.listener import WakeupListener

SOON, SELDOM, GROWTH = 0.005, 0.25, 1.3
"""Seconds between looks: at first, in the end, and the factor by which they grow."""
QUARTER = 6 * 3600
"""Seconds after which a host says again that it has sleepers; after four times as long it counts as gone."""
COLUMNS = {
    WakeReason.WORK: "work",
    WakeReason.RESULT: "result",
    WakeReason.STEP: "follow",
    WakeReason.RECALL: "recall",
}
_SUMS = (
    f"SELECT CONCAT_WS(' ', {', '.join(f'IFNULL(SUM({column}), 0)' for column in COLUMNS.values())}) FROM tarry_news"
)
_NEWS = """INSERT INTO tarry_news (n, work, result, follow, recall, at)
    VALUES (CONNECTION_ID(), {}, {}, {}, {}, UNIX_TIMESTAMP()) ON DUPLICATE KEY UPDATE work = work + VALUES(work),
    result = result + VALUES(result), follow = follow + VALUES(follow), recall = recall + VALUES(recall),
    at = VALUES(at)"""
_OLD_NEWS = "SELECT n FROM tarry_news WHERE at < UNIX_TIMESTAMP() - 3600 LIMIT 1000 FOR UPDATE{}"


def wake_row(reasons: Collection[WakeReason]) -> str:
    """The statement that tells other hosts these reasons."""
    # Each connection raises a number of its own, so that no transaction waits for another.
    return _NEWS.format(*(int(reason in reasons) for reason in COLUMNS))


def prune_wake_rows(link: MysqlConnection, skip: str) -> None:
    """Deletes the numbers that connections raised long ago; within a transaction of the caller."""
    # Without SKIP LOCKED this would wait for transactions of others.
    if not skip:
        return
    old = [str(number) for (number,) in link.rows(_OLD_NEWS.format(skip))]
    if old:
        link.run(f"DELETE FROM tarry_news WHERE n IN ({','.join(old)})")


def board_directory(address: Address) -> BoardDirectory:
    """The directory of the board for one database."""
    return BoardDirectory(f"{address.host}\0{address.port}\0{address.socket}\0{address.database}")


class MysqlHub(WakeupHub):
    """The sleepers of one store in one process. connect: a connection of the listener's own."""

    def __init__(self, address: Address, connect: Callable[[], MysqlConnection]) -> None:
        self._directory = board_directory(address)
        super().__init__(lambda hub: NewsListener(hub, address.timeout, connect, self._directory))
        self._board = WakeupBoard(self._directory.path)
        self._waking = threading.Lock()
        self._name: str | None = None

    def wakeup(self) -> Wakeup:
        """A sleeper on the board and at the listener, which hears what the board does not tell."""
        sleeper = super().wakeup()
        return JoinedWakeup([self._board.wakeup(), sleeper] if self._directory.create() else [sleeper])

    def has_remote_sleepers(self, boards: frozenset[str]) -> bool:
        """Whether a board with sleepers belongs to another host or user."""
        if not boards:
            return False
        self._name = self._name or self._directory.name()
        return boards != {self._name}

    def notify(self, *reasons: WakeReason) -> None:
        """Wakes the sleepers on this host."""
        with self._waking:
            self._board.wake(*reasons)

    def close(self) -> None:
        super().close()
        self._board.close()


class NewsListener(WakeupListener):
    """Looks at the sums while a process sleeps."""

    lost_by = (errors.TarryError, Conflict)

    def __init__(
        self, hub: WakeupHub, timeout: float, connect: Callable[[], MysqlConnection], directory: BoardDirectory
    ) -> None:
        super().__init__("tarry-wakeup", hub, timeout)
        self._connect, self._directory = connect, directory

    def subscribe(self, topic: str) -> None:
        """Starts the listener, and returns at once: news from other hosts comes a little later."""
        with self.lock:
            self.start()

    def is_receiving(self, topic: str) -> bool:
        """Always true."""
        # A sleeper need not wait for the listener: news from the server comes a little late anyway.
        return True

    def listen(self) -> None:
        if not self._await_sleeper():
            return
        link = self._connect()
        try:
            self._announce(link)
            seen = self._read_sums(link)
            self.confirm(())
            # Nobody knows what came between their going to sleep and this first look.
            self.hub.wake_all()
            while not self.is_closed:
                seen = self._look(link, seen)
                self._announce(link)
        finally:
            link.close()

    def _await_sleeper(self) -> bool:
        """Waits for a sleeper; False if the listener is closed."""
        with self.lock:
            self.changed.wait_for(lambda: self.is_closed or self.hub.has_sleepers())
            return not self.is_closed

    def _announce(self, link: MysqlConnection) -> None:
        """Tells other hosts that there are sleepers here."""
        name = self._directory.name(create=True)
        if name is None:
            return
        self._directory.touch()
        fresh = f"seen > UNIX_TIMESTAMP() - {QUARTER}"
        if not link.rows(f"SELECT 1 FROM tarry_board WHERE name = {text(name)} AND {fresh}"):
            # RAISE, since the boards are part of the settings that every process keeps.
            put = f"INSERT INTO tarry_board VALUES ({text(name)}, UNIX_TIMESTAMP())"
            link.run("BEGIN", RAISE, f"{put} ON DUPLICATE KEY UPDATE seen = VALUES(seen)",
                     f"DELETE FROM tarry_board WHERE seen < UNIX_TIMESTAMP() - {4 * QUARTER}", COMMIT)  # fmt: skip

    def _look(self, link: MysqlConnection, seen: tuple[int, ...]) -> tuple[int, ...]:
        """Wakes sleepers for an hour, or until the listener is closed. seen: the sums before; answers the last ones."""
        pause, listens, until = SOON, self.hub.listens, time.monotonic() + 3600
        # Only for an hour: then `listen` announces this host again.
        while self._await_sleeper() and time.monotonic() < until:
            # A new sleeper wants its news soon.
            if listens != self.hub.listens:
                pause, listens = SOON, self.hub.listens
            sums = self._read_sums(link)
            if sums != seen:
                self.hub.wake(*(reason for reason, old, new in zip(COLUMNS, seen, sums, strict=True) if old != new))
                seen, pause = sums, SOON
            with self.lock:
                self.changed.wait_for(lambda: self.is_closed or self.hub.listens != listens, pause)  # noqa: B023
            pause = min(SELDOM, pause * GROWTH)
        return seen

    def _read_sums(self, link: MysqlConnection) -> tuple[int, ...]:
        ((sums,),) = link.rows(_SUMS)
        return tuple(map(int, sums.split()))

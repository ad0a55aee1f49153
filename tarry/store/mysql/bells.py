"""Wake-up. Among the processes of one user on one host it goes by a board, as beside a SQLite file. From other hosts,
and from transactions of the program's own, it goes through a table of numbers: who writes raises his, and while
somebody here sleeps, one thread looks at the sum, at first every 5 ms, in the end 4 times a second.
"""

import contextlib
import hashlib
import os
import secrets
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tarry import errors
from tarry.store.mysql.address import Address
from tarry.store.mysql.errors import Conflict
from tarry.store.mysql.link import COMMIT, Link
from tarry.store.mysql.settings import RAISE
from tarry.store.mysql.sql import text
from tarry.store.shared.bell import FOLLOW, RESULT, WORK, Bell
from tarry.store.shared.bellboard import BellBoard
from tarry.store.shared.patience import Backoff

SOON, SELDOM, GROWTH = 0.005, 0.25, 1.3
"""Seconds between looks: at first, in the end, and how they grow."""
QUARTER = 6 * 3600
"""Seconds after which a host says again that it has sleepers; after four of them it counts as gone."""
KINDS = ("work", "result", "follow", "recall")
_SUMS = f"SELECT CONCAT_WS(' ', {', '.join(f'IFNULL(SUM({kind}), 0)' for kind in KINDS)}) FROM tarry_news"
_NEWS = """INSERT INTO tarry_news (n, work, result, follow, recall, at)
    VALUES (CONNECTION_ID(), {}, {}, {}, {}, UNIX_TIMESTAMP()) ON DUPLICATE KEY UPDATE work = work + VALUES(work),
    result = result + VALUES(result), follow = follow + VALUES(follow), recall = recall + VALUES(recall),
    at = VALUES(at)"""
_OLD_NEWS = "SELECT n FROM tarry_news WHERE at < UNIX_TIMESTAMP() - 3600 LIMIT 1000 FOR UPDATE{}"


def news(kinds: Sequence[str]) -> str:
    """The statement by which others hear of it. Each connection has a number of its own to raise, so that no
    transaction waits for another."""
    return _NEWS.format(*(int(kind in kinds) for kind in KINDS))


def forget_news(link: Link, skip: str) -> None:
    """Drops what connections raised long ago; within a transaction, and where that need not wait for any other."""
    if not skip:
        return
    old = [str(number) for (number,) in link.rows(_OLD_NEWS.format(skip))]
    if old:
        link.run(f"DELETE FROM tarry_news WHERE n IN ({','.join(old)})")


class Place:
    """The directory of the board that the processes of this user on this host share, for one database."""

    def __init__(self, address: Address) -> None:
        database = f"{address.host}\0{address.port}\0{address.socket}\0{address.database}"
        mark = hashlib.sha256(database.encode()).hexdigest()[:16]
        self.path = Path(tempfile.gettempdir()) / f"tarry-{os.getuid()}-{mark}"

    def make(self) -> bool:
        """False if somebody else has a directory of that name, or none can be made: then there is no board."""
        with contextlib.suppress(OSError):
            self.path.mkdir(mode=0o700, exist_ok=True)
            found = os.lstat(self.path)
            return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
        return False

    def name(self, create: bool = False) -> str | None:
        """What it is known by to other hosts; None: nobody here ever had a bell."""
        file = self.path / "name"
        with contextlib.suppress(OSError):
            if create and not file.exists():
                mine = self.path / f"name.{os.getpid()}.{secrets.token_hex(4)}"
                mine.write_text(secrets.token_hex(16))
                with contextlib.suppress(FileExistsError):
                    os.link(mine, file)
                mine.unlink()
            return file.read_text()
        return None

    def touch(self) -> None:
        """So that nobody who clears old files away takes these for old."""
        with contextlib.suppress(OSError):
            for file in self.path.iterdir():
                os.utime(file)


class Bells:
    """The bells of one store. connect: a connection of the watch's own."""

    def __init__(self, address: Address, connect: Callable[[], Link]) -> None:
        self._place, self._connect = Place(address), connect
        self._name: str | None = None
        self._board = BellBoard(self._place.path)
        self._lock = threading.Condition()
        self._ringing = threading.Lock()
        self._armed: dict[Bell, str] = {}
        self._thread: threading.Thread | None = None
        self._since = 0.0
        self._closed = False

    def bell(self) -> Bell:
        """A new one."""
        inner = self._board.bell() if self._place.make() else None
        return WatchedBell(self, inner)

    def elsewhere(self, boards: frozenset[str]) -> bool:
        """Whether there are sleepers that this host's board does not reach."""
        if not boards:
            return False
        self._name = self._name or self._place.name()
        return boards != {self._name}

    def ring(self, kinds: Sequence[str]) -> None:
        """Wakes those on this host. A hint: if it cannot be given, they look by themselves."""
        with contextlib.suppress(OSError), self._ringing:
            if "work" in kinds:
                self._board.ring_work()
            if "result" in kinds:
                self._board.ring_result()
            elif "follow" in kinds:
                self._board.ring_follow()
            if "recall" in kinds:
                self._board.ring_recall()

    def armed(self, bell: Bell, topic: str) -> None:
        """From now on it is looked for news for that bell too."""
        with self._lock:
            self._armed[bell] = topic
            self._since = time.monotonic()
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._watch, name="tarry-mysql-news", daemon=True)
                self._thread.start()
            self._lock.notify()

    def disarmed(self, bell: Bell) -> None:
        """Not for that one any more."""
        with self._lock:
            self._armed.pop(bell, None)

    def close(self) -> None:
        """Ends the watch."""
        with self._lock:
            self._closed, thread = True, self._thread
            self._lock.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=10)
        self._board.close()

    def _watch(self) -> None:
        backoff = Backoff()
        while self._somebody():
            try:
                link = self._connect()
                try:
                    self._announce(link)
                    self._look(link, backoff)
                finally:
                    link.close()
            except (errors.TarryError, Conflict):
                backoff.fail(now := time.monotonic())
                with self._lock:
                    self._lock.wait_for(lambda: self._closed, backoff.left(now))

    def _somebody(self) -> bool:
        """Waits until somebody sleeps; False once there is no more use in it."""
        with self._lock:
            self._lock.wait_for(lambda: self._armed or self._closed)
            return not self._closed

    def _announce(self, link: Link) -> None:
        """So that other hosts know that there is somebody to tell."""
        name = self._place.name(create=True)
        if name is None:
            return
        self._place.touch()
        fresh = f"seen > UNIX_TIMESTAMP() - {QUARTER}"
        if not link.rows(f"SELECT 1 FROM tarry_board WHERE name = {text(name)} AND {fresh}"):
            put = f"INSERT INTO tarry_board VALUES ({text(name)}, UNIX_TIMESTAMP())"
            link.run("BEGIN", RAISE, f"{put} ON DUPLICATE KEY UPDATE seen = VALUES(seen)",
                     f"DELETE FROM tarry_board WHERE seen < UNIX_TIMESTAMP() - {4 * QUARTER}", COMMIT)  # fmt: skip

    def _look(self, link: Link, backoff: Backoff) -> None:
        """Until the store is closed, or it is time to say again that we are here."""
        seen = self._sums(link)
        backoff.succeed()
        # What came since they went to sleep and before this first look, nobody knows.
        self._tell(KINDS)
        pause, since, until = SOON, self._since, time.monotonic() + 3600
        while self._somebody() and time.monotonic() < until:
            if since != self._since:
                pause, since = SOON, self._since
            now = self._sums(link)
            if now != seen:
                self._tell([kind for kind, old, new in zip(KINDS, seen, now, strict=True) if old != new])
                seen, pause = now, SOON
            with self._lock:
                self._lock.wait_for(lambda: self._closed or self._since != since, pause)  # noqa: B023
            pause = min(SELDOM, pause * GROWTH)

    def _sums(self, link: Link) -> tuple[int, ...]:
        ((sums,),) = link.rows(_SUMS)
        return tuple(map(int, sums.split()))

    def _tell(self, kinds: Sequence[str]) -> None:
        with self._lock:
            for bell, topic in self._armed.items():
                if _hears(topic, kinds):
                    bell.poke()


class WatchedBell(Bell):
    """A bell on the board, and on the watch for what the board does not tell."""

    def __init__(self, bells: Bells, inner: Bell | None) -> None:
        super().__init__()
        self._bells, self._inner = bells, inner

    def arm(self, topic: str) -> None:
        if self._inner is not None:
            self._inner.arm(topic)
        self._bells.armed(self, topic)

    def disarm(self) -> None:
        self._bells.disarmed(self)
        if self._inner is not None:
            self._inner.disarm()

    def filenos(self) -> list[int]:
        return [*super().filenos(), *([] if self._inner is None else self._inner.filenos())]

    def clear(self) -> bytes:
        if self._inner is not None:
            self._inner.clear()
        return super().clear()

    def close(self) -> None:
        super().close()
        if self._inner is not None:
            self._inner.close()


def _hears(topic: str, kinds: Sequence[str]) -> bool:
    if topic == FOLLOW:
        return "follow" in kinds or "result" in kinds
    if topic == RESULT:
        return "result" in kinds
    return "recall" in kinds or (topic.startswith(WORK) and "work" in kinds)

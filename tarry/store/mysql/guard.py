"""Telling by the server's list of connections that a worker is gone, before its lease runs out.

A worker that holds jobs keeps one connection that does nothing else, its guard, and writes its number beside its lease.
When a process ends, its host closes the connection at once, and the number is no longer in the list. Not every
connection that ends means that: one may be cut while the worker lives. Then the worker finds out within a second, when
it next prolongs its lease, and writes the number of a new one; so a guard counts as gone only if it stays away for
GRACE seconds. After a restart of the server all are gone, which says nothing: then only leases count. And only guards
of our own user are judged, since those of others need not be in the list that we see.
"""

import time
from collections.abc import Callable

from tarry import errors
from tarry.store.mysql.errors import Conflict
from tarry.store.mysql.link import Link
from tarry.store.mysql.sql import raw, text

GRACE = 5.0
_IDENTITY = """SELECT CONCAT_WS('|', @@hostname, @@port, @@datadir, SUBSTRING_INDEX(USER(), '@', 1)),
    UNIX_TIMESTAMP(SYSDATE())"""
_UPTIME = "SHOW GLOBAL STATUS LIKE 'Uptime'"
# Who prolongs the lease of another process takes nothing from its guard.
_NOTED = """UPDATE tarry_owner SET guard = {number}, server = {server}, started = {started} WHERE name = {name}
    AND guard <> {number} AND (server <> {server} OR ABS(started - {started}) > {same}
    OR NOT EXISTS (SELECT 1 FROM information_schema.PROCESSLIST p WHERE p.ID = guard))"""
_AWAY = """SELECT o.name, o.guard, o.server, o.started FROM tarry_owner o
    LEFT JOIN information_schema.PROCESSLIST p ON p.ID = o.guard WHERE o.guard > 0 AND o.until > {} AND p.ID IS NULL"""
_SAME_START = 3
"""Seconds that two reckonings of when the server started may differ by."""


class Guard:
    """The connection by which others see that this process lives."""

    def __init__(self, connect: Callable[[], Link]) -> None:
        self._connect = connect
        self._link: Link | None = None
        self._server = (b"", 0)

    def watch_over(self, link: Link, owner: str) -> None:
        """Sees to it that the guard lives and that its number stands beside the owner's lease."""
        if not self._alive() and not self._renew():
            return
        assert self._link is not None
        number, (name, started) = self._link.number, self._server
        values = {"number": number, "server": raw(name), "started": started, "name": text(owner)}
        link.run(_NOTED.format(same=_SAME_START, **values))

    def _alive(self) -> bool:
        if self._link is None:
            return False
        try:
            self._link.run("DO 0")
        except (errors.StoreError, Conflict):
            self.close()
            return False
        return True

    def _renew(self) -> bool:
        """Without one, only the lease says that we live."""
        try:
            self._link = self._connect()
            self._server = server(self._link)
        except errors.TarryError:
            self.close()
            return False
        return True

    def close(self) -> None:
        """Nobody is to be guarded any more."""
        link, self._link = self._link, None
        if link is not None:
            link.close()


class Missing:
    """Which guards are away, and since when we have seen that."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[tuple[str, int], float] = {}

    def gone(self, link: Link, now: int) -> list[str]:
        """Owners whose lease still runs but who are gone."""
        away = link.rows(_AWAY.format(now))
        here, start = server(link) if away else (b"", 0)
        judged = [
            (name.decode(), guard)
            for name, guard, where, started in away
            if where == here and abs(started - start) <= _SAME_START
        ]
        moment = self._clock()
        self._since = {each: self._since.get(each, moment) for each in judged}
        return [name for (name, _), since in self._since.items() if moment - since >= GRACE]


def server(link: Link) -> tuple[bytes, int]:
    """Which server it is and as whom we are there; when it started, in seconds since the epoch, to a second or so."""
    identity, uptime = link.run(_IDENTITY, _UPTIME)
    name, now = identity.rows[0]
    return str(name).encode(), int(now) - int(uptime.rows[0][1])

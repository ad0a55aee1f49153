"""Learns from the server's list of connections that a worker is gone, before its lease runs out.

A worker that holds jobs keeps one connection that does nothing else, its guard, and writes the connection's number
beside its lease. When a process ends, its host closes the connection at once, and the number leaves the list.
"""

import time
from collections.abc import Callable

from tarry import errors
from tarry.store.mysql.link.connection import MysqlConnection
from tarry.store.mysql.link.literals import raw, text
from tarry.store.mysql.link.mysql_errors import Conflict

# A connection may also be cut while its worker lives. The worker notices within a second, when it next prolongs its
# lease, and writes the number of a new connection.
GRACE = 5.0
"""Seconds that a guard must be away before its worker counts as gone."""
_IDENTITY = """SELECT CONCAT_WS('|', @@hostname, @@port, @@datadir, SUBSTRING_INDEX(USER(), '@', 1)),
    UNIX_TIMESTAMP(SYSDATE())"""
_UPTIME = "SHOW GLOBAL STATUS LIKE 'Uptime'"
# A process that prolongs another's lease must not replace a guard that lives.
_NOTED = """UPDATE tarry_owner SET guard = {number}, server = {server}, started = {started} WHERE name = {name}
    AND guard <> {number} AND (server <> {server} OR ABS(started - {started}) > {same}
    OR NOT EXISTS (SELECT 1 FROM information_schema.PROCESSLIST p WHERE p.ID = guard))"""
_AWAY = """SELECT o.name, o.guard, o.server, o.started FROM tarry_owner o
    LEFT JOIN information_schema.PROCESSLIST p ON p.ID = o.guard WHERE o.guard > 0 AND o.until > {} AND p.ID IS NULL"""
# The start is computed from the time and the uptime, both in whole seconds.
_SAME_START = 3
"""Seconds by which two computed starts of the same server may differ."""


class LivenessConnection:
    """The connection by which others see that this process lives."""

    def __init__(self, connect: Callable[[], MysqlConnection]) -> None:
        self._connect = connect
        self._link: MysqlConnection | None = None
        self._server = (b"", 0)

    def watch_over(self, link: MysqlConnection, owner: str) -> None:
        """Makes sure that the guard lives and that its number is beside the owner's lease."""
        # Without a guard only the lease says that this process lives.
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
        """Makes a new guard; False if that fails."""
        try:
            self._link = self._connect()
            self._server = server(self._link)
        except errors.TarryError:
            self.close()
            return False
        return True

    def close(self) -> None:
        """Closes the guard."""
        link, self._link = self._link, None
        if link is not None:
            link.close()


class LostOwners:
    """The guards that are away, and since when."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[tuple[str, int], float] = {}

    def gone(self, link: MysqlConnection, now: int) -> list[str]:
        """Owners that are gone although their lease still runs."""
        away = link.rows(_AWAY.format(now))
        here, start = server(link) if away else (b"", 0)
        # Another user's guards need not be in the list that we see. And after a restart of the server all guards are
        # away, which says nothing: then only leases count.
        judged = [
            (name.decode("utf-8", "replace"), guard)
            for name, guard, where, started in away
            if where == here and abs(started - start) <= _SAME_START
        ]
        moment = self._clock()
        # A guard that came back drops out here, so its next absence counts from the start.
        self._since = {each: self._since.get(each, moment) for each in judged}
        return [name for (name, _), since in self._since.items() if moment - since >= GRACE]


def server(link: MysqlConnection) -> tuple[bytes, int]:
    """The server and our user there; when it started, in seconds since the epoch, to a second or so."""
    identity, uptime = link.run(_IDENTITY, _UPTIME)
    name, now = identity.rows[0]
    return str(name).encode(), int(now) - int(uptime.rows[0][1])

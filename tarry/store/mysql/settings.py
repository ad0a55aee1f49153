"""What people have set (limits, paused queues) and which hosts have sleepers. It seldom changes, so it is kept here.

A process that changes it raises a number in the server. A transaction that depends on it begins with a look at that
number, under a lock that delays such changes until the transaction ends. The look is part of the first packet: if the
number has changed, the look fails, and so does all that follows (`mysql.link.errors.StaleSettings`).
"""

import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tarry.model.limit import Limit
from tarry.store.mysql import sql
from tarry.store.mysql.link.connection import MysqlConnection, StatementResult
from tarry.store.rules.lanes import decode_limit
from tarry.store.sql.columns import name_text

RAISE = "UPDATE tarry_about SET value = value + 1 WHERE name = 'settings'"
# Inserts do not look at the number. A job with the wrong lane does no harm: a claim moves it (`claim.Start.read`).
FRESH = 1.0
"""Seconds for which an insert trusts the settings that were read."""
NUMBER = "SELECT value FROM tarry_about WHERE name = 'settings'"
LIMITS = "SELECT name, value, number FROM tarry_limit"
_BOARDS = "SELECT name FROM tarry_board"
_READ = (NUMBER, LIMITS, "SELECT queue FROM tarry_paused", _BOARDS)
# With another number the outer query has several rows, and a subquery with several rows is an error (1242): the rest of
# the packet does not run. The inner one finds its row whatever the number is: in READ COMMITTED a row that is looked at
# and not found is unlocked at once.
_SAME = """(SELECT 1 FROM tarry_about WHERE name = 'schema'
    OR (SELECT value FROM tarry_about WHERE name = 'settings' LOCK IN SHARE MODE) <> {})"""
_LOOK = "SELECT CONCAT_WS(' ', {}, IFNULL(({}), -1), {})"
# Exchanges under limits or with lanes run one by one: only the one with the turn reads and writes levels and turns.
TAKE_TURN = "SELECT 1 FROM tarry_about WHERE name = 'turn' FOR UPDATE"


class StoreSettings(Struct, frozen=True):
    """The settings as they were at one moment."""

    number: int
    limits: dict[str, Limit]
    since: dict[str, int]
    """For each limit the number of the first settings that had it."""
    paused: frozenset[str]
    boards: frozenset[str]
    """The boards with sleepers: one board for the processes of one user of a host."""

    def look(self, exist: Sequence[str] = ()) -> str:
        """The statement that fails if the settings have changed, else answers several questions in one row, for
        `LookResult`. exist: expressions that are true or false."""
        questions = ", ".join((f"EXISTS({sql.ANY_LANED})", *exist))
        return _LOOK.format(_SAME.format(self.number), sql.NEXT_DUE, questions)


class LookResult(Struct, frozen=True):
    """The answer to a look."""

    due: int | None
    """When the first scheduled job is due."""
    laned: bool
    """Whether jobs wait in lanes."""
    exist: list[bool]


def look_result(answer: StatementResult) -> LookResult:
    """The result in the answer to `StoreSettings.look`."""
    _, due, laned, *exist = map(int, answer.rows[0][0].split())
    return LookResult(None if due < 0 else due, bool(laned), [bool(one) for one in exist])


class SettingsCache:
    """The settings as this process knows them."""

    def __init__(self) -> None:
        self._settings: StoreSettings | None = None
        self._read = 0.0

    def get(self, link: MysqlConnection, fresh: float | None = None) -> StoreSettings:
        """The settings as last read; read anew if that is more than `fresh` seconds ago. None: never too old, since the
        caller's transaction looks."""
        settings = self._settings
        if settings is None or (fresh is not None and time.monotonic() - self._read > fresh):
            # The time before the read: the settings may change while the answer is on its way.
            self._read = time.monotonic()
            settings = self._settings = _read(link.run(*_READ))
        return settings

    def boards(self, link: MysqlConnection) -> frozenset[str]:
        """The boards with sleepers."""
        # Reads nothing else if it has to read: there may be thousands of limits.
        settings = self._settings
        if settings is not None and time.monotonic() - self._read <= FRESH:
            return settings.boards
        return _boards(link.rows(_BOARDS))

    def forget(self) -> None:
        """The settings have changed: the next `get` reads them."""
        self._settings = None


def limits_of(rows: Sequence[tuple[Any, ...]]) -> dict[str, Limit]:
    """The limits in these rows of LIMITS."""
    return {name_text(name): decode_limit(value) for name, value, _ in rows}


def _read(answers: Sequence[StatementResult]) -> StoreSettings:
    number, limits, paused, boards = (answer.rows for answer in answers)
    return StoreSettings(
        int(number[0][0]),
        limits_of(limits),
        {name_text(name): number for name, _, number in limits},
        frozenset(name_text(queue) for (queue,) in paused),
        _boards(boards),
    )


def _boards(rows: Sequence[tuple[Any, ...]]) -> frozenset[str]:
    return frozenset(name_text(name) for (name,) in rows)

"""What people have set: limits, paused queues; and which hosts have sleepers. It seldom changes, so it is kept here.

Whoever changes it raises a number in the server. A transaction that depends on it begins with a look at that number,
under a lock that holds off who would change it until the transaction ends. The look is part of the first packet: where
the number is another, it fails, and so does all that follows (`mysql.errors.Stale`).
"""

import time
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from tarry.model.limit import Limit
from tarry.store.mysql import sql
from tarry.store.mysql.link import Answer, Link
from tarry.store.shared.lanes import limit_in

RAISE = "UPDATE tarry_about SET value = value + 1 WHERE name = 'settings'"
FRESH = 1.0
"""Seconds that who only inserts goes by what was read."""
NUMBER = "SELECT value FROM tarry_about WHERE name = 'settings'"
LIMITS = "SELECT name, value, number FROM tarry_limit"
_BOARDS = "SELECT name FROM tarry_board"
_READ = (NUMBER, LIMITS, "SELECT queue FROM tarry_paused", _BOARDS)
_SAME = """(SELECT 1 FROM tarry_about WHERE name = 'schema' OR (name = 'settings' AND value <> {})
    LOCK IN SHARE MODE)"""
_LOOK = "SELECT CONCAT_WS(' ', {}, IFNULL(({}), -1), {})"
TAKE_TURN = "SELECT 1 FROM tarry_about WHERE name = 'turn' FOR UPDATE"
"""Those for whom limits or lanes count go one by one: who has it may read levels and turns, and write them."""


class Settings(Struct, frozen=True):
    """As they were at one moment."""

    number: int
    limits: dict[str, Limit]
    since: dict[str, int]
    """For each limit the number of the first settings that had it."""
    paused: frozenset[str]
    boards: frozenset[str]
    """Where there are bells: one for the processes of one user of a host."""

    def look(self, exist: Sequence[str] = ()) -> str:
        """The statement that fails if the settings are others; one row, for `Said`, with the answers to many small
        questions at once: exist are expressions that are true or not."""
        questions = ", ".join((f"EXISTS({sql.ANY_LANED})", *exist))
        return _LOOK.format(_SAME.format(self.number), sql.NEXT_DUE, questions)


class Said(Struct, frozen=True):
    """The answer to a look."""

    due: int | None
    """When the first scheduled job falls due."""
    laned: bool
    """Jobs wait in lanes."""
    exist: list[bool]


def said(answer: Answer) -> Said:
    """Reads it."""
    _, due, laned, *exist = map(int, answer.rows[0][0].split())
    return Said(None if due < 0 else due, bool(laned), [bool(one) for one in exist])


class Known:
    """The settings as this process knows them."""

    def __init__(self) -> None:
        self._settings: Settings | None = None
        self._read = 0.0

    def get(self, link: Link, fresh: float | None = None) -> Settings:
        """As read last; if that is longer ago than so many seconds, as they are."""
        settings = self._settings
        if settings is None or (fresh is not None and time.monotonic() - self._read > fresh):
            self._read = time.monotonic()
            settings = self._settings = _read(link.run(*_READ))
        return settings

    def boards(self, link: Link) -> frozenset[str]:
        """Where there are bells, for who needs nothing else: there may be thousands of limits."""
        settings = self._settings
        if settings is not None and time.monotonic() - self._read <= FRESH:
            return settings.boards
        return _boards(link.rows(_BOARDS))

    def forget(self) -> None:
        """They are not so any more."""
        self._settings = None


def limits_of(rows: Sequence[tuple[Any, ...]]) -> dict[str, Limit]:
    """The limits in these rows of LIMITS."""
    return {name.decode(): limit_in(value) for name, value, _ in rows}


def _read(answers: Sequence[Answer]) -> Settings:
    number, limits, paused, boards = (answer.rows for answer in answers)
    return Settings(
        int(number[0][0]),
        limits_of(limits),
        {name.decode(): number for name, _, number in limits},
        frozenset(queue.decode() for (queue,) in paused),
        _boards(boards),
    )


def _boards(rows: Sequence[tuple[Any, ...]]) -> frozenset[str]:
    return frozenset(name.decode() for (name,) in rows)

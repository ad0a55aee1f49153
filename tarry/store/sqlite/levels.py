"""The table `tarry_level`: how far each limit is used, and whose turn it is among the lanes of a task."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

import msgspec

from tarry.model.limit import EACH, Level
from tarry.store.sqlite.link.connection import Statements

_READ = "SELECT name, running, next, turn FROM tarry_level WHERE name IN (SELECT value FROM json_each(?))"
_WRITE = """INSERT INTO tarry_level (name, running, next, turn) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (name) DO UPDATE SET running = ?2, next = ?3, turn = ?4"""
_DELETE = "DELETE FROM tarry_level WHERE name = ?"
LevelRow: TypeAlias = tuple[Level, str | None]
"""A level; or whose turn it is among lanes (`lanes.turn_name`), and an unused level."""
_UNUSED: LevelRow = (Level(), None)


class LevelTable:
    """The levels as one transaction sees them. Each is read once; `save` writes those that have changed.

    known: rows that were read already, by name; None: there is no such row.
    """

    def __init__(self, db: Statements, known: Mapping[str, LevelRow | None]) -> None:
        self._db = db
        self._stored = dict(known)
        self._changed: dict[str, LevelRow] = {}
        self.is_lower = False
        """After `save`: a level is lower than it was, so that more jobs may start."""

    def levels(self, names: Iterable[str]) -> dict[str, Level]:
        """The levels of these names."""
        return {name: row[0] for name, row in self._rows(names).items()}

    def turn(self, name: str) -> str | None:
        """What is kept by a name of `lanes.turn_name`."""
        return self._row(name)[1]

    def set_levels(self, levels: Mapping[str, Level]) -> None:
        """Changes these levels."""
        self._changed |= {name: (levels[name], row[1]) for name, row in self._rows(levels).items()}

    def set_turns(self, turns: Mapping[str, str]) -> None:
        """Changes these turns, by name."""
        self._changed |= {name: (self._row(name)[0], turn) for name, turn in turns.items()}

    def save(self, now: int) -> None:
        """Writes what has changed; deletes the levels of idle keys."""
        # What a batch ends often starts anew in the same transaction: most levels are then as they were.
        changed = {name: row for name, row in self._changed.items() if row != self._before(name)}
        self.is_lower = any(_is_lower(level, self._before(name)[0]) for name, (level, _) in changed.items())
        # There may be any number of keys, so the table would grow without end.
        idle = {name for name, (level, _) in changed.items() if name.startswith(EACH) and level.idle(now)}
        rows = [
            (name, level.running, level.next, turn)
            for name, (level, turn) in sorted(changed.items())
            if name not in idle
        ]
        if rows:
            self._db.executemany(_WRITE, rows)
        if idle:
            self._db.executemany(_DELETE, [(name,) for name in sorted(idle)])

    def _before(self, name: str) -> LevelRow:
        return self._stored[name] or _UNUSED

    def _row(self, name: str) -> LevelRow:
        return self._rows((name,))[name]

    def _rows(self, names: Iterable[str]) -> dict[str, LevelRow]:
        names = list(names)
        if missing := [name for name in names if name not in self._stored]:
            self._stored |= dict.fromkeys(missing) | self._read(missing)
        changed, stored = self._changed, self._stored
        return {name: changed.get(name) or stored[name] or _UNUSED for name in names}

    def _read(self, names: Sequence[str]) -> dict[str, LevelRow]:
        rows = self._db.execute(_READ, (msgspec.json.encode(names).decode(),)).fetchall()
        return {name: (Level(running, next_start), turn) for name, running, next_start, turn in rows}


def _is_lower(level: Level, before: Level) -> bool:
    return level.running < before.running or level.next < before.next

"""The table `tarry_level`: how far each limit is used, and which lane each task served last."""

from collections.abc import Mapping

from tarry.model.limit import EACH, TASK, Level
from tarry.store.sqlite.connection import Statements

_READ = "SELECT running, next FROM tarry_level WHERE name = ?"
_WRITE = """INSERT INTO tarry_level (name, running, next) VALUES (?1, ?2, ?3)
    ON CONFLICT (name) DO UPDATE SET running = ?2, next = ?3"""
_DELETE = "DELETE FROM tarry_level WHERE name = ?"
_READ_TURN = "SELECT turn FROM tarry_level WHERE name = ?"
_WRITE_TURN = """INSERT INTO tarry_level (name, running, next, turn) VALUES (?1, 0, 0, ?2)
    ON CONFLICT (name) DO UPDATE SET turn = ?2"""


def read_level(db: Statements, name: str) -> Level:
    """The level of that name."""
    row = db.execute(_READ, (name,)).get
    return Level() if row is None else Level(*row)


def save_levels(db: Statements, levels: Mapping[str, Level], now: int) -> None:
    """Writes these levels; deletes those of idle keys."""
    # There may be any number of keys, so the table would grow without end.
    idle = {name for name, level in levels.items() if name.startswith(EACH) and level.idle(now)}
    rows = [(name, level.running, level.next) for name, level in sorted(levels.items()) if name not in idle]
    if rows:
        db.executemany(_WRITE, rows)
    if idle:
        db.executemany(_DELETE, [(name,) for name in sorted(idle)])


def read_turn(db: Statements, task: str) -> str | None:
    """The lane of the task that a claim served last."""
    turn: str | None = db.execute(_READ_TURN, (TASK + task,)).get
    return turn


def save_turns(db: Statements, turns: Mapping[str, str]) -> None:
    """Writes the lane that each task served last."""
    if turns:
        db.executemany(_WRITE_TURN, [(TASK + task, turn) for task, turn in sorted(turns.items())])

"""Looks which tables and indexes of a database are damaged."""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from tarry.store.rules.base import Diagnostic
from tarry.store.sqlite.file import translate_errors
from tarry.store.sqlite.link import wal, wal_index
from tarry.store.sqlite.link.damage_mark import REPLACED, DamageMark
from tarry.store.sqlite.link.database import Database, connect

LONGEST = 60.0
"""Seconds that a look takes; a large file is not looked at to its end then."""
_MOST = 100
"""Complaints of SQLite that are read."""
_TREE = re.compile(r"Tree (\d+)")
_NAMED = re.compile(r"(?:index|value in) (\w+)")


class DamagedTree(NamedTuple):
    """A table or index that is damaged."""

    name: str
    is_index: bool


UNKNOWN = DamagedTree("its first page", False)
"""Where not even the list of tables can be read, or what is damaged belongs to none."""


def look(path: Path, shared: str, pragma: str = "quick_check") -> list[DamagedTree] | None:
    """The damaged trees of the database at this path; None if the time did not suffice. StoreCorrupt: its log is,
    or it is no database; StoreUnavailable.

    pragma: "integrity_check" also compares each index with its table.
    """
    # As before each opening: SQLite deletes the log of an empty database.
    wal.refuse_emptied(path)
    wal_index.refuse_cut(path)
    with translate_errors(path):
        database = connect(path, shared)
        try:
            if isinstance(database, apsw.Connection):
                database.set_progress_handler(_is_late(time.monotonic() + LONGEST), 10_000)
            return damaged_trees(database, pragma)
        except apsw.InterruptError:
            return None
        finally:
            database.close(True)


def _is_late(until: float) -> Callable[[], bool]:
    return lambda: time.monotonic() > until


def damaged_trees(database: Database, pragma: str) -> list[DamagedTree]:
    """Those that SQLite complains of; UNKNOWN for what belongs to none."""
    try:
        rows: list[Any] = database.execute(
            "SELECT rootpage, name, type FROM sqlite_schema WHERE rootpage > 0"
        ).fetchall()
        said = _complaints(database, f"{pragma}({_MOST})")
    except apsw.CorruptError:
        return [UNKNOWN]
    if said == "ok":
        return []
    trees = {root: DamagedTree(name, kind == "index") for root, name, kind in rows}
    names = {tree.name: tree for tree in trees.values()}
    # SQLite gives up at a table that it cannot read at all, and then tells nothing of the others.
    if not said:
        said = "\n".join(_of_table(database, pragma, tree.name) for tree in names.values() if not tree.is_index)
    found = {trees[int(root)] for root in _TREE.findall(said) if int(root) in trees}
    found |= {names[name] for name in _NAMED.findall(said) if name in names}
    return sorted(found) or [UNKNOWN]


def _complaints(database: Database, pragma: str) -> str:
    """What SQLite says of the whole database; empty if it gave up."""
    try:
        return "\n".join(str(row[0]) for row in database.execute(f"PRAGMA {pragma}").fetchall())
    except apsw.CorruptError:
        return ""


def _of_table(database: Database, pragma: str, table: str) -> str:
    return _complaints(database, f"{pragma}({table})") or f"value in {table}"


def integrity(path: Path, shared: str) -> Diagnostic:
    """For `tarry check`. Ends the refusal of new jobs if the file proves to be whole."""
    mark = DamageMark(path.resolve())
    marked = mark.read()
    damaged = look(path, shared, "integrity_check" if marked else "quick_check")
    if damaged:
        return Diagnostic("integrity", f"damaged: {', '.join(tree.name for tree in damaged)}", advice_for(damaged))
    if marked.startswith(REPLACED):
        return Diagnostic("integrity", marked, "stop all that use it, then `tarry store repair`")
    if damaged is None:
        return Diagnostic("integrity", f"not looked at to its end in {LONGEST:g} s")
    if marked:
        mark.clear()
        return Diagnostic("integrity", f"whole; jobs are taken again, which was refused: {marked}")
    return Diagnostic("integrity", "whole")


def advice_for(damaged: list[DamagedTree]) -> str:
    """What to do about these."""
    stop = "stop all that use the file; then `tarry store repair`"
    if all(tree.is_index for tree in damaged):
        return f"only indexes, so no job is lost: {stop} builds them anew"
    if damaged == [UNKNOWN]:
        return f"{stop} says what can be saved; or restore a backup"
    return f"a table: {stop} saves what can be read, in a new file, and keeps this one; or restore a backup"

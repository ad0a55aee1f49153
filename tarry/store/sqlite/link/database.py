"""Opens the connection to a file, with the copy of SQLite that the whole process has to use for it."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import apsw

if TYPE_CHECKING:
    from tarry.store.sqlite.link.python import PythonDatabase

SHARED = ("", "yes", "apsw")
"""Other programs that use the file: none; one that uses Python's sqlite3; one that uses apsw."""


class ApswDatabase(apsw.Connection):
    """A connection of apsw, the usual one."""

    # A whole array is one bound value: a thousand ids need neither a thousand statements nor a longer one.
    array = staticmethod(apsw.carray)

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        # Otherwise SQLite plans a statement anew for each value that a plan might depend on.
        self.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)


Database: TypeAlias = "ApswDatabase | PythonDatabase"


def connect(path: Path, shared: str) -> Database:
    """A bare connection, with the copy of SQLite that the whole process has to use for this file."""
    # Two copies of SQLite in one process do not see each other's locks, and would damage the file.
    if shared != "yes":
        return ApswDatabase(path)
    from tarry.store.sqlite.link.python import PythonDatabase  # noqa: PLC0415 -- most processes never need that module

    return PythonDatabase(path)

"""Opens the connection to a file, by the copy of SQLite that the whole process has to use for it."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import apsw

if TYPE_CHECKING:
    from tarry.store.sqlite.python import PythonDatabase

SHARED = ("", "yes", "apsw")
"""Who else is in the file: nobody; a program that uses Python's sqlite3; one that uses apsw."""


class ApswDatabase(apsw.Connection):
    """The usual one."""

    array = staticmethod(apsw.carray)


Database: TypeAlias = "ApswDatabase | PythonDatabase"


def connected(path: Path, shared: str) -> Database:
    """A bare connection, by the copy of SQLite that the whole process has to use for this file."""
    if shared != "yes":
        return ApswDatabase(str(path))
    from tarry.store.sqlite.python import PythonDatabase  # noqa: PLC0415 -- most processes never need that module

    return PythonDatabase(path)

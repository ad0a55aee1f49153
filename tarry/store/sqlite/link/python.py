"""Python's own sqlite3 with those methods of an `apsw.Connection` that the store uses.

For files that the store shares with a program that uses sqlite3, itself or through SQLAlchemy or Django: see
`sqlite.file`.
"""

import contextlib
import os
import sqlite3
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import apsw
import msgspec

from tarry.errors import ConfigError
from tarry.store.sqlite.link.connection import Rows, bound

OLDEST = (3, 37, 0)
"""The first SQLite with STRICT tables."""

BusyHandler = Callable[[int], bool]


class PythonDatabase:
    """A connection to the file at `path`; raises what apsw would raise. ConfigError if this Python's SQLite is too
    old."""

    def __init__(self, path: Path) -> None:
        if sqlite3.sqlite_version_info < OLDEST:
            raise ConfigError(
                f"this Python's sqlite3 is SQLite {sqlite3.sqlite_version}; a shared file needs 3.37 or later: take a"
                " newer Python, or give tarry a file of its own"
            )
        self._path = path
        self._busy: BusyHandler = _give_up
        with _as_apsw():
            # timeout=0: `_patiently` waits, by our own busy handler, which sqlite3 cannot set. isolation_level=None:
            # or the module would begin transactions by itself. The store's lock keeps threads apart.
            self._db = sqlite3.connect(path, timeout=0, isolation_level=None, check_same_thread=False)
            self._db.create_function("tarry_item", 1, _item, deterministic=True)

    def __del__(self) -> None:
        # As apsw does: a program may end without closing its store, and Python 3.13 and newer warn of that.
        with contextlib.suppress(AttributeError):
            self._db.close()

    def set_busy_handler(self, handler: BusyHandler) -> None:
        """Sets what waits when the file is locked. handler: takes the number of tries so far; answers False to give
        up."""
        self._busy = handler

    def readonly(self, name: str) -> bool:
        """Whether this user may not write the file."""
        return not os.access(self._path, os.W_OK)

    def pragma(self, name: str) -> Any:
        """The value of a pragma."""
        return self.execute(f"PRAGMA {name}").get

    def execute(self, statement: str, bindings: tuple[Any, ...] = ()) -> Rows:
        """Runs one statement to its end."""
        bindings = bound(statement, bindings)
        return Rows(self._patiently(self._db.execute, _rewrite_arrays(statement), bindings).fetchall())

    def executemany(self, statement: str, bindings: Sequence[tuple[Any, ...]]) -> Rows:
        """Runs the statement once for each of these bindings; answers all rows. Within a transaction."""
        # sqlite3's own `executemany` refuses statements that answer rows.
        if " RETURNING " in statement:
            return Rows(row for each in bindings for row in self.execute(statement, each))
        each = [bound(statement, one) for one in bindings]
        self._patiently(self._db.executemany, _rewrite_arrays(statement), each)
        return Rows()

    @staticmethod
    def array(values: "array[int] | Sequence[bytes]") -> str:
        """The value to bind for `carray(?)`."""
        # Python's sqlite3 has no carray, and JSON too is a whole array in one bound value.
        return msgspec.json.encode([v.hex() if isinstance(v, bytes) else v for v in values]).decode()

    def changes(self) -> int:
        """How many rows the last INSERT, UPDATE or DELETE has changed."""
        return int(self.execute("SELECT changes()").get)

    def total_changes(self) -> int:
        """How many rows this connection has changed."""
        return self._db.total_changes

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open."""
        return self._db.in_transaction

    def close(self, force: bool = False) -> None:
        """Closes the connection."""
        self._db.close()

    def _patiently(self, call: Callable[[str, Any], sqlite3.Cursor], statement: str, bindings: Any) -> sqlite3.Cursor:
        tries = 0
        while True:
            try:
                with _as_apsw():
                    return call(statement, bindings)
            except apsw.BusyError as error:
                # A read transaction whose snapshot is outdated can never write: waiting does not help.
                snapshot = getattr(error, "extendedresult", 0) == apsw.SQLITE_BUSY_SNAPSHOT
                if snapshot or not self._busy(tries):
                    raise
                tries += 1


def _give_up(tries: int) -> bool:
    return False


@lru_cache(maxsize=512)
def _rewrite_arrays(statement: str) -> str:
    """The statement for arrays that come as JSON, with blobs as hexadecimal text."""
    return statement.replace("SELECT value FROM carray(", "SELECT tarry_item(value) FROM json_each(")


def _item(value: int | str) -> int | bytes:
    return bytes.fromhex(value) if isinstance(value, str) else value


@contextlib.contextmanager
def _as_apsw() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        mapped = apsw.exception_for(getattr(error, "sqlite_errorcode", apsw.SQLITE_MISUSE))
        mapped.args = (str(error),)
        raise mapped from error

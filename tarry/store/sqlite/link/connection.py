"""What the store needs of a connection to its file: the same methods for each copy of SQLite, and for connections of
the store and of the caller."""

import sys
from collections.abc import Sequence
from typing import Any, Protocol

_NAMES_PLACES = (3, 12) <= sys.version_info < (3, 12, 4)
"""Whether sqlite3 takes ?1 for a name, and warns of values that come by place (CPython issue 117995)."""


class Result(Protocol):
    """What a statement answered."""

    @property
    def get(self) -> Any:
        """The first row, or its only value; None if there is none."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""


class Statements(Protocol):
    """A connection that runs statements."""

    def execute(self, statement: str, bindings: tuple[Any, ...] = ..., /) -> Result:
        """Runs one statement."""

    def executemany(self, statement: str, bindings: Sequence[tuple[Any, ...]], /) -> Result:
        """Runs the statement once for each of these bindings; answers all rows."""


def bound(statement: str, bindings: tuple[Any, ...]) -> Any:
    """The values of a statement as Python's sqlite3 takes them. Where warnings are errors, one would end a call amid a
    transaction."""
    if _NAMES_PLACES and "?1" in statement:
        return {str(place): value for place, value in enumerate(bindings, 1)}
    return bindings


class Rows(list[tuple[Any, ...]]):
    """All rows that a statement answered."""

    # All are read at once: a statement that is only half read would hold its snapshot.

    @property
    def get(self) -> Any:
        """The first row, or its only value; None if there is none."""
        if not self:
            return None
        return self[0] if len(self[0]) > 1 else self[0][0]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""
        return self

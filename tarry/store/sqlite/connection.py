"""What the store asks of a connection to its file: the same face whichever copy of SQLite is behind it, and whoever
opened it."""

from collections.abc import Sequence
from typing import Any, Protocol


class Answer(Protocol):
    """What a statement answered."""

    @property
    def get(self) -> Any:
        """The first row, or its only value; None if there is none."""

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""


class Statements(Protocol):
    """A connection, as far as statements go."""

    def execute(self, statement: str, bindings: tuple[Any, ...] = ..., /) -> Answer:
        """Runs one statement."""

    def executemany(self, statement: str, bindings: Sequence[tuple[Any, ...]], /) -> Answer:
        """Runs the statement with each of these; answers all rows."""


class Rows(list[tuple[Any, ...]]):
    """What a statement answered, all of it: a statement that is left half read would hold on to its snapshot."""

    @property
    def get(self) -> Any:
        """The first row, or its only value; None if there is none."""
        if not self:
            return None
        return self[0] if len(self[0]) > 1 else self[0][0]

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows."""
        return self

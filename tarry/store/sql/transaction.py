"""How the rules of SQL stores run their statements."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from tarry.store.sql.columns import Row


class SqlTransaction(ABC):
    """Runs statements in a transaction. In them ?1 is the first value, and ?2 the second."""

    @abstractmethod
    def rows(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Row]:
        """The rows that a statement finds."""

    @abstractmethod
    def each(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Runs a statement with the values of each row."""

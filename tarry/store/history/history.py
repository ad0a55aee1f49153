"""The history of a store: what was put, done, failed and so on, by minute, hour, day and of all time, queue and task.

It is exact over crashes. What a call counts is appended to the journal in the transaction of the call (`journal`). The
keeper sums the journal up: in one transaction it deletes the records that it read and writes the sums that they change.
Of two keepers at once one finds that the other was first, and does nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from msgspec import Struct

from tarry.store.history.sums import KEPT, Place, add_up, merge

TAKEN_AT_ONCE = 1000
"""The most records of the journal that are summed up in one transaction."""


class Taken(Struct, frozen=True):
    """The oldest records of a journal."""

    number: int
    """How often the journal was summed up before."""
    places: Sequence[int]
    """What the store deletes the records by."""
    records: Sequence[bytes]


class StoreHistory(ABC):
    """What a store counted. Several threads and processes may use it at once."""

    @abstractmethod
    def sum_up(self, now: int, limit: int = TAKEN_AT_ONCE) -> int:
        """Adds up to `limit` records of the journal to the sums, each once, whatever fails and whoever does it too;
        returns how many. If there are none it is one cheap read."""

    @abstractmethod
    def read(self, resolution: int, start: int, end: int) -> dict[Place, bytes]:
        """The sums (`sums.decode`) of that resolution whose start is from `start` to before `end`, in seconds."""

    @abstractmethod
    def unsummed(self, limit: int) -> list[bytes]:
        """Up to `limit` records that are not summed up yet, the oldest."""

    @abstractmethod
    def drop(self, resolution: int, before: int) -> int:
        """Deletes the sums of that resolution whose start is before `before`, in seconds; returns how many."""

    def prune(self, now: int) -> None:
        """Deletes the sums that were kept long enough."""
        for resolution, kept in KEPT.items():
            self.drop(resolution, now // 1_000_000 - kept)


class JournalHistory(StoreHistory):
    """The history of one store, with its journal."""

    @abstractmethod
    def take(self, limit: int) -> Taken:
        """The oldest records of the journal, at most `limit`. They stay there."""

    @abstractmethod
    def fold(self, taken: Taken, cells: Mapping[Place, bytes]) -> bool:
        """Deletes the records taken and writes these sums, in one transaction, unless the journal was summed up since
        they were taken; returns whether it did."""

    def sum_up(self, now: int, limit: int = TAKEN_AT_ONCE) -> int:
        taken = self.take(limit)
        if not taken.records:
            return 0
        added = add_up(taken.records, now)
        there: dict[Place, bytes] = {}
        for resolution, start in sorted({place[:2] for place in added}):
            there |= self.read(resolution, start, start + 1)
        return len(taken.records) if self.fold(taken, merge(added, there)) else 0

    def unsummed(self, limit: int) -> list[bytes]:
        return list(self.take(limit).records)

"""The history of a store: what was put, done, failed and so on, by minute, hour, day and of all time, queue and task.

It is exact over crashes. What a call counts is appended to the journal in the transaction of the call (`journal`). The
keeper sums the journal up: in one transaction it deletes the records that it read and writes the sums that they change.
Of two keepers at once one finds that the other was first, and does nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from tarry.model.duration import SECOND
from tarry.store.rules.history.gauges import QueueSample, is_sampled, sampled_cells
from tarry.store.rules.history.journal import read_record
from tarry.store.rules.history.sums import ERRORS, KEPT, LENGTH, MINUTES, Place, add_up, merge

TAKEN_AT_ONCE = 1000
"""The most records of the journal that are summed up in one transaction."""


SAMPLED_WITHIN = 5
"""How often a sample is tried while others sum up. Then that minute has none, unless somebody else has more luck."""


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

    @abstractmethod
    def sample(self, now: int, store: Any, read: Callable[[Any], Mapping[str, QueueSample]]) -> None:
        """Keeps one sample for the minute of `now` (microseconds): the first one, whoever else samples too. store:
        whose history this is; read: samples a store, by queue. Of several stores each is sampled."""

    @abstractmethod
    def change_errors(self, change: Callable[[Mapping[Place, bytes]], Mapping[Place, bytes]]) -> bool:
        """Changes groups of errors: `change` gets all cells that there are, and answers the new ones; empty: it goes.
        Answers whether they are kept so; not if somebody summed up meanwhile. Of several stores in each."""

    def prune(self, now: int) -> None:
        """Deletes the sums that were kept long enough, and groups of errors that were not seen for long."""
        from tarry.store.rules.history.error_sums import old_groups  # noqa: PLC0415 - keepers alone prune

        for resolution, kept in KEPT.items():
            self.drop(resolution, now // SECOND - kept)
        # If somebody sums up meanwhile, they go the next time.
        self.change_errors(lambda there: dict.fromkeys(old_groups(there, now), b""))


class JournalHistory(StoreHistory):
    """The history of one store, with its journal."""

    @abstractmethod
    def take(self, limit: int) -> Taken:
        """The oldest records of the journal, at most `limit`. They stay there."""

    @abstractmethod
    def fold(self, taken: Taken, cells: Mapping[Place, bytes]) -> bool:
        """Deletes the records taken and writes these cells, in one transaction, unless the journal was summed up since
        they were taken; returns whether it did. An empty cell is deleted."""

    @abstractmethod
    def number(self) -> int:
        """How often the journal was summed up."""

    def change_errors(self, change: Callable[[Mapping[Place, bytes]], Mapping[Place, bytes]]) -> bool:
        number = self.number()
        cells = change(self.read(ERRORS, 0, 1))
        return not cells or self.fold(Taken(number, (), ()), cells)

    def sample(self, now: int, store: Any, read: Callable[[Any], Mapping[str, QueueSample]]) -> None:
        second = now // SECOND
        for _ in range(SAMPLED_WITHIN):
            # Whatever is written after this raises the number, and then nothing is written here.
            number = self.number()
            there: dict[Place, bytes] = {}
            for resolution, length in LENGTH.items():
                start = second // length * length
                there |= self.read(resolution, start, start + 1)
            minute = {place: cell for place, cell in there.items() if place.resolution == MINUTES}
            if is_sampled(minute) or self.fold(Taken(number, (), ()), sampled_cells(read(store), second, there)):
                return

    def sum_up(self, now: int, limit: int = TAKEN_AT_ONCE) -> int:
        taken = self.take(limit)
        if not taken.records:
            return 0
        records = [read_record(record) for record in taken.records]
        added = add_up(records, now)
        there: dict[Place, bytes] = {}
        for resolution, start in sorted({place[:2] for place in added}):
            there |= self.read(resolution, start, start + 1)
        cells = merge(added, there)
        if errors := [error for record in records for error in record.errors]:
            from tarry.store.rules.history.error_sums import groups_of, merge_groups  # noqa: PLC0415 - keepers alone

            cells |= merge_groups(groups_of(errors, now), self.read(ERRORS, 0, 1))
        return len(taken.records) if self.fold(taken, cells) else 0

    def unsummed(self, limit: int) -> list[bytes]:
        return list(self.take(limit).records)

"""Which of several stores a worker asks for jobs: those that may have some, few at a time, and each of them soon."""

import time
from collections.abc import Collection, Mapping, Sequence

ENOUGH = 128
"""Jobs for which one store more is asked at the same time: a call for fewer costs more than they do."""
BUSY_AFTER = 8
"""A worker that got jobs so often in a row is busy: it asks few stores at a time, and those that gave nothing in all of
these turns only now and then."""
ASKED_AGAIN = 0.02
"""Seconds after which every store is asked again, also one that gave nothing."""
MOST_OWNERS = 1000


class AskedShards:
    """What one process knows of all of its workers. Where threads meet a count may be lost, which costs a call."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._owners: dict[str, OwnerAsks] = {}
        self._heard = 0
        """How often somebody listened for news, or put jobs: then all stores are worth a look."""

    def note_news(self) -> None:
        """Any store may have jobs now."""
        self._heard += 1

    def of(self, owner: str) -> "OwnerAsks":
        """What is known for this owner, up to date."""
        asks = self._owners.get(owner)
        if asks is None:
            if len(self._owners) >= MOST_OWNERS:
                self._owners.clear()
            asks = self._owners[owner] = OwnerAsks(self._count, self._heard)
        asks.hear(self._heard)
        return asks


class OwnerAsks:
    """What stores gave to one owner, by their numbers."""

    def __init__(self, count: int, heard: int) -> None:
        self._streak = 0
        """How many turns in a row brought jobs."""
        self._empty = [0] * count
        """How often in a row it gave nothing while others did."""
        self._asked_at = [0.0] * count
        """`time.monotonic()`."""
        self.next_due: list[int | None] = [None] * count
        """When its next scheduled job is due, as its last answer said."""
        self._heard = heard

    def hear(self, heard: int) -> None:
        """Makes all stores worth a look if there was news since the last call."""
        if heard != self._heard:
            self._heard = heard
            self._streak, self._empty = 0, [0] * len(self._empty)

    @property
    def is_busy(self) -> bool:
        """Whether it got jobs in each of its last turns."""
        return self._streak >= BUSY_AFTER

    def at_once(self, limit: int) -> int:
        """How many stores to ask for so many jobs at the same time."""
        return -(-limit // ENOUGH) if self.is_busy else len(self._empty)

    def choose(self, there: Sequence[int], settled: Collection[int], now: int) -> list[int]:
        """The stores that are worth a look, those first that are to be asked first. there: those that are up, in turn;
        settled: those that are called anyway. now: the store's time."""
        moment = time.monotonic()
        worth = [number for number in there if self._is_worth(number, moment, now)]

        def place(number: int) -> tuple[int, float]:
            is_late = moment - self._asked_at[number] >= ASKED_AGAIN
            return (0, self._asked_at[number]) if is_late else (1 if number in settled else 2, self._asked_at[number])

        return sorted(worth, key=place)

    def _is_worth(self, number: int, moment: float, now: int) -> bool:
        due = self.next_due[number]
        return (
            self._empty[number] < BUSY_AFTER
            or moment - self._asked_at[number] >= ASKED_AGAIN
            or (due is not None and due <= now)
        )

    def record(self, came: Mapping[int, int]) -> None:
        """Records how many jobs each store gave that was asked for some in this turn."""
        moment, any_came = time.monotonic(), any(came.values())
        self._streak = self._streak + 1 if any_came else 0
        for number, jobs in came.items():
            self._asked_at[number] = moment
            # While nobody has jobs a worker sleeps soon, and each of its looks asks all.
            if any_came:
                self._empty[number] = 0 if jobs else self._empty[number] + 1

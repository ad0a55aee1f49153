"""Bounds: how many jobs of a queue may wait, ready and scheduled, and what becomes of a new one when it is full.

Bounds are kept in a cell of the store, so that they hold for every producer; so is the room that is left. Jobs that
come back (a retry, a snooze, a crash) are never refused: they count, and until they are fewer nothing new is taken.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

from tarry.model.job import State

WAITING_STATES = (State.SCHEDULED, State.READY)
BOUNDS = "bounds"
"""The cell with the bounds of all queues."""
BOUNDS_BY_HAND = "bounds by hand"
"""The cell with those of them that an operator has set: what settings say does not change these."""
ROOM, DROPPED = "room:", "dropped:"
"""Prefixes of cells; the queue's name follows. How many were dropped is a decimal number."""
KEY_ROOM = "key-room:"
"""Prefix of the cells with the room of a key of a task in a queue; a digest of the three follows."""
KeyBounds = Mapping[tuple[str, str], int]
"""By task and lane, how many jobs of a key may be ready in each queue; 0: it takes no new ones. A key that is not there
has no bound."""
KEY_BOUNDS = "bounds of keys:"
"""Prefix of the cells with the bounds of a task's keys; the task's name follows. It begins as `BOUNDS`, so that both
are read at once."""
MOST_KEYS = 1000
"""So many keys of a task may have bounds of their own: a producer reads them all."""
MOST_WAITING = 2**31
MaxWaiting = Annotated[int, Meta(ge=0, le=MOST_WAITING)]
WhenFull = Literal["refuse", "drop_oldest"]
# A count reads as many entries as jobs wait. So it takes a twentieth of the time at most where the queue stays full,
# and a hundredth where there is room.
_PAUSE_FULL, _PAUSE = 20, 100
_SECOND = 1_000_000
_LONGEST_PAUSE = 10 * _SECOND
_LONGEST_KEPT = 60 * _SECOND


class Bound(Struct, frozen=True):
    """At most `most` jobs wait; 0: there is no bound."""

    most: int
    when_full: WhenFull = "refuse"

    def share(self, number: int, among: int) -> "Bound":
        """The part of one of several stores, which is at least one."""
        most = self.most and max(1, self.most // among + (number < self.most % among))
        return Bound(most, self.when_full)

    @property
    def dropped_at_once(self) -> int:
        """How many jobs are dropped together at least."""
        # To find the oldest jobs costs a look at all that wait, so it is not done for each new job.
        return max(1, self.most // 100)


class TaskBounds(Struct, frozen=True, omit_defaults=True):
    """How many jobs of a key of a task may wait: of each, None: any number; and of single keys, by lane."""

    each: MaxWaiting | None = None
    keys: Mapping[str, MaxWaiting] = {}

    def of_key(self, lane: str) -> int | None:
        """What holds for this key."""
        return self.keys.get(lane, self.each)


def checked_max_waiting(most: int | None, place: str = "") -> int | None:
    """How many jobs of a key may wait. ValueError; place: whose it is, for the message."""
    # Not isinstance: True is an int.
    if most is not None and (type(most) is not int or not 0 <= most <= MOST_WAITING):
        raise ValueError(f"{place}max_waiting={most!r}: how many jobs of a key may wait, from 0 to {MOST_WAITING}")
    return most


class Room(Struct, frozen=True, array_like=True):
    """How many more jobs a queue takes before they are counted again. Times in microseconds of the store's clock."""

    most: int
    """The bound at that count."""
    left: int
    counted: int
    """When they were counted."""
    cost: int
    """How long that took."""

    def is_true(self, most: int, now: int) -> bool:
        """Whether the count is young enough, and of this bound."""
        # What came back since is not in it, so that it must not become old.
        age = max(_SECOND, min(_LONGEST_PAUSE, _PAUSE * self.cost))
        return self.most == most and self.counted <= now <= self.counted + age

    def countable_at(self) -> int:
        """When the jobs may be counted again although the last count is young."""
        return self.counted + min(_LONGEST_PAUSE, _PAUSE_FULL * self.cost)

    def is_old(self, now: int) -> bool:
        """Whether it was counted so long ago that nobody is helped by it."""
        return self.counted < now - _LONGEST_KEPT

    def taken(self, count: int) -> "Room":
        """The room after so many more jobs."""
        return Room(self.most, self.left - count, self.counted, self.cost)

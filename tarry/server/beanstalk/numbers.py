"""The numbers of jobs: 53 bits, in the order of the puts of a process, and unique among all processes of a store.

Clients in JavaScript have no whole numbers of more bits. A number and the job's id say the same, so a job is found by
its number as fast as by its id, in every store. A number has 40 bits of milliseconds since 2026, 10 of a slot of its
process, and 3 that count within a millisecond. A job that another door or program has put has another kind of id: it
gets a number in each process that shows it to a client.

Earlier versions made numbers of 63 bits: 41 of milliseconds since 2020, 10 of a slot, 12 that count. Their jobs are
found by these as before.
"""

import time

from tarry.client.clock import elapsed
from tarry.errors import StoreUnavailable
from tarry.model.duration import SECOND
from tarry.server.beanstalk.slots import SLOTS, NumberSlots
from tarry.store.rules.base import Store

ALIASES = 100_000
"""For how many jobs of other programs a process remembers the number."""
MAX_NUMBER = 2**53 - 1
"""JavaScript's MAX_SAFE_INTEGER."""
MAX_OLD_NUMBER = 2**63 - 1
FIRST_SLOTS, MOST_SLOTS = 4, 16
"""NumberSlots that a process takes at its start and at most; each has 8 numbers a millisecond."""

_EPOCH, _OLD_EPOCH = 1_767_225_600_000, 1_577_836_800_000  # 2026-01-01 and 2020-01-01, in ms
_COUNTS, _OLD_COUNTS = 1 << 3, 1 << 12
_LOW = SLOTS * _COUNTS
# In the ids of numbered jobs only: tells them from others, whose last bits are random.
_MARK, _MARK_BITS = 0x1A77_BEA5_7A1C_5353, (1 << 61) - 1
_FIXED, _FIXED_BITS = 0x7 << 76 | 0b10 << 62 | _MARK, 0xF << 76 | 0b11 << 62 | _MARK_BITS
_OLD_MARK, _OLD_MARK_BITS = 0x7A77_BEA5_7A1C5 & (1 << 52) - 1, (1 << 52) - 1
_OLD_FIXED, _OLD_FIXED_BITS = 0x7 << 76 | 0b10 << 62 | _OLD_MARK, 0xF << 76 | 0b11 << 62 | _OLD_MARK_BITS
_AHEAD_MOST = 50
"""Milliseconds that numbers may be ahead of the clock before the process takes more slots."""


def id_of(number: int) -> bytes | None:
    """The id of the job with this number; None if no job can have it."""
    if not 0 < number <= MAX_NUMBER:
        return _old_id_of(number)
    ms, low = divmod(number, _LOW)
    return (ms + _EPOCH << 80 | low >> 1 << 64 | (low & 1) << 61 | _FIXED).to_bytes(16, "big")


def number_of(id: bytes) -> int | None:
    """The number that the id says; None if the job was not put through this door."""
    value = int.from_bytes(id, "big")
    if value & _FIXED_BITS != _FIXED:
        return _old_number_of(value)
    number = ((value >> 80) - _EPOCH) * _LOW + ((value >> 64 & 0xFFF) << 1 | value >> 61 & 1)
    return number if 0 < number <= MAX_NUMBER else None


def _old_id_of(number: int) -> bytes | None:
    # The oldest are of 2020: all of them are greater than those of today.
    if not MAX_NUMBER < number <= MAX_OLD_NUMBER:
        return None
    ms, slot, count = (number >> 22) + _OLD_EPOCH, number >> 12 & SLOTS - 1, number & _OLD_COUNTS - 1
    return (ms << 80 | count << 64 | slot << 52 | _OLD_FIXED).to_bytes(16, "big")


def _old_number_of(value: int) -> int | None:
    if value & _OLD_FIXED_BITS != _OLD_FIXED:
        return None
    ms = (value >> 80) - _OLD_EPOCH
    number = ms << 22 | (value >> 52 & SLOTS - 1) << 12 | value >> 64 & _OLD_COUNTS - 1
    return number if MAX_NUMBER < number <= MAX_OLD_NUMBER else None


class JobNumbers:
    """Makes the numbers of one process, and knows the jobs of other programs by numbers of its own."""

    def __init__(self, store: Store) -> None:
        self._slots = NumberSlots(store)
        self._in_use: tuple[int, ...] = ()
        self._ms, self._count = 0, 0
        self._wanted, self._asked_at = FIRST_SLOTS, 0
        self._ids: dict[int, bytes] = {}
        self._aliases: dict[bytes, int] = {}

    @property
    def is_due(self) -> bool:
        """Whether to call `take_slots` soon."""
        return self._slots.is_due

    @property
    def is_short(self) -> bool:
        """Whether to call `take_slots` at once: numbers get ahead of the clock."""
        return self._wanted > FIRST_SLOTS and elapsed() > self._asked_at + SECOND

    def take_slots(self) -> None:
        """Takes slots of the store, or keeps those that it has, for minutes. Blocks; StoreError."""
        self._asked_at, wanted = elapsed(), self._wanted
        self._wanted = FIRST_SLOTS
        self._slots.take(wanted)

    @property
    def is_ready(self) -> bool:
        """Whether the process has a slot."""
        return self._slots.is_ready

    def new_id(self) -> bytes:
        """The id of a new job, which has a number. StoreUnavailable while the process has no slot."""
        id = id_of(self.new())
        # Each number that is made here has one.
        assert id is not None
        return id

    def new(self) -> int:
        """A new number. StoreUnavailable while the process has no slot."""
        if not self.is_ready:
            raise StoreUnavailable("the store gave no slot for numbers: try again")
        self._step(time.time_ns() // 1_000_000)
        at, count = divmod(self._count, _COUNTS)
        return (self._ms - _EPOCH) * _LOW + self._in_use[at] * _COUNTS + count

    def _step(self, now: int) -> None:
        self._count += 1
        if self._in_use is not self._slots.taken:
            # In a new millisecond: another slot at the same place would have numbers of this one again.
            self._in_use, self._count, self._ms = self._slots.taken, 0, max(now, self._ms + 1)
        elif now > self._ms:
            self._ms, self._count = now, 0
        elif self._count >= len(self._in_use) * _COUNTS:
            # Also where the clock was set back: it borrows the next millisecond.
            self._ms, self._count = self._ms + 1, 0
            if self._ms - now > _AHEAD_MOST and len(self._in_use) < MOST_SLOTS:
                self._wanted = MOST_SLOTS

    def number(self, id: bytes) -> int:
        """The number of a job that is there. StoreUnavailable if it needs a new one, and there is no slot."""
        own = number_of(id)
        if own is not None:
            return own
        if id not in self._aliases:
            if len(self._aliases) >= ALIASES:
                oldest = next(iter(self._aliases))
                del self._ids[self._aliases.pop(oldest)]
            self._aliases[id] = alias = self.new()
            self._ids[alias] = id
        return self._aliases[id]

    def id(self, number: int) -> bytes | None:
        """The id of the job with this number; None if no job can have it."""
        return self._ids.get(number) or id_of(number)

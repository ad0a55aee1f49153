"""The numbers of jobs: 63 bits, in the order of the puts of a process, and unique among all processes of a store.

A number and the job's id say the same, so a job is found by its number as fast as by its id, in every store. A number
has 41 bits of milliseconds, 10 of the slot of its process, and 12 that count within a millisecond. A job that another
door or program has put has another kind of id: it gets a number in each process that shows it to a client.
"""

import time

from tarry.client.clock import elapsed
from tarry.errors import StoreUnavailable
from tarry.model.checks.unreadable import stored_number
from tarry.model.duration import HOUR
from tarry.store.base import Store
from tarry.store.cell import change_cell

SLOT_CELL = "beanstalk/slot"
"""The cell that counts how often a slot was taken."""
# 1024 slots: two processes make the same number only if over a thousand slots are taken within this time.
SLOT_LASTS = HOUR
ALIASES = 100_000
"""For how many jobs of other programs a process remembers the number."""
MAX_NUMBER = 2**63 - 1

_EPOCH = 1_577_836_800_000  # 2020-01-01, in ms
_SLOTS, _COUNTS = 1 << 10, 1 << 12
# In the ids of numbered jobs only: tells them from others, whose last bits are random.
_MARK = 0x7A77_BEA5_7A1C5 & (1 << 52) - 1
_FIXED, _FIXED_BITS = 0x7 << 76 | 0b10 << 62 | _MARK, 0xF << 76 | 0b11 << 62 | (1 << 52) - 1


def id_of(number: int) -> bytes | None:
    """The id of the job with this number; None if no job can have it."""
    if not 0 < number <= MAX_NUMBER:
        return None
    ms, slot, count = (number >> 22) + _EPOCH, number >> 12 & _SLOTS - 1, number & _COUNTS - 1
    return (ms << 80 | count << 64 | slot << 52 | _FIXED).to_bytes(16, "big")


def number_of(id: bytes) -> int | None:
    """The number that the id says; None if the job was not put through this door."""
    value = int.from_bytes(id, "big")
    if value & _FIXED_BITS != _FIXED:
        return None
    number = ((value >> 80) - _EPOCH) << 22 | (value >> 52 & _SLOTS - 1) << 12 | value >> 64 & _COUNTS - 1
    return number if 0 < number <= MAX_NUMBER else None


class JobNumbers:
    """Makes the numbers of one process, and knows the jobs of other programs by numbers of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._slot, self._until = 0, 0
        self._ms, self._count = 0, 0
        self._ids: dict[int, bytes] = {}
        self._aliases: dict[bytes, int] = {}

    @property
    def is_due(self) -> bool:
        """Whether to call `take_slot` soon."""
        return elapsed() > self._until - SLOT_LASTS // 2

    def take_slot(self) -> None:
        """Takes the next slot of the store, for an hour. Blocks; StoreError."""
        started = elapsed()
        _, taken = change_cell(self._store, SLOT_CELL, lambda was: b"%d" % (stored_number(was) + 1))
        self._slot, self._until = int(taken or b"0") % _SLOTS, started + SLOT_LASTS

    @property
    def is_ready(self) -> bool:
        """Whether the process has a slot."""
        # By a clock that goes on while the machine is suspended: another process may have the slot by then.
        return elapsed() < self._until

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
        now = time.time_ns() // 1_000_000
        if now > self._ms:
            self._ms, self._count = now, 0
        else:
            # Also where the clock was set back; after 4096 numbers it borrows the next millisecond.
            self._count += 1
            if self._count == _COUNTS:
                self._ms, self._count = self._ms + 1, 0
        return (self._ms - _EPOCH) << 22 | self._slot << 12 | self._count

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

"""Slots: each is of one process of a store for a time, so that what two processes make of their slots differs.

All of them are in one cell. A process that is gone keeps its slot until its time is over, then another may have it.
"""

import os

from msgspec import MsgspecError, Struct, json

from tarry.client.clock import elapsed
from tarry.errors import StoreUnavailable
from tarry.model.checks.decoders import decode_json
from tarry.model.duration import MINUTE
from tarry.store.rules.base import Store
from tarry.store.rules.cell import change_cell

CELL = "beanstalk/slots"
SLOTS = 1 << 10
LASTS = 10 * MINUTE
"""Microseconds for which a slot is taken; half of it passes before it is taken anew."""
# The clocks of the store and of the process are read one after the other, and drift.
_MARGIN = MINUTE


class _Lease(Struct, frozen=True, array_like=True):
    holder: str
    until: int
    """The store's time in microseconds."""


_Leases = dict[int, _Lease]


class NumberSlots:
    """Those of one process. `take` blocks; the rest may be called by another thread."""

    def __init__(self, store: Store) -> None:
        self._store, self._holder = store, os.urandom(8).hex()
        self.taken: tuple[int, ...] = ()
        """In ascending order."""
        self._until = 0

    @property
    def is_due(self) -> bool:
        """Whether to call `take` soon."""
        return elapsed() > self._until - LASTS // 2

    @property
    def is_ready(self) -> bool:
        """Whether the process has a slot."""
        # By a clock that goes on while the machine is suspended: another process may have the slot by then.
        return elapsed() < self._until

    def take(self, wanted: int = 1) -> None:
        """Keeps the slots that the process has and takes more, up to so many while half of all are free.
        StoreUnavailable if it has none and all are taken; StoreError."""
        started, now = elapsed(), self._store.time()
        leases: _Leases = {}

        def change(was: bytes | None) -> bytes:
            nonlocal leases
            leases = _decode(was)
            self._take(leases, wanted, now)
            return json.encode(leases)

        change_cell(self._store, CELL, change)
        taken = sorted(slot for slot, lease in leases.items() if lease.holder == self._holder)
        if not taken:
            raise StoreUnavailable(f"all {SLOTS} slots for numbers are taken by other processes: try again in minutes")
        self.taken, self._until = tuple(taken), started + LASTS

    def _take(self, leases: _Leases, wanted: int, now: int) -> None:
        own = [slot for slot, lease in leases.items() if lease.holder == self._holder]
        # Those whose time is over longest, after those that nobody has had: two clocks may differ.
        over = sorted((lease.until, slot) for slot, lease in leases.items() if lease.until <= now)
        free = [slot for slot in range(SLOTS) if slot not in leases] + [slot for _, slot in over if slot not in own]
        # The last ones are for processes that have none.
        most = wanted if len(free) > SLOTS // 2 else 1
        for slot in own + free[: max(0, most - len(own))]:
            leases[slot] = _Lease(self._holder, now + LASTS + _MARGIN)


def _decode(value: bytes | None) -> _Leases:
    """The slots of a cell; none if nobody can read it."""
    try:
        leases = decode_json(value, _Leases) if value else {}
    except MsgspecError:
        return {}
    return {slot: lease for slot, lease in leases.items() if 0 <= slot < SLOTS}

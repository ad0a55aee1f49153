"""How many schedules the store may keep."""

import threading
import time

from tarry.errors import TooManySchedules
from tarry.store.queries.stored_schedules import PREFIX
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import reachable_part

COUNTED_FOR = 10.0
"""Seconds for which a count is trusted."""
_SHARE, _MOST = 10, 100
"""A client puts a tenth of what there is room for, and so many at most, then it counts again: others put, too."""


class ScheduleRoom:
    """Whether the store has room for one more schedule. most: how many it may keep; 0: any number. The closer the bound
    is, the more often they are counted. Thread-safe."""

    def __init__(self, store: Store, most: int) -> None:
        self._store, self.most = store, most
        self._lock = threading.Lock()
        self._left, self._counted_at = 0, 0.0

    def take(self, name: str) -> None:
        """Before a new schedule is stored; TooManySchedules, StoreError."""
        if not self.most or self._is_known():
            return
        room = self.most - reachable_part(lambda: self._store.kv_count(PREFIX))
        if room <= 0:
            raise TooManySchedules(
                f"schedule {name}: the store keeps {self.most:,} schedules, and no more: delete some, let fewer"
                " schedules enqueue many jobs each, or raise max_schedules"
            )
        with self._lock:
            self._left, self._counted_at = min(room // _SHARE, _MOST), time.monotonic()

    def _is_known(self) -> bool:
        with self._lock:
            if self._left <= 0 or time.monotonic() > self._counted_at + COUNTED_FOR:
                return False
            self._left -= 1
            return True

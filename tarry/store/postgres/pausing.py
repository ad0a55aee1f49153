"""A pause that has returned holds for all claims, also for those that were under way.

A claim is several statements, and under READ COMMITTED each sees what was committed before it: a claim that found the
queue open could take a job that was put after the pause. So who pauses waits for the transactions that may have looked
before, as CREATE INDEX CONCURRENTLY does. Claims pay nothing for it.
"""

import contextlib
import time
from collections.abc import Callable
from typing import Any

from tarry.errors import StoreError

WITHIN = 1.0
"""Seconds: no longer, since who reads the table for a backup has the same lock as a claim."""
_EVERY = 0.002
# The lock of each transaction that has read the table, also of other users'.
UNDER_WAY = """SELECT virtualtransaction FROM pg_locks
    WHERE locktype = 'relation' AND relation = '{s}.paused'::regclass AND pid <> pg_backend_pid()
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


def await_claims(rows: Callable[[str], list[tuple[Any, ...]]]) -> None:
    """Waits until the claims that are under way have ended, for WITHIN seconds at most. rows: runs a statement."""
    end = time.monotonic() + WITHIN
    # The queue is paused: that the server is away by now is no error of the pause.
    with contextlib.suppress(StoreError):
        begun = set(rows(UNDER_WAY))
        while begun and time.monotonic() < end:
            time.sleep(_EVERY)
            begun &= set(rows(UNDER_WAY))

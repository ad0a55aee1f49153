"""Makes changes so that one which a store cannot make keeps back none of the others."""

import logging
import math
import time
from collections.abc import Sequence

from tarry.errors import StoreError
from tarry.model.change import Change
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.shared.backoff import SAY_AGAIN

log = logging.getLogger("tarry.store")

_MOST_KNOWN = 1000
_logged_at: dict[bytes, float] = {}
"""When the log last had each job. Such a job is tried again and again: without this its lines would fill the log."""


def apply_each(store: Store, changes: Sequence[Change], now: int) -> list[bool]:
    """As `Store.apply`; a change over which the store fails with another error than a StoreError counts as not made,
    and is logged, each job once a minute. StoreError."""
    # All at once, as a store is quickest: only a record that somebody else has written can fail.
    try:
        return store.apply(changes, now)
    except StoreError:
        raise
    except Exception:
        return [_apply_one(store, change, now) for change in changes]


def _apply_one(store: Store, change: Change, now: int) -> bool:
    try:
        return store.apply([change], now)[0]
    except StoreError:
        raise
    except Exception as error:
        if _is_to_log(change.id, time.monotonic()):
            log.error("job %s: what becomes of it cannot be stored: %s", ids.text(change.id), error)
        return False


def _is_to_log(id: bytes, now: float) -> bool:
    if now - _logged_at.get(id, -math.inf) < SAY_AGAIN:
        return False
    if len(_logged_at) >= _MOST_KNOWN:
        _logged_at.clear()
    _logged_at[id] = now
    return True

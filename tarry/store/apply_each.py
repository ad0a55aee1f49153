"""Makes changes so that one which a store cannot make keeps back none of the others."""

import logging
from collections.abc import Sequence

from tarry.errors import StoreError
from tarry.model.change import Change
from tarry.store import ids
from tarry.store.base import Store

log = logging.getLogger("tarry.store")


def apply_each(store: Store, changes: Sequence[Change], now: int) -> list[bool]:
    """As `Store.apply`; a change over which the store fails with another error than a StoreError counts as not made,
    and is logged. StoreError."""
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
        log.error("job %s: what becomes of it cannot be stored: %s", ids.text(change.id), error)
        return False

"""What a call may say whose answer was lost on an earlier try."""

import contextlib
from collections.abc import Iterator

from tarry.errors import StoreAway, StoreFull, StoreReadOnly, StoreUnavailable, TarryError

NOT_DONE = (StoreAway, StoreFull, StoreReadOnly)
"""Errors that promise that nothing was done: a job of which that is said may be stored elsewhere, under a new id."""


def uncertain(error: TarryError) -> TarryError:
    """The error of a later try, without that promise: the earlier one may have been done."""
    if not isinstance(error, NOT_DONE):
        return error
    return StoreUnavailable(f"{error}; an earlier try of this call may have been done")


@contextlib.contextmanager
def a_part_is_done() -> Iterator[None]:
    """What follows is the rest of a call: its errors do not say that nothing was done."""
    try:
        yield
    except TarryError as error:
        raise uncertain(error) from None

"""Errors of a call whose answer was lost on an earlier try."""

import contextlib
from collections.abc import Iterator

from tarry.errors import StoreAway, StoreFull, StoreReadOnly, StoreUnavailable, TarryError

# After one of these the caller may store a job elsewhere, under a new id. Were it stored here too, it would run twice.
MAYBE = "what was sent may be stored all the same"
LOST = f"the connection was lost, and {MAYBE}"
"""What stores say of a call whose answer did not come."""
NOT_DONE = (StoreAway, StoreFull, StoreReadOnly)
"""Errors that promise that nothing was done."""


def uncertain(error: TarryError) -> TarryError:
    """The error of a later try, without the promise that nothing was done."""
    # The earlier try may have been done.
    if not isinstance(error, NOT_DONE):
        return error
    # Where it is comes first, as in all errors of stores; and it may say so already.
    text = str(error)
    return StoreUnavailable(text if MAYBE in text else f"{text}; {MAYBE}, by an earlier try")


@contextlib.contextmanager
def a_part_is_done(is_so: bool = True) -> Iterator[None]:
    """For the rest of a call of which a part is done: its errors do not promise that nothing was done."""
    try:
        yield
    except TarryError as error:
        raise uncertain(error) if is_so else error from None

"""Which queues are served by programs that are not tarry's workers.

Their jobs may be of tasks that no Python worker knows. So workers that serve "*" leave these queues out. A cell in the
store marks each of them. The mark lapses when no such program has asked for jobs for a week, or for two hours where
none has ever got one: then the workers serve the queue again.
"""

from tarry.model.checks.unreadable import stored_number
from tarry.model.duration import DAY, HOUR
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import reachable_part

PREFIX = "external/"
MARKED_FOR, TRIED_FOR = 7 * DAY, 2 * HOUR
"""Microseconds: of a queue from which programs took jobs, or into which they put some; of one that they asked for."""
RENEWED_EVERY = HOUR
"""Microseconds between two marks of a queue that is asked for all the time."""


def mark_external(store: Store, queue: str, now: int, lasts: int = MARKED_FOR) -> None:
    """Marks a queue: workers that serve "*" leave it out from now on. lasts: microseconds; a longer mark stays.
    StoreError."""
    name = f"{PREFIX}{queue}"
    until, was = now + lasts, store.kv_get(name)
    if was is not None and was.isdigit() and int(was) >= until:
        return
    # If another process writes it at the same moment, its mark is as good as this one.
    store.kv_cas(name, b"%d" % until, was)


def is_external(store: Store, queue: str, now: int) -> bool:
    """Whether the queue is marked; StoreError. now: by the store's clock, in microseconds."""
    mark = store.kv_get(f"{PREFIX}{queue}")
    return stored_number(mark) > now


def find_external(store: Store) -> frozenset[str]:
    """The marked queues, of the stores that are there; removes marks that have lapsed. StoreError."""
    marks = reachable_part(lambda: store.kv_list(PREFIX))
    if not marks:
        return frozenset()
    now = store.time()
    lapsed = {name for name, value in marks.items() if stored_number(value) <= now}
    for name in lapsed:
        store.kv_cas(name, None, marks[name])
    return frozenset(name.removeprefix(PREFIX) for name in marks.keys() - lapsed)

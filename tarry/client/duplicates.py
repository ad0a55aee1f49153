"""What becomes of an enqueue whose key another job holds."""

import contextlib
import time
from collections.abc import Callable, Iterator

from tarry.errors import IdempotencyError, StoreError
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import NotPossible
from tarry.store import ids
from tarry.store.base import Store
from tarry.store.shared.patience import about
from tarry.tasks.options import Options

_TRIES = 20
_TURNS = 64
"""Names of holds, shared by all jobs that are postponed, so that they take up no room for ever."""
_TURN = 5 * SECOND
_PAUSE = 0.005


def settled(store: Store, now: Callable[[], int], job: Job, holder: bytes, options: Options) -> bytes:
    """The id under which the call lives after all: the holder's, changed as `on_duplicate` says; or the job's own, if
    the key became free in the meantime."""
    if options.idempotency is not None:
        return _same(store, job, holder, options.idempotency)
    if options.on_duplicate == "return":
        return holder
    if options.on_duplicate == "replace":
        return _changed(store, now, job, holder, lifecycle.replaced)
    with _turn(store, now, holder):
        return _changed(store, now, job, holder, lifecycle.postponed)


@contextlib.contextmanager
def _turn(store: Store, now: Callable[[], int], holder: bytes) -> Iterator[None]:
    """One at a time postpones a job: of two that saw the same due, the earlier one would win if it came last. Whoever
    has its turn for longer than 5 s loses it, and nobody waits for longer than that. Of several stores, the one with
    the turns may be away while that of the job is there: then it goes without."""
    name, me = f"postpone:{holder[-1] % _TURNS}", ids.uuid7().hex()
    end = time.monotonic() + _TURN / SECOND
    with contextlib.suppress(StoreError):
        while not store.hold(name, me, now() + _TURN, now()) and time.monotonic() < end:
            time.sleep(about(_PAUSE))
    try:
        yield
    finally:
        with contextlib.suppress(StoreError):
            store.hold(name, me, now(), now())


def _changed(
    store: Store, now: Callable[[], int], job: Job, holder: bytes, rule: Callable[[Job, Job, int], Change]
) -> bytes:
    for _ in range(_TRIES):
        seen = store.get([holder])[0]
        if seen is not None and seen.holds:
            try:
                change = rule(seen, job, now())
            except NotPossible:
                return holder
            if store.apply([change], now())[0]:
                return holder
        # It began, or went, while we looked: then the key may be ours.
        (holder,) = store.insert([job])
        if holder == job.id:
            return holder
    return holder


def _same(store: Store, job: Job, holder: bytes, name: str) -> bytes:
    """The first request's job, if this is the same request."""
    first = store.get([holder])[0]
    if first is not None and first.body != job.body:
        raise IdempotencyError(
            f"{job.task}: idempotency={name!r} was used for other arguments, by job {ids.text(holder)}; "
            f"a new request needs a name of its own"
        )
    return holder

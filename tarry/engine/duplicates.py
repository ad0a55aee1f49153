"""What becomes of an enqueue whose key another job holds."""

from collections.abc import Callable

from tarry.engine.task import Options
from tarry.errors import IdempotencyError
from tarry.model import lifecycle
from tarry.model.job import Job
from tarry.model.lifecycle import NotPossible
from tarry.store import ids
from tarry.store.base import Store

_TRIES = 20


def settled(store: Store, now: Callable[[], int], job: Job, holder: bytes, options: Options) -> bytes:
    """The id under which the call lives after all: the holder's, changed as `on_duplicate` says; or the job's own, if
    the key became free in the meantime."""
    if options.idempotency is not None:
        return _same(store, job, holder, options.idempotency)
    if options.on_duplicate == "return":
        return holder
    rule = lifecycle.replaced if options.on_duplicate == "replace" else lifecycle.postponed
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

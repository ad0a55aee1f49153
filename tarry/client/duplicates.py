"""What an enqueue does when another job holds its key."""

import contextlib
import time
from collections.abc import Callable

from tarry.client.enqueue_listener import EnqueueListener
from tarry.errors import IdempotencyError, StoreBusy, StoreError
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.model.lifecycle import NotPossible
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.shared.backoff import jitter
from tarry.tasks.arguments.options import Options

# Each try that fails is one that another call has won. Whoever postpones to an earlier time need not win.
_TRIES = 100
_SOON, _PAUSE = 5, 0.005
"""After so many tries it pauses for about so many seconds before each."""


class DuplicateResolver:
    """Resolves the duplicates of one client. now: the store's time, in microseconds."""

    def __init__(self, store: Store, now: Callable[[], int], listener: EnqueueListener | None) -> None:
        self._store, self._now, self._listener = store, now, listener

    def resolve(self, job: Job, holder: bytes, options: Options) -> bytes:
        """Changes the holder as `on_duplicate` says. Returns the id of the job that stands for this call: the holder's;
        or the job's own, if the key became free in the meantime."""
        id = self._resolve(job, holder, options)
        # With `return` nothing was changed, unless the job's own id shows that it was stored after all.
        if self._listener is not None and (id == job.id or options.on_duplicate != "return"):
            self._listener.on_accepted([self._as_stored(id) or job], changed=id != job.id)
        return id

    def _as_stored(self, id: bytes) -> Job | None:
        # No error may leave this: what was asked for is done.
        with contextlib.suppress(StoreError):
            return self._store.get([id])[0]
        return None

    def _resolve(self, job: Job, holder: bytes, options: Options) -> bytes:
        if options.idempotency is not None:
            self._check_same_request(job, holder, options.idempotency)
            return holder
        if options.on_duplicate == "return":
            return holder
        if options.on_duplicate == "replace":
            return self._change_holder(job, holder, lifecycle.replace_call)
        return self._change_holder(job, holder, lifecycle.postpone)

    def _change_holder(self, job: Job, holder: bytes, rule: Callable[[Job, Job, int], Change]) -> bytes:
        """Applies the rule to the holder, or inserts the job if the key is free by now; the id as in `resolve`.
        StoreBusy: others change the holder all the time."""
        for number in range(_TRIES):
            if number >= _SOON:
                time.sleep(jitter(_PAUSE))
            seen = self._store.get([holder])[0]
            # A holder that has given up its key is no duplicate any more.
            if seen is not None and seen.key_held_until:
                try:
                    change = rule(seen, job, self._now())
                except NotPossible:
                    # It runs or has ended, and still holds the key: the call stays with it as it is.
                    return holder
                if _is_done(change) or self._store.apply([change], self._now())[0]:
                    return holder
            # The holder changed, started or was deleted in the meantime, so its key may be free.
            (holder,) = self._store.insert([job])
            if holder == job.id:
                return holder
        raise StoreBusy(
            f"{job.task}: job {ids.text(holder)} holds the key {job.key!r} and changes all the time, so this call could"
            " not change it; enqueue it again"
        )

    def _check_same_request(self, job: Job, holder: bytes, name: str) -> None:
        first = self._store.get([holder])[0]
        # A holder that was deleted cannot be compared with.
        if first is not None and first.body != job.body:
            raise IdempotencyError(
                f"{job.task}: idempotency={name!r} was used for other arguments, by job {ids.text(holder)}; "
                f"a new request needs a name of its own"
            )


def _is_done(change: Change) -> bool:
    """Whether a postponement changes neither time: the job is due later already."""
    # Not written: of many calls at once, those that another one has overtaken must not keep the others from it.
    return change.seen_times is not None and change.seen_times[0] == change.due and change.expires is None

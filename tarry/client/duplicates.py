"""What an enqueue does when another job holds its key."""

import contextlib
import time
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tarry.client.enqueue_listener import EnqueueListener
from tarry.errors import IdempotencyError, PartlyUnavailable, PayloadLost, StoreBusy, StoreError
from tarry.model import lifecycle
from tarry.model.attempts import EDITED, has_act
from tarry.model.change import Change
from tarry.model.checks.unreadable import SEALED_PROGRESS, is_apart, is_sealed
from tarry.model.job import Job, State
from tarry.model.lifecycle import NotPossible
from tarry.model.overrides import with_followed
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.shared.backoff import jitter
from tarry.tasks.arguments.options import Options
from tarry.tasks.progress import kept_steps

# Each try that fails is one that another call has won. Whoever postpones to an earlier time need not win.
_TRIES = 100
_SOON, _PAUSE = 5, 0.005
"""After so many tries it pauses for about so many seconds before each."""


HolderRule = Callable[[Job, Job, int], Change]
"""From the holder of a key, the new job and the time to what becomes of the holder; NotPossible."""


class DuplicateResolver:
    """Resolves the duplicates of one client. insert: inserts into the store, as far as its queues have room. now: the
    store's time, in microseconds. make_way: the rule for a holder that is cancelled."""

    def __init__(
        self,
        store: Store,
        insert: Callable[[Sequence[Job]], list[bytes]],
        now: Callable[[], int],
        listener: EnqueueListener | None,
        make_way: HolderRule,
    ) -> None:
        self._store, self._insert, self._now = store, insert, now
        self._listener, self._make_way = listener, make_way

    def resolve(self, job: Job, holder: bytes, options: Options) -> bytes:
        """Changes the holder as `on_duplicate` and `running` say. Returns the id of the job that stands for this call:
        the holder's; or the job's own, if it has taken the key, or the key became free in the meantime."""
        id = self._resolve(job, holder, options)
        # With `return` nothing was changed, unless the job's own id shows that it was stored after all.
        if self._listener is not None and (id == job.id or options.on_waiting != "return"):
            self._listener.on_accepted([self._as_stored(id) or job], changed=id != job.id)
        return id

    def _as_stored(self, id: bytes) -> Job | None:
        # No error may leave this: what was asked for is done.
        with contextlib.suppress(StoreError, PayloadLost):
            job = self._store.get([id])[0]
            # Whole, as a new job: who listens may write it down.
            return job and self._store.load_arguments(job)
        return None

    def _resolve(self, job: Job, holder: bytes, options: Options) -> bytes:
        if options.idempotency is not None:
            self._check_same_request(job, holder, options.idempotency)
            return holder
        if options.on_waiting == "return":
            return holder
        rule = lifecycle.replace_call if options.on_waiting == "replace" else lifecycle.postpone
        if options.leading:
            return self._put_off(job, holder, rule)
        return self._change_holder(job, holder, rule, options.running == "cancel")

    def _put_off(self, job: Job, leader: bytes, rule: HolderRule) -> bytes:
        """Stores the job as the one at the end of the burst, or has that one changed; the id as in `resolve`. leader:
        the job that began the burst, which goes on now until the key is quiet."""
        last = lifecycle.last_of_burst(job, self._now())
        holder = self._insert_one(last)
        id = holder if holder == last.id else self._change_holder(last, holder, rule, cancels=False)
        # Last, and not tried again: without it the next call may start at once, and nothing is lost.
        first = self._store.get([leader])[0]
        if first is not None and (change := lifecycle.prolong_burst(first, last.due)) is not None:
            self._store.apply([change], self._now())
        return id

    def _change_holder(self, job: Job, holder: bytes, rule: HolderRule, cancels: bool) -> bytes:
        """Applies the rule to the holder, or inserts the job if the key is free by now; the id as in `resolve`.
        StoreBusy: others change the holder all the time. cancels: whether one that runs is cancelled."""
        for number in range(_TRIES):
            if number >= _SOON:
                time.sleep(jitter(_PAUSE))
            seen = self._store.get([holder])[0]
            # A holder that has given up its key is no duplicate any more.
            if seen is not None and seen.key_held_until:
                try:
                    if _has_to_go(seen, rule, cancels):
                        if self._supersede(seen, job):
                            return job.id
                    elif self._apply(rule(seen, job, self._now())):
                        return holder
                except NotPossible:
                    # It runs or has ended, and still holds the key: the call stays with it as it is.
                    return holder
            # The holder changed, started or was deleted in the meantime, so its key may be free.
            holder = self._insert_one(job)
            if holder == job.id:
                return holder
        raise StoreBusy(
            f"{job.task}: job {ids.text(holder)} holds the key {job.key!r} and changes all the time, so this call could"
            " not change it; enqueue it again"
        )

    def _insert_one(self, job: Job) -> bytes:
        """The id of the job, or of that which holds its key; StoreError, also if its queue is full."""
        try:
            return self._insert([job])[0]
        except PartlyUnavailable as error:
            raise error.missing[0] from None

    def _apply(self, change: Change) -> bool:
        return _is_done(change) or self._store.apply([change], self._now())[0]

    def _supersede(self, holder: Job, job: Job) -> bool:
        """Cancels the holder, and stores the job, which takes its key. False: the holder has changed."""
        from tarry.store.rules import kept_places  # noqa: PLC0415 - few processes need it

        now = self._now()
        change = self._make_way(holder, job, now)
        headers = with_followed(job.headers, kept_places.places_to_follow(self._store, holder, change, now))
        if not self._store.supersede(change, replace(job, headers=headers), now):
            return False
        if self._listener is not None:
            self._listener.on_manual_change([holder], "cancelled")
        # Else its worker would learn of it only at its next regular look. All is done: no error may leave this.
        with contextlib.suppress(StoreError):
            if holder.state is State.RUNNING:
                self._store.wake_for_recall()
        return True

    def _check_same_request(self, job: Job, holder: bytes, name: str) -> None:
        first = self._store.get([holder])[0]
        # One that was deleted, that got other arguments by hand, or whose arguments cannot be had here, cannot be
        # compared with.
        with contextlib.suppress(PayloadLost):
            first = first and self._store.load_arguments(first)
        if first is not None and first.body != job.body and not _is_incomparable(first):
            raise IdempotencyError(
                f"{job.task}: idempotency={name!r} was used for other arguments, by job {ids.text(holder)}; "
                f"a new request needs a name of its own"
            )


def _has_to_go(holder: Job, rule: HolderRule, cancels: bool) -> bool:
    """Whether the holder is cancelled for a newer call, which is a job of its own then."""
    if holder.state is State.RUNNING:
        return cancels
    # Its steps are those of its own call: another call would skip them, and take their values. What is sealed for a key
    # that is not here may have some.
    has_steps = bool(kept_steps(holder.progress)) or holder.progress.startswith(SEALED_PROGRESS)
    return rule is lifecycle.replace_call and not holder.state.finished and has_steps


def _is_incomparable(first: Job) -> bool:
    return has_act(first, EDITED) or is_apart(first.body) or is_sealed(first.body)


def _is_done(change: Change) -> bool:
    """Whether a postponement changes neither time: the job is due later already."""
    # Not written: of many calls at once, those that another one has overtaken must not keep the others from it.
    return change.seen_times is not None and change.seen_times[0] == change.due and change.expires is None

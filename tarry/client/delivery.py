"""How new jobs get into the store: in batches; to another of several stores, if theirs is away; or to the outbox."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from tarry.client.batcher import Batcher
from tarry.client.forwarder import Forwarder, inserted
from tarry.client.handle import Handle
from tarry.client.handles import Handles
from tarry.errors import StoreAway, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from tarry.model.job import Job
from tarry.store.base import Store
from tarry.store.entry import Entry
from tarry.store.shared.deadline import until
from tarry.tasks.options import Options

NOWHERE = (StoreAway, StoreFull, StoreReadOnly)
"""Errors after which a job is surely not stored: it may be put elsewhere. After others it may be there, and then a
second one somewhere else would be one too many."""
_TRIES = 5
_NOT_STORED = "Surely not stored. error.send_again() sends the very same."
_UNSURE = "It may be stored all the same. error.send_again() sends the very same, which is stored once however often."


class Delivery:
    """Puts jobs by means of `insert`, which is as `Store.insert`.

    again: what `error.send_again()` calls; it outlives a fork, which this does not. timeout: seconds that an enqueue
    takes at most, the wait for others' calls and its own together.
    """

    def __init__(
        self,
        store: Store,
        insert: Callable[[Sequence[Job]], list[bytes]],
        handles: Handles,
        again: Callable[[Sequence[Job], Options], list[Handle[Any]]],
        forwarder: Forwarder | None,
        timeout: float | None,
    ) -> None:
        self._store, self._insert, self._handles, self._again = store, insert, handles, again
        self._forwarder = forwarder
        self._timeout = timeout
        self.batcher: Batcher[Job, bytes] = Batcher(insert, limit=timeout)
        self._kept: Batcher[Entry, bool] | None = None
        if forwarder is not None:
            self._kept = Batcher(forwarder.outbox.keep, limit=timeout)

    def put(self, job: Job, options: Options) -> Handle[Any]:
        """The job's handle once it is stored, here or in the outbox; StoreError."""
        end = None if self._timeout is None else time.monotonic() + self._timeout
        for _ in range(_TRIES):
            try:
                with until(end):
                    return self._handles.land(job, self.batcher.do(job, end), options)
            except StoreError as error:
                late = end is not None and time.monotonic() >= end
                other = None if late else self._elsewhere(job, error)
                if other is None:
                    return self._keep(job, options, error)
                job = other
        raise StoreUnavailable(f"{self._store.url}: no shard took the job")

    async def aput(self, job: Job, options: Options) -> Handle[Any]:
        """The same, awaited."""
        for _ in range(_TRIES):
            try:
                lives = await self.batcher.ado(job)
                if lives == job.id:
                    return self._handles.of(lives, True)
                return await self._handles.aland(job, lives, options)
            except StoreError as error:
                other = self._elsewhere(job, error)
                if other is None:
                    return await self._akeep(job, options, error)
                job = other
        raise StoreUnavailable(f"{self._store.url}: no shard took the job")

    def put_all(self, wanted: list[Job], options: Options) -> list[Handle[Any]]:
        """Many at once. StoreError: some may be stored, under the ids that stand in the list then."""
        found: dict[int, Handle[Any]] = {}
        left = list(range(len(wanted)))
        failed: dict[int, StoreError] = {}
        for _ in range(_TRIES):
            lives, errors = inserted(self._insert, [wanted[at] for at in left])
            for position, at in enumerate(left):
                if position not in errors:
                    found[at] = self._handles.land(wanted[at], lives[position], options)
                    failed.pop(at, None)
                else:
                    failed[at] = errors[position]
            left = self._redrawn(wanted, failed)
            if not left:
                break
        return self._all(wanted, found, failed, options)

    def close(self) -> None:
        """Ends the threads."""
        self.batcher.close()
        if self._kept is not None:
            self._kept.close()

    def _redrawn(self, wanted: list[Job], failed: dict[int, StoreError]) -> list[int]:
        """The positions of those that failed and may be tried elsewhere, under the ids that they have there."""
        again = []
        for at, error in failed.items():
            other = self._elsewhere(wanted[at], error)
            if other is not None:
                wanted[at] = other
                again.append(at)
        return again

    def _all(
        self, jobs: Sequence[Job], found: dict[int, Handle[Any]], failed: dict[int, StoreError], options: Options
    ) -> list[Handle[Any]]:
        if failed:
            error = next((e for e in failed.values() if not isinstance(e, StoreUnavailable)), None)
            error = error or next(iter(failed.values()))
            forwarder = self._keeps(options, error)
            if forwarder is None:
                sure = not found and all(each.stored is False for each in failed.values())
                raise _own(error, False if sure else None) from None
            positions = sorted(failed)
            forwarder.outbox.keep([_entry(jobs[at], options) for at in positions])
            found |= {at: forwarder.promised(jobs[at]) for at in positions}
        return [found[at] for at in range(len(jobs))]

    def _elsewhere(self, job: Job, error: StoreError) -> Job | None:
        if not isinstance(error, NOWHERE):
            return None
        id = self._store.elsewhere(job)
        return None if id is None else replace(job, id=id)

    def _keeps(self, options: Options, error: StoreError) -> Forwarder | None:
        """Who keeps what could not be stored for that reason, if anybody."""
        away = isinstance(error, StoreUnavailable) and options.durable is None
        return self._forwarder if away else None

    def _keep(self, job: Job, options: Options, error: StoreError) -> Handle[Any]:
        forwarder = self._keeps(options, error)
        if forwarder is None or self._kept is None:
            raise self._told(error, job, options) from None
        self._kept.do(_entry(job, options))
        return forwarder.promised(job)

    async def _akeep(self, job: Job, options: Options, error: StoreError) -> Handle[Any]:
        forwarder = self._keeps(options, error)
        if forwarder is None or self._kept is None:
            raise self._told(error, job, options) from None
        await self._kept.ado(_entry(job, options))
        return forwarder.promised(job)

    def _told(self, error: StoreError, job: Job, options: Options) -> StoreError:
        """What the caller of one enqueue is told of it."""
        own = _own(error, error.stored)
        own.job = self._handles.of(job.id, None)
        own.again = lambda: self._again([job], options)[0]
        return own


def _own(error: StoreError, stored: bool | None) -> StoreError:
    """The same error for one caller alone, who is told what is sure: others of the batch may have got it, too."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.stored, own.__cause__ = stored, error.__cause__
    own.add_note(_NOT_STORED if stored is False else _UNSURE)
    return own


def _entry(job: Job, options: Options) -> Entry:
    return Entry(job, options.on_duplicate, options.idempotency)

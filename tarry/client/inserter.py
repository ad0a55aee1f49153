"""Inserts new jobs: in batches; into another shard if their own is away; or into the outbox."""

import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from msgspec.structs import replace

from tarry.client.duplicates import DuplicateResolver
from tarry.client.forwarder import Forwarder, Insert, insert_around, try_insert
from tarry.client.group_commit import GroupCommit
from tarry.client.handle import Handle, MakeHandle
from tarry.errors import ConfigError, StoreAway, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from tarry.model.job import Job
from tarry.store.rules.base import Store
from tarry.store.rules.entry import Entry
from tarry.store.rules.ids import parse as parse_id
from tarry.store.rules.ids import text as id_text
from tarry.store.shared.deadline import until
from tarry.store.shared.uncertain import a_part_is_done
from tarry.tasks.arguments.options import Options
from tarry.tasks.lazy_asyncio import asyncio

CHUNK = 5000
"""Jobs in one call of the store."""
# After any other error the job may be stored, and in another shard it would be there twice.
NOT_STORED = (StoreAway, StoreFull, StoreReadOnly)
"""Errors after which a job is surely not stored, so it may go to another shard."""
_TRIES = 5
_NOTE_NOT_STORED = "Surely not stored. error.send_again() sends the very same."
_NOTE_UNSURE = (
    "It may be stored all the same. error.send_again() sends the very same, which is stored once however often."
)


class Inserter:
    """Inserts the jobs of one client.

    insert: inserts into the store, as `Store.insert`. insert_again: what `error.send_again()` calls. timeout: seconds
    that an enqueue takes at most, with its wait for other calls.
    """

    def __init__(
        self,
        store: Store,
        insert: Insert,
        *,
        duplicates: DuplicateResolver,
        make_handle: MakeHandle,
        insert_again: Callable[[Sequence[Job], Options], list[Handle[Any]]],
        forwarder: Forwarder | None,
        timeout: float | None,
    ) -> None:
        self._store, self._insert = store, insert
        self._duplicates, self._make_handle = duplicates, make_handle
        # The client's, since the inserter itself does not survive a fork.
        self._insert_again = insert_again
        self._forwarder = forwarder
        self._timeout = timeout
        # The call of many is not to wait until the arguments of one are written elsewhere.
        self._alone_over = store.keeps_apart_over
        self.batcher: GroupCommit[Job, bytes] = GroupCommit(insert, limit=timeout)
        self._outbox_batcher: GroupCommit[Entry, bool] | None = None
        if forwarder is not None:
            self._outbox_batcher = GroupCommit(forwarder.outbox.keep, limit=timeout)

    def insert(self, job: Job, options: Options) -> Handle[Any]:
        """Inserts a job, into the store or the outbox; StoreError."""
        if len(job.body) > self._alone_over:
            return self.insert_one(job, options)
        # One limit for all shards together, else each would get the whole timeout.
        end = None if self._timeout is None else time.monotonic() + self._timeout
        for _ in range(_TRIES):
            try:
                id = self.batcher.do(job, end)
                if id == job.id:
                    return self._make_handle(id, True)
                with until(end):
                    return self.resolve(job, id, options)
            except StoreError as error:
                is_late = end is not None and time.monotonic() >= end
                rerouted = None if is_late else self._reroute(job, error)
                if rerouted is None:
                    return self._insert_into_outbox(job, options, error)
                job = rerouted
        raise StoreUnavailable(f"{self._store.url}: no shard took the job")

    async def ainsert(self, job: Job, options: Options) -> Handle[Any]:
        """The same, awaited."""
        if len(job.body) > self._alone_over:
            return await asyncio.to_thread(self.insert_one, job, options)
        for _ in range(_TRIES):
            try:
                id = await self.batcher.ado(job)
                # A new job needs no call of the store; a duplicate does, and must not block the event loop.
                if id == job.id:
                    return self._make_handle(id, True)
                return await asyncio.to_thread(self.resolve, job, id, options)
            except StoreError as error:
                rerouted = self._reroute(job, error)
                if rerouted is None:
                    return await self._ainsert_into_outbox(job, options, error)
                job = rerouted
        raise StoreUnavailable(f"{self._store.url}: no shard took the job")

    def insert_many(self, jobs: Sequence[Job], options: Options) -> list[Handle[Any]]:
        """Inserts many jobs, thousands in one call of the store; StoreError."""
        if options.durable is not None and not self._store.can_confirm:
            raise ConfigError(f"{self._store.url} has no replica that could confirm a job: leave out durable=")
        jobs, handles = list(jobs), list[Handle[Any]]()
        for start in range(0, len(jobs), CHUNK):
            chunk = jobs[start : start + CHUNK]
            try:
                handles += self._insert_chunk(chunk, options)
            except StoreError as error:
                # The chunk has the ids under which rerouted jobs may be stored: the next try must use the same.
                jobs[start : start + CHUNK] = chunk
                error.job_ids = [id_text(job.id) for job in jobs]
                error.again = lambda: self._insert_again(jobs, options)
                # Earlier chunks are stored already, so `stored` cannot be a clear no for the whole call.
                error.stored = error.stored if start == 0 else None
                raise
        if options.durable is not None:
            # By the ids of the handles: a rerouted job is in another shard than its first id says.
            try:
                with a_part_is_done():
                    stored = zip(jobs, handles, strict=True)
                    self._store.confirm([replace(job, id=handle._id) for job, handle in stored])
            except StoreError as error:
                error.job_ids, error.again = (
                    [handle.id for handle in handles],
                    lambda: self._insert_again(jobs, options),
                )
                raise
        return handles

    def insert_one(self, job: Job, options: Options) -> Handle[Any]:
        """`insert_many` of one job; StoreError, as of `insert`."""
        return self._only(job, lambda: self.insert_many([job], options))

    def _only(self, job: Job, send: Callable[[], list[Handle[Any]]]) -> Handle[Any]:
        """The handle of the only job that this sends; its error, and that of each further try, is that of one job."""
        try:
            return send()[0]
        except StoreError as error:
            # With the id of another shard, if it was rerouted: the next try must use the same.
            id, again = parse_id(error.job_ids[0]) if error.job_ids else job.id, error.again or send
            raise own_error(error, self._make_handle(id, None), lambda: self._only(job, again)) from None

    def insert_each(self, jobs: Sequence[Job], options: Sequence[Options]) -> list[Handle[Any] | Exception]:
        """Inserts many jobs in one call of the store, each for a caller of its own: gives for each its handle, or the
        error of that job alone."""
        end = None if self._timeout is None else time.monotonic() + self._timeout
        found: list[Handle[Any] | Exception] = []
        with until(end):
            for start in range(0, len(jobs), CHUNK):
                found += self._insert_apart(list(jobs[start : start + CHUNK]), options[start : start + CHUNK])
        return found

    def resolve(self, job: Job, id: bytes, options: Options) -> Handle[Any]:
        """The handle for an inserted job. id: what the store returned: the job's own, or that of its key's holder."""
        if id != job.id:
            id = self._duplicates.resolve(job, id, options)
        return self._make_handle(id, id == job.id)

    def close(self) -> None:
        """Ends the threads."""
        self.batcher.close()
        if self._outbox_batcher is not None:
            self._outbox_batcher.close()

    def _insert_chunk(self, jobs: list[Job], options: Options) -> list[Handle[Any]]:
        """Inserts the jobs in one call. A rerouted job gets another id, also in the list."""
        handles: dict[int, Handle[Any]] = {}
        failed: dict[int, StoreError] = {}
        left = list(range(len(jobs)))
        for _ in range(_TRIES):
            ids, errors = try_insert(self._insert, [jobs[at] for at in left])
            for position, at in enumerate(left):
                if position in errors:
                    failed[at] = errors[position]
                else:
                    # Others of the call may be stored.
                    with a_part_is_done():
                        handles[at] = self.resolve(jobs[at], ids[position], options)
                    failed.pop(at, None)
            left = self._reroute_failed(jobs, failed)
            if not left:
                break
        if failed:
            handles |= self._insert_failed_into_outbox(jobs, failed, options, any_stored=bool(handles))
        return [handles[at] for at in range(len(jobs))]

    def _insert_apart(self, jobs: list[Job], options: Sequence[Options]) -> list[Handle[Any] | Exception]:
        """Inserts the jobs in one call, each with an answer of its own. A rerouted job gets another id in the list."""
        found: dict[int, Handle[Any] | Exception] = {}
        failed: dict[int, StoreError] = {}
        # Few ask a replica; their jobs must not keep the others waiting for it, nor fail with them.
        left = [at for at, each in enumerate(options) if each.durable is None]
        for _ in range(_TRIES):
            ids, errors = insert_around(self._insert, [jobs[at] for at in left])
            for position, at in enumerate(left):
                failed.pop(at, None)
                error = errors.get(position)
                if isinstance(error, StoreError):
                    failed[at] = error
                else:
                    found[at] = error or self._try_resolve(jobs[at], ids[position], options[at])
            left = self._reroute_failed(jobs, failed)
            if not left:
                break
        found |= self._keep_failed(jobs, options, failed)
        return [found[at] if at in found else self._try_durable(jobs[at], options[at]) for at in range(len(jobs))]

    def _try_resolve(self, job: Job, id: bytes, options: Options) -> Handle[Any] | Exception:
        if id == job.id:
            return self._make_handle(id, True)
        try:
            return self.resolve(job, id, options)
        except Exception as error:
            return error

    def _try_durable(self, job: Job, options: Options) -> Handle[Any] | Exception:
        try:
            return self.insert_one(job, options)
        except Exception as error:
            return error

    def _keep_failed(
        self, jobs: Sequence[Job], options: Sequence[Options], failed: dict[int, StoreError]
    ) -> dict[int, Handle[Any] | Exception]:
        """Keeps the failed jobs in the outbox, those that may go there; the others get an error of their own."""
        found: dict[int, Handle[Any] | Exception] = {}
        kept: dict[int, Forwarder] = {}
        for at, error in failed.items():
            if (forwarder := self._forwarder_for(options[at], error)) is not None:
                kept[at] = forwarder
            else:
                found[at] = self._own_error(error, jobs[at], options[at])
        try:
            if kept and self._forwarder is not None:
                self._forwarder.outbox.keep([_entry(jobs[at], options[at]) for at in kept])
            return found | {at: forwarder.track(jobs[at]) for at, forwarder in kept.items()}
        except StoreError as error:
            unkept = {at: _unkept_error(error, [failed[at]]) for at in kept}
            return found | {at: self._own_error(unkept[at], jobs[at], options[at]) for at in kept}

    def _reroute_failed(self, jobs: list[Job], failed: dict[int, StoreError]) -> list[int]:
        """Gives failed jobs ids of other shards, where that is allowed; returns the positions of these jobs."""
        positions = []
        for at, error in failed.items():
            rerouted = self._reroute(jobs[at], error)
            if rerouted is not None:
                jobs[at] = rerouted
                positions.append(at)
        return positions

    def _reroute(self, job: Job, error: StoreError) -> Job | None:
        """The job with an id of another shard; None if there is none, or if the job may be stored already."""
        if not isinstance(error, NOT_STORED):
            return None
        id = self._store.reroute(job)
        return None if id is None else replace(job, id=id)

    def _insert_failed_into_outbox(
        self, jobs: Sequence[Job], failed: dict[int, StoreError], options: Options, any_stored: bool
    ) -> dict[int, Handle[Any]]:
        """Keeps the failed jobs in the outbox; raises one of the errors if it must not."""
        errors = list(failed.values())
        # An error that is not about a store that is away must not be hidden by the outbox.
        error = next((each for each in errors if not isinstance(each, StoreUnavailable)), errors[0])
        forwarder = self._forwarder_for(options, error)
        if forwarder is None:
            is_sure = not any_stored and all(each.stored is False for each in errors)
            raise _copy_error(error, False if is_sure else None) from None
        positions = sorted(failed)
        try:
            forwarder.outbox.keep([_entry(jobs[at], options) for at in positions])
        except StoreError as unkept:
            raise _unkept_error(unkept, errors, any_stored) from None
        return {at: forwarder.track(jobs[at]) for at in positions}

    def _forwarder_for(self, options: Options, error: StoreError) -> Forwarder | None:
        """The forwarder, if there is an outbox and the job may go there after this error."""
        is_away = isinstance(error, StoreUnavailable) and options.durable is None
        # durable= asks for a replica's word, which an outbox on this host cannot give.
        return self._forwarder if is_away else None

    def _insert_into_outbox(self, job: Job, options: Options, error: StoreError) -> Handle[Any]:
        forwarder = self._forwarder_for(options, error)
        if forwarder is None or self._outbox_batcher is None:
            self._raise_own(error, job, options)
        try:
            self._outbox_batcher.do(_entry(job, options))
        except StoreError as unkept:
            self._raise_own(_unkept_error(unkept, [error]), job, options)
        return forwarder.track(job)

    async def _ainsert_into_outbox(self, job: Job, options: Options, error: StoreError) -> Handle[Any]:
        forwarder = self._forwarder_for(options, error)
        if forwarder is None or self._outbox_batcher is None:
            self._raise_own(error, job, options)
        try:
            await self._outbox_batcher.ado(_entry(job, options))
        except StoreError as unkept:
            self._raise_own(_unkept_error(unkept, [error]), job, options)
        return forwarder.track(job)

    def _raise_own(self, error: StoreError, job: Job, options: Options) -> NoReturn:
        """Raises the error for the caller of one enqueue."""
        raise self._own_error(error, job, options) from None

    def _own_error(self, error: StoreError, job: Job, options: Options) -> StoreError:
        """The error for the caller of one enqueue."""
        return own_error(error, self._make_handle(job.id, None), lambda: self._send_again(job, options))

    def _send_again(self, job: Job, options: Options) -> Handle[Any]:
        return self._only(job, lambda: self._insert_again([job], options))


def own_error(error: StoreError, handle: Handle[Any], again: Callable[[], Any]) -> StoreError:
    """The error for the caller that enqueued one job or flow. again: sends the very same again."""
    own = _copy_error(error, error.stored)
    own.job, own.job_ids, own.again = handle, (handle.id,), again
    own.add_note(f"Its id is {handle.id}.")
    return own


def _unkept_error(unkept: StoreError, errors: Sequence[StoreError], any_stored: bool = False) -> StoreError:
    """The error of the outbox, for jobs that the store failed to take, too. errors: those of the store."""
    # The outbox may say for sure that it has none of them, and yet the store may have taken them.
    is_sure = not any_stored and all(each.stored is False for each in (unkept, *errors))
    return _copy_error(unkept, False if is_sure else None)


def _copy_error(error: StoreError, stored: bool | None) -> StoreError:
    """A copy of the error for one caller. The original may be raised in other callers of the same batch."""
    # Not by its constructor: the classes of errors differ in their arguments.
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__notes__ = [note for note in getattr(error, "__notes__", ()) if note not in (_NOTE_NOT_STORED, _NOTE_UNSURE)]
    own.stored, own.__cause__ = stored, error.__cause__
    own.add_note(_NOTE_NOT_STORED if stored is False else _NOTE_UNSURE)
    return own


def _entry(job: Job, options: Options) -> Entry:
    return Entry(job, options.on_duplicate, options.idempotency, options.running, options.leading)

"""Moves jobs from the outbox to the store, in order, as soon as the store takes them."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from tarry.client.duplicates import DuplicateResolver
from tarry.client.handle import Handle, MakeHandle
from tarry.errors import (
    IdempotencyError,
    PartlyUnavailable,
    PayloadUnavailable,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from tarry.model.checks.unreadable import is_sealed
from tarry.model.job import Job
from tarry.model.quantity import quantity
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.rules.entry import Entry
from tarry.store.shared.backoff import Backoff
from tarry.tasks.arguments.options import Options
from tarry.tasks.log_facts import about
from tarry.tasks.shield import shielded

if TYPE_CHECKING:
    from tarry.store.outbox import Outbox

log = logging.getLogger("tarry.client")

PAGE = 500
# A store may be away for hours: a line for each try would fill the log.
WARN_EVERY = 60.0
CHECK_EVERY = 1.0
"""Seconds between two checks of an outbox that another process forwards."""
# A process may forward without end, so the oldest aliases go.
_MAX_ALIASES = 10_000

STORE_TROUBLE = (StoreUnavailable, StoreFull, StoreReadOnly)
"""Errors that have nothing to do with the job."""

Insert = Callable[[Sequence[Job]], list[bytes]]
"""As `Store.insert`: the id under which each job lives."""
NumberedEntries = Sequence[tuple[int, Entry]]


class Forwarder:
    """Forwards the jobs of an outbox: `step` does it once, `start` in a thread until nothing is left.

    Handles of forwarded jobs are updated, if the caller still has them.
    """

    def __init__(
        self, store: Store, insert: Insert, duplicates: DuplicateResolver, make_handle: MakeHandle, outbox: "Outbox"
    ) -> None:
        self.outbox = outbox
        self._store, self._insert = store, insert
        self._duplicates, self._make_handle = duplicates, make_handle
        # Weak: most callers drop their handles at once, and their jobs may wait in the outbox for long.
        self._handles: WeakValueDictionary[bytes, Handle[Any]] = WeakValueDictionary()
        self._aliases: dict[bytes, bytes] = {}
        """For jobs whose key was held: the holder's id, by the id that the job had in the outbox."""
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = threading.Event()
        self._warned_at = 0.0

    def track(self, job: Job) -> Handle[Any]:
        """The handle of a job that was put into the outbox. Starts forwarding."""
        # Before the thread starts: it may forward the job at once, and must find the handle.
        handle = self._handles[job.id] = self._make_handle(job.id, None)
        self.start()
        return handle

    def fetch(self, ids: Sequence[bytes]) -> list[Job | None]:
        """The jobs by id, from the store or the outbox; for a job whose key was held, the holder.

        PartlyUnavailable for jobs that are not in the outbox, if their store is away.
        """
        # The outbox first: a job that is not there any more is in the store by then.
        kept = self.outbox.find(ids)
        found, missing = self._fetch_from_store([self._aliases.get(id, id) for id in ids])
        for at, id in enumerate(ids):
            if id in kept and (found[at] is None or at in missing):
                found[at] = kept[id]
                missing.pop(at, None)
        if missing:
            raise PartlyUnavailable(str(next(iter(missing.values()))), found, missing)
        return found

    def fetch_stored(self, id: bytes) -> Job | None:
        """The job from the store; StoreUnavailable as long as it is in the outbox."""
        # The outbox first, as in `fetch`.
        kept = self.outbox.find([id])
        job = self._store.get([self._aliases.get(id, id)])[0]
        if job is None and kept:
            raise StoreUnavailable(
                f"job {ids.text(id)} still lies in {self.outbox.path}: try again once it has left it"
            )
        return job

    def start(self) -> None:
        """Starts forwarding in the background."""
        with self._lock:
            if self._thread is None and not self._is_closed.is_set():
                self._thread = threading.Thread(target=self._run, name="tarry-outbox", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stops. The next process with this outbox forwards what is left."""
        self._is_closed.set()
        if self._thread is not None:
            # Limited: the thread may be inside a call of a store that hangs.
            self._thread.join(timeout=5)
        self.outbox.close()

    def forward(self) -> None:
        """`step`, if the outbox has jobs: a chore for the keeper."""
        with shielded:
            if self.outbox.content().jobs:
                self.step()

    def step(self) -> bool:
        """Forwards what the store takes now; False if another process does it. StoreUnavailable if jobs are left."""
        with shielded, self.outbox.turn() as is_ours:
            if is_ours:
                self._forward()
        return is_ours

    def _run(self) -> None:
        backoff = Backoff()
        while not self._is_closed.is_set():
            try:
                is_ours = self.step()
                backoff.succeed()
            except Exception as error:
                # Not only StoreError: a thread that ends would leave all later jobs in the outbox.
                is_ours = False
                backoff.fail(time.monotonic())
                self._warn(error)
            if is_ours and self._end_if_empty():
                return
            self._is_closed.wait(backoff.left(time.monotonic()) if backoff.tries else CHECK_EVERY)

    def _end_if_empty(self) -> bool:
        # Under the lock, so that `start` sees either this thread with its next look at the outbox, or none.
        with self._lock:
            if self.outbox.content().jobs:
                return False
            self._thread = None
            return True

    def _warn(self, error: Exception) -> None:
        if not self._warned_at or time.monotonic() - self._warned_at > WARN_EVERY:
            self._warned_at = time.monotonic()
            is_known = isinstance(error, StoreError)
            log.warning("%s; jobs wait in %s", error, self.outbox.path, exc_info=None if is_known else error)

    def _forward(self) -> None:
        after, forwarded = 0, 0
        trouble: Exception | None = None
        round_ = _ForwardRound(self._insert, self._store.keeps_apart_over)
        while page := self.outbox.page(after, PAGE):
            # Goes on behind refused jobs, so that they do not block the others.
            after = page[-1][0]
            ids, errors = round_.insert([self._with_fitting_id(entry.job) for _, entry in page])
            stored = [(n, entry) for at, (n, entry) in enumerate(page) if at not in errors]
            self._resolve(stored, [ids[at] for at in range(len(page)) if at not in errors])
            # Removed last: after a crash before this the jobs are sent again, and their ids and keys make that
            # harmless.
            self.outbox.remove([n for n, _ in stored])
            forwarded += len(stored)
            trouble = next(iter(errors.values()), trouble)
            # A page of which nothing was stored: the store is away, and further pages would fail too.
            if trouble is not None and (self._is_closed.is_set() or not (stored or round_.trouble)):
                break
        if forwarded:
            self._warned_at = 0.0
            log.info("forwarded %s from %s", quantity(forwarded), self.outbox.path)
        if trouble is not None:
            raise trouble

    def _with_fitting_id(self, job: Job) -> Job:
        """The job, with a new id if its shard has changed: shards may have been added or removed in the meantime."""
        store = self._store
        # One that cannot be opened here is sealed for the id that it has.
        return (
            job
            if store.belongs(job) or is_sealed(job.body)
            else replace(job, id=store.new_id(job.task, job.key, job.lane))
        )

    def _fetch_from_store(self, ids: Sequence[bytes]) -> tuple[list[Job | None], dict[int, StoreError]]:
        """The jobs, and an error for each position that could not be read."""
        try:
            return self._store.get(ids), {}
        except PartlyUnavailable as error:
            return error.answer, dict(error.missing)
        except StoreUnavailable as error:
            return [None] * len(ids), dict.fromkeys(range(len(ids)), error)

    def _resolve(self, stored: NumberedEntries, ids: Sequence[bytes]) -> None:
        """Does for forwarded jobs what the enqueue would have done: resolves duplicates and updates the handles."""
        for (_, entry), holder in zip(stored, ids, strict=True):
            handle = self._handles.pop(entry.job.id, None)
            id = holder if holder == entry.job.id else self._resolve_duplicate(entry, holder)
            if id != entry.job.id:
                self._aliases[entry.job.id] = id
                if len(self._aliases) > _MAX_ALIASES:
                    del self._aliases[next(iter(self._aliases))]
            if handle is not None:
                handle.become(self._make_handle(id, id == entry.job.id))

    def _resolve_duplicate(self, entry: Entry, holder: bytes) -> bytes:
        rules = {"on_duplicate": entry.on_duplicate, "running": entry.running, "leading": entry.leading}
        options = Options(idempotency=entry.idempotency, **rules)  # type: ignore[arg-type]
        try:
            return self._duplicates.resolve(entry.job, holder, options)
        except IdempotencyError as error:
            # The enqueue has long returned, so there is no caller to raise this to.
            job = entry.job
            text = "%s %s was kept while the store was away: %s"
            log.error(text, job.task, ids.text(job.id), error, extra=about(job))
            return holder


class _ForwardRound:
    """The jobs of one round. While the place of large arguments is away, the others go on, but for those that have the
    key or the line of one that waits. over: bytes of arguments that are kept there."""

    def __init__(self, insert: Insert, over: float) -> None:
        self._insert, self._over = insert, over
        self.trouble: PayloadUnavailable | None = None
        """Why large ones wait."""
        self._behind: set[tuple[str, str | bytes]] = set()

    def insert(self, jobs: Sequence[Job]) -> tuple[Sequence[bytes], Mapping[int, Exception]]:
        """As `insert_around`."""
        if self.trouble is None:
            ids, errors = insert_around(self._insert, jobs)
            self.trouble = next((one for one in errors.values() if isinstance(one, PayloadUnavailable)), None)
            if self.trouble is None:
                return ids, errors
        found, errors = [job.id for job in jobs], dict[int, Exception](dict.fromkeys(range(len(jobs)), self.trouble))
        if small := [at for at, job in enumerate(jobs) if self._goes_on(job)]:
            ids, wrong = insert_around(self._insert, [jobs[at] for at in small])
            for position, at in enumerate(small):
                found[at] = ids[position]
                errors.pop(at)
            errors |= {small[position]: error for position, error in wrong.items()}
        return found, errors

    def _goes_on(self, job: Job) -> bool:
        lines = {(job.task, name) for name in (job.key, job.lane) if name is not None}
        if len(job.body) <= self._over and self._behind.isdisjoint(lines):
            return True
        self._behind |= lines
        return False


def try_insert(insert: Insert, jobs: Sequence[Job]) -> tuple[Sequence[bytes], Mapping[int, StoreError]]:
    """Calls `insert`. Returns the ids under which the jobs live, and an error for each position that failed."""
    try:
        return insert(jobs), {}
    except PartlyUnavailable as error:
        return error.answer, error.missing
    except StoreError as error:
        return [job.id for job in jobs], dict.fromkeys(range(len(jobs)), error)


def insert_around(insert: Insert, jobs: Sequence[Job]) -> tuple[Sequence[bytes], Mapping[int, Exception]]:
    """As `try_insert`; if the store refuses one of the jobs, the others get through."""
    ids, errors = _try_any(insert, jobs)
    if len(jobs) < 2 or not errors or any(isinstance(error, STORE_TROUBLE) for error in errors.values()):
        return ids, errors
    # By halves: a thousand jobs with a bad one among them take twenty calls. Jobs that were stored are so only once.
    half = len(jobs) // 2
    (first, wrong), (second, more) = insert_around(insert, jobs[:half]), insert_around(insert, jobs[half:])
    return [*first, *second], {**wrong, **{half + at: error for at, error in more.items()}}


def _try_any(insert: Insert, jobs: Sequence[Job]) -> tuple[Sequence[bytes], Mapping[int, Exception]]:
    try:
        return try_insert(insert, jobs)
    except Exception as error:
        # A driver may raise errors of its own for what it cannot write.
        return [job.id for job in jobs], dict.fromkeys(range(len(jobs)), error)

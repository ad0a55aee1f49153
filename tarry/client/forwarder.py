"""From the outbox to the store: in order, as soon as the store takes them."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from msgspec.structs import replace

from tarry.client.handle import Handle
from tarry.client.handles import Handles
from tarry.errors import IdempotencyError, PartlyUnavailable, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from tarry.model.job import Job
from tarry.model.quantity import quantity
from tarry.store import ids
from tarry.store.base import Store
from tarry.store.entry import Entry
from tarry.store.shared.patience import Backoff
from tarry.tasks.log_facts import about
from tarry.tasks.options import Options
from tarry.tasks.shield import shielded

if TYPE_CHECKING:
    from tarry.store.outbox import Outbox

log = logging.getLogger("tarry.client")

PAGE = 500
TOLD_EVERY = 60.0
LOOKS_AGAIN = 1.0
"""Seconds between two looks whether another process, whose turn it is, has forwarded all."""
_ALIASES = 10_000

PASSES = (StoreUnavailable, StoreFull, StoreReadOnly)
"""Errors that are not the job's fault."""

Numbered = Sequence[tuple[int, Entry]]


class Forwarder:
    """Forwards what lies in an outbox: `step` once, `start` in a thread until nothing is left.

    Who was given a handle when the job was put here has it told, if he still has it.
    """

    def __init__(
        self, store: Store, insert: Callable[[Sequence[Job]], list[bytes]], handles: Handles, outbox: "Outbox"
    ) -> None:
        self.outbox = outbox
        self._store, self._insert, self._makes = store, insert, handles
        self._handles: WeakValueDictionary[bytes, Handle[Any]] = WeakValueDictionary()
        self._aliases: dict[bytes, bytes] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._told = 0.0

    def promised(self, job: Job) -> Handle[Any]:
        """The handle of a job that lies in the outbox now."""
        handle = self._handles[job.id] = self._makes.of(job.id, None)
        self.start()
        return handle

    def look(self, ids: Sequence[bytes]) -> list[Job | None]:
        """The jobs by id, as the store has them, or as they lie here. One that lay here and whose key was held is that
        which held it. PartlyUnavailable, StoreUnavailable for those that are unknown."""
        # Here first: what is not here any more has arrived.
        here = self.outbox.find(ids)
        found, missing = self._got([self._aliases.get(id, id) for id in ids])
        for at, id in enumerate(ids):
            if id in here and (found[at] is None or at in missing):
                found[at] = here[id]
                missing.pop(at, None)
        if missing:
            raise PartlyUnavailable(str(next(iter(missing.values()))), found, missing)
        return found

    def arrived(self, id: bytes) -> Job | None:
        """The job as the store has it; StoreUnavailable as long as it lies here."""
        here = self.outbox.find([id])
        job = self._store.get([self._aliases.get(id, id)])[0]
        if job is None and here:
            raise StoreUnavailable(
                f"job {ids.text(id)} still lies in {self.outbox.path}: try again once it has left it"
            )
        return job

    def _got(self, ids: Sequence[bytes]) -> tuple[list[Job | None], dict[int, StoreError]]:
        try:
            return self._store.get(ids), {}
        except PartlyUnavailable as error:
            return error.answer, dict(error.missing)
        except StoreUnavailable as error:
            return [None] * len(ids), dict.fromkeys(range(len(ids)), error)

    def start(self) -> None:
        """Sees to it that what is there is forwarded, in the background."""
        with self._lock:
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._serve, name="tarry-outbox", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Stops; what is left is for the next process with this outbox."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        self.outbox.close()

    def forward(self) -> None:
        """What `step` does, for whoever comes by now and then."""
        if self.outbox.content().jobs:
            self.step()

    def step(self) -> bool:
        """Forwards all that the store takes now; False if another process is at it. StoreUnavailable if something had
        to be left."""
        with shielded, self.outbox.turn() as ours:
            if ours:
                self._forward()
        return ours

    def _serve(self) -> None:
        backoff = Backoff()
        while not self._ended.is_set():
            try:
                ours = self.step()
                backoff.succeed()
            except Exception as error:
                ours = False
                backoff.fail(time.monotonic())
                self._trouble(error)
            if ours and self._is_empty():
                return
            self._ended.wait(backoff.left(time.monotonic()) if backoff.tries else LOOKS_AGAIN)

    def _is_empty(self) -> bool:
        with self._lock:
            if self.outbox.content().jobs:
                return False
            self._thread = None
            return True

    def _trouble(self, error: Exception) -> None:
        if not self._told or time.monotonic() - self._told > TOLD_EVERY:
            self._told = time.monotonic()
            known = isinstance(error, StoreError)
            log.warning("%s; jobs wait in %s", error, self.outbox.path, exc_info=None if known else error)

    def _forward(self) -> None:
        after, forwarded = 0, 0
        left: StoreError | None = None
        while page := self.outbox.page(after, PAGE):
            after = page[-1][0]
            lives, errors = self._inserted([self._fitting(entry.job) for _, entry in page])
            there = [(n, entry) for at, (n, entry) in enumerate(page) if at not in errors]
            landed = [lives[at] for at in range(len(page)) if at not in errors]
            self._settle(there, landed)
            self.outbox.remove([n for n, _ in there])
            forwarded += len(there)
            left = next(iter(errors.values()), left)
            if left is not None and (self._ended.is_set() or not there):
                break
        if forwarded:
            self._told = 0.0
            log.info("forwarded %s from %s", quantity(forwarded), self.outbox.path)
        if left is not None:
            raise left

    def _fitting(self, job: Job) -> Job:
        """Where stores were added or taken away meanwhile, a job with a key needs another id to meet its like."""
        store = self._store
        return job if store.fits(job) else replace(job, id=store.mint(job.task, job.key, job.lane))

    def _inserted(self, jobs: Sequence[Job]) -> tuple[Sequence[bytes], Mapping[int, StoreError]]:
        lives, errors = inserted(self._insert, jobs)
        if len(jobs) == 1 or not errors or any(isinstance(error, PASSES) for error in errors.values()):
            return lives, errors
        # One that the store refuses must not keep back the others.
        alone = [inserted(self._insert, [job]) for job in jobs]
        return [lives[0] for lives, _ in alone], {at: errors[0] for at, (_, errors) in enumerate(alone) if errors}

    def _settle(self, there: Numbered, lives: Sequence[bytes]) -> None:
        """What the caller would have been told."""
        for (_, entry), holder in zip(there, lives, strict=True):
            handle = self._handles.pop(entry.job.id, None)
            id = holder if holder == entry.job.id else self._settled(entry, holder)
            if id != entry.job.id:
                self._aliases[entry.job.id] = id
                if len(self._aliases) > _ALIASES:
                    del self._aliases[next(iter(self._aliases))]
            if handle is not None:
                handle.landed(self._makes.of(id, id == entry.job.id))

    def _settled(self, entry: Entry, holder: bytes) -> bytes:
        options = Options(on_duplicate=entry.on_duplicate, idempotency=entry.idempotency)  # type: ignore[arg-type]
        try:
            return self._makes.settle(entry.job, holder, options)
        except IdempotencyError as error:
            job = entry.job
            told = "%s %s was kept while the store was away: %s"
            log.error(told, job.task, ids.text(job.id), error, extra=about(job))
            return holder


def inserted(
    insert: Callable[[Sequence[Job]], list[bytes]], jobs: Sequence[Job]
) -> tuple[Sequence[bytes], Mapping[int, StoreError]]:
    """Under which ids the jobs live, and the positions of those of which that is not known, with the reasons."""
    try:
        return insert(jobs), {}
    except PartlyUnavailable as error:
        return error.answer, error.missing
    except StoreError as error:
        return [job.id for job in jobs], dict.fromkeys(range(len(jobs)), error)

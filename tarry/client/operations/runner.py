"""Runs the operations of a store, page by page, in one thread of this process."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Generator, Sequence

from msgspec.structs import replace

from tarry.client.acting import Actor, acting
from tarry.client.bulk import PAGE, change_jobs
from tarry.client.client import Client
from tarry.client.operations import operation_cells
from tarry.client.operations.operation import EVENTS, Operation, rule_of
from tarry.client.operations.operation_cells import StoredOperation
from tarry.errors import StoreError, StoreFull, StoreUnavailable, TarryError
from tarry.model.checks.texts import MOST_MESSAGE, cut, text_of
from tarry.model.duration import MINUTE, SECOND
from tarry.model.job import Job
from tarry.store.queries.job_search import is_found
from tarry.store.shared.backoff import Backoff

log = logging.getLogger("tarry.operations")

LEASE = 30 * SECOND
"""Microseconds after which another process goes on with the operation of one that died."""
POLL_INTERVAL = 5.0
"""Seconds between two looks for operations that other processes accepted, or left."""
# Without this bound an operation would never end while producers are faster than it.
CLOCK_SLACK = 5 * MINUTE
"""Jobs that came later than this after the operation are left out; microseconds."""

_MOST_PAUSE = 1.0
_LOOK = 0.2
"""Seconds between two looks at an operation that another process runs."""
_CLOSE_WITHIN = 5.0


class OperationRunner:
    """Runs operations until it is closed. Several processes may do so for one store: each operation has one runner.

    owner: a name of this process that no other has. prepare: called before jobs are cancelled, to learn of HTTP tasks.
    """

    def __init__(
        self,
        client: Callable[[], Client],
        owner: str,
        *,
        prepare: Callable[[], object] = lambda: None,
        poll: float = POLL_INTERVAL,
    ) -> None:
        self._find_client, self._owner, self._prepare, self._poll = client, owner, prepare, poll
        self._used: Client | None = None
        self._news = threading.Event()
        self._closed = False
        self._backoff = Backoff(log, "operations go on")
        self._thread = threading.Thread(target=self._run, name="tarry-operations", daemon=True)

    @property
    def _client(self) -> Client:
        # The first use opens the store, which may be away while the server starts. None after `close` opens it again:
        # nobody would close that one.
        if self._used is None or not self._closed:
            self._used = self._find_client()
        return self._used

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def submit(self, operation: Operation) -> Operation:
        """Stores a new operation, to be run soon; TooManyOperations, UsageError, StoreError."""
        added = operation_cells.add(self._client.store, operation, self._client.clock.now())
        self._news.set()
        return added

    def run(self, operation: Operation) -> Generator[Operation, None, None]:
        """Runs a new operation in the calling thread: yields it after each page, at last as it ended.
        TooManyOperations, UsageError, StoreError. Whatever else ends this stops the operation.

        A full store that has no room for the record of a deletion does not keep it from making room: then it is not
        listed, and nobody goes on with it.
        """
        operation, cell = self._add(operation)
        try:
            while not operation.is_ended:
                after = self._advance(operation, cell)
                if after is None:
                    # Until that process has ended it, or its lease is over.
                    time.sleep(_LOOK)
                    after = operation_cells.read(self._client.store, operation.id)
                operation, cell = after
                yield operation
        finally:
            if not operation.is_ended:
                with contextlib.suppress(TarryError):
                    self._save(replace(operation, state="stopped"), cell)

    def _add(self, operation: Operation) -> StoredOperation:
        """Stores a new operation that is this process's from the start."""
        store, now = self._client.store, self._client.clock.now()
        operation = replace(operation, owner=self._owner, lease=now + LEASE)
        try:
            return operation_cells.read(store, operation_cells.add(store, operation, now).id)
        except StoreFull:
            if operation.act != "delete":
                raise
            return replace(operation, created=now), b""

    def close(self) -> None:
        """Ends the thread after its current page. Another process goes on with what has not ended."""
        self._closed = True
        self._news.set()
        if self._thread.ident is not None:
            # A store that hangs must not keep the process from ending: then the lease runs out.
            self._thread.join(_CLOSE_WITHIN)

    def _run(self) -> None:
        while not self._closed:
            pause = self._attempt()
            # The event is set by `submit` and `close` only.
            self._news.wait(pause)
            self._news.clear()
        # Else another process would wait for the end of the lease.
        if self._used is not None:
            with contextlib.suppress(TarryError):
                self._release()

    def _release(self) -> None:
        for operation, cell in operation_cells.read_all(self._client.store):
            if operation.owner == self._owner:
                operation_cells.write(self._client.store, replace(operation, owner="", lease=0), cell)

    def _attempt(self) -> float:
        """Advances each operation by a page; returns for how many seconds to pause."""
        try:
            pause = self._advance_all()
        except Exception as error:
            if self._backoff.fail(time.monotonic()):
                known = isinstance(error, TarryError)
                log.warning("operations: %s", error, exc_info=None if known else error)
            return max(self._poll, self._backoff.left(time.monotonic()))
        self._backoff.succeed()
        return pause

    def _advance_all(self) -> float:
        began = time.monotonic()
        is_open, trouble = False, None
        for operation, cell in operation_cells.read_all(self._client.store):
            # A process with the key runs what is sealed.
            if operation.is_ended or operation.sealed or self._closed:
                continue
            try:
                after = self._advance(operation, cell)
                is_open |= after is not None and not after[0].is_ended
            except StoreUnavailable:
                raise
            except StoreError as error:
                # What the store refuses of one operation must not keep the others waiting.
                trouble = error
        if trouble is not None:
            raise trouble
        # Half of the time is left to the workers, who use the same store.
        return min(_MOST_PAUSE, time.monotonic() - began) if is_open else self._poll

    def _advance(self, operation: Operation, cell: bytes) -> StoredOperation | None:
        """Does one page of the operation, and returns it as it is then; None: another process runs it."""
        now = self._client.clock.now()
        if operation.owner != self._owner and operation.lease > now:
            return None
        try:
            taken = self._take(operation, cell, now)
            if taken is None:
                return operation_cells.read(self._client.store, operation.id)
            operation, cell = taken
            after = self._do_page(operation)
        except StoreError:
            raise
        except Exception as error:
            log.exception("operation %s failed", operation.id)
            after = replace(
                operation, state="failed", trouble=cut(f"{type(error).__name__}: {text_of(error)}", MOST_MESSAGE)
            )
        return self._save(after, cell)

    def _take(self, operation: Operation, cell: bytes, now: int) -> StoredOperation | None:
        """Makes the operation this process's; None if another process has written it since."""
        if operation.state == "waiting":
            operation = replace(operation, state="running", total=self._estimate(operation))
        taken = replace(operation, owner=self._owner, lease=now + LEASE)
        written = self._write(taken, cell)
        return None if written is None else (taken, written)

    def _save(self, operation: Operation, cell: bytes) -> StoredOperation:
        """Stores what a page did; returns the operation as it is then."""
        if operation.is_ended:
            operation = replace(operation, ended=self._client.clock.now(), owner="", lease=0)
        written = self._write(operation, cell)
        if written is not None:
            return operation, written
        # Somebody asked it to stop. What the page did counts all the same.
        newest, cell = operation_cells.read(self._client.store, operation.id)
        if newest.owner != self._owner:
            return newest, cell
        operation = replace(operation, state=operation.state if operation.is_ended else newest.state)
        return operation, self._write(operation, cell) or cell

    def _write(self, operation: Operation, cell: bytes) -> bytes | None:
        """Stores an operation; returns its cell, None if another process has written it. A deletion goes on if the
        store is full: it makes room."""
        try:
            return operation_cells.write(self._client.store, operation, cell) if operation.id else cell
        except StoreFull:
            if operation.act != "delete":
                raise
            return cell

    def _do_page(self, operation: Operation) -> Operation:
        if operation.state == "stopping":
            return replace(operation, state="stopped")
        client, search = self._client, operation.filter.search(operation.created)
        query = search.query
        found = client.store.find(replace(query, after=max(query.after, operation.after), limit=PAGE))
        known = [job for job in found if not _came_after(job, operation)]
        jobs = [job for job in known if is_found(job, search)]
        changed = 0
        if jobs and not operation.dry_run:
            if operation.act == "cancel":
                self._prepare()
            with acting(Actor(operation.caller, via="operation")):
                changed = change_page(client, operation, jobs)
        return replace(
            operation,
            # The order is that of ids: behind a page of new jobs there are only newer ones.
            state="done" if len(found) < PAGE or not known else "running",
            after=found[-1].id if found else operation.after,
            matched=operation.matched + len(jobs),
            changed=operation.changed + changed,
        )

    def _estimate(self, operation: Operation) -> int | None:
        """About how many jobs match; None if that could be known only by reading them all."""
        if operation.filter.key is not None:
            return None
        return operation.filter.count(self._client.store.counts())


def change_page(client: Client, operation: Operation, jobs: Sequence[Job]) -> int:
    """Does for these jobs what the operation does; returns how many were changed."""
    changed = change_jobs(client, jobs, rule_of(operation, client), EVENTS[operation.act])
    if operation.act == "cancel":
        # Workers must hear of the cancelled jobs that they run.
        client.store.wake_for_recall()
    return changed


def _came_after(job: Job, operation: Operation) -> bool:
    """Whether the job is newer than the operation, and so none of its business."""
    # Not by its id alone: that has the time of the producer, whose clock may be hours ahead.
    last = operation.created + CLOCK_SLACK
    return job.created > last and job.state_since > last

"""Jobs as a collection: `app.jobs(state="dead", queue="mail")` iterates, counts, and changes all that match."""

import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from tarry.client.acting import current_actor
from tarry.client.bulk import find_pages
from tarry.client.handle import Handle
from tarry.client.operations import operation_cells
from tarry.client.operations.operation import BulkAct, JobFilter, Operation, OperationRecord, count_jobs, find_matching
from tarry.client.operations.runner import OperationRunner, change_page
from tarry.errors import ResultTimeout
from tarry.model.checks.texts import MOST_MESSAGE, cut
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.job import Job, State, check_labels
from tarry.model.lifecycle import holds_key
from tarry.store.queries.job_search import parse_moment
from tarry.store.rules import owner
from tarry.store.rules.base import Query
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.lazy_asyncio import asyncio
from tarry.tasks.shield import shielded

if TYPE_CHECKING:
    from tarry.client.client import Client

MOST_IN_PLACE = 1000
"""Jobs that a change of many makes before it returns; of more it becomes an operation in the background."""
_POLL, _MOST_POLL = 0.05, 1.0
"""Seconds between two looks at an operation."""
# Of all apps: held only while a runner is made or forgotten.
_lock = threading.Lock()


class JobsChange:
    """What becomes of `cancel`, `retry` or `delete` of many jobs. Of up to 1,000 it has ended when it is returned."""

    def __init__(self, client: "Client", operation: Operation) -> None:
        self._client, self._operation = client, operation

    @property
    def id(self) -> str:
        """The id of the operation, by which every door knows it; empty if the change was made in place."""
        return self._operation.id

    @property
    def record(self) -> OperationRecord:
        """How far it has come. StoreError; OperationNotFound once it is forgotten, a week after its end."""
        if not self._operation.is_ended:
            self._operation = operation_cells.read(self._client.store, self.id)[0]
        return OperationRecord.of(self._operation)

    @property
    def matched(self) -> int:
        """Jobs that matched, up to now."""
        return self.record.matched

    @property
    def changed(self) -> int:
        """Those of them that were changed. The others had changed before, or their state does not allow it."""
        return self.record.changed

    @property
    def is_ended(self) -> bool:
        """Whether nothing more becomes of it."""
        return self._operation.is_ended or (self.record.ended is not None)

    def wait(self, timeout: float | None = None) -> OperationRecord:
        """Waits up to `timeout` seconds (None: without end) for its end; ResultTimeout."""
        until, pause = None if timeout is None else time.monotonic() + timeout, _POLL
        while not self.is_ended:
            if until is not None and time.monotonic() >= until:
                raise ResultTimeout(f"operation {self.id} has not ended after {timeout:g} s")
            time.sleep(pause)
            pause = min(pause * 1.5, _MOST_POLL)
        return self.record

    async def await_ended(self, timeout: float | None = None) -> OperationRecord:
        """The same, awaited."""
        return await asyncio.to_thread(self.wait, timeout)

    def stop(self) -> None:
        """Asks it to end; what it has changed stays changed."""
        if self.id:
            operation_cells.stop(self._client.store, self.id, self._client.clock.now())

    def __repr__(self) -> str:
        return f"<JobsChange {self._operation.act} {self._operation.state}: {self._operation.changed:,} changed>"


class JobCollection:
    """The jobs that match, as they are when they are asked for: iterates over handles, in the order of their ids (that
    of their enqueues), and asks the store page by page. StoreError; PartlyUnavailable if a shard is away."""

    def __init__(self, finder: "JobFinder", filter: JobFilter) -> None:
        self._finder, self._filter = finder, filter

    def __iter__(self) -> Iterator[Handle[Any]]:
        client = self._finder.client
        return (client.get(job.id) for page in self._pages() for job in page)

    async def __aiter__(self) -> AsyncIterator[Handle[Any]]:
        client, pages = self._finder.client, self._pages()
        while page := await asyncio.to_thread(next, pages, None):
            for job in page:
                yield client.get(job.id)

    def count(self) -> int:
        """How many there are. By state, queue and task alone the store counts; else all that match are read."""
        return count_jobs(self._finder.client, self._filter)

    def first(self) -> Handle[Any] | None:
        """The oldest; None: there is none."""
        return next(iter(self), None)

    def cancel(self, reason: str = "") -> JobsChange:
        """Cancels them; tasks that run are interrupted. ValueError if nothing narrows the jobs; TooManyOperations."""
        return self._change("cancel", reason)

    def retry(self) -> JobsChange:
        """Makes them ready now; those that have ended get all their attempts again. Errors as of `cancel`."""
        return self._change("retry")

    def delete(self) -> JobsChange:
        """Deletes those that do not run. Errors as of `cancel`."""
        return self._change("delete")

    async def acount(self) -> int:
        """`count`, awaited."""
        return await asyncio.to_thread(self.count)

    async def afirst(self) -> Handle[Any] | None:
        """`first`, awaited."""
        return await asyncio.to_thread(self.first)

    async def acancel(self, reason: str = "") -> JobsChange:
        """`cancel`, awaited."""
        return await asyncio.to_thread(self.cancel, reason)

    async def aretry(self) -> JobsChange:
        """`retry`, awaited."""
        return await asyncio.to_thread(self.retry)

    async def adelete(self) -> JobsChange:
        """`delete`, awaited."""
        return await asyncio.to_thread(self.delete)

    def _pages(self) -> Iterator[list[Job]]:
        return find_matching(self._finder.client, self._filter)

    def _change(self, act: BulkAct, reason: str = "") -> JobsChange:
        if self._filter.matches_all:
            raise ValueError(
                f"app.jobs().{act}(): of which jobs? Narrow with q, state, queue, task, key, labels, since or older"
            )
        client = self._finder.client
        operation = Operation("", act, self._filter, reason=cut(reason, MOST_MESSAGE), caller=current_actor().name)
        jobs = list(islice((job for page in self._pages() for job in page), MOST_IN_PLACE + 1))
        with shielded:
            if len(jobs) > MOST_IN_PLACE:
                return JobsChange(client, self._finder.operation_runner().submit(operation))
            if act == "cancel":
                self._finder.sync_tasks()
            changed = change_page(client, operation, jobs)
        return JobsChange(client, replace(operation, state="done", matched=len(jobs), changed=changed))


class JobFinder(ABC):
    """What an app has for the jobs in its store: `jobs`."""

    _runner: OperationRunner | None = None
    _runner_process = 0

    @property
    @abstractmethod
    def client(self) -> "Client":
        """Has the store."""

    @property
    @abstractmethod
    def http(self) -> Any:
        """The HTTP tasks; those in the store are known after `load` and `sync`."""

    def jobs(
        self,
        *,
        q: str = "",
        state: str | Iterable[str] = (),
        queue: str | None = None,
        task: TaskDefinition[Any, Any] | str | None = None,
        key: str | None = None,
        since: Duration | None = None,
        older: Duration | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> JobCollection:
        """The jobs that match all of these: `for job in app.jobs(state="dead", queue="mail")`, or `async for`;
        `.count()`, `.first()`, `.cancel()`, `.retry()`, `.delete()`, each with an a-twin.

        q: one line that says which, as in commands and the console, with all of its words but `id:` and `parent:`:
        `app.jobs(q="state:dead task:shop.* customer:7")`. state: one, or several. since: only those in their state
        since that time or later: how long ago ("2d", seconds), or a time such as 2026-11-24T16:00Z. older: only those
        in their state for longer than this. labels: only those that have all of them. ValueError.

        A change of up to 1,000 jobs is made at once. Of more it is an operation, which a thread of this process carries
        out: `.wait()` waits for its end. If the process ends first, a server process of the same store goes on with it;
        without one it stays as it is until the next process that starts an operation.
        """
        now = self.client.clock.now()
        filter = JobFilter(
            queue=queue,
            task=task.name if isinstance(task, TaskDefinition) else task,
            key=key,
            states=_states(state),
            older=None if older is None else microseconds(older, "older") / SECOND,
            since=None if since is None else _moment(since, now) / SECOND,
            labels=tuple(f"{name}={value}" for name, value in check_labels(labels or {}).items()),
        )
        return JobCollection(self, _by_line(filter, q, now))

    def sync_tasks(self) -> None:
        """Makes the table of tasks what the settings and the store have now; StoreError."""
        self.http.load()
        self.http.sync(self.client.store)

    def operation_runner(self) -> OperationRunner:
        """Runs the operations of this app in a thread, until the app is closed; for tarry's own use."""
        with _lock:
            # The thread of a parent does not run in its forked child.
            if self._runner is None or self._runner_process != os.getpid():
                self._runner_process = os.getpid()
                self._runner = OperationRunner(lambda: self.client, owner.new_name(), prepare=self.sync_tasks)
                self._runner.start()
            return self._runner

    def _close_operations(self) -> None:
        with _lock:
            runner, self._runner = self._runner, None
        if runner is not None and self._runner_process == os.getpid():
            runner.close()


def find_holder(client: "Client", task: str, key: str) -> Handle[Any] | None:
    """The unfinished job of the task of that name that holds the key; None: there is none. StoreError."""
    unfinished = tuple(state for state in State if not state.finished)
    now = client.clock.now()
    pages = find_pages(client.store, Query(unfinished, task=task, key=key))
    return next((client.get(job.id) for page in pages for job in page if holds_key(job, now)), None)


def _states(state: str | Iterable[str]) -> tuple[State, ...]:
    try:
        return tuple(State(one) for one in ((state,) if isinstance(state, str) else state))
    except ValueError as error:
        raise ValueError(f"state: {error}: one of {', '.join(State)}") from None


def _by_line(filter: JobFilter, line: str, now: int) -> JobFilter:
    if not line.strip():
        return filter
    from tarry.client.operations.search_line import narrow  # noqa: PLC0415 - most calls have no line

    found = narrow(filter, line, now)
    # Only for its errors: they should name the call that has the line.
    found.search(now)
    return found


def _moment(since: Duration, now: int) -> int:
    return parse_moment(since.total_seconds() if isinstance(since, timedelta) else since, now)

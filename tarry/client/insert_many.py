"""`enqueue_many` through middleware: each call passes the middleware alone, and all jobs are stored together."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from tarry.client.handle import Handle, MakeHandle, require_handle
from tarry.model.duration import Duration
from tarry.model.job import Job
from tarry.tasks.arguments.options import Options, spread
from tarry.tasks.call import AnyCall, arguments_of
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.new_job import NewJob

Group = tuple[Options, list[Job], list[Handle[Any]]]
TaskCalls = Iterable[AnyCall[Any]]
InsertJobs = Callable[[list[Job], Options], list[Handle[Any]]]
AsyncInsertJobs = Callable[[list[Job], Options], Awaitable[list[Handle[Any]]]]


class PendingJobs:
    """Jobs that have passed the middleware and are not stored yet. Their handles have an id; `is_new` is None."""

    def __init__(self, make_job: Callable[[NewJob], Job], make_handle: MakeHandle) -> None:
        self._make_job, self._make_handle = make_job, make_handle
        self._pending: list[tuple[Options, Job, Handle[Any]]] = []

    def insert_many(
        self,
        insert: InsertJobs,
        task: TaskDefinition[Any, Any],
        calls: TaskCalls,
        options: Options,
        over: Duration | None = None,
    ) -> list[Handle[Any]]:
        """Enqueues the calls. insert: inserts jobs with the given options. over: they are due evenly over that time."""
        send = task.app_hooks.enqueue_chain[False]
        handles = [require_handle(send(new)) for new in _news(task, calls, options, self._add, False, over)]
        for settings, jobs, pending in self._groups():
            _update(pending, insert(jobs, settings))
        return handles

    async def ainsert_many(
        self,
        insert: AsyncInsertJobs,
        task: TaskDefinition[Any, Any],
        calls: TaskCalls,
        options: Options,
        over: Duration | None = None,
    ) -> list[Handle[Any]]:
        """The same, awaited."""
        send = task.app_hooks.enqueue_chain[True]
        handles = [require_handle(await send(new)) for new in _news(task, calls, options, self._aadd, True, over)]
        for settings, jobs, pending in self._groups():
            _update(pending, await insert(jobs, settings))
        return handles

    def _add(self, new: NewJob) -> Handle[Any]:
        """The end of the middleware chain."""
        job = self._make_job(new)
        # Middleware gets a handle at once; it stands for the stored job later, by `_update`.
        handle = self._make_handle(job.id, None)
        self._pending.append((new.options, job, handle))
        return handle

    async def _aadd(self, new: NewJob) -> Handle[Any]:
        return self._add(new)

    def _groups(self) -> Iterator[Group]:
        """The jobs to insert in one call: one group, unless middleware changed the options of some."""
        # By identity: all calls share one object of options, unless middleware made another.
        for _, group in groupby(self._pending, key=lambda each: id(each[0])):
            options, jobs, handles = zip(*group, strict=True)
            yield options[0], list(jobs), list(handles)


def _news(
    task: TaskDefinition[Any, Any],
    calls: TaskCalls,
    options: Options,
    add: Callable[[NewJob], Any],
    is_async: bool,
    over: Duration | None,
) -> Iterator[NewJob]:
    arguments = [arguments_of(task, call) for call in calls]
    for each, later in zip(arguments, spread(over, len(arguments)), strict=True):
        yield NewJob(task, *each, options, add, is_async, later)


def _update(pending: Iterable[Handle[Any]], stored: Iterable[Handle[Any]]) -> None:
    for handle, other in zip(pending, stored, strict=True):
        handle.become(other)

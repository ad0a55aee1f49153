"""One `enqueue_many` through middleware: each job is made by itself, and all are stored together."""

from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from tarry.client.handle import Handle, checked
from tarry.client.handles import Handles
from tarry.model.job import Job
from tarry.tasks.call import AnyCall, arguments
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.new_job import NewJob
from tarry.tasks.options import Options

Group = tuple[Options, list[Job], list[Handle[Any]]]
Put = Callable[[list[Job], Options], list[Handle[Any]]]
AsyncPut = Callable[[list[Job], Options], Awaitable[list[Handle[Any]]]]


def stored(
    made: "Made", put: Put, task: TaskDefinition[Any, Any], calls: Iterable[AnyCall[Any]], options: Options
) -> list[Handle[Any]]:
    """Enqueues the calls; `put` stores jobs with the options that it is given."""
    send, add = task.around.enqueue_chain[False], made.add
    handles = [checked(send(NewJob(task, *arguments(task, call), options, add, False))) for call in calls]
    for settings, jobs, early in made.groups():
        _land(early, put(jobs, settings))
    return handles


async def astored(
    made: "Made", put: AsyncPut, task: TaskDefinition[Any, Any], calls: Iterable[AnyCall[Any]], options: Options
) -> list[Handle[Any]]:
    """The same, awaited."""
    send, add = task.around.enqueue_chain[True], made.aadd
    handles = [checked(await send(NewJob(task, *arguments(task, call), options, add, True))) for call in calls]
    for settings, jobs, early in made.groups():
        _land(early, await put(jobs, settings))
    return handles


class Made:
    """Jobs that are made and not stored yet. Their handles have the id and nothing else; `is_new` is None."""

    def __init__(self, job_of: Callable[[NewJob], Job], handles: Handles) -> None:
        self._job_of, self._handles = job_of, handles
        self._all: list[tuple[Options, Job, Handle[Any]]] = []

    def add(self, new: NewJob) -> Handle[Any]:
        """What `call_next` comes to."""
        job = self._job_of(new)
        handle = self._handles.of(job.id, None)
        self._all.append((new.options, job, handle))
        return handle

    async def aadd(self, new: NewJob) -> Handle[Any]:
        """The same, to be awaited."""
        return self.add(new)

    def groups(self) -> Iterator[Group]:
        """Those to be stored at once: one group, unless middleware gave some of them other options."""
        for _, group in groupby(self._all, key=lambda one: id(one[0])):
            options, jobs, handles = zip(*group, strict=True)
            yield options[0], list(jobs), list(handles)


def _land(early: Iterable[Handle[Any]], late: Iterable[Handle[Any]]) -> None:
    for handle, other in zip(early, late, strict=True):
        handle.landed(other)

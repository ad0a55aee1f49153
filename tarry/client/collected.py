"""One `enqueue_many` through middleware: each job is made by itself, and all are stored together."""

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from tarry.client.handle import Handle, checked
from tarry.model.job import Job
from tarry.tasks.call import AnyCall, arguments
from tarry.tasks.new_job import NewJob

if TYPE_CHECKING:
    from tarry.client.client import Client
    from tarry.tasks.definition import TaskDefinition
    from tarry.tasks.options import Options

Group = tuple["Options", list[Job], list[Handle[Any]]]


def stored(
    client: "Client", task: "TaskDefinition[Any, Any]", calls: Iterable[AnyCall[Any]], options: "Options"
) -> list[Handle[Any]]:
    """Enqueues the calls."""
    made = Made(client)
    send, add = task.around.enqueue_chain[False], made.add
    handles = [checked(send(NewJob(task, *arguments(task, call), options, add, False))) for call in calls]
    for settings, jobs, early in made.groups():
        _land(early, client.put(jobs, settings))
    return handles


async def astored(
    client: "Client", task: "TaskDefinition[Any, Any]", calls: Iterable[AnyCall[Any]], options: "Options"
) -> list[Handle[Any]]:
    """The same, awaited."""
    made = Made(client)
    send, add = task.around.enqueue_chain[True], made.aadd
    handles = [checked(await send(NewJob(task, *arguments(task, call), options, add, True))) for call in calls]
    for settings, jobs, early in made.groups():
        _land(early, await client.aput(jobs, settings))
    return handles


class Made:
    """Jobs that are made and not stored yet. Their handles have the id and nothing else; `is_new` is None."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._all: list[tuple[Options, Job, Handle[Any]]] = []

    def add(self, new: NewJob) -> Handle[Any]:
        """What `call_next` comes to."""
        job = self._client.made(new)
        handle: Handle[Any] = Handle(self._client, job.id, None)
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

"""Where the jobs of batch tasks wait, in a worker's hands, until a call is full or the first has waited long enough."""

from typing import Any

from tarry.tasks.definition import TaskDefinition
from tarry.tasks.running import Batch, Running


class Gather:
    """One group for each batch task. Times by time.monotonic(). Used by one thread."""

    def __init__(self) -> None:
        self.groups: dict[TaskDefinition[Any, Any], list[Running]] = {}
        self._due: dict[TaskDefinition[Any, Any], float] = {}

    def add(self, running: Running, now: float) -> Batch | None:
        """The whole call, if this job fills it. One that was on when a worker died is called alone: should it be the
        cause, it takes no neighbour along."""
        task = running.task
        if running.job.losses:
            return Batch([running])
        group = self.groups.setdefault(task, [])
        group.append(running)
        if len(group) == 1:
            self._due[task] = now + task.wait
        return self._whole(task) if len(group) >= task.batch else None

    def due(self, now: float) -> list[Batch]:
        """The calls that wait no longer, full or not."""
        return [self._whole(task) for task, moment in list(self._due.items()) if moment <= now]

    def next(self) -> float | None:
        """When the next of them is due."""
        return min(self._due.values(), default=None)

    def drop(self, running: Running) -> bool:
        """It is no longer wanted; False if it is not here any more."""
        group = self.groups.get(running.task, [])
        if running not in group:
            return False
        group.remove(running)
        if not group:
            del self.groups[running.task], self._due[running.task]
        return True

    def empty(self) -> list[Running]:
        """All that wait here, and nobody does any more."""
        back = [running for group in self.groups.values() for running in group]
        self.groups.clear()
        self._due.clear()
        return back

    def filled(self, kind: bool) -> float:
        """How many slots what waits here would fill, for `def` (False) or `async def`."""
        return sum(len(group) / task.batch for task, group in self.groups.items() if task.is_async is kind)

    def lacking(self, kind: bool) -> int:
        """How many jobs the emptiest call lacks to be full."""
        return max((task.batch - len(group) for task, group in self.groups.items() if task.is_async is kind), default=0)

    def _whole(self, task: TaskDefinition[Any, Any]) -> Batch:
        del self._due[task]
        return Batch(self.groups.pop(task))

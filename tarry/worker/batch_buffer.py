"""Keeps the jobs of batch tasks until a call is full, or its first job has waited long enough."""

from typing import Any

from tarry.tasks.definition import TaskDefinition
from tarry.tasks.running import Batch, Running


class BatchBuffer:
    """One group for each batch task. Times are those of time.monotonic(). Not thread-safe."""

    def __init__(self) -> None:
        self.groups: dict[TaskDefinition[Any, Any], list[Running]] = {}
        self._due: dict[TaskDefinition[Any, Any], float] = {}

    def add(self, running: Running, now: float) -> Batch | None:
        """Adds a job; returns the whole call if this job fills it."""
        task = running.task
        if running.job.crashes:
            # It was running when a worker crashed. It is called alone, so that the next crash harms no other job.
            return Batch([running])
        group = self.groups.setdefault(task, [])
        group.append(running)
        if len(group) == 1:
            self._due[task] = now + task.wait
        return self._take_batch(task) if len(group) >= task.batch else None

    def take_due(self, now: float) -> list[Batch]:
        """Removes and returns the calls that have waited long enough, full or not."""
        return [self._take_batch(task) for task, moment in list(self._due.items()) if moment <= now]

    def next_due(self) -> float | None:
        """When the next call is due."""
        return min(self._due.values(), default=None)

    def discard(self, running: Running) -> bool:
        """Removes a job; False if it is not here."""
        group = self.groups.get(running.task, [])
        if running not in group:
            return False
        group.remove(running)
        if not group:
            del self.groups[running.task], self._due[running.task]
        return True

    def take_all(self) -> list[Running]:
        """Removes and returns all jobs."""
        back = [running for group in self.groups.values() for running in group]
        self.groups.clear()
        self._due.clear()
        return back

    def slots_needed(self, kind: bool) -> float:
        """How many slots the waiting jobs fill. kind: False for `def`, True for `async def`."""
        return sum(len(group) / task.batch for task, group in self.groups.items() if task.is_async is kind)

    def missing_jobs(self, kind: bool) -> int:
        """How many jobs the emptiest call lacks to be full."""
        return max((task.batch - len(group) for task, group in self.groups.items() if task.is_async is kind), default=0)

    def _take_batch(self, task: TaskDefinition[Any, Any]) -> Batch:
        del self._due[task]
        return Batch(self.groups.pop(task))

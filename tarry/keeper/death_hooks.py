"""Calls the failure hooks of attempts whose worker died."""

import logging
import threading
from collections.abc import Iterable, Mapping
from contextvars import copy_context
from queue import SimpleQueue
from typing import Any

from tarry.client.flows import map_part
from tarry.errors import JobFailed
from tarry.model.attempts import read_note
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.log_facts import about
from tarry.tasks.running import CurrentJob, Running, current
from tarry.worker.run import hook_calls
from tarry.worker.run.inputs import NodeInputs
from tarry.worker.run.steps import carry

log = logging.getLogger("tarry.keeper")

CLOSES_WITHIN = 5.0
"""Seconds that running hooks have when the keeper ends."""


class DeathHooks:
    """Calls `on_failure` and `on_dead` for the keeper, in a separate thread. store: has what nodes of flows take."""

    def __init__(self, tasks: Mapping[str, TaskDefinition[Any, Any]], store: Store) -> None:
        self._tasks, self._inputs = tasks, NodeInputs(store, tasks)
        self._queue: SimpleQueue[tuple[Job, Change] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def notify(self, changes: Iterable[tuple[Job, Change]]) -> None:
        """Calls the hooks for those of these changes that count as a failure."""
        for job, change in changes:
            task = self._task(job)
            if task is not None and task.run_wrapper is not None and (change.failures or 0) > job.failures:
                self._queue.put((job, change))
                self._start()

    def close(self) -> None:
        """Waits a limited time for running hooks."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(CLOSES_WITHIN)

    def _start(self) -> None:
        if self._thread is None:
            # A thread of its own: a hook that hangs must not delay the rescue of jobs.
            self._thread = threading.Thread(target=self._run, name="tarry-death-hooks", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            try:
                # In a copy, so that the variables of one job do not reach the hooks of the next.
                copy_context().run(self._call, *item)
            except Exception:
                job = item[0]
                log.exception("the hooks of %s %s were not called", job.task, ids.text(job.id), extra=about(job))

    def _task(self, job: Job) -> TaskDefinition[Any, Any] | None:
        return self._tasks.get(job.task) or map_part.find(job.task, self._tasks)

    def _call(self, job: Job, change: Change) -> None:
        task = self._task(job)
        if task is None or task.run_wrapper is None:
            return
        running = Running(job, task)
        running.inputs = self._inputs
        context = CurrentJob(running)
        error = JobFailed(f"{job.task} {context.id}: {read_note(change.note).message}")
        current.set(context.running)
        carry(context, task.run_wrapper)
        hook_calls.call_hooks(task.run_wrapper.failure, context, error)
        if hook_calls.is_dead(change):
            hook_calls.call_hooks(task.run_wrapper.dead, context, error)

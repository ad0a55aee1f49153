"""Kills unwanted jobs of unresponsive workers: the keeper finds these on the scoreboard of its host."""

import time

from tarry.app import App
from tarry.keeper.cancel_enforcer import AttemptKey, CancelEnforcer
from tarry.keeper.chores import Keeper
from tarry.process.parent_board import ParentBoard
from tarry.runtime.board.reader import BoardJob
from tarry.store.rules import ids
from tarry.store.rules.base import Store

_LOOK_EVERY = 0.5


class UnresponsiveWorkers:
    """Belongs to the keeper's process, a child of the master."""

    def __init__(self, store: Store, app: App) -> None:
        self._app, self._master = app, ParentBoard(app.config)
        self._kill_after: dict[str, float] = {}
        """By owner: seconds that a job gets to end before its process is killed."""
        self._recall = CancelEnforcer(store, self._find_attempts, self._kill_attempt)

    def register_chores(self, keeper: Keeper) -> None:
        """Makes it a chore of the keeper to end the unwanted jobs of these workers."""
        keeper.register_chore(_LOOK_EVERY, self._recall.end_unwanted)

    def _find_attempts(self) -> dict[str, list[AttemptKey]]:
        """By owner, the running attempts of unresponsive workers."""
        silent = self._master.unresponsive_workers()
        self._kill_after = {child.owner: pool.kill_after for child, pool in silent}
        return {child.owner: [_attempt(job) for job in child.running if not self._is_call(job)] for child, _ in silent}

    # A call of a batch task goes on for its other jobs.
    def _is_call(self, job: BoardJob) -> bool:
        task = self._app.tasks.get(job.task)
        return task is not None and bool(task.batch)

    def _kill_attempt(self, owner: str, attempt: AttemptKey, reason: int) -> bool:
        return self._master.set_kill_time(owner, *attempt, time.monotonic() + self._kill_after[owner], reason)


def _attempt(job: BoardJob) -> AttemptKey:
    return ids.parse(job.id), job.epoch

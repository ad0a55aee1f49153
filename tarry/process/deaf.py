"""Workers of this host that hear nothing, as the keeper sees them on the scoreboard, and how it has them killed."""

import time

from tarry.app import App
from tarry.keeper.chores import Keeper
from tarry.process.own_master import OwnMaster
from tarry.runtime.scoreboard import Running, limit
from tarry.store import ids
from tarry.store.base import Store
from tarry.worker.recall import Attempt, Recall

_LOOK_EVERY = 0.5


class Deaf:
    """For the keeper's process, which is a child of the master."""

    def __init__(self, store: Store, app: App) -> None:
        self._app, self._master = app, OwnMaster(app.config)
        self._waits: dict[str, float] = {}
        """Of the silent ones: how long a job has to end."""
        self._recall = Recall(store, self._silent, self._end)

    def employ(self, keeper: Keeper) -> None:
        """Makes it a chore of the keeper's to end what they are at and nobody wants."""
        keeper.register_chore(_LOOK_EVERY, self._recall.end_unwanted)

    def _silent(self) -> dict[str, list[Attempt]]:
        silent = self._master.silent()
        self._waits = {child.owner: pool.kill_after for child, pool in silent}
        return {child.owner: [_attempt(job) for job in child.running if not self._is_call(job)] for child, _ in silent}

    def _is_call(self, job: Running) -> bool:
        task = self._app.tasks.get(job.task)
        return task is not None and bool(task.batch)

    def _end(self, owner: str, attempt: Attempt, reason: int) -> bool:
        return limit(self._master.board_path, owner, *attempt, time.monotonic() + self._waits[owner], reason)


def _attempt(job: Running) -> Attempt:
    return ids.parsed(job.id), job.epoch

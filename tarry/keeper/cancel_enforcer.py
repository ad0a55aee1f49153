"""Ends jobs that are no longer wanted, if their worker cannot do it because their task lets no other thread run."""

import logging
from collections.abc import Callable, Collection, Mapping

from tarry.model.job import Job, State
from tarry.model.killing import reason_for
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import partial_result

log = logging.getLogger("tarry.keeper")

AttemptKey = tuple[bytes, int]
"""A job's id and epoch."""


class CancelEnforcer:
    """A chore of the keeper, which is another process, so no task can block it.

    silent: the attempts that workers without a recent heartbeat execute, by owner. Calls of batch tasks are left out:
    they may go on for the other jobs. end: kills the worker's process after a moment, for a reason of model/killing.py;
    False if it no longer executes the attempt.
    """

    def __init__(
        self,
        store: Store,
        silent: Callable[[], Mapping[str, Collection[AttemptKey]]],
        end: Callable[[str, AttemptKey, int], bool],
    ) -> None:
        self._store, self._silent, self._end = store, silent, end
        self._logged: set[AttemptKey] = set()

    def end_unwanted(self) -> None:
        """Ends the unwanted attempts. Asks the stores that are available; StoreError if there is none."""
        on = {attempt: name for name, attempts in self._silent().items() for attempt in attempts}
        # A worker is reported once for an attempt; attempts that are over need no memory.
        self._logged &= on.keys()
        if not on:
            return
        for attempt, reason in self._find_unwanted(on):
            if self._end(on[attempt], attempt, reason) and attempt not in self._logged:
                self._logged.add(attempt)
                # It was cancelled, or recovered after its lease ended; then it may run elsewhere.
                log.warning("%s was taken from %s, which goes on with it", ids.text(attempt[0]), on[attempt])

    def _find_unwanted(self, on: Mapping[AttemptKey, str]) -> list[tuple[AttemptKey, int]]:
        """The unwanted attempts, with reasons."""
        # A job without a record has ended and was forgotten, unless its store is away.
        attempts = list(on)
        jobs, away = partial_result(lambda: self._store.get([id for id, _ in attempts]))
        missing: Collection[int] = away.missing if away else ()
        return [
            (one, reason_for(job))
            for at, (one, job) in enumerate(zip(attempts, jobs, strict=True))
            if at not in missing and not _is_wanted(job, one[1], on[one])
        ]


def _is_wanted(job: Job | None, epoch: int, owner: str) -> bool:
    # The same job may run elsewhere in a later attempt: only the one with this epoch and owner is wanted.
    return job is not None and (job.state, job.epoch, job.owner) == (State.RUNNING, epoch, owner)

"""Jobs that are no longer wanted, and whose worker cannot hear of it: their task lets none of its threads run."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from tarry.errors import StoreError
from tarry.model.job import Job, State
from tarry.model.killing import CANCELLED, LEASE_LOST, NOT_WANTED
from tarry.store import ids
from tarry.store.base import Store
from tarry.store.shared.partly import partly
from tarry.tasks.running import Running

log = logging.getLogger("tarry.keeper")

Attempt = tuple[bytes, int]
"""A job's id and epoch."""


class Recall:
    """A chore of the keeper, who is another process and so cannot be held up.

    silent: what the workers are at that gave no sign of life lately, by owner; no calls of batch tasks, which may go on
    for the sake of others. end: has the worker's process killed after a moment, for a reason of model/killing.py; False
    if it is not at it any more.
    """

    def __init__(
        self,
        store: Store,
        silent: Callable[[], Mapping[str, Collection[Attempt]]],
        end: Callable[[str, Attempt, int], bool],
    ) -> None:
        self._store, self._silent, self._end = store, silent, end
        self._told: set[Attempt] = set()

    def end_unwanted(self) -> None:
        """StoreError; of several stores, what those that answer know is done."""
        on = {attempt: name for name, attempts in self._silent().items() for attempt in attempts}
        self._told &= on.keys()
        if not on:
            return
        for attempt, reason in self._unwanted(on):
            if self._end(on[attempt], attempt, reason) and attempt not in self._told:
                self._told.add(attempt)
                # Cancelled, or brought back after its lease, and perhaps on elsewhere.
                log.warning("%s was taken from %s, which goes on with it", ids.text(attempt[0]), on[attempt])

    def _unwanted(self, on: Mapping[Attempt, str]) -> list[tuple[Attempt, int]]:
        """With reasons. What has no record was forgotten at its end, unless some of several stores are away."""
        attempts = list(on)
        jobs, away = partly(lambda: self._store.get([id for id, _ in attempts]))
        missing: Collection[int] = away.missing if away else ()
        pairs = enumerate(zip(attempts, jobs, strict=True))
        return [
            (one, _reason(job)) for at, (one, job) in pairs if at not in missing and not _wanted(job, one[1], on[one])
        ]


def _wanted(job: Job | None, epoch: int, owner: str) -> bool:
    return job is not None and (job.state, job.epoch, job.owner) == (State.RUNNING, epoch, owner)


def note_reasons(store: Store, taken: Sequence[Running]) -> None:
    """Notes why they are no longer ours, of those that were not interrupted before."""
    fresh = [running for running in taken if running.interrupt is None]
    if not fresh:
        return
    try:
        jobs = store.get([running.job.id for running in fresh])
    except StoreError:
        jobs = [None] * len(fresh)
    for running, job in zip(fresh, jobs, strict=True):
        running.kill_reason = _reason(job)


def _reason(job: Job | None) -> int:
    if job is None:
        return NOT_WANTED
    return CANCELLED if job.state is State.CANCELLED else LEASE_LOST

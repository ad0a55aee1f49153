"""What programs get of the jobs that were claimed for them: those that may start, with all of their arguments."""

import math
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from tarry.errors import ArgumentError
from tarry.model.checks.unreadable import is_apart
from tarry.model.flow.wiring import MAP_TASK, UNDO_TASK, split
from tarry.model.job import Job
from tarry.model.outcome import Expired, HeldBack, Outcome, Released, Unknown
from tarry.server.claim_requests import ChangeRequest, end_unstarted
from tarry.store.queries.key_order import KeyTurns
from tarry.store.rules.base import Store
from tarry.store.rules.kept_places import held_back
from tarry.worker.exchanger import RulesFor
from tarry.worker.run.attempt_report import outcome_of_argument_error, outcome_of_sealed
from tarry.worker.run.inputs import NodeInputs


def has_more(job: Job) -> bool:
    """Whether not all of its arguments are in the job."""
    envelope, own = split(job.id, job.body)
    return bool(envelope) or is_apart(own)


class GivenJobs:
    """Chooses and completes them. Its methods read the store, so they may block."""

    def __init__(self, store: Store, rules: RulesFor) -> None:
        self._store, self._inputs, self._rules = store, NodeInputs(store), rules
        self._turns = KeyTurns(store)
        self._most = store.most_apart or math.inf

    def choose(self, claimed: Sequence[Job], now: int) -> tuple[list[Job], list[ChangeRequest]]:
        """The jobs to give, before `load`, and what becomes of the others. now: microseconds since the epoch."""
        return self._sort(claimed, lambda job: Expired() if 0 < job.expires <= now else self._admit(job, now))

    def load(self, chosen: Sequence[Job]) -> tuple[list[Job], list[ChangeRequest]]:
        """The same of jobs that were chosen, now with all of their arguments. May take long."""
        size = 0

        def load(job: Job) -> Job | Outcome:
            nonlocal size
            # What is large waits for the next claim: one answer is not to have all of it.
            loaded = self._load(job) if size <= self._most else Released()
            size += len(loaded.body) if isinstance(loaded, Job) else 0
            return loaded

        return self._sort(chosen, load)

    def _sort(self, jobs: Sequence[Job], make: Callable[[Job], Job | Outcome]) -> tuple[list[Job], list[ChangeRequest]]:
        made = [(job, make(job)) for job in jobs]
        given = [one for _, one in made if isinstance(one, Job)]
        return given, [end_unstarted(job, one, self._rules) for job, one in made if not isinstance(one, Job)]

    def complete(self, job: Job, now: int) -> Job | Outcome:
        """The job, that of a flow with the results that it takes among its arguments; or how its attempt ends, if these
        cannot be had, or another attempt or job has to end before."""
        admitted = self._admit(job, now)
        return self._load(admitted) if isinstance(admitted, Job) else admitted

    def _admit(self, job: Job, now: int) -> Job | Outcome:
        if sealed := outcome_of_sealed(job):
            return sealed
        if held_back(self._store, (job,), now):
            return HeldBack()
        if held := self._turns.held_back((job,), now):
            return held[job.id]
        return job

    def _load(self, job: Job) -> Job | Outcome:
        if not has_more(job):
            return job
        envelope, _ = split(job.id, job.body)
        if job.task == UNDO_TASK or job.task.startswith(MAP_TASK):
            # Only a worker of tarry knows what to do.
            return Unknown()
        try:
            # In its envelope, which says what the end of the job does to the flow.
            return replace(job, body=envelope + self._inputs.arguments(job))
        except ArgumentError as error:
            return outcome_of_argument_error(error)

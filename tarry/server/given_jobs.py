"""What programs get of the jobs that were claimed for them: those that may start, with all of their arguments."""

import math
from collections.abc import Sequence

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


class GivenJobs:
    """Chooses and completes them. Its methods read the store, so they may block."""

    def __init__(self, store: Store, rules: RulesFor) -> None:
        self._store, self._inputs, self._rules = store, NodeInputs(store), rules
        self._turns = KeyTurns(store)
        self._most = store.most_apart or math.inf

    def choose(self, claimed: Sequence[Job], now: int) -> tuple[list[Job], list[ChangeRequest]]:
        """The jobs to give, and what becomes of the others. now: microseconds since the epoch."""
        given: list[Job] = []
        others: list[ChangeRequest] = []
        for job in claimed:
            # What is large waits for the next claim: one answer is not to have all of it.
            is_full = sum(len(one.body) for one in given) > self._most
            made = Expired() if 0 < job.expires <= now else Released() if is_full else self.complete(job, now)
            if isinstance(made, Job):
                given.append(made)
            else:
                others.append(end_unstarted(job, made, self._rules))
        return given, others

    def complete(self, job: Job, now: int) -> Job | Outcome:
        """The job, that of a flow with the results that it takes among its arguments; or how its attempt ends, if these
        cannot be had, or another attempt or job has to end before."""
        if sealed := outcome_of_sealed(job):
            return sealed
        if held_back(self._store, (job,), now):
            return HeldBack()
        if held := self._turns.held_back((job,), now):
            return held[job.id]
        envelope, own = split(job.id, job.body)
        if not envelope and not is_apart(own):
            return job
        if job.task == UNDO_TASK or job.task.startswith(MAP_TASK):
            # Only a worker of tarry knows what to do.
            return Unknown()
        try:
            # In its envelope, which says what the end of the job does to the flow.
            return replace(job, body=envelope + self._inputs.arguments(job))
        except ArgumentError as error:
            return outcome_of_argument_error(error)

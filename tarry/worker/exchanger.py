"""The jobs that a worker holds, and all its calls of the store about them. Used by the pump.

While the store is away: `exchange` logs it now and then, keeps all outcomes, and answers None. The pump makes no other
exchange until `away_for` is 0; the pauses grow. Running jobs go on. Leases cannot be extended, so after a long outage
other workers may have the jobs: then the store refuses the outcomes, or names the jobs when leases are extended again.

After a call that failed, the store may have claimed jobs for us in a reply that was lost, or claim them late:
`release_unseen` gives them back.

While only some of several stores are away: their outcomes are postponed, with growing pauses, and the other stores are
used as usual.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from tarry.client.clock import Clock
from tarry.errors import PartlyUnavailable, StoreError
from tarry.model import lifecycle
from tarry.model.change import Change, with_correction
from tarry.model.flow.node_ids import flow_of, is_node
from tarry.model.job import Job
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Outcome, Released, Returned
from tarry.model.quantity import quantity
from tarry.store.rules import ids
from tarry.store.rules.base import Exchange, Store, Want
from tarry.store.rules.sleeper import Wakeup
from tarry.store.shared.apply_each import apply_each
from tarry.store.shared.backoff import Backoff
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.log_facts import about
from tarry.tasks.progress import ProgressBuffer, make_rows
from tarry.tasks.running import PLAIN, Running, jobs_of
from tarry.worker.capacity import GATHER
from tarry.worker.claim_plan import ClaimPlan
from tarry.worker.early_claim import EarlyClaim
from tarry.worker.held_leases import AttemptLeases
from tarry.worker.run.inputs import NodeInputs
from tarry.worker.step_saver import StepSaver
from tarry.worker.unseen_claims import UnseenClaims
from tarry.worker.worker_log import EventLog

if TYPE_CHECKING:
    from tarry.store.queries.key_order import KeyTurns

log = logging.getLogger("tarry.worker")

RulesFor = Callable[[str, str], Rules]
"""The rules for a task and a queue."""


class Exchanger:
    """lease: microseconds."""

    is_held_back = False
    """Limits held jobs back from the last claim, which start as soon as others have ended."""
    has_followers = False
    """The last claim brought nodes of flows only, which the ends that were settled with it may have released."""
    _looked_until = 0.0
    """time.monotonic() until which the store need not be asked for jobs again while steps are stored."""

    _ended_in_order: tuple[Job, ...] = ()
    """Jobs of ordered tasks for which others may have been held back."""

    def __init__(
        self,
        store: Store,
        owner: str,
        *,
        clock: Clock,
        plan: ClaimPlan,
        lease: int,
        rules: RulesFor,
        marks: ProgressBuffer,
        tasks: Mapping[str, TaskDefinition[Any, Any]],
    ) -> None:
        self.store = store
        self.owner = owner
        self.events = EventLog()
        self.held: dict[bytes, Running] = {}
        """The jobs that are claimed and have not ended, by id."""
        self.unsettled: list[tuple[Running, Outcome]] = []
        # Kept apart from `unsettled`, so that it is not sent with each call.
        self.postponed: list[tuple[Running, Outcome]] = []
        """The outcomes of stores that are away."""
        self.next_due: int | None = None
        """When the next scheduled job is due, as far as the last claim showed."""
        self.claimed_at = 0
        """The store's time of the last claim."""
        self._clock, self._plan, self._lease, self._rules, self._marks = clock, plan, lease, rules, marks
        self._inputs = NodeInputs(store, tasks)
        self._more_to_release = False
        """A flow has more nodes to release."""
        self._early = EarlyClaim(store, owner, lease, plan)
        self.steps = StepSaver(store, owner, clock.now, marks.wake)
        marks.steps = self.steps
        self._store_backoff, self._part_backoff = Backoff(log), Backoff(log, "all stores are back")
        """For the store as a whole, and for the shards that are away."""
        self.leases = AttemptLeases(store, owner, self.held, clock, lease, lambda: bool(self._store_backoff.tries))
        self._error = ""
        """Why the last call failed."""
        self._unseen = UnseenClaims(store, clock, self._known_attempts)

    @cached_property
    def turns(self) -> "KeyTurns":
        """Tells which claimed jobs of ordered tasks have to wait."""
        from tarry.store.queries.key_order import KeyTurns  # noqa: PLC0415 - only where jobs run

        return KeyTurns(self.store)

    def count(self) -> int:
        """How many jobs are claimed and not settled."""
        return len(self.held) + len(self.unsettled) + len(self.postponed) + self._early.count()

    @property
    def early_count(self) -> int:
        """How many of them the end of the last sleep has brought, for the next `exchange` to answer."""
        return self._early.count()

    def holds(self, running: Running) -> bool:
        """Whether this very attempt is held."""
        # By identity, not by id: the same job may be here again, while its first attempt still runs.
        return self.held.get(running.job.id) is running

    def is_alive(self, call: Running) -> bool:
        """Whether a job of this call, which may be one of a batch task, is held."""
        return any(map(self.holds, jobs_of(call)))

    def is_beside_suspect(self, job: Job) -> bool:
        """Whether this job and one that is held are both suspects: their next crash marks them as poison."""
        suspect = lifecycle.is_near_poison
        return suspect(job) and any(suspect(running.job) for running in self.held.values())

    def hold(self, job: Job, task: TaskDefinition[Any, Any]) -> Running:
        """Holds a job that was claimed, as an attempt that starts."""
        running = Running(job, task, self._marks)
        if job.body[:1] not in PLAIN:
            running.inputs = self._inputs
        self.held[job.id] = running
        return running

    def end(self, running: Running, outcome: Outcome) -> bool:
        """Puts a held job in line to be settled; False if it is not held any more."""
        if self.held.get(running.job.id) is not running:
            return False
        del self.held[running.job.id]
        self.unsettled.append((running, outcome))
        return True

    def reject(self, job: Job, outcome: Outcome, task: TaskDefinition[Any, Any] | None = None) -> None:
        """Puts a claimed job that is not run in line to be settled."""
        self.unsettled.append((Running(job, task or _NO_TASK), outcome))

    def ended_jobs(self, ended: Iterable[tuple[Running, Outcome]]) -> list[Job]:
        """The jobs whose attempt has ended and is not settled, also in `ended`. Thread-safe."""
        found = (*self.unsettled, *self.postponed, *ended)
        return [running.job for running, outcome in found if not isinstance(outcome, Released)]

    def release_all(self) -> None:
        """Puts all jobs in line to be settled, running ones as released. The caller makes an exchange next."""
        self.unsettled += [(running, Released(bool(running.started))) for running in self.held.values()]
        self.unsettled += self.postponed
        self.postponed = []
        self.held.clear()

    def decide(self, job: Job, outcome: Outcome, moment: int) -> Change:
        """The change that this outcome makes to the job."""
        return lifecycle.after(job, outcome, self._rules(job.task, job.queue), moment, self._clock.unsure)

    def _changes(self, ended: Iterable[tuple[Running, Outcome]], moment: int) -> list[Change]:
        decided = ((running, self.decide(running.job, outcome, moment)) for running, outcome in ended)
        return [with_correction(change, running.rate_correction) for running, change in decided]

    # The store, and what to do while it is away

    @property
    def trouble(self) -> str:
        """Why the store, or a part of it, is not available; empty: it is."""
        return self._error if self.is_away else ""

    @property
    def is_away(self) -> bool:
        """Whether the last call failed, or one of several stores is away."""
        return bool(self._store_backoff.tries or self._part_backoff.tries)

    def away_for(self, now: float) -> float:
        """Seconds until the store as a whole may be called again; 0.0: now."""
        return self._store_backoff.left(now)

    def part_away_for(self, now: float) -> float:
        """Seconds until the shards that are away may be called again; 0.0: now."""
        return self._part_backoff.left(now)

    def resume_postponed(self, now: float) -> None:
        """Puts postponed outcomes in line again, if it is time for that."""
        if self.postponed and not self._part_backoff.left(now):
            self.unsettled += self.postponed
            self.postponed = []

    def exchange(self, limit: int, now: float) -> list[Job] | None:
        """Settles the ended attempts and claims up to `limit` jobs, in one call. None: the store is away."""
        if self._marks.pending:
            self._save_progress(now)
        self.steps.just_saved = self.steps.pending
        if self.steps.just_saved and not self._save_steps(now):
            return None
        if (early := self._early.take()) is not None:
            jobs = self._accept(early, limit, now)
            # Jobs start at once; what has ended is settled by the next exchange.
            if jobs or not self.unsettled:
                return jobs
        if not self.unsettled and self._knows_enough(limit, now):
            return []
        try:
            moment = self._clock.now()
            changes = self._changes(self.unsettled, moment)
            if self._more_to_release:
                self._more_to_release = self.store.flows.release_more(moment)
            due = self.next_due is not None and self.next_due <= moment
            wants: Sequence[Want] = self._plan.wants(limit, due) if limit else ()
            answer = self.store.exchange(changes, wants, limit if wants else 0, self.owner, self._lease, moment)
        except StoreError as error:
            self._note_failure(error, now)
            return None
        except Exception as error:
            self._handle_strange(error, now)
            return None
        self._store_backoff.succeed(now)
        self._record(changes, answer, moment)
        self._postpone(answer, now)
        self.unsettled.clear()
        self._more_to_release = self._more_to_release or answer.more_to_release
        self.next_due, self.claimed_at, self.is_held_back = answer.next_due, moment, answer.is_held_back
        if wants:
            self._plan.record(wants, answer.jobs)
            self._looked_until = now + GATHER if len(answer.jobs) < limit else 0.0
        self.leases.record_claim(answer.jobs, now)
        self.has_followers = _are_of_these_flows(answer.jobs, changes)
        return answer.jobs

    def _bring_forward(self, moment: int) -> None:
        """Makes those ready that were held back for the jobs that have ended."""
        ended, self._ended_in_order = self._ended_in_order, ()
        try:
            for job in ended:
                self.turns.bring_forward(job, moment)
        except Exception as error:
            # They come by themselves, only later.
            log.debug("those behind %s are not ready yet: %s", quantity(len(ended)), error)

    def _handle_strange(self, error: Exception, now: int | float) -> None:
        """An error that no store should raise, as over a record that another program has written. The worker goes on:
        what can be settled is settled, and the store is asked again after a pause."""
        if self._store_backoff.fail(now):
            log.error("the store fails over something in it; trying again: %s", error, exc_info=error)
        self._unseen.note_loss(self.owner)
        self._error = f"{type(error).__name__} over something in the store"
        ended, self.unsettled = self.unsettled, []
        moment = self._clock.now()
        try:
            changes = self._changes(ended, moment)
            made = apply_each(self.store, changes, moment) if changes else []
        except StoreError as away:
            self.unsettled = ended + self.unsettled
            log.debug("not settled yet: %s", away)
            return
        for (running, outcome), change, is_made in zip(ended, changes, made, strict=True):
            if is_made:
                self.events.record_end(running.job, outcome, change, moment)

    def sleep(self, wakeup: Wakeup, limit: int, seconds: float, also: Sequence[int]) -> None:
        """Sleeps as `Wakeup.sleep`. A store that can claims up to `limit` jobs at the end, for the next `exchange`."""
        self._looked_until = 0.0
        try:
            self._early.sleep(wakeup, 0 if self.is_away else limit, seconds, also)
        except Exception as error:
            # The next exchange finds out whether it is still away, or fails over something in it.
            log.debug("no claim at the end of a sleep: %s", error)
            self._unseen.note_loss(self.owner)

    def _knows_enough(self, limit: int, now: float) -> bool:
        """Whether the store need not be asked for up to `limit` jobs."""
        # All slots run jobs.
        if self.held and not limit and not self.is_away:
            return True
        # Tasks that do one short step after the other would have a look for each of them.
        return self.steps.just_saved and now < self._looked_until

    def check_soon(self) -> None:
        """Makes the next exchange ask for jobs, and whether the running ones are still wanted."""
        self._looked_until = 0.0
        self.leases.check_soon()

    def _accept(self, early: Exchange, limit: int, now: float) -> list[Job]:
        """The jobs that were claimed at the end of the sleep. limit: 0: they are given back."""
        self.next_due, self.claimed_at = early.next_due, early.claimed_at
        if limit:
            self.leases.record_claim(early.jobs, now)
            return early.jobs
        for job in early.jobs:
            self.reject(job, Released())
        return []

    def release_unseen(self, now: float) -> None:
        """Gives back jobs that were claimed in a reply that was lost."""
        for job in self._unseen.find(now) if self._unseen else ():
            self.reject(job, Released())

    def _known_attempts(self, owner: str) -> list[tuple[bytes, int]]:
        ended = (running for running, _ in (*self.unsettled, *self.postponed))
        return [(running.job.id, running.job.epoch) for running in (*self.held.values(), *ended)]

    def _save_progress(self, now: float) -> None:
        """Stores the progress and output of running jobs and, one last time, of jobs that ended."""
        taken = self._marks.take(now, (running for running, _ in self.unsettled))
        if not taken:
            return
        try:
            self.store.save_progress(self.owner, make_rows(taken))
        except Exception as error:
            # Nothing depends on it, so the outcomes are settled all the same.
            log.debug("progress of %s not kept: %s", quantity(len(taken)), error)
            self._marks.put_back(taken)

    def _save_steps(self, now: float) -> bool:
        """Stores the steps on which tasks wait. False: the store is away; the next exchange tries again."""
        try:
            self.steps.save()
        except PartlyUnavailable as error:
            # The jobs of the other shards go on.
            log.debug("steps not kept yet: %s", error)
        except StoreError as error:
            self._note_failure(error, now)
            return False
        return True

    def _record(self, changes: Sequence[Change], answer: Exchange, moment: int) -> None:
        ended = zip(self.unsettled, changes, answer.valid, strict=True)
        for at, ((running, outcome), change, is_valid) in enumerate(ended):
            if is_valid:
                self.events.record_end(running.job, outcome, change, moment)
                # At its first attempt, nobody had to wait for an earlier one.
                if running.task.keeps_order and running.job.epoch > 1 and (change.to is None or change.to.finished):
                    self._ended_in_order += (running.job,)
                # Nobody takes the result of one that tells nobody.
                if change.node is not None and change.node.tells and isinstance(outcome, Returned):
                    self._inputs.keep(change.id, outcome.value)
            # Not for a store that is away: its answer is only not known yet.
            elif at not in answer.missing:
                job = running.job
                log.debug("%s %s: its outcome came too late", job.task, ids.text(job.id), extra=about(job))
                if running.task.runner is not None:
                    running.task.runner.note_late_outcome(job, running.output_text, outcome)
        if self._ended_in_order:
            self._bring_forward(moment)

    def _postpone(self, answer: Exchange, now: float) -> None:
        """Keeps the outcomes of stores that are away."""
        if answer.unanswered:
            self._unseen.note_loss(self.owner)
        self.postponed += [self.unsettled[at] for at in answer.missing]
        self._error = answer.away
        if not answer.away:
            self._part_backoff.succeed(now)
        elif not self._part_backoff.left(now) and self._part_backoff.fail(now):
            log.error("%s; holding %s for it, trying again", answer.away, quantity(len(self.postponed)))

    def _note_failure(self, error: StoreError, now: float) -> None:
        """The store is away or full: nothing is lost, and the next exchange is tried after a pause."""
        if self._store_backoff.fail(now):
            log.error("%s; holding %s, trying again", error, quantity(self.count()))
        self._unseen.note_loss(self.owner)
        self._error = str(error)


def _are_of_these_flows(jobs: Sequence[Job], changes: Sequence[Change]) -> bool:
    """Whether the jobs are nodes of flows in which these changes ended nodes."""
    # Nearly all jobs are in no flow.
    if not jobs or not is_node(jobs[0].id):
        return False
    flows = {flow_of(change.id) for change in changes if change.node is not None}
    return all(is_node(job.id) and flow_of(job.id) in flows for job in jobs)


_NO_TASK: TaskDefinition[Any, Any] = TaskDefinition(print, name="tarry.unknown")
"""Stands for the task of a job that is not run here."""

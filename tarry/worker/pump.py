"""The main loop of a worker: settle ended attempts, claim jobs for free slots, pass them to the runners, sleep.

One thread does all calls of the store. `Exchanger` makes them; it also handles a store that is away. Batches form by
themselves: an idle worker settles each job at once, a busy one settles hundreds together.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tarry.client.clock import CHECKED_EVERY, Clock
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.outcome import Expired, HeldBack, Outcome, Quarantined, Released, Unknown, record_error
from tarry.store.rules.base import Store
from tarry.store.rules.kept_places import held_back
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.interrupts import CalledBack, TimeLimit
from tarry.tasks.progress import ProgressBuffer
from tarry.tasks.running import Batch, Running, jobs_of
from tarry.worker.batch_buffer import BatchBuffer
from tarry.worker.capacity import GATHER, Capacity, SettleDelay
from tarry.worker.claim_plan import DEFAULT_SHARES, BandShares, ClaimPlan, seconds_until_due
from tarry.worker.deadlines import Deadlines
from tarry.worker.exchanger import Exchanger, RulesFor
from tarry.worker.run import hook_calls
from tarry.worker.run.attempt_report import outcome_of_sealed
from tarry.worker.run.runner import OutcomeQueue, Runner
from tarry.worker.run.status_reporter import NullReporter, StatusReporter
from tarry.worker.run.undo import find_internal

# A wake-up may be lost.
LOOK_ANYWAY = 1.0
"""Seconds after which an idle pump asks the store, even if nothing woke it."""
LOOK_SELDOM = 5.0
"""The same, of one that has been idle for as long, and that news surely reach."""
SETTLE_WITHIN = 0.005
"""Seconds that an outcome may wait for others while the runners have enough to do."""


class Pump:
    """Moves jobs between one store and the runners of one process.

    queues: names and weights; `{"*": 1}` is every queue that has jobs. lease: microseconds. keep_output: bytes of what
    each job prints and logs; 0: none.
    """

    max_jobs: float = math.inf
    """After so many jobs it claims no more."""
    _busy_at = 0.0
    """`time.monotonic()` when it last had a job; 0.0: it has not slept yet."""
    has_started = False
    """The last step has passed jobs to the runners."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition[Any, Any]],
        *,
        owner: str,
        clock: Clock | None = None,
        queues: Mapping[str, int] | None = None,
        shares: BandShares = DEFAULT_SHARES,
        lease: int = 15 * SECOND,
        rules: RulesFor = lambda task, queue: lifecycle.DEFAULT,
        reporter: StatusReporter | None = None,
        keep_output: int = 0,
    ) -> None:
        self.store = store
        self.wakeup = store.worker_wakeup()
        self.outcomes, self.deadlines = OutcomeQueue(self.wakeup.wake), Deadlines()
        self.stopping = self.is_closed = False
        """is_closed: since it was told to stop it has withdrawn what waited for a slot, so no more jobs begin here."""
        self.attempts = 0
        """How many attempts have ended here."""
        self.find_task: Callable[[str], TaskDefinition[Any, Any] | None] = lambda name: None
        """Asked for a task that is not in `tasks`."""
        self._tasks = tasks
        self._clock = clock or Clock(store.time, CHECKED_EVERY)
        self._marks = ProgressBuffer(self.outcomes.wake, keep_output)
        self._plan = ClaimPlan(store, queues or {"*": 1}, shares)
        self._exchanger = Exchanger(
            store, owner, clock=self._clock, plan=self._plan, lease=lease, rules=rules, marks=self._marks, tasks=tasks
        )
        self.held, self.steps, self.leases = self._exchanger.held, self._exchanger.steps, self._exchanger.leases
        self.events = self._exchanger.events
        self._reporter = reporter or NullReporter()
        self._runners: dict[bool, Runner] = {}
        self._buffer, self._delay = BatchBuffer(), SettleDelay()
        self._capacity = Capacity(tasks, {}, self._buffer)
        self._store_is_drained = False
        """The last claim brought fewer jobs than it asked for, or there were no free slots."""
        self._was_busy = self._search_due = False

    def attach(self, sync: Runner, loop: Runner, capacity: type[Capacity] = Capacity) -> None:
        """Sets the runners for `def` and for `async def`; they put ended attempts into `self.outcomes`."""
        self._runners = {False: sync, True: loop}
        self._capacity = capacity(self._tasks, self._runners, self._buffer)

    # What others ask and tell

    @property
    def held_count(self) -> int:
        """How many jobs are claimed and not settled."""
        return self._exchanger.count()

    @property
    def trouble(self) -> str:
        """Why the store is not available; empty: it is."""
        return self._exchanger.trouble

    @property
    def is_idle(self) -> bool:
        """No job is held, and the store is available."""
        return not self.held_count and not self._exchanger.is_away

    @property
    def has_free_slots(self) -> bool:
        """More jobs can be claimed."""
        return self._free() > 0

    @property
    def is_urgent(self) -> bool:
        """The next step has something to do at once: to settle, or to claim jobs that the store has, if it is there."""
        away, has_ends = self._exchanger.away_for(time.monotonic()), self._exchanger.unsettled or self.outcomes.ended
        if away or has_ends:
            return not away
        return not self._store_is_drained and (self._capacity.is_ahead() or self.has_free_slots)

    @property
    def has_overdue_jobs(self) -> bool:
        """The last claim did not make all due jobs ready; these may be jobs of any queue."""
        due = self._exchanger.next_due
        return due is not None and due <= self._exchanger.claimed_at

    def is_executing(self) -> bool:
        """Whether a job runs now. Thread-safe."""
        ended = {running for running, _ in self.outcomes.ended.copy()}
        calls = (held.handle if isinstance(held.handle, Batch) else held for held in list(self.held.values()))
        return any(call.started and call not in ended for call in calls)

    def unsettled_jobs(self) -> list[Job]:
        """The jobs whose attempt has ended and is not settled. Thread-safe."""
        return self._exchanger.ended_jobs(self.outcomes.ended.copy())

    def is_final(self, job: Job, outcome: Outcome) -> bool:
        """Whether this outcome of a failed attempt is the job's last. Thread-safe."""
        return hook_calls.is_dead(self._exchanger.decide(job, outcome, self._clock.now()))

    def stop(self) -> None:
        """Claims nothing more and gives back jobs that have not begun; running jobs may finish. Thread-safe."""
        self.stopping = True
        for running in list(self.held.values()):
            running.stopping = True

    def interrupt_all(self) -> None:
        """Interrupts all running jobs; each is given back once it has ended."""
        self._release(self._buffer.take_all())
        for running in list(self.held.values()):
            self._call_back(running)

    def release_all(self) -> None:
        """Gives back all jobs, also running ones: the process must end right after."""
        self.stopping = True
        # Jobs that have ended are settled by their outcomes, not released: they would run again.
        self.collect()
        self._exchanger.release_all()
        self._exchange(0, time.monotonic())

    def flush_batches(self) -> bool:
        """Calls the batch tasks for the jobs that wait, even if a call is not full; False if none wait."""
        waited = bool(self._buffer.groups)
        self._call_batches(time.monotonic(), math.inf)
        return waited

    def interrupt_overdue(self, now: float) -> None:
        """Interrupts jobs that are past their timeout. Thread-safe."""
        for running in self.deadlines.take_overdue(now, self._exchanger.is_alive):
            self._runners[running.task.is_async].interrupt(running, TimeLimit)

    def look_thoroughly(self) -> None:
        """Makes the next step look for new queues, and ask whether the running jobs are still wanted."""
        # Wake-ups for these are lost if the worker did not listen when they were sent.
        self._search_due = True
        self._exchanger.check_soon()

    # The loop

    def step(self) -> float:
        """Does everything that is due; returns the seconds to sleep unless woken (0: step again)."""
        now = time.monotonic()
        exchanger = self._exchanger
        self.collect()
        if self.stopping:
            self._withdraw((False, True))
            self._release(self._buffer.take_all())
            # Not in `stop`: another thread may call that while this one passes on what it has claimed.
            self.is_closed = True
        # Timeouts and interrupts go on while the store is away.
        if left := exchanger.away_for(now):
            self._do_timed_work(now)
            return left
        exchanger.resume_postponed(now)
        free = self._free()
        settled = bool(exchanger.unsettled)
        jobs = self._exchange(free, now)
        self.has_started, self._was_busy = bool(jobs), jobs is not None and bool(jobs or settled)
        if jobs is None:
            return exchanger.away_for(now)
        self._store_is_drained = not free or len(jobs) < free
        self._delay.record_exchange(settled, 0 < len(jobs) < free and not exchanger.has_followers)
        self._start_jobs(jobs, time.monotonic())  # a fresh clock: a slow reply does not mean that a runner is stalled
        if free:
            self._capacity.record_claim(exchanger.is_held_back)
        self._reporter.load(self._capacity.load(), len(self.held))
        # After the new jobs are held, so that they are not taken for unseen ones.
        exchanger.release_unseen(now)
        self._do_timed_work(now)
        if jobs or exchanger.unsettled or self.outcomes.ended:
            return 0.0
        return 0.0 if free and self._has_new_queues() else self._idle_seconds(free)

    def sleep(self, seconds: float, also: Sequence[int]) -> None:
        """Sleeps until woken, until one of `also` is readable, or for so many seconds; the next step must follow."""
        self._exchanger.sleep(self.wakeup, self._free(), seconds, also)

    def _has_new_queues(self) -> bool:
        # After a wake-up the claim itself finds the job, mostly: a look for its queue would only delay the next step.
        knows = self._was_busy or self.steps.just_saved
        is_due, self._search_due = self._search_due or not knows, False
        return is_due and self._plan.find_new_queues()

    def _exchange(self, limit: int, now: float) -> list[Job] | None:
        settles = bool(self._exchanger.unsettled)
        jobs = self._exchanger.exchange(limit, now)
        if settles and jobs is not None:
            self._reporter.count(self.events.processed, self.events.failed)
        return jobs

    def settle_delay(self) -> float:
        """Seconds to sleep after a busy step, so that more jobs end before the next one."""
        # Only if the store has no more jobs for us, as under a limit. Else there would be a call for every few ends.
        if self.stopping or not self._was_busy:
            return 0.0
        # Its jobs are few, and soon over: an exchange for a part of them costs as much as one for all.
        if self._capacity.is_shared():
            return GATHER
        if not self._store_is_drained:
            return 0.0
        delay, next_due = self._delay.seconds(len(self.held), len(self.outcomes.ended)), self._exchanger.next_due
        due = math.inf if next_due is None else (next_due - self._exchanger.claimed_at) / SECOND
        return delay if due > delay else 0.0

    def gather_ends(self, seconds: float) -> bool:
        """Waits so long for the ends of all held jobs, where limits hold others back; else returns False at once."""
        # The next claim gets as many as have ended: once all have, there is nothing to wait for.
        if not (self._exchanger.is_held_back or self._capacity.is_shared()) or not self.held:
            return False
        self.outcomes.gather(len(self.held), seconds)
        return True

    def _free(self) -> int:
        """How many jobs to claim."""
        # As the master counts `max_jobs`: with another count the worker might wait for its replacement for ever.
        # What the end of the sleep brought is a part of what is claimed now: `_capacity` does not count it yet either.
        left = self.max_jobs - self.events.processed - (self.held_count - self._exchanger.early_count)
        return 0 if self.stopping or left <= 0 else int(min(self._capacity.free(), left))

    def collect(self) -> None:
        """Takes the ended attempts from the runners."""
        ended, end = self.outcomes.ended, self._exchanger.end
        if not ended:
            return
        counts = {False: 0, True: 0}
        for _ in range(len(ended)):
            running, outcome = ended.popleft()
            counts[running.task.is_async] += 1
            if not end(running, outcome) and isinstance(running, Batch):
                self.attempts += len(running.members) - 1
                self._end_members(running, outcome)
        self.attempts += sum(counts.values())
        now = time.monotonic()
        self._capacity.record_ends(counts, now)
        self._delay.record_ends(sum(counts.values()), now)

    def _end_members(self, batch: Batch, outcome: Outcome) -> None:
        for member in batch.members:
            self._exchanger.end(member, batch.outcomes.get(member, outcome))

    def _idle_seconds(self, free: int) -> float:
        """How long there is nothing to do."""
        exchanger = self._exchanger
        pause = min(self._look_pause(), exchanger.leases.seconds_to_check(time.monotonic()))
        next_due = exchanger.next_due
        if any(runner.waiting() for runner in self._runners.values()):
            pause = SETTLE_WITHIN
        if free and next_due is not None:
            pause = min(pause, seconds_until_due(next_due, exchanger.claimed_at, self._clock.now()))
        if (probe := self._capacity.probe_pause()) is not None:
            pause = min(pause, probe)
        escalations = [runner.next_escalation() for runner in self._runners.values()]
        for moment in (self.deadlines.next_due(), self._buffer.next_due(), *escalations):
            if moment is not None:
                pause = min(pause, moment - time.monotonic())
        if self._marks.pending:
            pause = min(pause, self._marks.pause(time.monotonic()))
        return max(min(pause, exchanger.part_away_for(time.monotonic())) if exchanger.postponed else pause, 0.0)

    def _look_pause(self) -> float:
        """Seconds after which it asks the store, though nothing is known to come: they grow while it is idle."""
        now = time.monotonic()
        if self._was_busy or self.held_count or not self._busy_at or not self.wakeup.is_receiving():
            self._busy_at = now
        return min(max(now - self._busy_at, LOOK_ANYWAY), LOOK_SELDOM)

    # Claimed jobs

    def _start_jobs(self, jobs: Sequence[Job], now: float) -> None:
        if not jobs:
            self._capacity.record_empty_claim(now)
            return
        batches: dict[bool, list[Running]] = {False: [], True: []}
        gathered: list[Running] = []
        moment = self._clock.now()
        for job in self._without_held_back(jobs, moment):
            if (running := self._hold(job, moment)) is not None:
                (gathered if running.task.batch else batches[running.task.is_async]).append(running)
        self._capacity.record_mix(batches, gathered)
        if gathered:
            self._form_batches(gathered, batches, now)
        for kind, batch in batches.items():
            if batch:
                self._start(kind, batch, now)

    def _without_held_back(self, jobs: Sequence[Job], moment: int) -> Sequence[Job]:
        """Those of the claimed jobs that may start; the others, each of which follows an attempt that goes on, or a job
        of its key, are in line to be settled."""
        waiting = dict.fromkeys(held_back(self.store, jobs, moment), HeldBack())
        waiting |= self._exchanger.turns.held_back(jobs, moment)
        if not waiting:
            return jobs
        for job in jobs:
            if job.id in waiting:
                self._exchanger.reject(job, waiting[job.id])
        return [job for job in jobs if job.id not in waiting]

    def _hold(self, job: Job, moment: int) -> Running | None:
        """Holds a claimed job; None: it is not run here, and is in line to be settled."""
        try:
            task = self._tasks.get(job.task) or find_internal(job.task, self._tasks) or self.find_task(job.task)
            outcome: Outcome = Quarantined()
            # Whatever is sealed begins otherwise, and this is all that it costs the others.
            if (job.body[:1] not in b"[{" or job.progress) and (sealed := outcome_of_sealed(job)):
                outcome = sealed
            elif task is None or not self._runners[task.is_async].slots:
                outcome = Unknown()
            elif job.expires and job.expires <= moment:
                outcome = Expired()
            elif not (job.crashes and self._exchanger.is_beside_suspect(job)):
                running = self._exchanger.hold(job, task)
                # Set after the job is held: `stop` in another thread either finds the job or is seen here.
                running.stopping = running.stopping or self.stopping
                return running
        except Exception as error:  # its record is not what it should be: the other jobs go on
            task, outcome = None, record_error(error)
        self._exchanger.reject(job, outcome, task)
        return None

    def _form_batches(self, gathered: Sequence[Running], batches: Mapping[bool, list[Running]], now: float) -> None:
        for running in gathered:
            kind = running.task.is_async
            if running.job.crashes and not self._capacity.has_room_for(kind, len(batches[kind])):
                # It would have to wait. If the job before it crashed the worker, this job would be blamed, too.
                self._release([running])
            elif whole := self._buffer.add(running, now):
                batches[kind].append(whole)

    def _start(self, kind: bool, batch: Sequence[Running], now: float) -> None:
        self._capacity.put(kind, batch, now)
        self.deadlines.watch(batch, now)

    def _call_batches(self, now: float, due: float) -> None:
        """Calls the batch tasks whose first job has waited until `due`."""
        moment = self._clock.now()
        for batch in self._buffer.take_due(due):
            expired = [member for member in batch.members if 0 < member.job.expires <= moment]
            # They may have expired while they waited for the call to fill.
            for member in expired:
                self._exchanger.end(member, Expired())
            if expired:
                batch.members = [member for member in batch.members if member not in expired]
            if batch.members:
                self._start(batch.task.is_async, [batch], now)

    # Held jobs

    def _do_timed_work(self, now: float) -> None:
        if self._buffer.groups:
            self._call_batches(now, now)
        self.interrupt_overdue(now)
        for runner in self._runners.values():
            for running, outcome in runner.escalate(now):
                # It still runs, but its outcome is known. Its result is ignored when it ends.
                for one in jobs_of(running):
                    self._exchanger.end(one, outcome)
        self._withdraw(self._capacity.stalled_kinds(now))
        for running in self._exchanger.leases.extend(now):
            self._call_back(running)

    def _withdraw(self, kinds: Sequence[bool]) -> None:
        """Gives back jobs that wait for a slot."""
        for kind in kinds:
            for running in self._capacity.withdraw(kind):
                self._release(jobs_of(running))

    def _release(self, back: Sequence[Running]) -> None:
        for running in back:
            self._exchanger.end(running, Released())

    def _call_back(self, running: Running) -> None:
        """Ends a job that is not ours any more."""
        if not running.task.batch:
            self._runners[running.task.is_async].interrupt(running, CalledBack)
        elif self._buffer.discard(running):
            # The job is not ours, so nothing becomes of it; but it may have kept a place under a limit.
            self._release((running,))
        else:
            self._call_back_member(running)

    def _call_back_member(self, running: Running) -> None:
        # A call that has begun goes on for the other jobs; it is interrupted once all are called back.
        running.interrupt = CalledBack
        batch = running.handle
        if isinstance(batch, Batch) and all(member.interrupt for member in batch.members):
            batch.kill_reason = batch.kill_reason if batch.interrupt else running.kill_reason
            self._runners[batch.task.is_async].interrupt(batch, CalledBack)

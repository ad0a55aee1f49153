"""The heart of a worker: settles what ended, claims for what is free, hands out, sleeps.

One thread does all store I/O. Batches form by themselves: an idle worker settles at once, a busy one by the hundred.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tarry.client.clock import CHECKED_EVERY, Clock
from tarry.errors import PartlyUnavailable, StoreError
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Expired, Outcome, Released, Suspected, Unknown
from tarry.model.quantity import quantity
from tarry.store import ids
from tarry.store.base import Exchange, Store
from tarry.store.shared.patience import Backoff
from tarry.tasks.definition import TaskDefinition
from tarry.tasks.interrupts import CalledBack, TimeLimit
from tarry.tasks.log_facts import about
from tarry.tasks.progress import Marks, marks
from tarry.tasks.running import Batch, Running
from tarry.worker.deadlines import Deadlines
from tarry.worker.events import Events
from tarry.worker.gather import Gather
from tarry.worker.gauge import Gauge, NoGauge
from tarry.worker.recall import note_reasons
from tarry.worker.room import CLAIMED_AT_ONCE, Room
from tarry.worker.run import hook_calls
from tarry.worker.run.base import Outcomes, Runner
from tarry.worker.served import Served
from tarry.worker.shares import BandShares
from tarry.worker.tempo import Tempo

log = logging.getLogger("tarry.worker")

LOOK_ANYWAY = 1.0
"""Seconds after which an idle pump looks even if no bell rang."""
TEND_EVERY = 1.0
SETTLE_WITHIN = 0.005
"""Seconds that an outcome may wait for others while the runners have enough to do."""

OVERDUE_PAUSE, AT_ONCE_PAUSE = 0.02, 0.001
"""Seconds before the next claim; the second where the store says that it has not looked at all that may be there."""

RulesFor = Callable[[str, str], Rules]


class Pump:
    """Moves jobs between one store and the runners of one process.

    queues: names and weights; `{"*": 1}` is every queue that has jobs. lease: microseconds. keep_output: bytes of what
    each job prints and logs; 0: none.
    """

    most: float = math.inf
    """Once it has processed so many it claims no more."""

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, TaskDefinition[Any, Any]],
        *,
        owner: str,
        clock: Clock | None = None,
        queues: Mapping[str, int] | None = None,
        shares: BandShares = (5, 3, 2),
        lease: int = 15 * SECOND,
        rules: RulesFor = lambda task, queue: lifecycle.DEFAULT,
        gauge: Gauge | None = None,
        keep_output: int = 0,
    ) -> None:
        self.store = store
        self.owner = owner
        self.events = Events()
        self.bell = store.bell()
        self.outcomes = Outcomes(self.bell.poke)
        self.stopping = False
        self.attempts = 0
        """How many have ended here."""
        self.find: Callable[[str], TaskDefinition[Any, Any] | None] = lambda name: None
        """Asked for a task that is not among those that are known."""
        self._marks = Marks(self.bell.poke, keep_output)
        self._tasks = tasks
        self._clock = clock or Clock(store.time, CHECKED_EVERY)
        self._lease = lease
        self._rules = rules
        self._gauge = gauge or NoGauge()
        self._served = Served(store, queues or {"*": 1}, shares)
        self._runners: dict[bool, Runner] = {}
        self._gather = Gather()
        self._room = Room(tasks, {}, self._gather)
        self._tempo = Tempo()
        self._held: dict[bytes, Running] = {}
        self._unsettled: list[tuple[Running, Outcome]] = []
        self._postponed: list[tuple[Running, Outcome]] = []
        """What only a part of the store could settle that is away: kept apart, so that it is not sent all the time."""
        self.deadlines = Deadlines()
        self._tended = 0.0
        self._away, self._partly, self._extending = Backoff(), Backoff(), Backoff()
        """Of the store, of a part of it, and of what prolongs the leases."""
        self._why = ""
        self._unheard = False
        self._next_due: int | None = None
        self._claimed = 0
        self._sated = False
        """The last claim brought fewer jobs than there was room for, or there was no room."""

    def attach(self, sync: Runner, loop: Runner, room: type[Room] = Room) -> None:
        """The runners for `def` and for `async def`; they report to `self.outcomes`."""
        self._runners = {False: sync, True: loop}
        self._room = room(self._tasks, self._runners, self._gather)

    @property
    def holds(self) -> int:
        """How many jobs are claimed and not settled."""
        return len(self._held) + len(self._unsettled) + len(self._postponed)

    def stop(self) -> None:
        """Claim nothing more, give back what has not begun; what runs may finish."""
        self.stopping = True
        for running in list(self._held.values()):
            running.stopping = True

    def call_back(self) -> None:
        """Breaks in on all that runs: it goes back as it was, once it has let go."""
        self._release(self._gather.empty())
        for running in list(self._held.values()):
            self._call_back(running)

    def give_back(self) -> None:
        """Everything goes back as it was, also what runs. The process must end right after."""
        self.stopping = True
        self._collect()
        self._unsettled += [(running, Released()) for running in self._held.values()]
        self._unsettled += self._postponed
        self._postponed = []
        self._held.clear()
        self._exchange(0, time.monotonic())

    @property
    def trouble(self) -> str:
        """Why the store cannot be asked; empty: it can."""
        return self._why if self._away.tries or self._partly.tries else ""

    def executes(self) -> bool:
        """Whether a job is run just now. From any thread."""
        ended = {running for running, _ in self.outcomes.ended.copy()}
        calls = (held.handle if isinstance(held.handle, Batch) else held for held in list(self._held.values()))
        return any(call.started and call not in ended for call in calls)

    def unsettled(self) -> list[Job]:
        """Whose attempt has ended, and the store has not taken it up. From any thread."""
        ended = (*self._unsettled, *self._postponed, *self.outcomes.ended.copy())
        return [running.job for running, outcome in ended if not isinstance(outcome, Released)]

    @property
    def idle(self) -> bool:
        """Nothing is held, and the store could be asked for more."""
        return not self.holds and not self._away.tries and not self._partly.tries

    @property
    def overdue(self) -> bool:
        """At the last claim there were jobs due, of whatever queue, that it did not make ready."""
        return self._next_due is not None and self._next_due <= self._claimed

    def turn(self) -> float:
        """Everything that is due now; then how many seconds there is nothing to do, if no bell rings (0: go on)."""
        now = time.monotonic()
        self._collect()
        if left := self._away.left(now):
            self._tend(now)
            return left
        if self.stopping:
            self._withdraw((False, True))
            self._release(self._gather.empty())
        again = not self._partly.left(now)
        if self._postponed and again:
            self._unsettled += self._postponed
            self._postponed = []
        room = self._left()
        settled = bool(self._unsettled)
        jobs = self._exchange(room, now)
        if jobs is None:
            return self._away.left(now)
        self._sated = not room or len(jobs) < room
        self._hand_out(jobs, time.monotonic())  # a slow answer is not a line that stands
        self._gauge.load(self._room.fill(), len(self._held))
        if self._unheard and (again or not self._partly.tries):
            self._return_unheard()
        self._tend(now)
        if jobs or settled or self._unsettled or self.outcomes.ended:
            return 0.0
        return 0.0 if room and self._served.found_new() else self._rest(room)

    def gathering(self) -> float:
        """Seconds to wait for further ends after a turn that had something to do, where we hold all that the store has
        for us, as by a limit: else there would be a round trip for every few ends."""
        if self.stopping or not self._sated:
            return 0.0
        pause = self._tempo.pause(len(self._held), len(self.outcomes.ended))
        due = math.inf if self._next_due is None else (self._next_due - self._claimed) / SECOND
        return pause if due > pause else 0.0

    @property
    def hungry(self) -> bool:
        """There is room for more jobs."""
        return self._left() > 0

    def _left(self) -> int:
        """How many jobs to claim: what there is room for, and no more than are ours to run before we are replaced."""
        # By what the master counts, too: were it another number, a worker could wait for ever to be replaced.
        ours = self.most - self.events.processed - self.holds
        return 0 if self.stopping or ours <= 0 else int(min(self._room.left(), ours))

    def _collect(self) -> None:
        ended = self.outcomes.ended
        if not ended:
            return
        counts = {False: 0, True: 0}
        for _ in range(len(ended)):
            running, outcome = ended.popleft()
            counts[running.task.is_async] += 1
            if self._holds(running):
                del self._held[running.job.id]
                self._unsettled.append((running, outcome))
            elif isinstance(running, Batch):
                self._collect_members(running, outcome)
        self.attempts += sum(counts.values())
        now = time.monotonic()
        self._room.ended(counts, now)
        self._tempo.ended(sum(counts.values()), now)

    def _collect_members(self, batch: Batch, outcome: Outcome) -> None:
        self.attempts += len(batch.members) - 1
        for member in batch.members:
            if self._holds(member):
                del self._held[member.job.id]
                self._unsettled.append((member, batch.ends.get(member, outcome)))

    def _exchange(self, room: int, now: float) -> list[Job] | None:
        """One round trip: the changes of what ended, and new jobs. None: the store could not."""
        if self._marks.said:
            self._mark(now)
        try:
            moment = self._clock.now()
            changes = [self._after(running.job, outcome, moment) for running, outcome in self._unsettled]
            due = self._next_due is not None and self._next_due <= moment
            wants = self._served.wants(room, due) if room else ()
            answer = self.store.exchange(changes, wants, room if wants else 0, self.owner, self._lease, moment)
        except StoreError as error:
            self._in_trouble(error, now)
            return None
        self._away.succeed()
        self._tell(changes, answer, moment)
        self._postpone(answer, now)
        self._unsettled.clear()
        self._next_due, self._claimed = answer.next_due, moment
        if wants:
            self._served.given(wants, answer.jobs)
        return answer.jobs

    def _mark(self, now: float) -> None:
        """Sends what running jobs told of themselves, and the last word of those that ended. Nothing depends on it, so
        what settles them goes on also where this fails."""
        taken = self._marks.take(now, (running for running, _ in self._unsettled))
        if not taken:
            return
        try:
            self.store.mark(self.owner, marks(taken))
        except StoreError as error:
            log.debug("progress of %s not kept: %s", quantity(len(taken)), error)
            self._marks.put_back(taken)

    def _after(self, job: Job, outcome: Outcome, moment: int) -> Change:
        return lifecycle.after(job, outcome, self._rules(job.task, job.queue), moment, self._clock.unsure)

    def ends(self, job: Job, outcome: Outcome) -> bool:
        """Whether a failed attempt is the job's last. From any thread."""
        return hook_calls.is_dead(self._after(job, outcome, self._clock.now()))

    def _tell(self, changes: Sequence[Change], answer: Exchange, moment: int) -> None:
        missing = set(answer.missing)
        ended = zip(self._unsettled, changes, answer.valid, strict=True)
        for at, ((running, outcome), change, made) in enumerate(ended):
            if made:
                self.events.ended(running.job, outcome, change, moment)
            elif at not in missing:
                job = running.job
                log.debug("%s %s: its outcome came too late", job.task, ids.text(job.id), extra=about(job))
                running.task.came_too_late(job, running.printed, outcome)
        if changes:
            self._gauge.count(self.events.processed, self.events.failed)

    def _postpone(self, answer: Exchange, now: float) -> None:
        """One of several stores is away: what it has to settle waits, with growing pauses, and the others go on."""
        self._unheard = self._unheard or answer.unheard
        self._postponed += [self._unsettled[at] for at in answer.missing]
        self._why = answer.away
        if not answer.away:
            self._partly.succeed()
        elif not self._partly.left(now) and self._partly.fail(now):
            log.error("%s; holding %s for it, trying again", answer.away, quantity(len(self._postponed)))

    def _in_trouble(self, error: StoreError, now: float) -> None:
        """The store is away or full: hold what we have, try again with growing pauses, say so now and then."""
        if self._away.fail(now):
            log.error("%s; holding %s, trying again", error, quantity(self.holds))
        self._unheard, self._why = True, str(error)

    def _return_unheard(self) -> None:
        """A call whose answer was lost may have claimed jobs that we never saw: they go back as they were."""
        known = {(running.job.id, running.job.epoch) for running in self._held.values()}
        known |= {(running.job.id, running.job.epoch) for running, _ in (*self._unsettled, *self._postponed)}
        try:
            ours = self.store.reclaim(self._clock.now(), self.owner, len(known) + CLAIMED_AT_ONCE)
            self._unheard = False
        except PartlyUnavailable as error:
            ours = error.answer
        except StoreError:
            return
        self._unsettled += [(_unstarted(job), Released()) for job in ours if (job.id, job.epoch) not in known]

    def _hand_out(self, jobs: Sequence[Job], now: float) -> None:
        if not jobs:
            self._room.nothing_came(now)
            return
        batches: dict[bool, list[Running]] = {False: [], True: []}
        gathered: list[Running] = []
        moment = self._clock.now()
        for job in jobs:
            task = self._tasks.get(job.task) or self.find(job.task)
            if task is None or not self._runners[task.is_async].slots:
                self._unsettled.append((_unstarted(job), Unknown()))
            elif job.expires and job.expires <= moment:
                self._unsettled.append((Running(job, task), Expired()))
            elif job.losses and self._beside_a_suspect(job):
                self._unsettled.append((_unstarted(job), Suspected()))
            else:
                running = Running(job, task, self._marks)
                self._held[job.id] = running
                # After that, so that a stop from another thread either finds it or is seen here.
                running.stopping = running.stopping or self.stopping
                (gathered if task.batch else batches[task.is_async]).append(running)
        self._room.mixed(batches, gathered)
        if gathered:
            self._put_together(gathered, batches, now)
        for kind, batch in batches.items():
            if batch:
                self._start(kind, batch, now)

    def _put_together(self, gathered: Sequence[Running], batches: Mapping[bool, list[Running]], now: float) -> None:
        for running in gathered:
            kind = running.task.is_async
            if running.job.losses and not self._room.takes(kind, len(batches[kind])):
                # Should the one before it kill the worker too, then it must not be among those that were held.
                self._release([running])
            elif whole := self._gather.add(running, now):
                batches[kind].append(whole)

    def _beside_a_suspect(self, job: Job) -> bool:
        suspect = lifecycle.suspect
        return suspect(job) and any(suspect(running.job) for running in self._held.values())

    def _start(self, kind: bool, batch: Sequence[Running], now: float) -> None:
        self._room.put(kind, batch, now)
        self.deadlines.watch(batch, now)

    def call_together(self) -> bool:
        """Jobs of batch tasks wait for others no longer; False if none did."""
        waited = bool(self._gather.groups)
        self._call_together(time.monotonic(), math.inf)
        return waited

    def _call_together(self, now: float, due: float) -> None:
        """Calls the batch tasks whose jobs have waited for others for long enough."""
        moment = self._clock.now()
        for batch in self._gather.due(due):
            late = {member: Expired() for member in batch.members if 0 < member.job.expires <= moment}
            if late:
                self._unsettled += late.items()
                batch.members = [member for member in batch.members if member not in late]
                for member in late:
                    del self._held[member.job.id]
            if batch.members:
                self._start(batch.task.is_async, [batch], now)

    def _withdraw(self, kinds: Sequence[bool]) -> None:
        for kind in kinds:
            for running in self._room.withdraw(kind):
                self._release(running.members if isinstance(running, Batch) else [running])

    def _release(self, back: Sequence[Running]) -> None:
        for running in back:
            if self._holds(running):
                del self._held[running.job.id]
                self._unsettled.append((running, Released()))

    def _tend(self, now: float) -> None:
        if self._gather.groups:
            self._call_together(now, now)
        self.break_in(now)
        for runner in self._runners.values():
            self._give_up(runner.insist(now))
        self._withdraw(self._room.stalled(now))
        if self._held and now - self._tended >= TEND_EVERY and not self._extending.left(now):
            self._tended = now
            self._extend()

    def break_in(self, now: float) -> None:
        """On those whose time is over. From any thread."""
        for running in self.deadlines.overdue(now, self._alive):
            self._runners[running.task.is_async].interrupt(running, TimeLimit)

    def _give_up(self, over: Sequence[tuple[Running, Outcome]]) -> None:
        """What has an outcome although it still runs. What it brings when it ends is nobody's any more."""
        for running, outcome in over:
            for one in running.members if isinstance(running, Batch) else [running]:
                if self._holds(one):
                    del self._held[one.job.id]
                    self._unsettled.append((one, outcome))

    def _holds(self, running: Running) -> bool:
        """A job that was called back may have come here again while its first attempt still runs."""
        return self._held.get(running.job.id) is running

    def _alive(self, running: Running) -> bool:
        return any(map(self._holds, running.members if isinstance(running, Batch) else [running]))

    def _extend(self) -> None:
        held = [(id, running.job.epoch) for id, running in self._held.items()]
        try:
            lost = self.store.extend(self.owner, held, self._lease, self._clock.now())
            self._extending.succeed()
        except PartlyUnavailable as error:
            lost = error.answer
            self._not_extended(error)
        except StoreError as error:
            self._not_extended(error)
            return
        taken = [self._held[id] for id in lost if id in self._held]
        note_reasons(self.store, taken)
        for running in taken:
            self._call_back(running)

    def _not_extended(self, error: StoreError) -> None:
        if self._extending.fail(time.monotonic()) and not self._away.tries:
            log.warning("leases not extended: %s", error)

    def _call_back(self, running: Running) -> None:
        if not running.task.batch:
            self._runners[running.task.is_async].interrupt(running, CalledBack)
        elif self._gather.drop(running):
            del self._held[running.job.id]
        else:
            self._call_back_member(running)

    def _call_back_member(self, running: Running) -> None:
        """A call that has begun without it goes on for the others."""
        running.interrupt = CalledBack
        batch = running.handle
        if isinstance(batch, Batch) and all(member.interrupt for member in batch.members):
            batch.kill_reason = batch.kill_reason if batch.interrupt else running.kill_reason
            self._runners[batch.task.is_async].interrupt(batch, CalledBack)

    def look_after_recall(self) -> None:
        """The next turn asks whether what runs here is still wanted: a bell that rang while nobody listened is lost."""
        self._tended = 0.0

    def _rest(self, room: int) -> float:
        pause = LOOK_ANYWAY
        if any(runner.waiting() for runner in self._runners.values()):
            pause = SETTLE_WITHIN
        if room and self._next_due is not None:
            # Due when we claimed, and not ready all the same: more than a claim makes ready, or not in our power.
            left = (self._next_due - self._clock.now()) / SECOND if self._next_due > self._claimed else OVERDUE_PAUSE
            pause = min(pause, left if self._next_due else AT_ONCE_PAUSE)
        probe = self._room.pause()
        if probe is not None:
            pause = min(pause, probe)
        insisting = [runner.insists_at() for runner in self._runners.values()]
        for moment in (self.deadlines.next(), self._gather.next(), *insisting):
            if moment is not None:
                pause = min(pause, moment - time.monotonic())
        if self._marks.said:
            pause = min(pause, self._marks.pause(time.monotonic()))
        return max(min(pause, self._partly.left(time.monotonic())) if self._postponed else pause, 0.0)


def _unstarted(job: Job) -> Running:
    return Running(job, _NOBODY)


_NOBODY: TaskDefinition[Any, Any] = TaskDefinition(print, name="tarry.unknown")

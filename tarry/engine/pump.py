"""The heart of a worker: settles what ended, claims for what is free, hands out, sleeps.

One thread does all store I/O. Batches form by themselves: an idle worker settles at once, a busy one by the hundred.
"""

import heapq
import itertools
import logging
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tarry.engine.appetite import Appetite
from tarry.engine.clock import Clock
from tarry.engine.events import Events
from tarry.engine.gauge import Gauge, NoGauge
from tarry.engine.runner.base import Outcomes, Runner
from tarry.engine.running import CalledBack, Running, TimeLimit
from tarry.engine.shares import BandShares, Shares
from tarry.engine.task import Task
from tarry.errors import StoreError
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Expired, Outcome, Released, Unknown
from tarry.store.base import NORMAL, Store, Want

log = logging.getLogger("tarry.worker")

CLAIMED_AT_ONCE = 1000
LOOK_ANYWAY = 1.0
"""Seconds after which an idle pump looks even if no bell rang."""
TEND_EVERY = 1.0
SETTLE_WITHIN = 0.005
"""Seconds that an outcome may wait for others while the runners have enough to do."""

PROBED_AT_ONCE = 8
PROBE_EVERY = 0.25
OVERDUE_PAUSE = 0.02
_PROMPT = Want("", NORMAL, 0)
"""No queue has this name."""

RulesFor = Callable[[str, str], Rules]


class Pump:
    """Moves jobs between one store and the runners of one process.

    queues: names and weights; `{"*": 1}` is every queue that has jobs. lease: microseconds.
    """

    def __init__(
        self,
        store: Store,
        tasks: Mapping[str, Task[Any, Any]],
        *,
        owner: str,
        clock: Clock | None = None,
        queues: Mapping[str, int] | None = None,
        shares: BandShares = (5, 3, 2),
        lease: int = 30 * SECOND,
        rules: RulesFor = lambda task, queue: lifecycle.DEFAULT,
        gauge: Gauge | None = None,
    ) -> None:
        self.store = store
        self.owner = owner
        self.events = Events()
        self.bell = store.bell()
        self.outcomes = Outcomes(self.bell.poke)
        self.stopping = False
        self._tasks = tasks
        self._clock = clock or Clock(store.time)
        self._lease = lease
        self._rules = rules
        self._gauge = gauge or NoGauge()
        self._shares = Shares(shares)
        self._queues = dict(queues or {"*": 1})
        self._served: Mapping[str, int] = {}
        self._runners: dict[bool, Runner] = {}
        self._appetites: dict[bool, Appetite] = {}
        self._held: dict[bytes, Running] = {}
        self._count = {False: 0, True: 0}
        self._async_share: float | None = None
        self._unsettled: list[tuple[Running, Outcome]] = []
        self._deadlines: list[tuple[float, int, Running]] = []
        self._order = itertools.count()
        self._tended = 0.0
        self._trouble = 0
        self._retry_at = 0.0
        self._unheard = False
        self._looked = 0.0
        self._probe_at = 0.0
        self._tasks_seen = -1
        self._kinds_seen: frozenset[bool] = frozenset()
        self._next_due: int | None = None

    def attach(self, sync: Runner, loop: Runner) -> None:
        """The runners for `def` and for `async def`; they report to `self.outcomes`."""
        self._runners = {False: sync, True: loop}
        self._appetites = {False: Appetite(sync.slots), True: Appetite(loop.slots)}

    @property
    def holds(self) -> int:
        """How many jobs are claimed and not settled."""
        return len(self._held) + len(self._unsettled)

    def stop(self) -> None:
        """Claim nothing more, give back what has not begun; what runs may finish."""
        self.stopping = True
        for running in list(self._held.values()):
            running.stopping = True

    def give_back(self) -> None:
        """Everything goes back as it was, also what runs. The process must end right after."""
        self.stopping = True
        self._collect()
        self._unsettled += [(running, Released()) for running in self._held.values()]
        self._held.clear()
        self._exchange(0, time.monotonic())

    def turn(self) -> float:
        """Everything that is due now; then how many seconds there is nothing to do, if no bell rings (0: go on)."""
        now = time.monotonic()
        self._collect()
        if now < self._retry_at:
            self._tend(now)
            return self._retry_at - now
        if self.stopping:
            self._withdraw((False, True))
        room = 0 if self.stopping else self._room()
        settled = bool(self._unsettled)
        jobs = self._exchange(room, now)
        if jobs is None:
            return self._retry_at - now
        self._hand_out(jobs, now)
        if self._unheard:
            self._return_unheard()
        self._tend(now)
        if jobs or settled or self._unsettled or self.outcomes.ended:
            return 0.0
        return 0.0 if room and self._found_queues() else self._rest(room)

    @property
    def hungry(self) -> bool:
        """There is room for more jobs."""
        return not self.stopping and self._room() > 0

    def _collect(self) -> None:
        ended = self.outcomes.ended
        if not ended:
            return
        counts = {False: 0, True: 0}
        for _ in range(len(ended)):
            running, outcome = ended.popleft()
            counts[running.task.is_async] += 1
            self._count[running.task.is_async] -= 1
            # A job that was called back may have come here again while its first attempt still ran.
            if self._held.get(running.job.id) is running:
                del self._held[running.job.id]
                self._unsettled.append((running, outcome))
        now = time.monotonic()
        for kind, count in counts.items():
            if count:
                self._appetites[kind].ended(count, now)

    def _room(self) -> int:
        """How many jobs to claim, so that neither kind of task gets many more than its runner can take: which kind
        they are is known only once they are here, so it goes by the mix of late."""
        free = {kind: self._appetites[kind].target() - self._count[kind] for kind in (False, True)}
        mix = self._mix()
        limits = [free[kind] / part for kind, part in mix.items() if part > 0.02]
        room = max(0, min(CLAIMED_AT_ONCE, int(min(limits, default=0))))
        return room or self._probe(free)

    def _probe(self, free: Mapping[bool, int]) -> int:
        """One kind of task is full and the other is not: now and then take a few, to see whether they are of the
        other kind. What is of the full one goes back at once."""
        most = max(free[kind] for kind in self._kinds())
        return min(most, PROBED_AT_ONCE) if most > 0 and time.monotonic() >= self._probe_at else 0

    def _kinds(self) -> frozenset[bool]:
        """Which kinds of task the app has; a notebook adds to them while it works."""
        if len(self._tasks) != self._tasks_seen:
            self._tasks_seen = len(self._tasks)
            self._kinds_seen = frozenset(task.is_async for task in self._tasks.values()) or frozenset({False})
        return self._kinds_seen

    def _mix(self) -> dict[bool, float]:
        if self._async_share is None:
            kinds = self._kinds()
            share = 0.5 if len(kinds) != 1 else float(True in kinds)
        else:
            share = self._async_share
        slots = {kind: runner.slots for kind, runner in self._runners.items()}
        if not slots[True] or not slots[False]:
            return {True: float(bool(slots[True])), False: float(bool(slots[False]))}
        return {True: share, False: 1 - share}

    def _exchange(self, room: int, now: float) -> list[Job] | None:
        """One round trip: the changes of what ended, and new jobs. None: the store could not."""
        try:
            moment = self._clock.now()
            changes = [self._after(running.job, outcome, moment) for running, outcome in self._unsettled]
            wants = self._wants(room, moment, now) if room else ()
            answer = self.store.exchange(changes, wants, room if wants else 0, self.owner, self._lease, moment)
        except StoreError as error:
            self._in_trouble(error, now)
            return None
        self._trouble = 0
        self._tell(changes, answer.valid, moment)
        self._unsettled.clear()
        self._next_due = answer.next_due
        if wants:
            self._shares.given(wants, answer.jobs)
        return answer.jobs

    def _wants(self, room: int, moment: int, now: float) -> Sequence[Want]:
        wants = self._shares.plan(room) if self._serve(now) else []
        if self._next_due is not None and self._next_due <= moment:
            # A claim makes due jobs ready, also those of queues not found yet; with no line open it would not be one.
            wants.append(_PROMPT)
        return wants

    def _after(self, job: Job, outcome: Outcome, moment: int) -> Change:
        return lifecycle.after(job, outcome, self._rules(job.task, job.queue), moment)

    def _tell(self, changes: Sequence[Change], valid: Sequence[bool], moment: int) -> None:
        for (running, outcome), change, made in zip(self._unsettled, changes, valid, strict=True):
            if made:
                self.events.ended(running.job, outcome, change, moment)
            else:
                log.debug("%s %s: its outcome came too late", running.job.task, running.job.id.hex())
        if changes:
            self._gauge.count(self.events.processed, self.events.failed)

    def _in_trouble(self, error: StoreError, now: float) -> None:
        """The store is away or full: hold what we have, try again with growing pauses, say so now and then."""
        if self._trouble % 20 == 0:
            log.error("%s; holding %d jobs, trying again", error, self.holds)
        self._trouble += 1
        self._unheard = True
        self._retry_at = now + min(5.0, 0.05 * 2 ** min(self._trouble, 10)) * random.uniform(0.5, 1.0)

    def _return_unheard(self) -> None:
        """A call whose answer was lost may have claimed jobs that we never saw: they go back as they were."""
        known = {(running.job.id, running.job.epoch) for running in self._held.values()}
        known |= {(running.job.id, running.job.epoch) for running, _ in self._unsettled}
        try:
            ours = self.store.reclaim(self._clock.now(), self.owner, len(known) + CLAIMED_AT_ONCE)
        except StoreError:
            return
        self._unheard = False
        self._unsettled += [(_unstarted(job), Released()) for job in ours if (job.id, job.epoch) not in known]

    def _serve(self, now: float) -> bool:
        """Plans for the configured queues, or, for "*", for those that have jobs; False if there is none."""
        if "*" not in self._queues:
            if not self._served:
                self._served = self._queues
                self._shares.serve(self._served)
        elif not self._served or now - self._looked >= LOOK_ANYWAY:
            # Also now and then while busy: a worker that is never idle would find no new queue.
            self._found_queues()
        return bool(self._served)

    def _found_queues(self) -> bool:
        """With "*": whether queues have come that were not served yet."""
        if "*" not in self._queues:
            return False
        self._looked = time.monotonic()
        try:
            found = {queue: 1 for queue, paused in self.store.queues().items() if not paused}
        except StoreError:
            return False
        if not found.keys() - self._served.keys():
            return False
        self._served = found
        self._shares.serve(found)
        return True

    def _hand_out(self, jobs: Sequence[Job], now: float) -> None:
        if not jobs:
            for kind, appetite in self._appetites.items():
                if not self._count[kind]:
                    appetite.idle(now)
            return
        batches: dict[bool, list[Running]] = {False: [], True: []}
        moment = self._clock.now()
        for job in jobs:
            task = self._tasks.get(job.task)
            if task is None or not self._runners[task.is_async].slots:
                self._unsettled.append((_unstarted(job), Unknown()))
            elif job.expires and job.expires <= moment:
                self._unsettled.append((Running(job, task), Expired()))
            else:
                running = Running(job, task)
                self._held[job.id] = running
                # After that, so that a stop from another thread either finds it or is seen here.
                running.stopping = running.stopping or self.stopping
                batches[task.is_async].append(running)
        self._bring(batches, now)

    def _bring(self, batches: Mapping[bool, list[Running]], now: float) -> None:
        known = sum(map(len, batches.values()))
        if known:
            share = len(batches[True]) / known
            past = share if self._async_share is None else self._async_share
            self._async_share = past + 0.3 * (share - past)
        for kind, batch in batches.items():
            if batch:
                if not self._count[kind]:
                    self._appetites[kind].idle(now)
                self._count[kind] += len(batch)
                if self._count[kind] > self._appetites[kind].target():
                    self._probe_at = now + PROBE_EVERY
                self._runners[kind].low = self._appetites[kind].ahead() // 2
                self._runners[kind].put(batch)
                self._watch(batch, now)

    def _watch(self, batch: Sequence[Running], now: float) -> None:
        for running in batch:
            if running.task.timeout is not None:
                heapq.heappush(self._deadlines, (now + running.task.timeout, next(self._order), running))

    def _withdraw(self, kinds: Sequence[bool]) -> None:
        for kind in kinds:
            for running in self._runners[kind].withdraw():
                self._count[kind] -= 1
                if self._held.get(running.job.id) is running:
                    del self._held[running.job.id]
                    self._unsettled.append((running, Released()))

    def _tend(self, now: float) -> None:
        self._enforce(now)
        for kind, appetite in self._appetites.items():
            if self._runners[kind].waiting() and appetite.stalled(now):
                appetite.forget()
                self._withdraw((kind,))
        if self._held and now - self._tended >= TEND_EVERY:
            self._tended = now
            self._extend()

    def _enforce(self, now: float) -> None:
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, running = heapq.heappop(self._deadlines)
            if self._held.get(running.job.id) is not running:
                continue
            timeout = running.task.timeout
            assert timeout is not None
            if running.started and running.started + timeout <= now:
                self._runners[running.task.is_async].interrupt(running, TimeLimit)
            else:
                # It stood in line for a while: its time counts from when it began.
                begin = running.started or now
                heapq.heappush(self._deadlines, (begin + timeout, next(self._order), running))

    def _extend(self) -> None:
        held = [(id, running.job.epoch) for id, running in self._held.items()]
        try:
            lost = self.store.extend(self.owner, held, self._lease, self._clock.now())
        except StoreError as error:
            log.warning("leases not extended: %s", error)
            return
        for id in lost:
            running = self._held.get(id)
            if running is not None:
                self._runners[running.task.is_async].interrupt(running, CalledBack)

    def look_after_recall(self) -> None:
        """The next turn asks whether what runs here is still wanted: a bell that rang while nobody listened is lost."""
        self._tended = 0.0

    def _rest(self, room: int) -> float:
        pause = LOOK_ANYWAY
        if any(runner.waiting() for runner in self._runners.values()):
            pause = SETTLE_WITHIN
        if room and self._next_due is not None:
            left = (self._next_due - self._clock.now()) / SECOND
            # Due, and not ready though we claimed: more than a claim makes ready at once, or not in our power.
            pause = min(pause, left if left > 0 else OVERDUE_PAUSE)
        if self._probe_at > time.monotonic():
            pause = min(pause, self._probe_at - time.monotonic())
        if self._deadlines:
            pause = min(pause, self._deadlines[0][0] - time.monotonic())
        return max(pause, 0.0)


def _unstarted(job: Job) -> Running:
    return Running(job, _NOBODY)


_NOBODY: Task[Any, Any] = Task(lambda: None, lambda: None, name="tarry.unknown")  # type: ignore[arg-type, return-value]

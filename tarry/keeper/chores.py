"""The keeper: what has to be done every so often, and the return of jobs whose worker died."""

import contextlib
import itertools
import logging
import math
import random
import time
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from tarry.client.clock import CHECKED_EVERY, Clock
from tarry.errors import PartlyUnavailable, StoreBusy, StoreError, StoreUnavailable
from tarry.keeper.cron import Ticker
from tarry.keeper.death_hooks import DeathHooks
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.outcome import Lost, Outcome, TimedOut, note
from tarry.model.quantity import quantity
from tarry.store.base import Store
from tarry.store.shared.partly import partly
from tarry.store.shared.patience import Backoff
from tarry.worker import owner
from tarry.worker.overdue import Overdue
from tarry.worker.pump import RulesFor

log = logging.getLogger("tarry.keeper")

PRUNE_EVERY = 10.0
RECOUNT_EVERY = 20.0
"""Together with the hold, such that a level which is wrong is put right within a minute, also if the host that did it
up to now has just died."""
RECOUNT_HOLD = 25 * SECOND
LOG_EVERY = 60.0
"""Seconds between two lines on what cannot be done because the store is away."""
KEPT_BYTES = 64_000_000
"""What the finished jobs of a queue may take, unless configured."""
_BATCH = 1000


class Keeper:
    """One a host. `tick()` does what is due and says how many seconds there is nothing to do."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        rules: RulesFor = lambda task, queue: lifecycle.DEFAULT,
        kept_bytes: Mapping[str, int] | None = None,
        batch_tasks: Collection[str] = (),
        ticker: Ticker | None = None,
        death_hooks: DeathHooks | None = None,
        declare: Callable[[], None] | None = None,
        forward: Callable[[], None] | None = None,
    ) -> None:
        self._store = store
        self._ticker = ticker
        self._death_hooks = death_hooks
        self._clock = clock or Clock(store.time, CHECKED_EVERY)
        self._overdue = Overdue(store, self._clock)
        self._rules = rules
        self._kept_bytes = kept_bytes
        self._batch_tasks = frozenset(batch_tasks)
        self._name = owner.new_name()
        self._declare = declare
        self._known_dead: set[str] | None = None
        """The owners that were dead at the last look; None: before the first, which finds what a crash left behind."""
        self._joins = store.joins
        self._chores: list[tuple[float, Callable[[], None]]] = [
            (1.0, self.rescue_overdue),
            (2.0, self.rescue_dead),
            (PRUNE_EVERY, self.prune),
            (1.0, self.redeclare_limits),
            (RECOUNT_EVERY, self.recount),
        ]
        if forward is not None:
            self._chores.append((1.0, forward))
        self._due = dict.fromkeys(range(len(self._chores)), 0.0)
        self._backoffs = {number: Backoff() for number in self._due}
        self.away = ""
        """Why the store cannot be asked; empty: it can."""
        self._store_backoff = Backoff()
        """Of the store as a whole: while it is away no chore asks it, so that it is tried, and waited for, once."""
        self._logged_at: dict[str, float] = {}
        """When it was last said that the jobs of a worker that is gone come back later."""

    def register_chore(self, every: float, chore: Callable[[], None]) -> None:
        """One more chore, every so many seconds; where it raises StoreError, again with growing pauses."""
        number = len(self._chores)
        self._chores.append((every, chore))
        self._due[number], self._backoffs[number] = 0.0, Backoff()

    def tick(self) -> float:
        """Does the chores that are due, and first what has to be done at its moment: the ticks of schedules. While the
        store is away, it is tried now and then by the first chore that is due."""
        if left := self._store_backoff.left(time.monotonic()):
            return left
        ticks = time.monotonic() + (math.inf if self._ticker is None else self._ticker.tick())
        for number, (every, chore) in enumerate(self._chores):
            now = time.monotonic()
            if self._due[number] <= now:
                self._due[number] = now + every * random.uniform(0.9, 1.1)
                if not self._run_chore(number, chore):
                    self._due[number] = max(self._backoffs[number].again, self._store_backoff.again)
                if left := self._store_backoff.left(time.monotonic()):
                    return left
        return max(0.0, min(ticks, *self._due.values()) - time.monotonic())

    def close(self) -> None:
        """Leaves the chores that one host does for all to whoever comes next, without a wait for the hold to end."""
        now = self._clock.now()
        with contextlib.suppress(StoreError):
            self._store.hold("prune", self._name, now, now)
            self._store.hold("recount", self._name, now, now)
        if self._death_hooks is not None:
            self._death_hooks.close()

    def rescue(
        self,
        gone: str,
        on: Collection[str] = (),
        stuck: Collection[str] = (),
        stacks: Mapping[str, str] = MappingProxyType({}),
        epochs: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """Brings back all that an owner held who is known to be gone.

        on: ids (hex) of the jobs that were executing when it died: for them it counts. stuck: those for whose sake
        it was killed, since they did not end after their timeout; in which attempt, and where it was then, by id. One
        job of a batch task stands for its whole call.
        """
        overdue = self._find_still_running(gone, stuck, epochs)
        shared, where = self._find_shared_batches({*on, *overdue}), {id: stacks.get(id, "") for id in overdue}
        self._recover(lambda: self._store.reclaim(self._clock.now(), gone, _BATCH), on, where, shared)

    def rescue_overdue(self) -> None:
        """Brings back what owners held whose lease ran out. That alone is no job's fault: the worker may live, on a
        host that cannot reach the store. Only a known death counts."""
        self._recover(self._overdue.jobs, None)

    def rescue_dead(self) -> None:
        """Brings back what processes of this host held that are gone, without waiting for their leases. One that died
        since the last call waits for the next: its master may yet tell which of its jobs were on."""
        names, away = partly(self._store.owners)
        dead = {name for name in names if owner.is_dead(name)}
        known, self._known_dead = self._known_dead, dead
        for name in dead if known is None else dead & known:
            self._recover(lambda: self._store.reclaim(self._clock.now(), name, _BATCH), None)  # noqa: B023
        if away:
            raise away

    def prune(self) -> None:
        """Forgets finished jobs whose time of keeping is over, or that take too much room. One host's task."""
        now = self._clock.now()
        if self._store.hold("prune", self._name, now + 30 * SECOND, now):
            for _ in range(100):
                if self._store.prune(now, KEPT_BYTES, _BATCH, self._kept_bytes) < _BATCH:
                    return

    def recount(self) -> None:
        """Counts anew how many jobs run under each limit, so that nothing that was miscounted holds back work for
        long. One host's task."""
        now = self._clock.now()
        if self._store.hold("recount", self._name, now + RECOUNT_HOLD, now):
            wrong = self._store.recount(now)
            if wrong:
                log.warning("%d limits did not count what runs under them; they do now", wrong)

    def redeclare_limits(self) -> None:
        """Once more says what holds on all stores of several when one has come, or come back, that may not know."""
        joins = self._store.joins
        if joins != self._joins and self._declare is not None:
            self._declare()
        self._joins = joins

    def _run_chore(self, number: int, chore: Callable[[], None]) -> bool:
        try:
            chore()
        except StoreError as error:
            now = time.monotonic()
            should_log = self._backoffs[number].fail(now)
            if _is_away(error):
                should_log, self.away = self._store_backoff.fail(now), str(error)
            if should_log:
                log.error("%s: %s", chore.__name__, error)
            if not isinstance(error, PartlyUnavailable):
                self._overdue.be_patient()
            return False
        self._backoffs[number].succeed()
        self._store_backoff.succeed()
        self.away = ""
        return True

    def _find_still_running(self, gone: str, stuck: Collection[str], epochs: Mapping[str, int]) -> list[str]:
        """Without those that were cancelled, that another has now, or whose next attempt it already was that went down
        with the first."""
        if not stuck:
            return []
        jobs, _ = partly(lambda: self._store.get([bytes.fromhex(id) for id in stuck]))
        return [
            id
            for id, job in zip(stuck, jobs, strict=True)
            if job is not None and (job.state, job.owner, job.epoch) == (State.RUNNING, gone, epochs.get(id, job.epoch))
        ]

    def _find_shared_batches(self, on: Collection[str]) -> set[str]:
        """The batch tasks of which many jobs were on in one call. Which ones is not known but to the dead, so it
        counts for all of that task that it held. From then on each of them is called alone, and then the cause is
        found without more harm to the others: one that was called alone answers for itself only."""
        if not self._batch_tasks or not on:
            return set()
        jobs, _ = partly(lambda: self._store.get([bytes.fromhex(id) for id in on]))
        return {job.task for job in jobs if job and job.task in self._batch_tasks and not job.losses}

    def _recover(
        self,
        find: Callable[[], list[Job]],
        on: Collection[str] | None,
        stuck: Mapping[str, str] = MappingProxyType({}),
        shared: Collection[str] = (),
    ) -> None:
        for _ in range(100):
            jobs, away = partly(find)
            if not jobs and away:
                raise away
            if not jobs:
                return
            blamed = _find_blamed(jobs, self._batch_tasks) if on is None else on
            now, unsure = self._clock.now(), self._clock.unsure
            changes = [
                lifecycle.after(
                    job, _outcome_of(job, blamed, stuck, shared), self._rules(job.task, job.queue), now, unsure
                )
                for job in jobs
            ]
            made, away = partly(lambda: self._store.apply(changes, now))  # noqa: B023
            if self._death_hooks is not None:
                self._death_hooks.notify(itertools.compress(zip(jobs, changes, strict=True), made))
            log.warning("brought back %s of %s", quantity(sum(made)), ", ".join(sorted({job.owner for job in jobs})))
            if away:
                raise away

    def handle_message(self, line: Mapping[str, Any]) -> dict[str, Any] | None:
        """The master's word on a dead worker, `{"gone": owner, "on": [...], "stuck": [...], "stacks": {id: text},
        "epochs": {id: number}}`, and the answer to it; None while the store cannot do it, or for another line."""
        if "gone" not in line or self._store_backoff.left(time.monotonic()):
            return None
        try:
            stuck, stacks, epochs = line.get("stuck", ()), line.get("stacks", {}), line.get("epochs", {})
            self.rescue(line["gone"], line.get("on", ()), stuck, stacks, epochs)
        except StoreError as error:
            self._log_delay(error, line["gone"])
            return None
        self._logged_at.pop(line["gone"], None)
        return {"returned": line["gone"]}

    def _log_delay(self, error: StoreError, gone: str) -> None:
        now = time.monotonic()
        if now >= self._logged_at.get(gone, -math.inf) + LOG_EVERY:
            self._logged_at[gone] = now
            log.error("%s; the jobs of %s come back later", error, gone)


def _is_away(error: StoreError) -> bool:
    """All of the store, so that no other chore would fare better."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, PartlyUnavailable | StoreBusy)


def _find_blamed(jobs: Collection[Job], batch_tasks: Collection[str]) -> set[str]:
    """With no evidence of what was on, only a job that its owner held alone is held to have been; or those of a batch
    task, if it held no others, since they may have been on in one call. None, if the owner is not known to be dead."""
    held: dict[str, list[Job]] = {}
    for job in jobs:
        held.setdefault(job.owner, []).append(job)
    held = {name: group for name, group in held.items() if owner.is_dead(name)}
    return {job.id.hex() for group in held.values() if _is_one_call(group, batch_tasks) for job in group}


def _is_one_call(jobs: list[Job], batch_tasks: Collection[str]) -> bool:
    task = jobs[0].task
    return len(jobs) == 1 or (task in batch_tasks and all(job.task == task and not job.losses for job in jobs))


def _outcome_of(job: Job, on: Collection[str], stuck: Mapping[str, str], shared: Collection[str]) -> Outcome:
    if job.task in shared and not job.losses:
        return Lost(on=True)
    stack = stuck.get(job.id.hex())
    if stack is not None:
        why = "it did not end after its timeout, so its worker was killed"
        return TimedOut(note("TimeLimit", why, stack))
    return Lost(job.id.hex() in on)

"""The keeper: does periodic chores, and recovers the jobs of workers that died.

What became of the jobs of an owner that is gone, and which of them count its end as their doing.

Ends jobs of broadcasts whose host or worker did not take them in time, or is gone: nobody else takes them.
"""

import contextlib
import itertools
import logging
import math
import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tarry.client.clock import CHECKED_EVERY, Clock
from tarry.errors import PartlyUnavailable, PayloadUnavailable, StoreBusy, StoreError, StoreUnavailable
from tarry.keeper.backlog import sample_backlogs
from tarry.keeper.cron import ScheduleTicker
from tarry.keeper.death_hooks import DeathHooks
from tarry.keeper.expired_leases import ExpiredLeases
from tarry.keeper.flows import AUDIT_EVERY, FlowChores
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.duration import MINUTE, SECOND
from tarry.model.flow.own_queues import is_own_queue, owner_of
from tarry.model.job import Job, State
from tarry.model.outcome import Lost, Outcome, TimedOut, outcome_note
from tarry.model.quantity import quantity
from tarry.store.queries.hosts import list_hosts
from tarry.store.rules import kept_places, owner
from tarry.store.rules.base import Query, Store
from tarry.store.rules.history.history import TAKEN_AT_ONCE
from tarry.store.rules.partial_result import partial_result, reachable_part
from tarry.store.shards.sharded import ShardedStore
from tarry.store.shared.apply_each import apply_each
from tarry.store.shared.backoff import Backoff
from tarry.worker.exchanger import RulesFor

if TYPE_CHECKING:
    from tarry.keeper.stored_ticks import StoredTicker

log = logging.getLogger("tarry.keeper")

PRUNE_EVERY = 10.0
PRUNE_SELDOM = 20.0
"""Seconds between two looks for what was kept long enough, at most, while there is nothing to delete."""
PRUNE_HISTORY_EVERY = 60.0
# With the hold, a wrong level is corrected within a minute, even if the host that did it has just died.
RECOUNT_EVERY = 20.0
"""Seconds."""
RECOUNT_HOLD = 25 * SECOND
# Each chore by itself would wake an idle host several times a second.
SELDOM = 4.0
"""Seconds between two calls of a chore, at most, while it finds nothing to do."""
TOGETHER = 0.2
"""A chore is done with others up to so many seconds early, and up to this part of its period."""
LOG_EVERY = 60.0
"""Seconds between two log lines about work that waits for a store that is away."""
KEPT_BYTES = 64_000_000
"""Bytes that the finished jobs of a queue may take, unless configured."""
_BATCH = 1000


class Keeper:
    """Runs once on each host. `tick()` does what is due and returns for how many seconds there is nothing to do."""

    stored_ticker: "StoredTicker | None" = None
    """For the schedules that the store keeps."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock | None = None,
        rules: RulesFor = lambda task, queue: lifecycle.DEFAULT,
        kept_bytes: Mapping[str, int] | None = None,
        batch_tasks: Collection[str] = (),
        ticker: ScheduleTicker | None = None,
        death_hooks: DeathHooks | None = None,
        declare: Callable[[], None] | None = None,
        forward: Callable[[], bool | None] | None = None,
        lease: int = 15 * SECOND,
    ) -> None:
        self._store, self._ticker, self._death_hooks = store, ticker, death_hooks
        self.clock = clock or Clock(store.time, CHECKED_EVERY)
        """For all that its process does with leases: each clock asks the store by itself."""
        self._expired_leases = ExpiredLeases(store, self.clock)
        self._rules = rules
        self._kept_bytes = kept_bytes
        self._batch_tasks = frozenset(batch_tasks)
        self._name, self._lease = owner.new_name(), max(lease, kept_places.TAKEN_FOR)
        self._declare = declare
        self._known_dead: set[str] | None = None
        """Owners found dead by the last `rescue_dead`; None before the first call, which handles what a crash left."""
        self._topology_version = store.topology_version
        self._sampled_minute = -1
        """The minute that has its sample already, by this keeper or another."""
        self._chores: list[_Chore] = []
        self._has_owners = True
        """Whether anybody held jobs at the last look."""
        self.away = ""
        """Why the store is not available; empty: it is."""
        self.chores_done = self.chores_failed = 0
        """How many chores it did, and how many an error has ended."""
        self._store_backoff = Backoff(log)
        """For the store as a whole."""
        self._logged_at: dict[str, float] = {}
        """When the delay of a dead worker's jobs was last logged, by owner."""
        self._register_chores(forward)

    def _register_chores(self, forward: Callable[[], bool | None] | None) -> None:
        self.register_chore(1.0, self.rescue_overdue, SELDOM)
        self.register_chore(2.0, self.rescue_dead, SELDOM)
        self.register_chore(2.0, self.free_places, SELDOM)
        self.register_chore(PRUNE_EVERY, self.prune, PRUNE_SELDOM)
        self.register_chore(1.0, self.redeclare_limits)
        self.register_chore(RECOUNT_EVERY, self.recount)
        self.register_chore(1.0, self.move_shares)
        self.register_chore(1.0, self.sum_up_history, SELDOM)
        self.register_chore(1.0, self.sample_history)
        self.register_chore(PRUNE_HISTORY_EVERY, self.prune_history)
        flows = FlowChores(self._store, self.clock, self._name)
        self.register_chore(1.0, flows.release_more, SELDOM)
        self.register_chore(1.0, flows.tidy_flows, PRUNE_SELDOM)
        self.register_chore(2.0, flows.end_late_flows)
        self.register_chore(2.0, flows.resume_cancels, SELDOM)
        self.register_chore(AUDIT_EVERY, flows.audit_flows)
        broadcasts = BroadcastChore(self._store, self.clock, self._rules)
        self.register_chore(BROADCASTS_EVERY, broadcasts.expire_jobs, SELDOM)
        if forward is not None:
            self.register_chore(1.0, forward)

    def register_chore(self, every: float, chore: Callable[[], bool | None], seldom: float = 0.0) -> None:
        """Adds a chore that runs every `every` seconds; while it answers False, for there was nothing to do, after
        pauses that grow to `seldom`. After an error it is retried with growing pauses, and the other chores go on."""
        self._chores.append(_Chore(chore, every, seldom))

    def tick(self) -> float:
        """Does the chores that are due and returns for how many seconds there is nothing to do.

        While the store is away, the first chore that is due tries it once in a while.
        """
        # While the store is away, only one chore tries it, and only once in a while.
        if left := self._store_backoff.left(time.monotonic()):
            return left
        if self._store_backoff.tries and not self._is_store_back():
            return self._store_backoff.left(time.monotonic())
        # Schedules come first, since their ticks must be in time.
        pauses = [ticker.tick() for ticker in (self._ticker, self.stored_ticker) if ticker is not None]
        ticks = time.monotonic() + min(pauses, default=math.inf)
        # Spread, so that the keepers of many hosts do not all ask the store at the same moment; but one figure for all,
        # so that chores that are done together stay together.
        spread = random.uniform(0.9, 1.1)
        for chore in self._chores:
            now = time.monotonic()
            if chore.is_due(now):
                chore.put_off(self._run_chore(chore), now, spread)
                if chore.backoff.tries:
                    chore.due = max(chore.backoff.again, self._store_backoff.again)
                if left := self._store_backoff.left(time.monotonic()):
                    return left
        return max(0.0, min(ticks, *(chore.due for chore in self._chores)) - time.monotonic())

    def close(self) -> None:
        """Releases the holds of the chores that one host does for all, and ends the hooks."""
        # So another host can take over these chores at once.
        now = self.clock.now()
        with contextlib.suppress(StoreError):
            self._store.hold("prune", self._name, now, now)
            self._store.hold("recount", self._name, now, now)
            self._store.hold("flows", self._name, now, now)
            self._store.move_shares(self._name, now, 0)
            if self.stored_ticker is not None:
                self.stored_ticker.close()
        if self._death_hooks is not None:
            self._death_hooks.close()

    def rescue(
        self,
        gone: str,
        on: Collection[str] = (),
        stuck: Collection[str] = (),
        stacks: Mapping[str, str] = MappingProxyType({}),
        epochs: Mapping[str, int] = MappingProxyType({}),
        ended: Collection[str] = (),
        why: str = "",
    ) -> None:
        """Recovers all jobs of an owner that is known to be dead.

        on: ids (hex) of the jobs that were executing when it died; for them the crash counts. stuck: ids of the jobs
        that did not end after their timeout, so that the owner was killed. epochs, stacks: the attempt and the stack
        of each stuck job, by id. ended: those of the stuck jobs that an operator ended. why: how the owner died. One
        job of a batch task stands for its whole call.
        """
        # Asked before the recovery, which ends the attempts.
        overdue = self._find_still_running(gone, stuck, epochs)
        shared = self._find_shared_batches({*on, *overdue})
        where = {id: stuck_note(stacks.get(id, ""), id in ended) for id in overdue}
        self._recover(lambda: self._store.reclaim(self.clock.now(), gone, _BATCH), on, where, shared, why)

    def rescue_overdue(self) -> bool:
        """Recovers the jobs of owners whose lease ran out. False: nobody has a lease."""
        # An expired lease counts for no job: the worker may be alive on a host that cannot reach the store.
        self._recover(self._expired_leases.find_jobs, None)
        return self._has_owners

    def rescue_dead(self) -> bool:
        """Recovers the jobs of dead processes of this host, without waiting for their leases to end. False: nobody has
        a lease."""
        # A process that died since the last call waits for the next one: its master may yet report which of its jobs
        # were executing.
        names, away = partial_result(self._store.owners)
        self._has_owners = bool(names or away)
        dead = {name for name in names if owner.is_dead(name)}
        known, self._known_dead = self._known_dead, dead
        for name in sorted(dead if known is None else dead & known):
            self._recover(lambda: self._store.reclaim(self.clock.now(), name, _BATCH), None)  # noqa: B023
        if away:
            raise away
        return self._has_owners

    def free_places(self) -> bool:
        """Frees the places under limits of attempts that went on after a cancel, once their leases have run out or
        their process is gone. False: there were none to free."""
        if self._expired_leases.is_patient:
            return True
        return kept_places.free_over(self._store, self.clock.now(), owner.is_dead) > 0

    def prune(self) -> bool:
        """Deletes finished jobs that were kept long enough or take too much space. One host does it for all. False:
        there were none, or another host does it."""
        now = self.clock.now()
        if not self._store.hold("prune", self._name, now + 30 * SECOND, now):
            return False
        # Bounded, so that the other chores get their turn; the next call does the rest.
        for count in range(100):
            if (pruned := self._store.prune(now, KEPT_BYTES, _BATCH, self._kept_bytes)) < _BATCH:
                return count > 0 or pruned > 0
        return True

    def recount(self) -> None:
        """Counts the running jobs of each limit again. One host does it for all."""
        # A level that is too high would block work for ever.
        now = self.clock.now()
        if self._store.hold("recount", self._name, now + RECOUNT_HOLD, now):
            wrong = self._store.recount(now)
            if wrong:
                log.warning("%d limits did not count what runs under them; they do now", wrong)

    def move_shares(self) -> None:
        """Moves the shares that several stores have of limits to where jobs wait. One host does it for all."""
        self._store.move_shares(self._name, self.clock.now(), self._lease)

    def move_shares_once(self) -> bool:
        """The same for a worker beside which no keeper runs; whether more jobs may start somewhere than before."""
        now = self.clock.now()
        with contextlib.suppress(StoreError):
            has_more = self._store.move_shares(self._name, now, self._lease)
            self._store.move_shares(self._name, now, 0)
            return has_more
        return False

    def sum_up_history(self) -> bool:
        """Adds what was counted to the sums of the history. Each host tries it: of two, one is first. False: nothing
        was."""
        now = self.clock.now()
        # Bounded, so that the other chores get their turn.
        for _ in range(100):
            if (taken := self._store.history.sum_up(now)) < TAKEN_AT_ONCE:
                return taken > 0
        return True

    def sample_history(self) -> None:
        """Samples what is ready, once in each minute. Each host tries it: the first one's sample is kept."""
        now = self.clock.now()
        if now // MINUTE != self._sampled_minute:
            self._store.history.sample(now, self._store, lambda store: sample_backlogs(store, now))
            self._sampled_minute = now // MINUTE

    def prune_history(self) -> None:
        """Deletes sums that were kept long enough."""
        self._store.history.prune(self.clock.now())

    def redeclare_limits(self) -> None:
        """Declares the limits again when a shard has been added or is back."""
        # That shard may not have them.
        version = self._store.topology_version
        if version != self._topology_version and self._declare is not None:
            self._declare()
        self._topology_version = version

    def _run_chore(self, chore: "_Chore") -> bool | None:
        """Its answer; None: an error has ended it."""
        try:
            found = chore.call()
        except StoreError as error:
            self._note_failure(chore, error)
            # Workers could not extend their leases either, so leases that run out now tell nothing.
            if not isinstance(error, PartlyUnavailable | PayloadUnavailable):
                self._expired_leases.be_patient()
            return None
        except Exception as error:
            # Such as a record that another program has written: the other chores go on.
            self._note_failure(chore, error)
            return None
        self.chores_done += 1
        chore.backoff.succeed()
        self._store_backoff.succeed()
        self.away = ""
        return found

    def _is_store_back(self) -> bool:
        """Asks it: a chore that had nothing to ask would end the pauses."""
        # From now on, if it is back, owners have their time: what the first failure gave them is over by then.
        self._expired_leases.be_patient()
        try:
            self._store.time()
        except StoreError as error:
            self.away = str(error)
            if self._store_backoff.fail(time.monotonic()):
                log.error("the store is away: %s", error)
            return False
        return True

    def _is_partly_there(self) -> bool:
        """Whether others of several stores answer: a chore may have needed the one that is away."""
        if not isinstance(self._store, ShardedStore):
            return False
        try:
            self._store.time()
        except StoreError:
            return False
        return True

    def _note_failure(self, chore: "_Chore", error: Exception) -> None:
        now = time.monotonic()
        self.chores_failed += 1
        is_away = _is_away(error) and not self._is_partly_there()
        should_log = chore.backoff.fail(now, is_known=is_away)
        if is_away:
            should_log, self.away = self._store_backoff.fail(now), str(error)
        if should_log:
            log.error("%s: %s", chore.name, error, exc_info=None if isinstance(error, StoreError) else error)

    def _find_still_running(self, gone: str, stuck: Collection[str], epochs: Mapping[str, int]) -> list[str]:
        """The stuck jobs that are still in the attempt for which the owner was killed: not cancelled, not claimed by
        another owner, and not in a later attempt."""
        if not stuck:
            return []
        jobs, _ = partial_result(lambda: self._store.get([bytes.fromhex(id) for id in stuck]))
        return [
            id
            for id, job in zip(stuck, jobs, strict=True)
            if job is not None and (job.state, job.owner, job.epoch) == (State.RUNNING, gone, epochs.get(id, job.epoch))
        ]

    def _find_shared_batches(self, on: Collection[str]) -> set[str]:
        """The batch tasks whose jobs the owner was executing, several in one call."""
        # Only the dead process knew which jobs were in the call, so the crash counts for all jobs of the task that it
        # held. After a crash each job is called alone, so that the next crash is counted for its cause only.
        if not self._batch_tasks or not on:
            return set()
        jobs, _ = partial_result(lambda: self._store.get([bytes.fromhex(id) for id in on]))
        return {job.task for job in jobs if job and job.task in self._batch_tasks and not job.crashes}

    def _recover(
        self,
        find: Callable[[], list[Job]],
        on: Collection[str] | None,
        stuck: Mapping[str, bytes] = MappingProxyType({}),
        shared: Collection[str] = (),
        why: str = "",
    ) -> None:
        for _ in range(100):
            jobs, away = partial_result(find)
            # Those of the shards that answered are recovered first; the error comes once none are left.
            if not jobs and away:
                raise away
            if not jobs:
                return
            blamed = find_blamed(jobs, self._batch_tasks) if on is None else on
            now, unsure = self.clock.now(), self.clock.unsure
            changes = [
                lifecycle.after(
                    job, outcome_of(job, blamed, stuck, shared, why), self._rules(job.task, job.queue), now, unsure
                )
                for job in jobs
            ]
            made, away = partial_result(lambda: apply_each(self._store, changes, now))  # noqa: B023
            if self._death_hooks is not None:
                # Only for changes that the store took: another host may have recovered the job first.
                self._death_hooks.notify(itertools.compress(zip(jobs, changes, strict=True), made))
            log.warning("brought back %s of %s", quantity(sum(made)), ", ".join(sorted({job.owner for job in jobs})))
            if away:
                raise away
            if not any(made):
                # Nothing but what cannot be changed, or what others have changed: the same would be found again.
                return

    def handle_message(self, line: Mapping[str, Any]) -> dict[str, Any] | None:
        """Handles the master's message about a dead worker and returns the answer; None if the store is not available
        or the message is a different one.

        The message: `{"gone": owner, "on": [...], "stuck": [...], "stacks": {id: text}, "epochs": {id: number},
        "ended": [...], "why": text}`.
        """
        if "gone" not in line or self._store_backoff.left(time.monotonic()):
            return None
        try:
            stuck, stacks, epochs = line.get("stuck", ()), line.get("stacks", {}), line.get("epochs", {})
            ended, why = line.get("ended", ()), line.get("why", "")
            self.rescue(line["gone"], line.get("on", ()), stuck, stacks, epochs, ended, why)
        except StoreError as error:
            self._log_delay(error, line["gone"])
            return None
        except Exception as error:
            # The chores bring back what they can once the leases have run out.
            log.error("the jobs of %s: %s", line["gone"], error, exc_info=error)
        self._logged_at.pop(line["gone"], None)
        return {"returned": line["gone"]}

    def _log_delay(self, error: StoreError, gone: str) -> None:
        now = time.monotonic()
        if now >= self._logged_at.get(gone, -math.inf) + LOG_EVERY:
            self._logged_at[gone] = now
            log.error("%s; the jobs of %s come back later", error, gone)


class _Chore:
    """One chore, and when it is due again. every, seldom: seconds, as `register_chore` has them."""

    def __init__(self, call: Callable[[], bool | None], every: float, seldom: float) -> None:
        self.call, self._every, self._seldom = call, every, seldom
        self.name = getattr(call, "__name__", repr(call))
        self.due, self._pause = 0.0, every
        self.backoff = Backoff(log, f"{self.name} works again")

    def is_due(self, now: float) -> bool:
        """Whether it is done now, with others. now: `time.monotonic()`."""
        # What failed waits for as long as its back-off says.
        early = 0.0 if self.backoff.tries else TOGETHER * min(self._every, 1.0)
        return self.due - early <= now

    def put_off(self, found: bool | None, now: float, spread: float) -> None:
        """Sets when it is due again. found: its answer. spread: by how much longer than it says."""
        self._pause = max(self._every, min(2 * self._pause, self._seldom)) if found is False else self._every
        self.due = now + self._pause * spread


def _is_away(error: Exception) -> bool:
    """Whether the store is away; of several, the one that was asked."""
    is_of_part = isinstance(error, PartlyUnavailable | PayloadUnavailable | StoreBusy)
    return isinstance(error, StoreUnavailable) and not is_of_part


def find_blamed(jobs: Collection[Job], batch_tasks: Collection[str]) -> set[str]:
    """Ids of the jobs for which the crash of their owner counts, where nothing shows which were executing.

    A job counts if its owner is known to be dead and held no other. Jobs of a batch task count if the owner held only
    these, since they may have been in one call.
    """
    held: dict[str, list[Job]] = {}
    for job in jobs:
        held.setdefault(job.owner, []).append(job)
    # A server process runs no job: those that it holds for other programs did not kill it.
    held = {name: group for name, group in held.items() if owner.is_dead(name) and not owner.is_door(name)}
    return {job.id.hex() for group in held.values() if _is_one_call(group, batch_tasks) for job in group}


def _is_one_call(jobs: list[Job], batch_tasks: Collection[str]) -> bool:
    task = jobs[0].task
    return len(jobs) == 1 or (task in batch_tasks and all(job.task == task and not job.crashes for job in jobs))


def outcome_of(
    job: Job, on: Collection[str], stuck: Mapping[str, bytes], shared: Collection[str], why: str = ""
) -> Outcome:
    """What became of the attempt at a job whose owner is gone. on: ids of the jobs that count the crash; stuck: the
    notes of those for which the owner was killed; shared: the batch tasks of which it ran several jobs in one call;
    why: how it died."""
    if owner.is_outside(job.owner):
        # Nobody sees such a program die. A lease that ran out must count, or a job that kills it would come for ever.
        # At once: the lease was the time that it had to run, and the rule's delay is for what failed.
        text = "who took it neither finished it nor prolonged its lease in time"
        return TimedOut(outcome_note("LeaseExpired", text), after=0)
    if job.task in shared and not job.crashes:
        return Lost(on=True, why=why)
    note = stuck.get(job.id.hex())
    return Lost(job.id.hex() in on, why) if note is None else TimedOut(note)


def stuck_note(stack: str, is_ended: bool) -> bytes:
    """What is kept with a job that did not end, so that its worker was killed."""
    why = "an operator ended it" if is_ended else "it did not end after its timeout"
    return outcome_note("TimeLimit", f"{why}, so its worker was killed", stack)


BROADCASTS_EVERY = 2.0
"""Seconds."""
GONE_AFTER = 10 * MINUTE
"""For so long a job that has started waits for a host that cannot be seen: it may be cut off from the store."""
# Bounded, so that the other chores get their turn; the next call does the rest.
_AT_ONCE = 1000


class BroadcastChore:
    """For one keeper. Each host does it: a change that another one has made is refused."""

    def __init__(self, store: Store, clock: Clock, rules: RulesFor) -> None:
        self._store, self._clock, self._rules = store, clock, rules

    def expire_jobs(self) -> bool:
        """Cancels the jobs that are past their expiry, and those that have started and whose host or worker is gone.
        False: there are none of broadcasts. StoreError."""
        now = self._clock.now()
        queues = [queue for queue in reachable_part(self._store.queues) if is_own_queue(queue)]
        if changes := list(self._changes(queues, now)):
            self._store.apply(changes, now)
        return bool(queues)

    def _changes(self, queues: Sequence[str], now: int) -> Iterator[Change]:
        names = self._live_names(now) if queues else frozenset()
        for queue in queues:
            query = Query((State.READY,), queue, limit=_AT_ONCE)
            for job in reachable_part(lambda: self._store.find(query)):  # noqa: B023
                rules = self._rules(job.task, job.queue)
                if 0 < job.expires <= now:
                    yield lifecycle.cancel(job, rules, now, "it could not start in time", kind="Expired")
                elif not job.expires and _is_gone(job, names, now):
                    yield lifecycle.cancel(job, rules, now, f"{owner_of(queue)} does not run any more", kind="Gone")

    def _live_names(self, now: int) -> frozenset[str]:
        """The masters and workers that are known to run."""
        hosts = [host for host in list_hosts(self._store, now) if host.is_alive]
        workers = (name for host in hosts for name in (*(each.owner for each in host.workers), *host.more_workers))
        return frozenset((*(host.instance for host in hosts), *workers))


def _is_gone(job: Job, live: frozenset[str], now: int) -> bool:
    """Whether nobody takes a ready job any more that has started before, and was to go on or to be tried again."""
    name = owner_of(job.queue)
    return name not in live and (owner.is_dead(name) or now - job.state_since >= GONE_AFTER)

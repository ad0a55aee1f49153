"""Known mistakes, put back one at a time. Each undoes what a commit mended, or breaks one rule that others rest on."""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from tarry.client import clock
from tarry.client.flows.build import FlowBuilder
from tarry.client.inserter import Inserter
from tarry.errors import StoreError, StoreUnavailable
from tarry.keeper.chores import Keeper
from tarry.keeper.cron import ScheduleTicker
from tarry.keeper.expired_leases import GAP, ExpiredLeases
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.flow.wiring import UNDO_TASK
from tarry.model.limit import Level
from tarry.model.outcome import Released
from tarry.model.schedules.schedule import Schedule
from tarry.store.memory.flows import MemoryFlows
from tarry.store.memory.index import JobIndex
from tarry.store.memory.limits import MemoryLimits
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids, kept_places
from tarry.worker import unseen_claims
from tarry.worker.early_claim import EarlyClaim
from tarry.worker.exchanger import Exchanger
from tarry.worker.held_leases import AttemptLeases, HeldLeases
from tarry.worker.run.runner import OutcomeQueue
from tarry.worker.step_saver import StepSaver
from tests.exhaustive.flow_mistakes import FLOW_MISTAKES
from tests.exhaustive.mistakes import JOB_MISTAKES
from tests.simulation.processes import WorkerProcess
from tests.simulation.run import run

Mistake = Callable[[], AbstractContextManager[Any]]


def _instead(owner: Any, name: str, wrong: Callable[..., Any]) -> Mistake:
    """Puts a wrong function in the place of this one; it gets the right one first."""
    right = getattr(owner, name)

    def replaced(*args: Any, **options: Any) -> Any:
        return wrong(right, *args, **options)

    return lambda: patch.object(owner, name, replaced)


# The client


def _send_again_with_a_new_id(right: Any, self: Inserter, job: Any, options: Any) -> Any:
    return right(self, replace(job, id=ids.uuid7()), options)


def _claim_that_it_is_stored(right: Any, self: Inserter, job: Any, options: Any) -> Any:
    try:
        return right(self, job, options)
    except StoreUnavailable:
        return self._make_handle(job.id, True)


# Clocks


def _ask_from_the_start(right: Any, self: clock.Clock) -> tuple[int, int]:
    before = clock.elapsed()
    theirs = self._store_time()
    return clock.elapsed() - before, theirs - before


# The worker


def _look_once(right: Any, self: unseen_claims.LookTimes, now: float) -> None:
    self._again = math.inf


def _forget_what_ended(right: Any, self: Exchanger, error: StoreError, now: float) -> None:
    right(self, error, now)
    self.unsettled.clear()


def _forget_what_is_held(right: Any, self: Exchanger, owner: str) -> list[Any]:
    return []


def _forget_what_has_ended(right: Any, self: Exchanger, owner: str) -> list[Any]:
    return [(running.job.id, running.job.epoch) for running in self.held.values()]


def _sleep_without_note(right: Any, self: Exchanger, wakeup: Any, limit: int, seconds: float, also: Any) -> None:
    with patch.object(self._unseen, "note_loss", lambda *args: None):
        right(self, wakeup, limit, seconds, also)


def _fail_without_note(right: Any, self: Exchanger, error: StoreError, now: float) -> None:
    with patch.object(self._unseen, "note_loss", lambda *args: None):
        right(self, error, now)


def _take_twice(right: Any, self: EarlyClaim) -> Any:
    answer = self._answer
    found = right(self)
    if answer is not None and answer.jobs and not hasattr(self, "_again"):
        self._answer = answer
        self._again = True  # type: ignore[attr-defined]
    return found


def _end_by_id(right: Any, self: Exchanger, running: Any, outcome: Any) -> bool:
    held = self.held.pop(running.job.id, None)
    if held is not None:
        self.unsettled.append((held, outcome))
    return held is not None


def _release_what_runs(right: Any, self: Exchanger, error: StoreError, now: float) -> None:
    right(self, error, now)
    if self._store_backoff.tries > 2:
        self.unsettled += [(running, Released(True)) for running in self.held.values()]
        self.held.clear()


def _never_fence(right: Any, self: WorkerProcess) -> None: ...


def _never_extend(right: Any, self: Any, now: float) -> tuple[()]:
    return ()


def _ignore_what_is_lost(right: Any, self: Any, now: float) -> tuple[()]:
    right(self, now)
    return ()


def _drop_an_outcome_without_room(right: Any, self: OutcomeQueue, running: Any, outcome: Any, hurry: bool) -> None:
    if hurry or self._is_expected:
        right(self, running, outcome, hurry)


# The keeper


def _reclaim_early(right: Any, self: ExpiredLeases) -> Any:
    return self._store.reclaim(self._clock.now() + 10 * SECOND, None, 1000)


def _trust_one_look(right: Any, self: ExpiredLeases) -> Any:
    return self._find()


def _never_patient(right: Any, self: ExpiredLeases) -> None: ...


def _see_the_first_gap_only(right: Any, self: ExpiredLeases) -> None:
    now = clock.elapsed()
    is_late = now - self._called > GAP
    if is_late and not self._gaps:
        self.be_patient()
    self._called, self._gaps = now, int(is_late)


def _come_back_without_patience(right: Any, self: Keeper) -> Any:
    with patch.object(self._expired_leases, "be_patient", lambda: None):
        return right(self)


# The rules and the store


def _fence(right: Any, self: MemoryStore, change: Any, now: int, **without: Any) -> Any:
    job = self._jobs.get(change.id)
    return right(
        self,
        change if job is None else replace(change, **{name: getattr(job, of) for name, of in without.items()}),
        now,
    )


def _without_fence(**without: str) -> Mistake:
    return _instead(MemoryStore, "_apply", lambda right, self, change, now: _fence(right, self, change, now, **without))


def _insert_again(right: Any, self: MemoryStore, job: Any, new: Any) -> Any:
    known = self._jobs.get(job.id)
    if known is not None:
        self._index.remove(known)
    return right(self, job, new)


def _promote_early(right: Any, self: MemoryStore, now: int) -> None:
    right(self, now + SECOND)


def _count_what_is_refused(right: Any, self: MemoryStore, changes: Any, now: int) -> Any:
    from tarry.store.rules.history.journal import record_of_changes  # noqa: PLC0415

    valid, more = right(self, changes, now)
    self.history.append(record_of_changes([c for c, good in zip(changes, valid, strict=True) if not good]))
    return valid, more


def _keep_no_place(right: Any, job: Any, rules: Any, now: int, *args: Any, **options: Any) -> Any:
    return replace(right(job, rules, now, *args, **options), keeps_places=False)


def _free_kept_again(right: Any, self: MemoryLimits, changes: Any, valid: Any, now: int) -> None:
    given_up = kept_places.given_up(changes, valid)
    found = [(name, value) for name in given_up if (value := self._cells.get(name)) is not None]
    right(self, changes, valid, now)
    self._lower(kept_places.ended_by(given_up, found), now)


def _recount_without_places(right: Any, self: MemoryLimits, running: Any) -> Any:
    from tarry.store.memory.limits import _key  # noqa: PLC0415

    return list(map(_key, running))


def _never_lower(right: Any, self: MemoryLimits, job: Any, change: Any, now: int) -> None: ...


def _start_without_spacing(right: Any, self: Level, limit: Any, count: int, now: int) -> Level:
    return Level(self.running + count, self.next)


def _hold_no_key(right: Any, self: JobIndex, job: Any, now: int) -> None:
    return None


# Durable steps, signals, schedules and flows


def _keep_at_once(right: Any, self: StepSaver, running: Any, done: Any) -> None:
    done(True)
    right(self, running, lambda is_ours: None)


def _keep_without_answer(right: Any, self: StepSaver, rows: Any, taken: Any) -> None:
    try:
        right(self, rows, taken)
    except StoreError:
        while self._waiting:
            self._waiting.popleft()[1](True)


def _store_no_steps(right: Any, self: MemoryStore, owner: str, marks: Any) -> Any:
    return [True for _ in marks]


def _await_without_look(right: Any, self: MemoryFlows, change: Any) -> None:
    with patch.object(self, "_signals", {}):
        right(self, change)


def _wake_no_job(right: Any, self: MemoryFlows, one: Any, now: int) -> bool:
    return False


def _tick_without_key(right: Any, self: Schedule, tick: int) -> str:
    return f"cron:{next(_numbers)}:{tick}"


def _move_on_first(right: Any, self: ScheduleTicker, schedule: Any, ticks: Any, runs: Any) -> None:
    with suppress(StoreError):
        right(self, schedule, ticks, runs)


def _undo_from_1970(right: Any, self: FlowBuilder, *args: Any) -> Any:
    new = right(self, *args)
    nodes = [replace(job, state_since=0) if job.task == UNDO_TASK else job for job in new.nodes]
    return replace(new, nodes=nodes)


_numbers = itertools.count()
_RULES = {mistake.name: mistake.patch for mistake in (*JOB_MISTAKES, *FLOW_MISTAKES)}
NOT_HERE = {
    "a parked job does not say what it was",
    "a job that was moved is not restored",
    "what has started expires at its next attempt",
    "a job can be deleted while it runs",
    "a flow forgets a node that is deleted",
    "the keeper releases nothing",
    "the retry rule allows one more",
    "no number of deaths is too many",
    "an interrupted attempt is not on record",
    "a lease that ran out counts as a failure",
    "a cancelled flow leaves gates open",
    "the fence looks at no epoch",
    "the fence looks at no owner",
}
"""Mistakes in the rules of which nothing can be seen here: of jobs that move, expire or are deleted, of gates with more
than a thousand nodes, of what an attempt is counted as. And those of the fence that stand above already."""


MISTAKES: dict[str, Mistake] = {
    "send_again makes a new id": _instead(Inserter, "_send_again", _send_again_with_a_new_id),
    "acknowledged without an answer": _instead(Inserter, "insert", _claim_that_it_is_stored),
    "clock ahead by a round trip": _instead(clock.Clock, "_ask", _ask_from_the_start),
    "lost claims looked for once": _instead(unseen_claims.LookTimes, "record_look", _look_once),
    "lost claims not looked for": _instead(Exchanger, "_note_failure", _fail_without_note),
    "lost early claims not looked for": _instead(Exchanger, "sleep", _sleep_without_note),
    "held jobs given back as unseen": _instead(Exchanger, "_known_attempts", _forget_what_is_held),
    "ended jobs given back as unseen": _instead(Exchanger, "_known_attempts", _forget_what_has_ended),
    "outcomes forgotten when a call fails": _instead(Exchanger, "_note_failure", _forget_what_ended),
    "an early claim taken twice": _instead(EarlyClaim, "take", _take_twice),
    "outcome settled by id alone": _instead(Exchanger, "end", _end_by_id),
    "running jobs given back in an outage": _instead(Exchanger, "_note_failure", _release_what_runs),
    "leases not extended": _instead(AttemptLeases, "extend", _never_extend),
    "lost leases not noticed": _instead(HeldLeases, "extend", _ignore_what_is_lost),
    "outcomes dropped while busy": _instead(OutcomeQueue, "add", _drop_an_outcome_without_room),
    "no fence": _instead(WorkerProcess, "_look_at_fence", _never_fence),
    "leases end 10 s early": _instead(ExpiredLeases, "_find", _reclaim_early),
    "expired leases looked at once": _instead(ExpiredLeases, "find_jobs", _trust_one_look),
    "no patience after a gap": _instead(ExpiredLeases, "be_patient", _never_patient),
    "of two gaps in a row the first counts": _instead(ExpiredLeases, "_notice_a_gap", _see_the_first_gap_only),
    "no patience once the store is back": _instead(Keeper, "_is_store_back", _come_back_without_patience),
    "changes not fenced by epoch": _without_fence(epoch="epoch"),
    "changes not fenced by owner": _without_fence(owner="owner"),
    "changes not fenced at all": _without_fence(epoch="epoch", owner="owner", was="state"),
    "an insert made twice": _instead(MemoryStore, "_insert", _insert_again),
    "due a second early": _instead(MemoryStore, "_promote", _promote_early),
    "refused changes counted": _instead(MemoryStore, "_apply_all", _count_what_is_refused),
    "a cancel frees the place at once": _instead(lifecycle, "cancel", _keep_no_place),
    "a late outcome frees a place twice": _instead(MemoryLimits, "free_kept", _free_kept_again),
    "recount without kept places": _instead(MemoryLimits, "_counted_keys", _recount_without_places),
    "levels never lowered": _instead(MemoryLimits, "end", _never_lower),
    "rates without spacing": _instead(Level, "started", _start_without_spacing),
    "two holders of a key": _instead(JobIndex, "find_holder", _hold_no_key),
    "steps are kept before they are stored": _instead(StepSaver, "add", _keep_at_once),
    "steps are kept though the store did not answer": _instead(StepSaver, "_save", _keep_without_answer),
    "steps are stored nowhere": _instead(MemoryStore, "save_progress", _store_no_steps),
    "a signal that came first is missed": _instead(MemoryFlows, "_await", _await_without_look),
    "a signal wakes nobody": _instead(MemoryFlows, "_wake_job", _wake_no_job),
    "each host makes a job of a tick": _instead(Schedule, "key", _tick_without_key),
    "ticks are over before they are jobs": _instead(ScheduleTicker, "_enqueue_all", _move_on_first),
    "who undoes a flow is from 1970": _instead(FlowBuilder, "finish", _undo_from_1970),
} | {name: mistake for name, mistake in _RULES.items() if name not in NOT_HERE}


def seeds_to_find(mistake: Mistake, seeds: Iterator[int]) -> tuple[int, str]:
    """How many of these seeds it takes to find the mistake, and what is found; an empty text: none finds it."""
    tried = 0
    for seed in seeds:
        tried += 1
        with mistake():
            outcome = run(seed)
        if outcome.failure:
            return tried, outcome.failure
    return tried, ""

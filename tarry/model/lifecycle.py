"""The whole life of a job. No other file decides what a job becomes next.

Each function here takes a job as it was seen and returns the Change to make; a store makes the change only if the job
is still the same. Stores make two transitions themselves, because these must be atomic with the claim: a scheduled job
whose time has come becomes ready; a claimed job becomes running, and its epoch grows by one. A claimed job also loses
a key that it holds only while it waits (`held_when_claimed`).

What a change counts as in the history (`Change.counts`) is decided here, too; `model/history/counting.py` has the rest.

A job that holds its key only until a time loses it then (`holds_key`). Nothing happens at that time: a store takes the
key from it when another job wants it, by an insert or by a change that starts a job anew.

Rules that stores repeat in SQL or Lua, since they apply within a transaction; the conformance suite checks them:

- a holder whose time is over loses its key: `holds_key`; repeated by all but the memory store (suite: `keeping`)
- the lane in which a job waits: `limit.waiting_lane`; repeated by SQLite when a job comes back from its end, and by
  PostgreSQL and Redis (suite: `relimiting`)
- which gates a change opens, and when a flow ends: `rules/flow_settle.py`; and what a blocked job becomes when it is
  released: `flow.rules.release`; both repeated by PostgreSQL and Redis (suite: `flows`)
- which change wakes whom: `model/wake.py`; repeated by Redis (`wake_reasons` in `lua/exchange.lua`; suite: `waking`)
"""

from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.model import attempts, flow_rules, moving, refusals
from tarry.model import change as counted_as
from tarry.model.change import Change, with_bounded_note
from tarry.model.checks.unreadable import is_sealed, read_note
from tarry.model.duration import DAY, HOUR, LONGEST, SECOND
from tarry.model.flow.node_ids import is_node
from tarry.model.flow.wiring import split
from tarry.model.job import HELD, LEADING, WAITING, Job, State
from tarry.model.outcome import (
    Cancelled,
    Expired,
    HeldBack,
    Lost,
    Outcome,
    Quarantined,
    Raised,
    Released,
    Returned,
    Snoozed,
    Suspended,
    TimedOut,
    Unknown,
    Unread,
    Unsuccessful,
    has_started,
    outcome_note,
    record_note,
)
from tarry.model.overrides import latest_of, retry_of
from tarry.model.retry import NEVER, Retry, bounded_count, one_more
from tarry.model.slept import SOON, after_pause, age, pause_after

# More than two: an innocent job may run beside one that kills its worker twice. After two deaths they are tried apart.
MAX_CRASHES = 3
"""A job that was running at this many crashes of workers counts as their cause: poison."""

OUT_OF_TURN = "OutOfTurn"
"""The type in the note of a job that was held back, since one of the same key comes first."""
UNKNOWN_TASK = "UnknownTask"
"""The type in the note of a job whose task the worker that claimed it does not know."""
UNREAD = "PayloadUnavailable"
"""The type in the note of a job whose arguments could not be read at the place of `[payloads]`."""
NO_KEY = "NoKey"
"""The type in the note of a job that the worker that claimed it cannot open."""

_SECOND_CRASH_DELAY = 5 * SECOND
_HELD_BACK = SECOND // 5
_QUARANTINE = 1 * SECOND  # for the other job that is near poison to end, on this worker or another
_UNKNOWN_DELAY, _UNKNOWN_DELAY_MAX = 1 * SECOND, 60 * SECOND  # once a worker knows the task, the job is found soon


class Rules(Struct, frozen=True):
    """What a task and its queue say about the life of their jobs. Durations in microseconds."""

    retry: Retry = NEVER
    keep_done: int = HOUR
    """How long a done or cancelled job is kept for people and `result()`; 0: forgotten at once."""
    keep_dead: int = 30 * DAY
    """How long a dead job is kept for people to look at and retry; 0: forgotten at once."""


DEFAULT = Rules()
NotPossible = refusals.NotPossible

# Looked up once: access to an enum's members is slow, and every job needs these two.
RUNNING, DONE = State.RUNNING, State.DONE
_COUNTED_AS = {DONE: counted_as.DONE, State.DEAD: counted_as.DEAD, State.CANCELLED: counted_as.CANCELLED}
"""As what an end counts in the history, except that of an expired job."""


def initial_state(due: int, now: int) -> State:
    """The state of a new job, or of one that comes back, if it is to run at `due`."""
    return State.SCHEDULED if due > now else State.READY


def is_late(due: int, since: int) -> bool:
    """Whether a ready job became ready after it was due: it was scheduled, was given back, or is tried again. A job
    that was ready from the start is on time."""
    return since > due


def holds_key(job: Job, now: int) -> bool:
    """Whether no other job of its task may have its key."""
    return job.key is not None and job.key_held_until > now


def held_when_claimed(key_ttl: int, key_held_until: int) -> int:
    """Until when a job holds its key once a worker has claimed it."""
    return 0 if key_ttl == WAITING else key_held_until


def after(job: Job, outcome: Outcome, rules: Rules, now: int, unsure: int = 0) -> Change:
    """What a running job becomes after an attempt with this outcome. NotPossible if the job does not run.

    No other error leaves it: a job whose record or body cannot be used is dead, and its note says so. unsure: by how
    many microseconds `now` may be too early. A delay gets longer by that much, so that it is never too short.
    """
    refusals.refuse_unless_running(job)
    try:
        return _after(job, outcome, rules, now, unsure)
    except Exception as error:
        # Whoever can put a job chooses what is decoded here: an error that left would end one worker after the other.
        return unusable(job, rules, now, error)


def unusable(job: Job, rules: Rules, now: int, error: BaseException) -> Change:
    """The end of a running job whose record cannot be used. It depends on as little of that record as possible."""
    counts = {"failures": bounded_count(job.failures), "crashes": bounded_count(job.crashes)}
    plain = replace(job, key=None, key_ttl=0, body=b"", attempts=b"", **counts)
    change = _finish(plain, State.DEAD, rules, now, record_note(error), one_more(plain.failures))
    return replace(change, key_held_until=None if job.key is None else 0, job=plain, attempts=b"")


def _after(job: Job, outcome: Outcome, rules: Rules, now: int, unsure: int) -> Change:
    # Nearly all jobs end like this, so they skip the match below.
    if isinstance(outcome, Returned):
        done = _finish(job, DONE, rules, now, outcome.value, status=outcome.status)
        # The ordinary way adds nothing to the record of attempts; nearly all jobs go it.
        return _with_record(job, done, attempts.DONE, now) if job.attempts else done
    if isinstance(outcome, Suspended):
        return _suspend(job, outcome, now)
    if isinstance(outcome, HeldBack):
        # No record either: it is claimed again every moment, until the attempt before it has ended.
        due = max(now + _HELD_BACK, outcome.until) + unsure
        return _change(job, State.SCHEDULED, now, due=due, note=_held_back_note(job, outcome.behind, due))
    change = with_bounded_note(_after_all_but_success(job, outcome, rules, now))
    # What has started in time must not expire while it waits to go on, or for its next attempt.
    if job.expires and change.to in (State.READY, State.SCHEDULED) and has_started(outcome):
        change = replace(change, expires=0)
    change = _with_record(job, change, attempts.outcome_name(outcome), now, attempts.error_of(outcome, change.note))
    # Only a delay can end too early: a job that is ready already has nothing to wait for.
    if unsure and change.to is State.SCHEDULED and change.due is not None:
        return replace(change, due=change.due + unsure)
    return change


def _suspend(job: Job, outcome: Suspended, now: int) -> Change:
    """No record of an attempt: it is not over, and the task goes on where it was."""
    until, awaits = outcome.until, outcome.awaits
    if pause_after(outcome.idle):
        until, awaits = after_pause(now if awaits else until, now, outcome.idle), None
    return _change(job, initial_state(until, now), now, due=until, note=job.note, expires=0, awaits=awaits)


def _after_all_but_success(job: Job, outcome: Unsuccessful, rules: Rules, now: int) -> Change:
    match outcome:
        case Raised(text, kinds, final, delay, status):
            change = _fail(job, kinds, final, delay, text, rules, now)
            return replace(change, status=status) if status else change
        case TimedOut(text, kinds, delay):
            return _fail(job, kinds, False, delay, text, rules, now)
        case Lost(on, why):
            return _lost(job, rules, now, why) if on else _again(job, now, min(job.due, now), job.note)
        case Released(has_started):
            # It was due when it was claimed. If its due time is later than now, the clock was set back since.
            return _again(job, now, min(job.due, now), job.note, may_pause=has_started)
        case Snoozed(delay):
            return _again(job, now, now + delay, job.note)
        case Cancelled(reason):
            return _finish(job, State.CANCELLED, rules, now, outcome_note("Cancelled", reason))
        case Expired():
            text = outcome_note("Expired", "it could not start in time")
            return replace(_finish(job, State.CANCELLED, rules, now, text), counts=counted_as.EXPIRED)
        case Unknown() | Unread():
            return _not_here(job, now, outcome)
        case Quarantined():
            return _again(job, now, now + _QUARANTINE, job.note)


def is_near_poison(job: Job) -> bool:
    """Whether one more death while the job is on makes it poison."""
    # No worker runs two such jobs at once: jobs that were on side by side twice come back side by side, and the
    # innocent ones would die with the guilty one.
    return job.crashes >= MAX_CRASHES - 1


def _held_back_note(job: Job, behind: bytes, due: int) -> bytes:
    # What an attempt has left tells more.
    if not behind or (job.note and not _due_when_held_back(job.note)):
        return job.note
    text = f"job {behind.hex()} of the same key comes first"
    return msgspec.json.encode({"type": OUT_OF_TURN, "message": text, "traceback": "", "due": due})


def _due_when_held_back(note: bytes) -> object:
    """The due time in the note of a job that was held back for another one of its key; 0: it is no such note."""
    # A search for bytes is much faster than decoding.
    if OUT_OF_TURN.encode() not in note:
        return 0
    found = read_note(note)
    return found.get("due", 0) if found.get("type") == OUT_OF_TURN else 0


def is_held_back(job: Job) -> bool:
    """Whether it waits for nothing but that jobs of its key, enqueued before it, end."""
    # With another due time somebody has put it off since, or it has asked for that itself.
    return job.state is State.SCHEDULED and job.due > 0 and _due_when_held_back(job.note) == job.due


def bring_forward(job: Job, now: int) -> Change:
    """Makes a job ready whose turn has come (`is_held_back`). It goes before the later ones of its key."""
    return _change(job, State.READY, now, due=min(job.created, now), note=job.note)


def run_now(job: Job, now: int) -> Change:
    """For a person who wants the job to run now. A waiting job becomes ready; a finished one starts anew, with all its
    attempts. A job that is ready already keeps its place in line.
    """
    refusals.refuse_by_flow(job)
    refusals.refuse_in(job, State.RUNNING, "it is running")
    fresh = job.state.finished
    failures, crashes = (0, 0) if fresh else (job.failures, job.crashes)
    due = now if fresh else min(job.due, now)
    # Its expiry may have passed, but a person asks for it now, so it must not expire again.
    expires = 0 if fresh or 0 < job.expires <= now else None
    change = _change(
        job, State.READY, now, due=due, failures=failures, crashes=crashes, note=job.note, expires=expires,
        key_held_until=HELD if fresh and job.key is not None else None,
    )  # fmt: skip
    return flow_rules.return_of_node(job, change) if fresh and is_node(job.id) else change


def cancel(job: Job, rules: Rules, now: int, reason: str = "", kind: str = "Cancelled") -> Change:
    """The job is no longer wanted. In the store a running job ends at once; its worker then learns of it and stops.
    Until then the attempt keeps its places under limits."""
    refusals.refuse_by_flow(job)
    for state in (State.DONE, State.DEAD, State.CANCELLED):
        refusals.refuse_in(job, state, f"it is {state} already")
    note = outcome_note(kind, reason)
    change = replace(_finish(job, State.CANCELLED, rules, now, note), keeps_places=job.state is RUNNING)
    return _with_record(job, change, attempts.CANCELLED, now, note) if job.state is RUNNING else change


def make_way(job: Job, rules: Rules, now: int, reason: str = "") -> Change:
    """For an unfinished job whose key a newer job takes: it is cancelled, and holds its key no longer, also if that was
    to be for a time after its end. NotPossible for a job of a flow."""
    if is_node(job.id):
        raise NotPossible("its flow waits for it")
    return replace(cancel(job, rules, now, reason), key_held_until=0)


def annotate(job: Job, text: bytes) -> Change:
    """Adds the worker's note to a cancelled job."""
    if job.state is not State.CANCELLED:
        raise NotPossible(f"it is {job.state}, not {State.CANCELLED}")
    return Change(
        job.id, job.state, job.epoch, job.state, job.state_since, None, job.failures, job.crashes, job.keep_until, text
    )


def move(
    job: Job, now: int, *, due: int | None = None, queue: str | None = None, priority: int | None = None
) -> Change:
    """Gives a waiting job another time, queue or priority. What is None stays, whatever it has become since."""
    refusals.refuse_unless_waiting(job)
    to = job.state if due is None else initial_state(due, now)
    return _change(job, to, now, due=due, note=job.note, queue=queue, priority=priority)


def edit(job: Job, arguments: bytes, now: int, *, run: bool = False) -> Change:
    """Gives a job that waits, is dead or was cancelled other arguments; run: and makes it ready, as `run_now`. Valid
    only if nobody has edited or moved it since."""
    refusals.refuse_by_flow(job)
    refusals.refuse_in(job, State.RUNNING, "it is running: cancel it and clone it, or edit it once it has failed")
    refusals.refuse_in(job, State.DONE, "it is done: clone it with other arguments")
    if moving.is_parked(job):
        raise NotPossible("it is on its way to another store: try again in a minute")
    refuse_without_arguments(job)
    edited = replace(job, body=split(job.id, job.body)[0] + arguments)
    if run:
        change = run_now(edited, now)
    else:
        change = _change(job, job.state, job.state_since, due=job.due, note=job.note)
        # With the job, so that what the note says of an error is told as that.
        change = replace(change, keep_until=job.keep_until, job=job)
    # State and epoch may be the same before and after: the time tells which edit was made already.
    due = job.due + 1 if change.due == job.due else change.due
    body = edited.body if change.body is None else change.body
    return replace(change, body=body, due=due, seen_times=(job.due, job.expires))


def refuse_without_arguments(job: Job) -> None:
    """NotPossible if arguments of the job are results of others, and so are not its own, or cannot be read here."""
    if is_sealed(split(job.id, job.body)[1]):
        raise NotPossible("its arguments are sealed, and this process has no key that opens them: see [encryption]")
    if flow_rules.takes_results(job):
        raise NotPossible("some of its arguments are results of other jobs of its flow")


def replace_call(job: Job, by: Job, now: int) -> Change:
    """Gives a waiting job the call of a later enqueue with the same key."""
    refusals.refuse_unless_waiting(job)
    by = _no_later(job, by)
    return _change(
        job, initial_state(by.due, now), now, due=by.due, note=job.note, queue=by.queue, priority=by.priority,
        expires=by.expires, body=by.body,
    )  # fmt: skip


def postpone(job: Job, by: Job, now: int) -> Change:
    """Makes a waiting job due when a later enqueue with the same key is, if that is later. Its call stays the same."""
    refusals.refuse_unless_waiting(job)
    by = _no_later(job, by)
    # A postponement only delays. If others have changed these times since, it is computed anew from theirs.
    was = moving.before_parking(job)
    seen, due = (job.due, job.expires), max(was.due, by.due)
    expires = by.expires if 0 < job.expires < by.expires else None  # one that never expires must not begin to
    return _change(job, initial_state(due, now), now, due=due, note=was.note, expires=expires, seen_times=seen)


def last_of_burst(job: Job, now: int) -> Job:
    """The job of a call with `leading=True` that is not the first of its burst: its delay begins, and it holds the key
    itself, while it waits."""
    assert job.key is not None
    due = job.due + job.key_ttl
    return replace(
        job, due=due, state=initial_state(due, now), expires=job.expires and job.expires + job.key_ttl,
        key=job.key.removeprefix(LEADING), key_ttl=WAITING,
    )  # fmt: skip


def prolong_burst(job: Job, until: int) -> Change | None:
    """Makes the first job of a burst, which has ended, hold its name until then; None: it does, or need not."""
    if not (job.state.finished and 0 < job.key_held_until < until):
        return None
    # The record holds the name, so it is kept for at least as long.
    return Change(
        job.id, job.state, job.epoch, job.state, job.state_since, None, job.failures, job.crashes,
        max(job.keep_until, until), job.note, key_held_until=until,
    )  # fmt: skip


def _no_later(job: Job, by: Job) -> Job:
    """A later enqueue with the same key, due no later than the first one allows (`max_delay=`)."""
    latest = latest_of(job.headers)
    late = 0 if latest is None else by.due - latest
    return by if late <= 0 else replace(by, due=by.due - late, expires=by.expires and by.expires - late)


def give_back(job: Job, now: int, *, delay: int = 0, priority: int | None = None) -> Change:
    """For a taker that gives back the job that it runs: no attempt is counted. delay: microseconds until it is ready.
    priority: another priority; None: unchanged."""
    refusals.refuse_unless_running(job)
    due = now + delay if delay > 0 else min(job.due, now)
    change = _change(job, initial_state(due, now), now, due=due, note=job.note, priority=priority, expires=0)
    return _with_record(job, change, attempts.GIVEN_BACK, now)


def bury(job: Job, rules: Rules, now: int, *, priority: int | None = None) -> Change:
    """For a taker that puts the job that it runs aside, until somebody wants it run: it is dead, though no attempt is
    counted, and kept also where dead jobs are not. priority: another priority; None: unchanged."""
    refusals.refuse_unless_running(job)
    # A taker buries a job in order to find it again.
    kept = replace(rules, keep_dead=rules.keep_dead or DEFAULT.keep_dead)
    change = _finish(job, State.DEAD, kept, now, outcome_note("Buried", "its taker put it aside"))
    return replace(_with_record(job, change, attempts.BURIED, now), priority=priority)


def discard(job: Job, rules: Rules, now: int) -> Change:
    """For a taker that deletes a job. The job that it runs is done, and is kept as done jobs are; another is deleted
    for good."""
    if job.state is not RUNNING:
        return forget(job)
    return after(job, Returned(), rules, now)


def by_hand(job: Job, change: Change, act: attempts.JobAct) -> Change:
    """A change that a person or program makes to the job, with the record of who it was."""
    if change.to is None:
        return change
    return replace(
        change, attempts=attempts.with_act(job.attempts if change.attempts is None else change.attempts, act)
    )


def forget(job: Job) -> Change:
    """Deletes the record for good. A running job must be cancelled first."""
    refusals.refuse_by_flow(job)
    refusals.refuse_in(job, State.RUNNING, "it is running: cancel it first")
    # No owner: the job does not run.
    change = Change(job.id, job.state, job.epoch, None)
    return flow_rules.deletion_of_node(job, change) if is_node(job.id) else change


def _change(
    job: Job,
    to: State,
    now: int,
    *,
    due: int | None,
    note: bytes,
    failures: int | None = None,
    crashes: int | None = None,
    counts: int = counted_as.UNCOUNTED,
    **other: Any,
) -> Change:
    """Failures and crashes stay as they are unless given; `other` are the fields of Change that change."""
    failures = job.failures if failures is None else failures
    crashes = job.crashes if crashes is None else crashes
    seen = job if counts else None
    return Change(
        job.id, job.state, job.epoch, to, now, due, failures, crashes, 0, note, owner=job.owner, counts=counts,
        job=seen, **other,
    )  # fmt: skip


def _with_record(job: Job, change: Change, outcome: str, now: int, note: bytes = b"") -> Change:
    """The change with the record of the attempt that it ends. note: how it ended, if that is an error."""
    if change.to is None:
        return change
    return replace(change, attempts=attempts.with_attempt(job, outcome, now, note))


def _again(job: Job, now: int, due: int, text: bytes, may_pause: bool = True) -> Change:
    due = after_pause(due, now, attempts.fruitless(job, SOON)) if may_pause else due
    return _change(job, initial_state(due, now), now, due=due, note=text)


def _finish(
    job: Job,
    to: State,
    rules: Rules,
    now: int,
    text: bytes,
    failures: int | None = None,
    crashes: int | None = None,
    status: int = 0,
) -> Change:
    keep = rules.keep_dead if to is State.DEAD else rules.keep_done
    key_held_until = None
    if job.key is not None:
        # The record holds the key, so it is kept for at least as long as the key.
        key_ttl = min(job.key_ttl, LONGEST)
        keep = max(keep, key_ttl)
        # One that has lost its key, as to another job, does not take it back: a store would refuse the end.
        key_held_until = now + key_ttl if key_ttl > 0 and holds_key(job, now) else 0
    failures = job.failures if failures is None else failures
    crashes = job.crashes if crashes is None else crashes
    # Kept for no time at all: delete it now, and not with the next prune.
    target = to if keep else None
    change = Change(
        job.id, job.state, job.epoch, target, now, None, failures, crashes, now + keep, text, None, None, None,
        key_held_until, None, job.owner, None, False, None, 0, _COUNTED_AS[to], job, status,
    )  # fmt: skip
    return flow_rules.end_of_node(job, to, change) if is_node(job.id) else change


def _fail(
    job: Job, kinds: tuple[str, ...], final: bool, asked: int | None, text: bytes, rules: Rules, now: int
) -> Change:
    failures = one_more(job.failures)
    delay = None if final else retry_of(job.headers, rules.retry).delay(failures, kinds, job.id, age(job, now), asked)
    if delay is None:
        return _finish(job, State.DEAD, rules, now, text, failures)
    return _failure(job, now, now + delay, text, failures=failures)


def _failure(job: Job, now: int, due: int, text: bytes, **numbers: int) -> Change:
    """An attempt failed, and the job comes again."""
    return _change(job, initial_state(due, now), now, due=due, note=text, counts=counted_as.FAILED, **numbers)


def _lost(job: Job, rules: Rules, now: int, why: str) -> Change:
    """For a job that was running when its worker died. why: how it died; empty: nobody knows."""
    # The job may be the cause of the crash, so the number of crashes decides, and not the task's retry rules.
    failures, crashes = one_more(job.failures), one_more(job.crashes)
    died = "died while this job was on" + (f": {why}" if why else "")
    if crashes >= MAX_CRASHES:
        text = outcome_note("Poison", f"{crashes} workers {died}; it is not tried again by itself")
        return _finish(job, State.DEAD, rules, now, text, failures, crashes)
    text = outcome_note("WorkerDied", f"worker {job.owner} {died}")
    # After the second crash the job is suspect: without a pause it would kill one worker right after the other.
    due = now if crashes == 1 else now + _SECOND_CRASH_DELAY
    return _failure(job, now, due, text, failures=failures, crashes=crashes)


def _not_here(job: Job, now: int, outcome: Unknown | Unread) -> Change:
    """For a task that this worker does not know, or a job that it cannot open or read: waits briefly at first, then
    longer, up to a minute. A rolling deployment is normal: another worker, or the next release, knows it."""
    delay = min(_UNKNOWN_DELAY << min(max(job.epoch - 1, 0), 20), _UNKNOWN_DELAY_MAX)
    return _change(job, State.SCHEDULED, now, due=now + delay, note=_why_not_here(job, outcome))


def _why_not_here(job: Job, outcome: Unknown | Unread) -> bytes:
    if isinstance(outcome, Unread):
        return outcome_note(UNREAD, outcome.why)
    if outcome.key:
        return outcome_note(NO_KEY, f"no worker that claimed it has the key {outcome.key}, with which it is sealed")
    return outcome_note(UNKNOWN_TASK, f"no worker that claimed it knows the task {job.task}")

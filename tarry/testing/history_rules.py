"""The rules that a history is checked by: those about one job first, then those about several."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import TypeAlias

from msgspec import Struct

from tarry.testing.history_events import (
    FINAL_OUTCOMES,
    FINISHED_STATES,
    Ended,
    HistoryEvent,
    Put,
    Rescheduled,
    StepRan,
    StepRecorded,
    Withdrawn,
)
from tarry.testing.job_history import AttemptSpan, HistoryIndex, JobHistory

_RAN = frozenset({"done", "failed", "suspended"})
"""Outcomes that only an attempt can have that began."""


class Violation(Struct, frozen=True):
    """Two events that contradict each other. second: None where something is missing."""

    rule: str
    job: str
    text: str
    """What is wrong, in words."""
    first: HistoryEvent
    second: HistoryEvent | None = None

    def __str__(self) -> str:
        against = "" if self.second is None else f" <> {self.second}"
        return f"{self.rule}: {self.job}: {self.text}: {self.first}{against}"


JobRule: TypeAlias = Callable[[JobHistory, HistoryIndex, int], Iterator[Violation]]


def lost(job: JobHistory, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """What was acknowledged is in the store at the end, or ended so long ago that it may have been deleted."""
    read = history.read
    if read is None or job.put is None or job.final is not None:
        return
    last = max((end.at for end in job.final_ends()), default=None)
    if last is None:
        # It may never have begun: cancelled by hand, it is deleted as others are.
        last = max((one.at for one in job.of(Withdrawn)), default=None)
    if last is None:
        yield Violation(
            "lost", job.id, "it was acknowledged and is not in the store, and no end of it is known", job.put, read
        )
    elif read.kept is None or last > read.at - read.kept + tolerance:
        yield Violation("lost", job.id, "it is not in the store, though it was to be kept", job.put, read)


def stays_unfinished(job: JobHistory, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """Once all is over, each job has ended."""
    read, final = history.read, job.final
    if read is not None and read.drained and final is not None and final.state not in FINISHED_STATES:
        yield Violation("unfinished", job.id, f"it is {final.state} at the end", final, read)


def writer(job: JobHistory, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """One attempt an epoch."""
    by_epoch = sorted((one.start for one in job.attempts), key=lambda start: (start.epoch, start.at))
    for before, after in pairwise(by_epoch):
        if before.epoch == after.epoch:
            yield Violation("writer", job.id, f"two attempts began in epoch {after.epoch}", before, after)


def epoch(job: JobHistory, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """The epoch rises from attempt to attempt."""
    valid = [one for one in job.attempts if one.is_valid]
    for before, after in pairwise(valid):
        if after.start.epoch < before.start.epoch and after.start.at > before.start.at + tolerance:
            yield Violation("epoch", job.id, "a later attempt has a smaller epoch", before.start, after.start)


def end(job: JobHistory, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """An end belongs to a start: it has its epoch and its owner, and comes after it."""
    starts = {one.start.epoch: one.start for one in job.attempts}
    # By both, too: of two attempts in one epoch another rule tells.
    own = {(one.start.epoch, one.start.owner): one.start for one in reversed(job.attempts)}
    for one in job.ends if job.is_logged else ():
        start = own.get((one.epoch, one.owner))
        if start is not None and one.at < start.at - tolerance:
            yield Violation("end", job.id, "it ended before it began", one, start)
        elif start is None and one.epoch in starts:
            yield Violation("end", job.id, "another owner ended it", one, starts[one.epoch])
        elif start is None and one.outcome in _RAN:
            yield Violation("end", job.id, "no attempt of that epoch began", one, job.put)


def twice(job: JobHistory, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """An attempt ends once, and a job ends once unless somebody has it run again."""
    seen: dict[tuple[int, str, bool], Ended] = {}
    last: Ended | None = None
    for one in job.ends:
        place = (one.epoch, one.owner, one.settled)
        if place in seen:
            yield Violation("twice", job.id, "the attempt ended twice", seen[place], one)
        elif one.settled and one.outcome in FINAL_OUTCOMES:
            if last is not None and not job.is_revived(last.at - tolerance):
                yield Violation("twice", job.id, "the job ended twice", last, one)
            last = one
        seen.setdefault(place, one)


def fence(job: JobHistory, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """The end of an attempt is not accepted once the store has given the job to another one."""
    newest: AttemptSpan | None = None
    attempts = iter(sorted(job.attempts, key=lambda one: one.claimed))
    following = next(attempts, None)
    for one in job.ends:
        while following is not None and following.claimed + tolerance < one.at:
            newest = following if newest is None or following.start.epoch > newest.start.epoch else newest
            following = next(attempts, None)
        if one.settled and newest is not None and newest.start.epoch > one.epoch:
            yield Violation("fence", job.id, "an end was accepted after a later attempt began", one, newest.start)


def after_end(job: JobHistory, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """A job that has ended, or was cancelled, does not begin again, unless somebody has it run again."""
    ends: list[Ended | Withdrawn] = [one for one in job.final_ends() if one.settled]
    both = sorted([*ends, *job.of(Withdrawn)], key=lambda one: one.at)
    for attempt in job.attempts:
        # Without the time of the claim nobody knows whether a late start was claimed before the cancel.
        over = both if attempt.start.claimed else ends
        place = bisect_left(over, attempt.claimed - tolerance, key=lambda one: one.at)
        if place and not job.is_revived(over[place - 1].at - tolerance, attempt.start.at):
            yield Violation("after_end", job.id, "it began again after its end", attempt.start, over[place - 1])


def state(job: JobHistory, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """What the store says at the end is what the last attempt and the last end say."""
    final = job.final
    if final is None:
        return
    highest = max((one.start for one in job.attempts), key=lambda start: start.epoch, default=None)
    if highest is not None and final.epoch < highest.epoch:
        yield Violation("state", job.id, "the store has an older epoch than an attempt had", final, highest)
        return
    last = [one for one in job.ends if one.epoch == final.epoch]
    settled = next((one for one in last if one.settled and one.outcome in FINAL_OUTCOMES), None)
    if final.state == "done" and job.is_logged and not any(one.outcome == "done" for one in last):
        yield Violation(
            "state", job.id, f"it is done, and nothing in epoch {final.epoch} ended well", final, highest or job.put
        )
    elif settled is not None and final.state != _STATES[settled.outcome] and not job.is_revived(settled.at - tolerance):
        yield Violation("state", job.id, f"it is {final.state}, and ended otherwise", final, settled)


_STATES = {"done": "done", "dead": "dead", "cancelled": "cancelled", "expired": "cancelled"}


def early(job: JobHistory, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """No attempt begins before the job is due."""
    # A put is acknowledged after the job can be claimed. A further put of the same job gives it no other time.
    known: Put | Rescheduled | Ended | None = job.put
    moved: list[Rescheduled | Ended] = [*job.of(Rescheduled), *(one for one in job.ends if one.due)]
    changes = iter(sorted(moved, key=lambda one: one.at))
    following = next(changes, None)
    for attempt in sorted(job.attempts, key=lambda one: one.claimed):
        while following is not None and following.at + tolerance < attempt.claimed:
            known, following = following, next(changes, None)
        if known is None or job.is_revived(known.at - tolerance, attempt.claimed + tolerance):
            continue
        # The time of the claim is that of a clock which may be behind the store's.
        before_due = known.due - attempt.start.at
        if before_due > tolerance:
            yield Violation("early", job.id, f"it began {before_due} microseconds early", attempt.start, known)


def overlap(job: JobHistory, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """No two attempts of a job run at once, as long as their leases are valid."""
    longest: AttemptSpan | None = None
    for attempt in job.attempts:
        if not attempt.is_valid:
            continue
        if longest is not None and attempt.start.at + tolerance < longest.owned_until:
            text = (
                "it began while an attempt before it ran"
                if longest.end
                else "it began, and no end of the one before is known"
            )
            yield Violation("overlap", job.id, text, longest.start, attempt.start)
        if longest is None or attempt.owned_until > longest.owned_until:
            longest = attempt


def step(job: JobHistory, history: HistoryIndex, tolerance: int) -> Iterator[Violation]:
    """A step whose result is stored does not run again."""
    stored: dict[str, StepRecorded] = {}
    for recorded in job.of(StepRecorded):
        stored.setdefault(recorded.name, recorded)
    for ran in job.of(StepRan):
        recorded_step = stored.get(ran.name)
        if recorded_step is not None and ran.at > recorded_step.at + tolerance:
            yield Violation("step", job.id, f"step {ran.name!r} ran after it was stored", ran, recorded_step)


JOB_RULES: tuple[JobRule, ...] = (
    lost, stays_unfinished, writer, epoch, end, twice, fence, after_end, state, early, overlap, step,
)  # fmt: skip

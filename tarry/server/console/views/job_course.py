"""What has happened to one job: its states with since when, and each attempt with who made it and how it ended."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from msgspec import Struct

from tarry.client.job_records import JobAttempt
from tarry.model.checks.decoders import convert_to
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND
from tarry.model.job import FINISHED, State
from tarry.model.moving import NEVER
from tarry.operate.jobs import JobAnswer
from tarry.push.delivery.delivery_record import AttemptRecord

WAITING = (State.SCHEDULED, State.READY)
_SCHEDULED_AFTER = 1.0
"""Seconds between its put and its time from which a job counts as one that was put for later."""
GOOD = ("done", "delivered")
"""Outcomes of attempts that did what they were to do."""
BAD = (
    "failed",
    "timeout",
    "lost",
    "lease_lost",
    "again",
    "final",
    "disabled",
    "buried",
    "unknown_task",
    "no_key",
    "payload_away",
)
"""Outcomes that somebody may have to look at."""


OUTCOME_WORDS = {
    "timeout": "timed out",
    "lost": "lost with its worker",
    "lease_lost": "lease lost",
    "retry": "asked for another try",
    "unknown_task": "task not known",
    "no_key": "key not there",
    "payload_away": "payload not readable",
    "quarantined": "put aside",
    "given_back": "given back",
}
"""How outcomes are written, where not as they are called."""


class StateStep(Struct, frozen=True):
    """A state in the diagram of a job. kind: `was`, `now`, or `next` for one that may still come. since: seconds since
    the epoch; None: not known, or not yet."""

    state: State
    kind: str
    since: float | None = None


class ShownAttempt(Struct, frozen=True):
    """An attempt, and its delivery if it was one of an HTTP task. One of the two may be missing: attempts at HTTP tasks
    by an older tarry have only the delivery."""

    attempt: JobAttempt | None = None
    delivery: AttemptRecord | None = None

    @property
    def number(self) -> int:
        """Its number, from 1."""
        return self.attempt.attempt if self.attempt else self.delivery.attempt if self.delivery else 0

    @property
    def outcome(self) -> str:
        """How it ended. Of a delivery, what the rule says of the answer."""
        if self.delivery and (self.attempt is None or self.attempt.outcome in ("done", "failed", "retry")):
            return self.delivery.outcome
        return self.attempt.outcome if self.attempt else ""

    @property
    def words(self) -> str:
        """The outcome in words, in English."""
        return OUTCOME_WORDS.get(self.outcome, self.outcome)

    @property
    def kind(self) -> str:
        """`well`, `bad`, or empty for what is neither."""
        return "well" if self.outcome in GOOD else "bad" if self.outcome in BAD else ""

    @property
    def began(self) -> float | None:
        """Seconds since the epoch; None: not known."""
        if self.attempt and self.attempt.started:
            return self.attempt.started
        return _seconds(self.delivery.at) if self.delivery else None

    @property
    def ended(self) -> float | None:
        """Seconds since the epoch; None: not known, or not yet."""
        return self.attempt.ended if self.attempt else None

    @property
    def took(self) -> float | None:
        """Seconds; None: not known, or not over."""
        if self.attempt and self.attempt.started and self.attempt.ended:
            return self.attempt.ended - self.attempt.started
        return self.delivery.elapsed if self.delivery else None

    @property
    def reason(self) -> str:
        """Why it ended so, in short."""
        return (self.delivery.reason if self.delivery else "") or (self.attempt.error if self.attempt else "")


class JobMoment(Struct, frozen=True):
    """A line of what is known of a job, in the order of time. kind: which sentence tells it. at: seconds since the
    epoch; None: it is not known when."""

    kind: str
    at: float | None = None
    count: int = 0
    attempt: ShownAttempt | None = None


def deliveries(job: JobAnswer) -> list[AttemptRecord]:
    """All attempts to deliver a job of an HTTP task that are on record, the oldest first."""
    if job.state is not State.DONE:
        return job.deliveries
    try:
        return [*job.deliveries, convert_to(AttemptRecord, job.note)]
    except UNREADABLE:
        # A program that took the job has ended it with a result of its own.
        return job.deliveries


def shown_attempts(job: JobAnswer, exchanges: Sequence[AttemptRecord]) -> list[ShownAttempt]:
    """The attempts of a job and its deliveries as one list, the oldest first."""
    left = list(exchanges)
    found: list[ShownAttempt] = []
    # From the newest on: after a retry by hand the numbers begin again.
    for attempt in reversed(job.attempts):
        at = next((at for at in reversed(range(len(left))) if left[at].attempt == attempt.attempt), None)
        # An attempt that was never sent has no delivery, and takes none of an earlier round.
        made = None if at is None or _is_of_another(attempt, left[at]) else left.pop(at)
        found.append(ShownAttempt(attempt, made))
    # Those that only the deliveries tell of came before, or were left out.
    return [*(ShownAttempt(None, one) for one in left), *reversed(found)]


def _is_of_another(attempt: JobAttempt, delivery: AttemptRecord) -> bool:
    """Whether the delivery surely began at another time."""
    # By another clock than the attempt: a minute apart is no doubt.
    began, start, end = _seconds(delivery.at), attempt.started, attempt.ended
    if began is None:
        return False
    return bool((start and began < start - 60) or (end and began > end + 60))


def state_steps(job: JobAnswer) -> list[StateStep]:
    """The states of the job from its put to its end; without those that it surely or perhaps skipped."""
    end = job.state if job.state in FINISHED else State.DONE
    way = [State.SCHEDULED, State.READY, State.RUNNING, end]
    if job.state is State.BLOCKED:
        way = [State.BLOCKED, *way[1:]]
    here = way.index(job.state)
    before = [StateStep(state, "was", _since(job, state)) for state in way[:here] if _was_in(job, state)]
    after = [StateStep(state, "was" if _was_in(job, state) else "next") for state in way[here + 1 :]]
    return [*before, StateStep(job.state, "now", job.since), *after]


def _since(job: JobAnswer, state: State) -> float | None:
    """Since when a job was in this state the last time, before the one that it is in."""
    last = job.attempts[-1] if job.attempts else None
    if state is State.RUNNING:
        return last.started if last else None
    if state is State.READY:
        # To the second at most: a job is ready once it is due.
        return max(job.due, job.created)
    earlier = [one.ended for one in job.attempts[:-1] if one.ended]
    return earlier[-1] if earlier else job.created if not job.failures else None


def _was_in(job: JobAnswer, state: State) -> bool:
    """Whether the job has surely been in this state."""
    if state is State.SCHEDULED:
        return job.failures > 0 or job.due - job.created > _SCHEDULED_AFTER
    # Whoever was claimed was ready, and then running. A job that was never claimed may have been cancelled at once.
    return job.epoch > 0 and state in (State.READY, State.RUNNING)


def moments(job: JobAnswer, attempts: Sequence[ShownAttempt]) -> Iterator[JobMoment]:
    """What is known of the job, in the order of time."""
    yield JobMoment("put", job.created)
    if job.attempts_left_out:
        yield JobMoment("left_out", count=job.attempts_left_out)
    yield from (
        JobMoment("attempt", one.began or one.ended, attempt=one) for one in attempts if one.outcome != "running"
    )
    yield from _find_unrecorded(job, attempts)
    yield JobMoment(job.state, job.since)
    if job.state is State.SCHEDULED and job.due < NEVER / SECOND:
        yield JobMoment("due", job.due)
    if job.expires and job.state in WAITING:
        yield JobMoment("expires", job.expires)


def _find_unrecorded(job: JobAnswer, attempts: Sequence[ShownAttempt]) -> Iterator[JobMoment]:
    """Failures that no attempt on record tells of: those that an older tarry counted."""
    lost = sum(one.outcome == "lost" for one in attempts)
    failed = sum(one.kind == "bad" or one.outcome == "retry" for one in attempts) - lost + job.attempts_left_out
    if job.failures - job.losses - failed > 0:
        yield JobMoment("failed", count=job.failures - job.losses - failed)
    if job.losses - lost - job.attempts_left_out > 0:
        yield JobMoment("lost", count=job.losses - lost - job.attempts_left_out)


def _seconds(moment: str) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp()
    # OverflowError: in another zone the time may lie before the year 1 or after 9999.
    except (ValueError, OverflowError):
        return None

"""A job's attempts and what was done to it by hand: a bounded record of each, kept in the job.

The ordinary way costs nothing: a job that is done at its first attempt has no record, and `attempts_of` makes one of
what the job itself tells, which is when it ended. `lifecycle` says which changes add to the record.
"""

from collections.abc import Callable
from typing import Annotated

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.model import outcome as ways
from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.texts import cut
from tarry.model.checks.unreadable import UNREADABLE, text_or_why
from tarry.model.job import Job, State, StoredCount, StoredTime

MOST_KEPT = 20
"""Attempts of a job, the newest ones."""
MOST_ACTS = 20
"""Acts by hand, the newest ones."""
KEPT_FROM_START = b"[0]"
"""A record without attempts: a job that has it from the start keeps its attempt also if that is done at once."""
EDITED = "edited"
"""The act whose detail says something of the job."""
MOST_DETAIL, MOST_DETAILS = 4000, 5
"""Bytes of the arguments that an edit replaced, as an act keeps them; and how many of the newest acts keep theirs."""
MOST_ERROR = 500
"""Characters of an error."""
MOST_TRACEBACKS, MOST_TRACEBACK = 5, 1500
"""How many of the newest attempts keep a traceback, and how many characters of it: the end, which tells most."""

_NAMES: dict[type, str] = {
    ways.Returned: "done",
    ways.Raised: "failed",
    ways.TimedOut: "timeout",
    ways.Released: "interrupted",
    ways.Snoozed: "snoozed",
    ways.Cancelled: "cancelled",
    ways.Expired: "expired",
    ways.Unknown: "unknown_task",
    ways.Unread: "payload_away",
    ways.Quarantined: "quarantined",
}
LOST, LEASE_LOST, RETRY, CANCELLED, GIVEN_BACK, BURIED, NO_KEY, RUNNING, DONE = (
    "lost", "lease_lost", "retry", "cancelled", "given_back", "buried", "no_key", "running", "done",
)  # fmt: skip
OUTCOMES = (*_NAMES.values(), LOST, LEASE_LOST, RETRY, GIVEN_BACK, BURIED, NO_KEY, RUNNING)
"""How an attempt may have ended; `running`: it has not."""
# The task was not even called, and the same comes again and again: it must not drive out what was.
_REPEATED = ("unknown_task", "payload_away", "quarantined", NO_KEY)


# They say nothing of the job, or that it is to be called once more.
_FRUITLESS = ("interrupted", "snoozed", "lease_lost")


class Attempt(Struct, frozen=True, array_like=True, gc=False):
    """One attempt of a job. Times are microseconds since the epoch; 0: not known."""

    number: StoredCount
    """As `Job.attempt`: attempts that count no failure have the number of the next one."""
    epoch: StoredCount
    """How often the job had been claimed by then: the fence of the attempt's lease."""
    started: StoredTime
    ended: StoredTime
    outcome: str
    """One of OUTCOMES."""
    owner: str = ""
    """The worker; empty: not known."""
    error: str = ""
    """In short: its type and message."""
    traceback: str = ""
    """The end of it; empty: there was none, or it is no longer kept."""

    @property
    def host(self) -> str:
        """The host of the worker; empty: not known."""
        return self.owner.removeprefix("outside:").partition("|")[0]


class JobAct(Struct, frozen=True, array_like=True, gc=False):
    """What somebody did to a job by hand. at: microseconds since the epoch."""

    at: StoredTime
    act: str
    """`retried`, `cancelled`, `moved`, `edited` or `cloned`."""
    who: str
    """The name of a token, or of the user of a command; empty: not known."""
    address: str
    """Of the client, or the host of a command or program; empty: not known."""
    via: str
    """`http`, `console`, `command`, `operation` or `program`."""
    detail: str = ""
    """Of `edited`: the arguments before, as JSON, if they are short enough (`MOST_DETAIL`); of `cloned`: the id of the
    job whose clone this is. Empty: there is none, or it is no longer kept."""


class AttemptList(Struct, frozen=True):
    """The attempts of a job, the oldest first. left_out: how many there were before them."""

    attempts: list[Attempt]
    left_out: int = 0


class ErrorNote(Struct):
    """The part of a note that is kept of an error. An attempt to deliver has a reason instead."""

    type: str = ""
    message: str = ""
    reason: str = ""
    traceback: str = ""

    def short(self) -> str:
        return cut(self.reason or ": ".join(part for part in (self.type, self.message) if part), MOST_ERROR)

    def end_of_traceback(self) -> str:
        text = self.traceback
        return text if len(text) <= MOST_TRACEBACK else "…" + text[1 - MOST_TRACEBACK :]


_notes = json_decoder(ErrorNote)


class _Record(Struct, array_like=True):
    """As the job keeps it."""

    left_out: Annotated[int, Meta(ge=0, le=2**53)] = 0
    attempts: Annotated[list[Attempt], Meta(max_length=1000)] = []
    acts: Annotated[list[JobAct], Meta(max_length=1000)] = []


_records = json_decoder(_Record)


def outcome_name(outcome: ways.Outcome) -> str:
    """The name of an outcome, one of OUTCOMES."""
    match outcome:
        case ways.Lost(on):
            return LOST if on else LEASE_LOST
        case ways.Raised(after=int()):
            return RETRY
        case ways.Unknown(key=str(key)) if key:
            return NO_KEY
    return _NAMES[type(outcome)]


def error_of(outcome: ways.Outcome, note: bytes) -> bytes:
    """The note of an outcome that is an error; empty: it is none. note: that of the change that it leads to."""
    if isinstance(outcome, ways.Raised | ways.TimedOut):
        return outcome.note
    is_noted = isinstance(outcome, ways.Cancelled | ways.Expired | ways.Unknown | ways.Unread)
    # Otherwise the note of the change is of an earlier attempt.
    return note if is_noted or (isinstance(outcome, ways.Lost) and outcome.on) else b""


def with_attempt(job: Job, outcome: str, now: int, note: bytes = b"") -> bytes:
    """The record of a running job's attempts, with this one, which ended `now`. note: how it ended, as JSON."""
    record = _decode(job.attempts)
    kept = record.attempts
    error = read_note(note)
    new = Attempt(
        job.attempt, job.epoch, job.state_since, now, outcome, job.owner, error.short(), error.end_of_traceback()
    )
    if kept and outcome in _REPEATED and kept[-1].outcome == outcome:
        kept.pop()
        record.left_out += 1
    kept.append(new)
    for at, old in enumerate(kept[:-MOST_TRACEBACKS]):
        if old.traceback:
            kept[at] = replace(old, traceback="")
    over = max(0, len(kept) - MOST_KEPT)
    return msgspec.json.encode(_Record(record.left_out + over, kept[over:], record.acts))


def with_act(record: bytes, act: JobAct) -> bytes:
    """The record of a job, with this act."""
    known = _decode(record)
    acts = [*known.acts, act][-MOST_ACTS:]
    detailed = [at for at, one in enumerate(acts) if one.detail]
    for at in detailed[:-MOST_DETAILS]:
        acts[at] = replace(acts[at], detail="")
    return msgspec.json.encode(_Record(known.left_out, known.attempts, acts))


def kept_detail(arguments: bytes) -> str:
    """The arguments before an edit as an act keeps them: whole, or not at all."""
    return arguments.decode("utf-8", "replace") if len(arguments) <= MOST_DETAIL else ""


def with_texts(record: bytes, change: Callable[[str], str]) -> bytes:
    """The record of a job, with the errors and tracebacks of its attempts, and the arguments before its edits, as
    `change` makes them."""
    if not record or record == KEPT_FROM_START:
        return record
    known = _decode(record)
    kept = [replace(one, error=change(one.error), traceback=change(one.traceback)) for one in known.attempts]
    acts = [replace(one, detail=change(one.detail)) if one.act == EDITED else one for one in known.acts]
    is_same = (kept, acts) == (known.attempts, known.acts)
    return record if is_same else msgspec.json.encode(_Record(known.left_out, kept, acts))


def fruitless(job: Job, soon: int) -> int:
    """How many of the newest attempts led to nothing and came one after the other. soon: microseconds; one that took
    longer, or began later after the one before, ends the row."""
    count, next_began = 0, 0
    for one in reversed(_decode(job.attempts).attempts if job.attempts else ()):
        is_quick = one.ended - one.started < soon and (not next_began or next_began - one.ended < soon)
        if one.outcome not in _FRUITLESS or not is_quick:
            break
        count, next_began = count + 1, one.started
    return count


def acts_of(job: Job) -> list[JobAct]:
    """What was done to the job by hand, the oldest first."""
    return _decode(with_texts(job.attempts, text_or_why)).acts


def has_act(job: Job, act: str) -> bool:
    """Whether this is among what was done to the job by hand."""
    return any(one.act == act for one in _decode(job.attempts).acts)


def attempts_of(job: Job) -> AttemptList:
    """All attempts that are known of a job, also the one that runs, and that of a job that was done at once."""
    record = _decode(with_texts(job.attempts, text_or_why))
    kept = record.attempts
    if job.state is State.RUNNING:
        kept.append(Attempt(job.attempt, job.epoch, job.state_since, 0, RUNNING, job.owner))
    elif job.state is State.DONE and job.epoch and not (kept and kept[-1].epoch == job.epoch):
        kept.append(Attempt(job.attempt, job.epoch, 0, job.state_since, DONE))
    return AttemptList(kept, record.left_out)


def short_error(note: bytes) -> str:
    """Type and message of an error's note, cut; empty: there is none."""
    return read_note(note).short()


def read_note(note: bytes) -> ErrorNote:
    """What is known of the error; nothing of a note that cannot be read."""
    try:
        return _notes.decode(note) if note else ErrorNote()
    except UNREADABLE:
        return ErrorNote()


def _decode(record: bytes) -> _Record:
    if not record:
        return _Record()
    try:
        return _records.decode(record)
    except UNREADABLE:
        # Written by a newer tarry, perhaps: the job must go on all the same.
        return _Record()

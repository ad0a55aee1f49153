"""What happened in one attempt, as a value. The worker reports it; `lifecycle.after` decides what follows."""

import msgspec
from msgspec import Struct

from tarry.model.checks.texts import MOST_MESSAGE, MOST_TRACEBACK, MOST_TYPE, cut
from tarry.model.flow.signal import Awaited


class Returned(Struct, frozen=True, gc=False):
    """The task returned; `value` is its result as JSON."""

    value: bytes = b"null"
    status: int = 0
    """The HTTP status that answered the attempt; 0: none."""


class Raised(Struct, frozen=True, gc=False):
    """The task raised, or returned what cannot be kept."""

    note: bytes
    kinds: tuple[str, ...] = ()
    """Qualified names of the error's class and its bases, nearest first: what retry rules match on."""
    final: bool = False
    """No retry, whatever the rules say."""
    after: int | None = None
    """The task's own delay before the retry (microseconds), instead of the rule's. The rule's limit still applies."""
    status: int = 0
    """The HTTP status that answered the attempt; 0: none."""


class TimedOut(Struct, frozen=True, gc=False):
    """The attempt took longer than the task's timeout and was stopped."""

    note: bytes
    # The names of TimeoutError's own bases, so that retry rules match a timeout as if the task had raised it.
    kinds: tuple[str, ...] = ("TimeoutError", "OSError", "Exception")
    after: int | None = None
    """The delay before the retry (microseconds), instead of the rule's. The rule's limit still applies."""


class Lost(Struct, frozen=True, gc=False):
    """The worker died, or its lease ran out. on: this job was running at that moment. why: how the worker died."""

    on: bool = False
    why: str = ""


class Released(Struct, frozen=True, gc=False):
    """The worker interrupted it, or never started it. It is requeued and no attempt is counted. has_started: its code,
    or another program, had it."""

    has_started: bool = False


class Snoozed(Struct, frozen=True, gc=False):
    """The task asks to be called again later; no attempt is used up."""

    delay: int


class Suspended(Struct, frozen=True, gc=False):
    """A durable task sleeps until a time or a signal; its attempt goes on then, in any worker."""

    until: int
    """Microseconds since the epoch."""
    awaits: Awaited | None = None
    """The signal that ends the sleep earlier; None: none does."""
    idle: int = 0
    """How often in a row the job was called soon after it had begun to sleep, and came no further."""


class Cancelled(Struct, frozen=True, gc=False):
    """The task says that the job is no longer wanted."""

    reason: str = ""


class Expired(Struct, frozen=True, gc=False):
    """Claimed at or after the time by which it had to start."""


class Unknown(Struct, frozen=True, gc=False):
    """Claimed by a worker that knows no task of that name, or has not the key of the job. Another one may."""

    key: str = ""
    """The id of the key that is missing; empty: it is the task that is not known."""


class Unread(Struct, frozen=True, gc=False):
    """Its arguments are kept outside of the store, and cannot be read there now. why: with the name of the place."""

    why: str


class Quarantined(Struct, frozen=True, gc=False):
    """Claimed by a worker that runs another job whose next crash marks it as poison."""

    # Two such jobs must not run side by side: a crash would mark both, though one of them is innocent.


class HeldBack(Struct, frozen=True, gc=False):
    """Claimed while an attempt that the job is to follow goes on (`overrides.followed_places`), or while a job of its
    key has to end first (`store/queries/key_order.py`)."""

    until: int = 0
    """When it is to be looked at again, microseconds since the epoch; 0: soon."""
    behind: bytes = b""
    """The id of the job of its key that comes first; empty: there is none."""


Unsuccessful = Raised | TimedOut | Lost | Released | Snoozed | Cancelled | Expired | Unknown | Unread | Quarantined
Outcome = Returned | Suspended | HeldBack | Unsuccessful


RECORD_ERROR = "RecordError"
"""The type in the note of a job that is dead since what is stored of it cannot be used."""


def record_error(error: BaseException) -> Raised:
    """The outcome of a job of which something stored cannot be used: no other attempt can help."""
    return Raised(record_note(error), (RECORD_ERROR,), final=True)


def has_started(outcome: Unsuccessful) -> bool:
    """Whether the job had started when its attempt ended so. Of one that was lost with its worker nobody knows: it
    counts as started, since a worker took it in time."""
    return not isinstance(outcome, Unknown | Unread | Quarantined) and outcome != Released()


def record_note(error: BaseException) -> bytes:
    """The note of such a job."""
    # Only the class: the text of an error about garbage is garbage, too, and may be long.
    return outcome_note(RECORD_ERROR, f"what is stored of this job cannot be used ({type(error).__name__})")


def outcome_note(kind: str, message: str, traceback: str = "") -> bytes:
    """The JSON that a job keeps about how an attempt ended; each text is cut."""
    texts = (cut(kind, MOST_TYPE), cut(message, MOST_MESSAGE), cut(traceback, MOST_TRACEBACK))
    return msgspec.json.encode(dict(zip(("type", "message", "traceback"), texts, strict=True)))

"""What happened in one attempt, as a value. The worker reports it; `lifecycle.after` decides what follows."""

import msgspec
from msgspec import Struct


class Returned(Struct, frozen=True, gc=False):
    """The task returned; `value` is its result as JSON."""

    value: bytes = b"null"


class Raised(Struct, frozen=True, gc=False):
    """The task raised, or returned what cannot be kept."""

    note: bytes
    kinds: tuple[str, ...] = ()
    """Qualified names of the error's class and its bases, nearest first: what retry rules match on."""
    final: bool = False
    """No retry, whatever the rules say."""
    after: int | None = None
    """The task's own word on when to retry (microseconds), instead of the rule's delay; the limit still holds."""


class TimedOut(Struct, frozen=True, gc=False):
    """The attempt took longer than the task's timeout and was stopped."""

    note: bytes
    kinds: tuple[str, ...] = ("TimeoutError", "OSError", "Exception")


class Lost(Struct, frozen=True, gc=False):
    """The worker died, or its lease ran out. `on`: this very job was executing at that moment."""

    on: bool = False


class Released(Struct, frozen=True, gc=False):
    """We interrupted it, or never started it: it goes back as it was."""


class Snoozed(Struct, frozen=True, gc=False):
    """The task asks to be called again later; no attempt is used up."""

    delay: int


class Cancelled(Struct, frozen=True, gc=False):
    """The task says that its work is no longer wanted."""

    reason: str = ""


class Expired(Struct, frozen=True, gc=False):
    """Claimed at or after the time by which it had to start."""


class Unknown(Struct, frozen=True, gc=False):
    """Claimed by a worker that knows no task of that name; another, of a newer release, may."""


class Suspected(Struct, frozen=True, gc=False):
    """Claimed by a worker that is at another job of which the next death makes poison: the two must not be on side by
    side, or the innocent one goes with the other."""


Unsuccessful = Raised | TimedOut | Lost | Released | Snoozed | Cancelled | Expired | Unknown | Suspected
Outcome = Returned | Unsuccessful


def note(kind: str, message: str, traceback: str = "") -> bytes:
    """The JSON that a job keeps about how an attempt ended."""
    return msgspec.json.encode({"type": kind, "message": message, "traceback": traceback})

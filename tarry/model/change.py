"""What a job becomes next, as a value: the worker computes it, a store only makes it true.

The idea is River's (`JobSetState...Params`): no store knows a rule.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import astuple, replace

from tarry.model.checks.texts import bounded_note
from tarry.model.flow.effect import NodeEffect
from tarry.model.flow.signal import Awaited
from tarry.model.job import Job, State

# Never change a number: the history of every store has them.
UNCOUNTED, PUT, DONE, FAILED, DEAD, CANCELLED, EXPIRED = range(7)
"""As what something counts in the history; `model.history.counting` has the names."""
_KEPT_IF_NONE = ("due", "queue", "priority", "expires", "key_held_until", "body", "attempts")


class Change(Struct, frozen=True, gc=False):
    """Valid only if the job still has the state `was`, this epoch and this owner, and, where it says so, these times;
    applied whole or not at all.

    The store clears the fields (owner, lease) that a job in the new state has no use for.
    """

    id: bytes
    was: State
    epoch: int
    to: State | None
    """None: the store deletes the job."""
    state_since: int = 0
    due: int | None = None
    """None: unchanged, as for every finished job."""
    failures: int = 0
    crashes: int = 0
    keep_until: int = 0
    note: bytes = b""
    queue: str | None = None
    """Another queue; None: unchanged."""
    priority: int | None = None
    """Another priority; None: unchanged."""
    expires: int | None = None
    """Another time before which it must start, 0 for none; None: unchanged."""
    key_held_until: int | None = None
    """Until when it holds its key from now on; None: unchanged."""
    body: bytes | None = None
    """Other arguments; None: unchanged."""
    # The epoch alone is no fence: a store that loses a claim, as at a failover, gives the same epoch again, perhaps to
    # another worker.
    owner: str = ""
    """The worker that ran the job when it was seen; empty for a job that does not run."""
    attempts: bytes | None = None
    """The record of the job's attempts, with the one that this ends; None: unchanged, as at an ordinary end."""
    keeps_places: bool = False
    """Others end the job while its attempt goes on: that keeps its places under limits (`rules/kept_places.py`)."""
    seen_times: tuple[int, int] | None = None
    """(due, expires) of the job as it was seen: valid only if both are still so. None: they may be others by now."""
    rate_correction: int = 0
    """How many starts more, below 0: fewer, the rates of the job are to count than when the attempt started."""
    # The last five are not for the job. Stores that group changes which are alike leave them out.
    counts: int = UNCOUNTED
    """As what it counts in the history, if it is made."""
    job: Job | None = None
    """The job as it was seen, if the change counts: its queue, task and times belong to the count."""
    status: int = 0
    """The HTTP status that answered the attempt; 0: none."""
    node: NodeEffect | None = None
    """What it does to the flow of its job, if it is made; None: nothing."""
    awaits: Awaited | None = None
    """The signal that the job sleeps for, if it is made: then, if it has come by now, the job is made ready instead."""

    @property
    def effect(self) -> tuple[Any, ...]:
        """All that it does to its job: what changes that are alike but for their job have in common."""
        return astuple(self)[1:-5]

    def apply_to(self, job: Job) -> Job:
        """The job as this change makes it; not for a change that makes the store forget the job."""
        # A deletion is the store's own step: there is no job to return.
        assert self.to is not None
        new = {field: value for field in _KEPT_IF_NONE if (value := getattr(self, field)) is not None}
        return replace(
            job,
            state=self.to,
            owner="",
            state_since=self.state_since,
            failures=self.failures,
            crashes=self.crashes,
            keep_until=self.keep_until if self.to.finished else 0,
            note=self.note,
            **new,
        )


def with_correction(change: Change, rate_correction: int) -> Change:
    """The change, with this correction of what rates count."""
    return replace(change, rate_correction=rate_correction) if rate_correction else change


def with_bounded_note(change: Change) -> Change:
    """The change, with a note that fits into the row of a job, whoever made it."""
    note = bounded_note(change.note)
    return change if note is change.note else replace(change, note=note)

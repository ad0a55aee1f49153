"""The nouns: what a job is, and the states it can be in."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from tarry.model.checks.labels import labels_of

DEFAULT_QUEUE = "default"
MAX_PRIORITY = 2**40
MOST_EPOCH = 2**31 - 1
"""A claim raises no epoch beyond it: some stores keep no larger numbers, and then only the owner is a fence."""

# Anybody who can write to a store may have written what is read there besides jobs. Numbers in these bounds can be
# shown, added up and stored again.
StoredCount = Annotated[int, Meta(ge=0, le=2**62)]
StoredTime = Annotated[int, Meta(ge=0, le=2**57)]
"""Microseconds since the epoch; in a year that a calendar has."""

RELATIVE = 2**50
"""Times of a blocked job below this one count from its release: it is a moment of the year 2005."""

WAITING, UNFINISHED = -1, 0
"""Values of `Job.key_ttl`: the job holds its key until a worker claims it; until it has finished."""
# Later than any time, so that one comparison with the clock (`lifecycle.holds_key`) serves this case too.
HELD = 2**62
"""`Job.key_held_until` of a job that holds its key as long as it is unfinished."""


class State(StrEnum):
    """Where a job is in its life; `docs/lifecycle.md` draws the transitions."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    """A node of a flow, or its root, that waits for other nodes. It is in no line, and no queue's backlog."""

    # An enum's own hash is a Python function, which is slow; every job looks up states as keys.
    __hash__ = str.__hash__

    @property
    def finished(self) -> bool:
        """Whether no attempt follows unless somebody asks for one."""
        return self in FINISHED


FINISHED = frozenset({State.DONE, State.DEAD, State.CANCELLED})
States = Annotated[list[State], Meta(max_length=len(State))]
"""Those that somebody asks for."""


class Job(Struct, frozen=True, gc=False):
    """One call of a task, as the store keeps it. Times are microseconds since the epoch; 0 means *none*."""

    # Made by the client and not by the store: so the same insert sent twice is one job.
    id: bytes
    """UUIDv7, 16 bytes; of a node of a flow UUIDv8 (`model/flow/node_ids.py`)."""
    task: str
    body: bytes
    """The arguments; opaque to every store."""
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    """Within +-2^40, higher first. Above 0: the high band; 0: the normal one; below 0: the low one."""
    due: int = 0
    """It does not start before this time. While ready: also its place among the jobs that are equally late. While
    blocked, below RELATIVE: a delay that begins when it is released."""
    state: State = State.READY
    # The fence against a worker that lost its lease: it reports an older epoch.
    epoch: int = 0
    """How many times it was claimed."""
    failures: int = 0
    """Attempts that failed. A worker's death while the job was running counts; an interruption by us does not."""
    crashes: int = 0
    """How many workers died while this job was running."""
    owner: str = ""
    """The worker that claimed it, while it is running."""
    state_since: int = 0
    """When it came into its present state."""
    keep_until: int = 0
    """Once finished: when it may be deleted."""
    expires: int = 0
    """It must not start at or after this time. While blocked, below RELATIVE: so long after `due`."""
    key: str | None = None
    """At most one job of the task holds it at a time."""
    note: bytes = b""
    """JSON: the result when done, else how the last attempt ended (`{"type", "message", "traceback"}`)."""
    key_ttl: int = UNFINISHED
    """How long it holds its key: WAITING, UNFINISHED, or this many microseconds after it has finished."""
    key_held_until: int = 0
    """Until when it holds its key: HELD while it is unfinished, a time once it has finished, 0 if it does not."""
    lane: str | None = None
    """Its line among the jobs of a task that is limited or fair between keys; None: it waits in the open line."""
    headers: bytes = b""
    """JSON object of text by name, or empty: what travels beside the arguments, such as a trace."""
    progress: bytes = b""
    """JSON `[fraction, message]` as the task reported it; `[fraction or null, message, attempt, lines left out, text]`
    if the attempt printed or logged something; or empty."""
    attempts: bytes = b""
    """JSON: its attempts but those that ended in the ordinary way (`model/attempts.py`); or empty."""

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs or comes next, from 1; of a dead job, of the last one."""
        # The failures of a dead job count its last attempt already, and no other follows.
        return max(1, self.failures) if self.state is State.DEAD else self.failures + 1

    @property
    def labels(self) -> dict[str, str]:
        """Its labels by name. They are headers, and never change."""
        return labels_of(self.headers)

    @property
    def size(self) -> int:
        """Bytes that count against the limit of what a queue may keep."""
        return len(self.body) + len(self.note) + len(self.headers) + len(self.progress) + len(self.attempts)

    @property
    def created(self) -> int:
        """When the client made the id, by the client's clock, to the millisecond."""
        # A UUIDv7 begins with 48 bits of milliseconds.
        return int.from_bytes(self.id[:6], "big") * 1000

"""The nouns: what a job is, and the states it can be in."""

from enum import StrEnum

from msgspec import Struct

MAX_PRIORITY = 2**40

WAITING, UNFINISHED = -1, 0
"""How long a job holds its key, as `Job.unique` says it: until a worker takes it; until it has finished."""
HELD = 2**62
"""`Job.holds` of a job that holds its key for as long as it is not finished."""


class State(StrEnum):
    """Where a job is in its life; `docs/lifecycle.md` draws the ways between them."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RUNNING = "running"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"

    # An enum's own hash is a Python function; states are keys on the way of every job.
    __hash__ = str.__hash__

    @property
    def finished(self) -> bool:
        """No attempt will follow unless somebody asks for one."""
        return self in FINISHED


FINISHED = frozenset({State.DONE, State.DEAD, State.CANCELLED})


class Job(Struct, frozen=True, gc=False):
    """One call of a task, as the store keeps it. Times are microseconds since the epoch; 0 means *none*."""

    id: bytes
    """UUIDv7, 16 bytes, made by the client: the same insert sent twice is one job."""
    task: str
    body: bytes
    """The arguments; opaque to every store."""
    queue: str = "default"
    priority: int = 0
    """Within +-2^40, higher first. Above 0 is the high band, 0 the normal one, below 0 the low one."""
    due: int = 0
    """Does not start before; while ready, also its place in line among those that are as late."""
    state: State = State.READY
    epoch: int = 0
    """How many times it was claimed: the fence against a worker that lost its lease."""
    failures: int = 0
    """Attempts that failed, a worker's death while the job was on included; an interruption by us is none."""
    losses: int = 0
    """How many workers died while this job was on."""
    owner: str = ""
    """Who claimed it, while running."""
    since: int = 0
    """When it came into its present state."""
    until: int = 0
    """Once finished: when it may be forgotten."""
    expires: int = 0
    """Must not start at or after."""
    key: str | None = None
    """At most one job of the task holds it at a time."""
    note: bytes = b""
    """JSON: the result when done, else what the last attempt ended with (`{"type", "message", "traceback"}`)."""
    unique: int = UNFINISHED
    """How long it holds its key: WAITING, UNFINISHED, or so many microseconds longer than it is unfinished."""
    holds: int = 0
    """Until when it holds its key: HELD while that depends on its state, a time once it has finished, 0 for not."""
    lane: str | None = None
    """Its line among the jobs of a task that is limited or fair between keys; None: it waits in the open line."""
    headers: bytes = b""
    """JSON object of text by name, or nothing: what travels beside the arguments, as a trace does."""
    progress: bytes = b""
    """JSON `[fraction, message]` of how far the task said that it is, or `[fraction or null, message, attempt, lines
    left out, text]` where that attempt printed or logged something; or nothing."""

    @property
    def attempt(self) -> int:
        """The number of the attempt that runs or comes next, from 1; of a dead job, that of the last."""
        return max(1, self.failures) if self.state is State.DEAD else self.failures + 1

    @property
    def created(self) -> int:
        """When the client made the id, by the client's clock, to the millisecond."""
        return int.from_bytes(self.id[:6], "big") * 1000

"""A flow as a store keeps it: one row of counters, and one row for each gate with several parents.

A flow goes on as long as `active` is not 0, and the change that makes it 0 ends the flow. So no flow can wait for
something that nobody will do.
"""

from enum import IntEnum

from msgspec import Struct

from tarry.model.job import Job, State


class Phase(IntEnum):
    """Where a flow is in its life; docs/lifecycle.md has the transitions. Stores keep the numbers."""

    STORING = 0
    """A large flow whose nodes come in parts: none of them runs."""
    RUNNING = 1
    CANCELLING = 2
    """No node starts any more; those that are active are being cancelled, or end."""
    UNDOING = 3
    """It has failed, and what is done is being undone."""
    ENDED = 4

    @classmethod
    def _missing_(cls, value: object) -> "Phase":
        # A number that another program has written: nothing is to come of such a flow, and lists must not fail over it.
        return cls.ENDED


class FlowRow(Struct, frozen=True, gc=False):
    """The counters of a flow. Times are microseconds since the epoch."""

    id: bytes
    """That of its root."""
    phase: Phase
    at: int
    """STORING: since when. ENDED: when it is deleted. Else its deadline, HELD if it has none."""
    size: int
    """How many indices were given out; the root counts."""
    active: int
    """Nodes that are ready, scheduled or running, or whose gate is open though they are not released yet."""
    blocked: int
    """Nodes whose gate is not open."""
    failed: int = 0
    """Nodes that ended badly and stop the flow, and that were not tried again."""
    armed: int = 0
    """Those of them that ask for the others to be undone."""
    ends: State = State.DONE
    """How it will end, as far as is known: DONE, DEAD or CANCELLED."""
    undo: int = 0
    """The index of the node that undoes the others; negative: it was released; 0: there is none. It does not count as
    blocked."""
    keep_done: int = 0
    """How long it is kept after a good end, or a cancellation; microseconds."""
    keep_dead: int = 0
    note: bytes = b""
    """How the first node failed; or why the flow was cancelled."""
    root: Job | None = None
    """In answers that list flows."""


class GateRow(Struct, frozen=True, gc=False):
    """A gate in the store: the nodes with the indices from `first` to before `first + count`."""

    flow: bytes
    first: int
    count: int
    waits: int
    """How many ends it still waits for."""
    next: int = -1
    """Open: the index of the next node to release. -1: not open, or held because the flow has failed."""


class FlowChange(Struct, frozen=True):
    """Valid only if the flow still has the phase `was` and the numbers `seen`. None: unchanged."""

    id: bytes
    was: Phase
    to: Phase
    ends: State | None = None
    note: bytes | None = None
    at: int | None = None
    seen: tuple[int, int, int] | None = None
    """`active`, `blocked` and `failed` as they must still be; None: as they may be."""
    active: int | None = None
    """0: the flow ends, as with the end of its last node."""
    failed: int | None = None
    blocked: int | None = None

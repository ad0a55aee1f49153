"""What a history of a system consists of: events, one a line of a ledger.

A ledger is a file outside of tarry. Who puts jobs adds a line for each that was acknowledged, the tasks add a line for
each start and each end, whoever kills a process says so, and at the end somebody writes down what the store says.
`history_check` compares these. Times are microseconds since the epoch, by the store's clock where it can be had. Jobs,
flows, owners and keys are texts.
"""

from typing import TypeAlias

from msgspec import Struct, to_builtins

FINAL_OUTCOMES = frozenset({"done", "dead", "cancelled", "expired"})
"""Outcomes after which no other attempt follows by itself."""
FINISHED_STATES = frozenset({"done", "dead", "cancelled"})


class LedgerEvent(Struct, frozen=True, gc=False, omit_defaults=True, tag_field="event", tag=str.lower):
    """An event; in a ledger a JSON object with its name in lower case as `event`."""

    def __str__(self) -> str:
        values = {name: value for name, value in to_builtins(self).items() if name != "event"}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"


class Put(LedgerEvent, frozen=True, gc=False):
    """A job was put, and that was acknowledged. A job that was put again, as one of its key, is the same job."""

    job: str
    at: int
    key: str | None = None
    """Its unique key, if it holds that until it ends; None: none."""
    due: int = 0
    queue: str = ""
    task: str = ""
    lane: str | None = None
    """Its key under limits (`each:TASK`); None: none."""
    order: str | None = None
    """The line in which the jobs of its task go one after another, in the order of their puts; None: none."""
    logged: bool = True
    """Whether its starts and ends are in the history. False: another program runs it, or it is a flow."""
    counted: bool = True
    """Whether the store's history counts it. False: it is a flow."""


class PutUnknown(LedgerEvent, frozen=True, gc=False):
    """A job was put, and no answer came: it may be stored or not."""

    job: str
    at: int
    task: str = ""


class Started(LedgerEvent, frozen=True, gc=False):
    """An attempt began: written before the task does anything."""

    job: str
    epoch: int
    owner: str
    at: int
    pid: int = 0
    claimed: int = 0
    """When the store gave the job to its owner; 0: not known, and then `at` stands for it. Rates, and leases that ended
    before a late start, are judged by it. A worker's clock may be behind the store's, by one round trip at most."""


class Ended(LedgerEvent, frozen=True, gc=False):
    """An attempt ended. Not settled: its code came to an end, which a crash may hide from the store. Settled: the store
    has made the change."""

    job: str
    epoch: int
    owner: str
    at: int
    outcome: str
    """`done`, `dead`, `cancelled` or `expired`: nothing follows. `failed`, or another word: an attempt may follow."""
    settled: bool = False
    due: int = 0
    """Of a settled end: before this time it does not start again; 0: not known."""


class Died(LedgerEvent, frozen=True, gc=False):
    """A process was killed or died: its attempts are over. `at` is just before the kill, since others may have its jobs
    as soon as it is gone. At least one of owner and pid is given; a pid only where all events are of one host."""

    at: int
    owner: str = ""
    pid: int = 0


class LeaseEnded(LedgerEvent, frozen=True, gc=False):
    """The lease of an owner ran out, as of a process that is halted: others may have the jobs that it held."""

    owner: str
    at: int


class StoreDied(LedgerEvent, frozen=True, gc=False):
    """The store's server died; `at` is once it is gone, and before it is started again."""

    at: int
    forgets: int = 0
    """It may have forgotten claims and ends that it accepted within so many microseconds before, and what comes of that
    alone is excused. 0: it forgets nothing. docs/stores.md says which store does, with which settings."""


class Rescheduled(LedgerEvent, frozen=True, gc=False):
    """A job that waits got another time, and that was acknowledged."""

    job: str
    at: int
    due: int


class Withdrawn(LedgerEvent, frozen=True, gc=False):
    """Somebody cancelled a job, and that was acknowledged. An attempt that runs goes on for a while."""

    job: str
    at: int


class RunAgain(LedgerEvent, frozen=True, gc=False):
    """Somebody had a job run at once, also one that was finished. `at` is before the call."""

    job: str
    at: int


class NodeOf(LedgerEvent, frozen=True, gc=False):
    """A job is a node of a flow, and comes after its parents."""

    flow: str
    job: str
    parents: tuple[str, ...] = ()


class FlowEnded(LedgerEvent, frozen=True, gc=False):
    """A flow ended."""

    flow: str
    at: int
    outcome: str = "done"


class StepRan(LedgerEvent, frozen=True, gc=False):
    """The function of a durable step ran, in a job."""

    job: str
    name: str
    at: int


class StepRecorded(LedgerEvent, frozen=True, gc=False):
    """The result of a step is stored, as when `step(...)` has returned."""

    job: str
    name: str
    at: int


class LimitSet(LedgerEvent, frozen=True, gc=False):
    """From now on a limit holds: `task:NAME`, `queue:NAME`, or `each:NAME` for each lane of a task."""

    name: str
    at: int
    most: int | None = None
    """How many run at once; None: any number."""
    count: int = 0
    """How many start in any `period`; 0: any number."""
    period: int = 0
    """Microseconds."""


class FinalState(LedgerEvent, frozen=True, gc=False):
    """What the store says of a job at the end."""

    job: str
    state: str
    epoch: int


class StoreRead(LedgerEvent, frozen=True, gc=False):
    """All jobs of the store were read for `FinalState`. Without this event nothing is said of jobs that are missing."""

    at: int
    drained: bool = True
    """Whether all jobs should have ended by then."""
    kept: int | None = None
    """A job that ended longer ago than this may have been deleted (microseconds); None: none was deleted."""


class HistorySum(LedgerEvent, frozen=True, gc=False):
    """What the store's own history has counted at the end, of one task or of all (`task` empty)."""

    counts: dict[str, int]
    """`put`, `done`, `dead`, `cancelled`, `expired`; what is left out, or has another name, is not compared."""
    task: str = ""


class Leftover(LedgerEvent, frozen=True, gc=False):
    """Something that is still in the store, though no job needs it any more."""

    what: str
    name: str
    count: int = 1


HistoryEvent: TypeAlias = (
    Put
    | PutUnknown
    | Started
    | Ended
    | Died
    | LeaseEnded
    | StoreDied
    | Rescheduled
    | Withdrawn
    | RunAgain
    | NodeOf
    | FlowEnded
    | StepRan
    | StepRecorded
    | LimitSet
    | FinalState
    | StoreRead
    | HistorySum
    | Leftover
)

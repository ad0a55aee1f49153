"""What a claim under limits reads and writes. `lane_claim` uses it; each SQL store has its own reader."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct, field

from tarry.model.limit import Level, Limit
from tarry.store.rules.lanes import JobKey, Position
from tarry.store.sql.columns import Row, name_text

T = TypeVar("T")
Line = tuple[str, int]
"""A queue and a band."""
TaskLine = tuple[str, int, str]
"""A queue, a band and a task."""
Lane = tuple[str, str]
"""A task and the name of one of its lanes."""
Candidate = tuple[Position, T]
"""Where a job stands, and what its store needs to claim it."""


class LaneState(Struct):
    """What a claim begins with."""

    limits: Mapping[str, Limit]
    levels: dict[str, Level]
    """The levels of queues and tasks. A level that is not here is unused."""
    turns: dict[str, str | None]
    """By `turn_name`: which lane of a task was served last, or more where keys have weights."""
    # Closed lanes are not read, so a claim does not see their rates itself.
    next_open: int | None = None
    """The earliest time at which the rate of a closed lane allows a start."""


def levels_of(rows: Iterable[Row]) -> dict[str, Level]:
    """The levels of these rows: name, how many run, the next start of a rate, and perhaps more."""
    return {name_text(name): Level(running, following) for name, running, following, *_ in rows}


def lane_state(limits: Mapping[str, Limit], rows: Sequence[Row], next_open: int | None = None) -> LaneState:
    """The state with the levels of these rows; the fourth column is the turn that a row of `turn_name` has."""
    turns: dict[str, str | None] = {name_text(name): name_text(turn) for name, _, _, turn in rows if turn is not None}
    return LaneState(limits, levels_of(rows), turns, next_open)


class LaneRange(Struct):
    """Which lanes of a task to read, by name: after `after` (None: from the first) up to `last` (None: to the end)."""

    after: str | None
    last: str | None
    count: int


class FoundLane(Struct, frozen=True, gc=False):
    """A lane in which jobs may wait."""

    name: str
    has_jobs: bool = True
    """False: no job waits there. True also if the store does not know."""


class LaneUse(Struct):
    """What a claim did and saw."""

    started: Counter[str] = field(default_factory=Counter)
    """How many starts each level has to count."""
    levels: dict[str, Level] = field(default_factory=dict)
    """The same levels, with these starts."""
    turns: dict[str, str] = field(default_factory=dict)
    """As in `LaneState`, those that have changed."""
    full: defaultdict[TaskLine, dict[str, int | None]] = field(default_factory=lambda: defaultdict(dict))
    """Lanes without room, and when a rate allows a start; None: when an attempt ends."""
    # Those that are empty are removed at the end of the claim: later claims would have to read them, one by one.
    empty: defaultdict[TaskLine, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Lanes without jobs."""
    drained: defaultdict[TaskLine, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Lanes that gave all that was read of them: perhaps they are empty now."""
    waits_for_ends: bool = False
    """What it left may start as soon as others have ended: it saw all lanes, and no rate refused a start."""


class LaneReader(Protocol[T]):
    """How a store reads and writes for one claim."""

    # All in one transaction: two claims at once must not start more than a limit allows.

    def look(self, lines: Sequence[Line]) -> LaneState:
        """What a claim of these lines begins with."""

    def tasks(self, line: Line) -> Sequence[str] | None:
        """The tasks that have jobs in lanes of this line; None: no job waits in it at all, or it is paused.

        A reader may add the levels and turns of the line to the state only now.
        """

    def has_open_jobs(self, line: Line) -> bool:
        """Whether jobs without a lane wait in the line."""

    def open_fronts(self, line: Line, most: int) -> Sequence[Sequence[Candidate[T]]]:
        """The first late jobs without a lane and the first ones on time, at most so many of each."""

    def lanes(self, line: Line, stretches: Mapping[str, LaneRange]) -> Mapping[str, Sequence[FoundLane]]:
        """Lanes of each of these tasks; of a task with a limit for each key, only the open ones."""

    def lane_levels(self, names: Sequence[str]) -> Mapping[str, Level]:
        """The levels of these names that are not unused."""

    def key_limits(self, names: Sequence[str]) -> Mapping[str, Limit]:
        """Of these levels of lanes, those with limits of their own (`rules/key_limits.py`), and these."""

    # Of tasks of which keys have weights

    def weights(self, task: str) -> Mapping[str, int]:
        """The weights that keys of the task have (`rules/key_limits.py`), by lane."""

    def named_lanes(self, line: Line, task: str, lanes: Sequence[str]) -> Sequence[FoundLane]:
        """Those of these lanes that are open."""

    def lane_fronts(self, line: Line, counts: Mapping[Lane, int]) -> dict[Lane, Sequence[Candidate[T]]]:
        """The first jobs of each of these lanes, at most so many."""

    def costs(self, items: Sequence[T]) -> Sequence[int]:
        """What each of these jobs costs (`shared/rate_corrections.py`). Asked for only where a rate is."""

    def job_key(self, item: T) -> JobKey:
        """What limits need of this job; asked for only after `costs` or `start`."""

    def start(self, items: Sequence[T]) -> Sequence[T]:
        """Claims these jobs and keeps them for its store; returns those that it got, in this order."""

    def save(self, use: LaneUse) -> None:
        """Writes the levels and turns, closes full lanes and removes empty ones."""

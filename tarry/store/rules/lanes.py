"""Lanes, and the levels of limits: the arithmetic of every store that chooses jobs in Python.

Jobs without a lane wait in the open line of their queue and band. The jobs of a task with a limit or with a fairness
key wait in lanes, one for each key of the task. A claim takes from the lanes of a task in turn, beginning after the
lane that was served last, and skips lanes whose limit is reached.
"""
# So a full lane costs the others nothing, and a lane with a million jobs gets its turn and no more.

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

from msgspec.structs import replace

from tarry.model.change import Change
from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.job import Job
from tarry.model.limit import EACH, QUEUE, TASK, UNLIMITED, Level, Limit, waiting_lane
from tarry.store.rules.base import PlaceAnswer

T = TypeVar("T")
Position = tuple[int, int, bool, bytes]
"""Where a ready job stands: its priority as a number that is lower for a higher one, due, whether it is late, id."""
JobKey = tuple[str, str, str | None]
"""The fields of a job that limits need: queue, task, lane."""
EndedAttempt = tuple[Change, JobKey]
"""An attempt that is over, by the change that says so."""
# Not NUL: SQLite's functions end a text there.
_OF = "\x1f"
"""Separates a task and its lane in the name of a level."""
TURN = "turn:"
"""What the names of `turn_name` begin with."""
UNTIL_AN_END = 2**62
"""When a lane opens that is closed until one of its attempts ends."""


def assign_lanes(jobs: Sequence[Job], limits: Mapping[str, Limit]) -> Sequence[Job]:
    """New jobs, each with the lane in which it will wait."""
    return [replace(job, lane=waiting_lane(job.task, job.lane, limits)) for job in jobs] if limits else jobs


def lane_level(task: str, lane: str) -> str:
    """The name of the level of one lane."""
    return lane_levels(EACH + task) + lane


def lane_levels(name: str) -> str:
    """What the names of the levels of all lanes begin with that have this limit for each key."""
    return name + _OF


def turn_name(queue: str, band: int, task: str) -> str:
    """The name by which a store keeps whose turn it is among the lanes of a task, in one queue and band."""
    # Not of the task alone: lanes of another queue would move the turn away from those that wait here.
    return f"{TURN}{task}{_OF}{band}{_OF}{queue}"


def earliest(*times: int | None) -> int | None:
    """The earliest of the times that are not None; None if all are."""
    return min((time for time in times if time is not None), default=None)


def limit_name(name: str) -> str:
    """The name of the limit that a level is about."""
    return name.partition(_OF)[0]


def task_and_lane(level: str) -> tuple[str, str]:
    """The task and the lane of the level of a lane."""
    name, _, lane = level.partition(_OF)
    return name.removeprefix(EACH), lane


def limit_of(level: str, limits: Mapping[str, Limit], key_limits: Mapping[str, Limit]) -> Limit | None:
    """The limit that holds for a level. key_limits: those of single keys, by the names of their levels."""
    # Mostly no key has one, and this is asked for each lane that a claim looks at.
    own = key_limits.get(level) if key_limits else None
    return own or limits.get(limit_name(level))


@lru_cache(maxsize=1000)
def decode_limit(value: bytes) -> Limit:
    """The limit in this JSON; one without bounds, if it is none."""
    # Cached: there may be thousands of limits, but only a few different ones.
    try:
        return decode_json(value, Limit)
    except UNREADABLE:
        # It must not stop all jobs. Whoever declares limits sees that it is another one, and stores it anew.
        return Limit()


def count_by_level(jobs: Iterable[JobKey], limits: Mapping[str, Limit]) -> Counter[str]:
    """How many of these jobs count for each level that has a limit. A job without a lane counts for its queue only."""
    counts: Counter[str] = Counter()
    # Most jobs of a batch have the same queue and task, and often each has a lane of its own.
    names: dict[tuple[str, str], tuple[list[str], list[str], str | None]] = {}
    for (queue, task, lane), count in (jobs if isinstance(jobs, Counter) else Counter(jobs)).items():
        if (queue, task) not in names:
            names[queue, task] = _limited_by(queue, task, limits)
        of_queue, of_task, of_lanes = names[queue, task]
        for name in of_queue if lane is None else of_task:
            counts[name] += count
        if lane is not None and of_lanes is not None:
            name = of_lanes + lane
            counts[name] = counts.get(name, 0) + count
    return counts


def _limited_by(queue: str, task: str, limits: Mapping[str, Limit]) -> tuple[list[str], list[str], str | None]:
    """The levels that have a limit: those of jobs without a lane, those of jobs in lanes, and what the names of lanes'
    levels begin with; None: lanes have none."""
    of_queue = [QUEUE + queue] if QUEUE + queue in limits else []
    of_task = [TASK + task] if TASK + task in limits else []
    return of_queue, of_queue + of_task, lane_levels(EACH + task) if EACH + task in limits else None


def wrong_levels(jobs: Iterable[JobKey], limits: Mapping[str, Limit], levels: Mapping[str, int]) -> dict[str, int]:
    """The right count for each level that has a wrong one, by name. jobs: all that run."""
    counts = count_by_level(jobs, limits)
    # Also levels for which nothing runs: they should be 0.
    names = counts.keys() | {name for name in levels if limit_name(name) in limits}
    return {name: counts[name] for name in sorted(names) if counts[name] != levels.get(name, 0)}


def is_wrongly_closed(limit: Limit | None, running: int, again: int | None, now: int) -> bool:
    """Whether a closed lane must be opened: it waits for the end of an attempt (again: None) although it has room, or
    for a time that is too far ahead."""
    if limit is None:
        return True
    if again is None:
        return limit.most is None or running < limit.most
    # No limit delays a start that long: the clock was set back.
    return again > now + limit.furthest


def turn_order(last: str | None) -> Callable[[str], tuple[bool, str]]:
    """By what names of lanes are sorted, so that the one whose turn it is comes first. last: the one served last."""
    return lambda lane: (last is not None and lane <= last, lane)


def take_in_turn(lines: Sequence[Sequence[T]], most: int) -> list[T]:
    """One item from each line in turn, until there are `most`, or none is left."""
    # A task without a limit for each key has one lane.
    if len(lines) == 1:
        return list(lines[0][:most])
    taken: list[T] = []
    for turn in range(max(map(len, lines), default=0)):
        taken += [line[turn] for line in lines if len(line) > turn]
        if len(taken) >= most:
            break
    return taken[:most]


def merge_lines(lines: Sequence[Sequence[tuple[Position, T]]], most: int) -> list[T]:
    """Merges lines, each in its own order, into the first `most` items.

    The highest priority comes first. Within a priority, late jobs and jobs on time alternate. Of each kind, the line
    whose first job is due first is next; on a tie, the line that comes first in `lines`. The ids decide which kind
    begins, anew for each priority.
    """
    # They alternate so that many jobs that fall due at once do not delay the others. The ids stand for a random draw:
    # so claims of one job at a time are fair too, and no store has to remember whose turn it is.
    turns, heads = _Alternation(), [0] * len(lines)
    taken: list[T] = []
    while len(taken) < most:
        pending = enumerate(zip(lines, heads, strict=True))
        firsts = [(line[head][0], number) for number, (line, head) in pending if head < len(line)]
        if len(firsts) < 2:
            # Usually a few jobs take turns with many others, so the rest comes from one line at once.
            rest = [lines[number][heads[number] : heads[number] + most - len(taken)] for _, number in firsts]
            return taken + [item for line in rest for _, item in line]
        number = _next_line(firsts, turns)
        taken.append(lines[number][heads[number]][1])
        heads[number] += 1
    return taken


def _next_line(firsts: Sequence[tuple[Position, int]], turns: "_Alternation") -> int:
    """The number of the line to take from next. firsts: the first position in each line, and the line's number."""
    rank = min(position[0] for position, _ in firsts)
    best: dict[bool, tuple[Position, int]] = {}
    for position, number in firsts:
        late = position[2]
        if position[0] == rank and (late not in best or position[1] < best[late][0][1]):
            best[late] = position, number
    kind = turns.is_late_next(best[True][0], best[False][0]) if len(best) == 2 else next(iter(best))
    return best[kind][1]


class _Alternation:
    """Decides within one claim whether a late job is next, or one on time."""

    def __init__(self) -> None:
        self._rank: int | None = None
        self._late = False

    def is_late_next(self, late: Position, on_time: Position) -> bool:
        """Whether the late job is next."""
        # The last bits of two UUIDs are as good as the toss of a coin.
        self._late = not self._late if self._rank == late[0] else bool((late[3][-1] ^ on_time[3][-1]) & 1)
        self._rank = late[0]
        return self._late


class Levels:
    """How far the limits are used, as one claim sees it. A level that is not in `levels` is unused."""

    def __init__(
        self, limits: Mapping[str, Limit], levels: Mapping[str, Level], key_limits: Mapping[str, Limit], now: int
    ) -> None:
        self._limits, self._levels, self._key_limits, self._now = limits, levels, key_limits, now
        self.again: int | None = None
        """When a rate allows a start that it refused before; 0: not all lanes were examined, come again at once."""
        self.is_rate_reached = False
        """A rate allowed fewer starts than were asked for."""

    def has_room(self, name: str) -> bool:
        """Whether anything may start under the limit of that level."""
        limit = limit_of(name, self._limits, self._key_limits)
        return limit is None or self._levels.get(name, Level()).room(limit, self._now) > 0

    def room(self, name: str, most: int) -> int:
        """How many of at most `most` may start under the limit of that level; if none, notes when."""
        limit = limit_of(name, self._limits, self._key_limits)
        return most if limit is None else self.room_under(limit, name, most)

    def room_under(self, limit: Limit, name: str, most: int) -> int:
        """As `room`, where this limit is known to be that of the level."""
        level = self._levels.get(name) or Level()
        room = level.room(limit, self._now)
        if limit.count and room < most:
            self.is_rate_reached = True
        if not room:
            self.again = earliest(self.again, level.again(limit, self._now))
        return min(room, most)


def taken_levels(
    key: JobKey,
    cost: int,
    limits: Mapping[str, Limit],
    key_limits: Mapping[str, Limit],
    levels: Mapping[str, Level],
    now: int,
) -> tuple[PlaceAnswer, dict[str, Level]]:
    """Whether a place for this key may be taken, and if so the levels that count it, raised. key_limits: of `limit_of`.
    levels: those of these limits; one that is not there is unused."""
    names = count_by_level([key], limits)
    found = {
        name: (limit, levels.get(name, Level()))
        for name in names
        if (limit := limit_of(name, limits, key_limits)) is not None
    }
    most = min((limit.at_once for limit, _ in found.values() if limit.count), default=UNLIMITED)
    full = [
        level.again(limit, now, cost) for limit, level in found.values() if not level.has_room_for(limit, cost, now)
    ]
    if not found or full:
        return PlaceAnswer(False, _last(full), most, bool(found)), {}
    raised = {name: level.started(limit, 1, now, cost) for name, (limit, level) in found.items()}
    return PlaceAnswer(True, None, most), raised


def _last(times: Sequence[int | None]) -> int | None:
    """The last of these times; None if one of them is not known."""
    known = [time for time in times if time is not None]
    return max(known) if known and len(known) == len(times) else None

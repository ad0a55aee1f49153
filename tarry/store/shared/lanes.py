"""How jobs under limits are chosen: the same arithmetic for every store that chooses in Python.

Jobs without a lane wait in the open line of their queue and band. Those of a task with a limit, or with a key that it
is fair by, wait in lanes: one for each key of the task. A claim takes from the lanes of a task in turn, beginning
after the lane that was served last, and passes by those whose limit is reached. So a lane that is full costs the
others nothing, and one with a million jobs gets its turn and no more.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import msgspec

from tarry.model.limit import EACH, QUEUE, TASK, Level, Limit

Item = TypeVar("Item")
Place = tuple[int, int, bool, bytes]
"""Where a ready job stands: its priority as a number that is lower for a higher one, due, whether it is late, id."""
_OF = "\x1f"
"""Between a task and its lane in the name of a level. No NUL: SQLite's functions end a text there."""


def names(queue: str, task: str, lane: str | None) -> tuple[str, ...]:
    """The names of the levels that a job counts for; `limit_of` has the limit of each."""
    if lane is None:
        return (QUEUE + queue,)
    return (QUEUE + queue, TASK + task, each(task, lane))


def each(task: str, lane: str) -> str:
    """The name of the level of one lane."""
    return f"{EACH}{task}{_OF}{lane}"


def earliest(*times: int | None) -> int | None:
    """The first of the times that there are."""
    return min((time for time in times if time is not None), default=None)


def limit_of(name: str) -> str:
    """The name of the limit that a level is about."""
    return name.partition(_OF)[0]


@lru_cache(maxsize=1000)
def limit_in(value: bytes) -> Limit:
    """A limit as it is kept in JSON. Of thousands, few differ."""
    return msgspec.json.decode(value, type=Limit)


def counted(jobs: Iterable[tuple[str, str, str | None]], limits: Mapping[str, Limit]) -> Counter[str]:
    """How many of these (queue, task, lane) count for each level that has a limit."""
    return Counter(name for job in jobs for name in names(*job) if limit_of(name) in limits)


def miscounted(
    jobs: Iterable[tuple[str, str, str | None]], limits: Mapping[str, Limit], levels: Mapping[str, int]
) -> dict[str, int]:
    """The levels, by name, that do not say how many of these jobs count for them, and what they have to say. jobs: all
    that run, as (queue, task, lane)."""
    counts = counted(jobs, limits)
    names = counts.keys() | {name for name in levels if limit_of(name) in limits}
    return {name: counts[name] for name in sorted(names) if counts[name] != levels.get(name, 0)}


def is_wrongly_closed(limit: Limit | None, running: int, again: int | None, now: int) -> bool:
    """Whether a lane that is closed may be opened: until an end (again: None) although it has room; or until a time
    that is further ahead than its limit holds anything back, since the clock was set back."""
    if limit is None:
        return True
    if again is None:
        return limit.most is None or running < limit.most
    return again > now + 2 * limit.period


def laned(task: str, lane: str | None, limits: Mapping[str, Limit]) -> str | None:
    """The lane of a new job: what its client says; if it says none and the task is limited all the same, that of the
    task."""
    return "" if lane is None and (TASK + task in limits or EACH + task in limits) else lane


def dealt(lines: Sequence[Sequence[Item]], most: int) -> list[Item]:
    """One from each line in turn, until there are so many, or none is left."""
    given: list[Item] = []
    for turn in range(max(map(len, lines), default=0)):
        given += [line[turn] for line in lines if len(line) > turn]
        if len(given) >= most:
            break
    return given[:most]


def merged(lines: Sequence[Sequence[tuple[Place, Item]]], most: int) -> list[Item]:
    """From lines whose own order stays: again and again the first of one of them.

    Of those of the highest priority, late ones and those on time take turns, so that many jobs that fall due at once
    hold up nobody; of these the line whose first is due first; on a tie the line that is named first. Who begins is
    drawn anew for each priority, from the ids: nobody has to keep whose turn it is, and claims of one job at a time are
    fair all the same.
    """
    turns, heads = _Alternation(), [0] * len(lines)
    given: list[Item] = []
    while len(given) < most:
        heading = enumerate(zip(lines, heads, strict=True))
        firsts = [(line[head][0], number) for number, (line, head) in heading if head < len(line)]
        if len(firsts) < 2:
            # Mostly a few jobs take turns with many.
            last = [lines[number][heads[number] : heads[number] + most - len(given)] for _, number in firsts]
            return given + [item for line in last for _, item in line]
        number = _chosen(firsts, turns)
        given.append(lines[number][heads[number]][1])
        heads[number] += 1
    return given


def _chosen(firsts: Sequence[tuple[Place, int]], turns: "_Alternation") -> int:
    """The number of the line that gives next. firsts: those that head the lines, each with the number of its line."""
    rank = min(place[0] for place, _ in firsts)
    best: dict[bool, tuple[Place, int]] = {}
    for place, number in firsts:
        late = place[2]
        if place[0] == rank and (late not in best or place[1] < best[late][0][1]):
            best[late] = place, number
    kind = turns.late(best[True][0], best[False][0]) if len(best) == 2 else next(iter(best))
    return best[kind][1]


class _Alternation:
    """Of late jobs and those on time, within one claim."""

    def __init__(self) -> None:
        self._rank: int | None = None
        self._late = False

    def late(self, late: Place, on_time: Place) -> bool:
        """Whether the late one goes first."""
        self._late = not self._late if self._rank == late[0] else bool((late[3][-1] ^ on_time[3][-1]) & 1)
        self._rank = late[0]
        return self._late


class Levels:
    """The limits, how far they are used, and from when on there is room again where there was none: one claim's view.

    `levels` are those that a store has kept; what is not in it is unused.
    """

    def __init__(self, limits: Mapping[str, Limit], levels: Mapping[str, Level], now: int) -> None:
        self._limits = limits
        self._levels = levels
        self.now = now
        self.again: int | None = None

    def room(self, name: str, most: int) -> int:
        """How many of at most `most` may start under the limit of that level."""
        limit = self._limits.get(limit_of(name))
        if limit is None:
            return most
        level = self._levels.get(name, Level())
        room = level.room(limit, self.now)
        if not room and (again := level.again(limit, self.now)) is not None:
            self.again = again if self.again is None else min(self.again, again)
        return min(room, most)

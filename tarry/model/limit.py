"""Limits: how many jobs run at once, and how many start in a period. They delay jobs; no job fails because of them.

A limit has a name: `queue:mail` for all jobs of a queue, `task:shop.send` for all jobs of a task, `each:shop.send` for
the jobs of a task with the same key, each key by itself. A Level says how far a limit is used; the arithmetic of both
is here. Rates use the Generic Cell Rate Algorithm (ITU-T I.371): its whole state is one time.
"""

import contextlib
import re
from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from tarry.model.duration import SECOND, microseconds
from tarry.model.job import StoredCount, StoredTime
from tarry.model.quantity import MAX_SHORT, shorten

QUEUE, TASK, EACH = "queue:", "task:", "each:"
UNLIMITED = 2**31
MOST_WEIGHT = 1000
Weight = Annotated[int, Meta(ge=1, le=MOST_WEIGHT)]
"""How many starts a lane has, beside those of other lanes of its task."""
_RATE = re.compile(r"\s*(\d+)\s*/\s*(\d*\.?\d*)\s*([a-z]+)\s*")
MAX_COST = UNLIMITED
"""How many starts a rate may count for one job."""
LONGEST_DEBT = 10
"""Periods for which starts are held back at most, however much jobs have used that they were not charged at first."""
_PERIODS = {"second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d"}


class LimitShare(Struct, frozen=True):
    """What a limit is a part of, where several stores share one."""

    most: Annotated[int, Meta(ge=0, le=UNLIMITED)] | None = None
    """How many at once the whole limit allows."""
    count: StoredCount = 0
    """How many starts in a period the whole limit allows."""
    until: StoredTime = 0
    """Then the part ends, and nothing starts under it; microseconds, 0: it has no end."""
    set_at: StoredTime = 0
    """When the whole limit was set, microseconds: of two stores the one with the later time knows it; 0: not known."""


class Limit(Struct, frozen=True):
    """At most `most` at once, and at most `count` starts in any `period` (microseconds). None and 0: no such bound."""

    most: Annotated[int, Meta(ge=0, le=UNLIMITED)] | None = None
    count: StoredCount = 0
    period: StoredTime = 0
    has_key_limits: bool = False
    """Of a limit for each key: some keys have numbers of their own. A store sets it by itself."""
    weight: Weight = 1
    """Of a limit for each key: how many starts a key without a weight of its own has, beside those of one that has."""
    has_weights: bool = False
    """Of a limit for each key: some keys have weights of their own. A store sets it by itself."""
    share: LimitShare | None = None
    """Of one of several stores: this is its part of a larger limit (`store/shards/shares.py`)."""

    @property
    def whole(self) -> "Limit":
        """The limit of which this is a part; itself, if it is none."""
        share = self.share
        return self if share is None else replace(self, most=share.most, count=share.count, share=None)

    def is_over(self, now: int) -> bool:
        """Whether it is a part that has ended: nothing starts under it."""
        return self.share is not None and 0 < self.share.until <= now

    @property
    def without_keys(self) -> "Limit | None":
        """The limit as it was set; None: it is there only for the keys that have numbers of their own."""
        if not self.has_key_limits:
            return self
        plain = replace(self, has_key_limits=False, has_weights=False)
        return None if plain == Limit() else plain

    @property
    def at_once(self) -> int:
        """How many may start at the same moment: a twentieth of the rate."""
        # More than one, so that jobs start in batches and not one by one.
        return max(1, self.count // 20)

    @property
    def spacing(self) -> int:
        """Microseconds from one start to the next in the long run."""
        # `at_once` jobs may start at the beginning of a period, so the others share the rest of it: then no period has
        # more than `count` starts. Rounded up: rounded down, there would be one start too many now and then.
        return -(-self.period // (self.count - self.at_once + 1))

    @property
    def furthest(self) -> int:
        """Microseconds from now to the latest time that a level under this limit has as its `next`."""
        return self.at_once * self.spacing + LONGEST_DEBT * self.period

    @property
    def rate_text(self) -> str | None:
        """The rate for people, such as `10 in 60 s`; None: there is none."""
        return f"{self.count} in {self.period / SECOND:g} s" if self.count else None

    def __str__(self) -> str:
        parts = [] if self.most is None else [f"{self.most} at once"]
        if self.rate_text:
            parts.append(self.rate_text)
        if self.weight != 1:
            parts.append(f"weight {self.weight}")
        return ", ".join(parts) or "none"


class KeyLimit(Struct, frozen=True):
    """What one key of a task has instead of the limit for each key. None: as that limit says."""

    most: Annotated[int, Meta(ge=0, le=UNLIMITED)] | None = None
    count: StoredCount | None = None
    period: StoredTime = 0
    is_paused: bool = False
    """Nothing of the key starts, whatever the numbers are."""
    weight: Weight | None = None
    """How many starts it has while each other key of the task has as many as its own weight says."""

    def over(self, limit: Limit) -> Limit:
        """The limit that holds for this key. limit: the one for each key."""
        most = limit.most if self.most is None else self.most
        count, period = (limit.count, limit.period) if self.count is None else (self.count, self.period)
        return Limit(0 if self.is_paused else most, count, period)

    def with_numbers(self, numbers: Limit, *, has_rate: bool, weight: int | None) -> "KeyLimit":
        """These numbers instead; it stays paused if it is. has_rate: whether the rate is its own, too."""
        count, period = (numbers.count, numbers.period) if has_rate else (None, 0)
        return replace(self, most=numbers.most, count=count, period=period, weight=weight)


class Level(Struct, frozen=True):
    """How far a limit is used."""

    running: int = 0
    next: int = 0
    """When the next start would be on time if all were evenly spaced; microseconds, 0: none has started yet."""

    def room(self, limit: Limit, now: int) -> int:
        """How many may start now."""
        if limit.share is not None and limit.is_over(now):
            return 0
        room = UNLIMITED if limit.most is None else max(0, limit.most - self.running)
        # A claim asks this of each lane that it looks at, and most have no rate.
        return min(room, self.starts(limit, now)) if limit.count else room

    def starts(self, limit: Limit, now: int) -> int:
        """How many starts the rate allows now; UNLIMITED if there is none."""
        if not limit.count:
            return UNLIMITED
        ahead = max(self._next_on_time(limit, now) - now, 0)
        return max(0, limit.at_once - -(-ahead // limit.spacing))

    def has_room_for(self, limit: Limit, cost: int, now: int) -> bool:
        """Whether one may start that the rate counts as so many starts."""
        return self.room(limit, now) > 0 and self.starts(limit, now) >= cost

    def _next_on_time(self, limit: Limit, now: int) -> int:
        """When the next start would be on time."""
        # This limit never puts the time so far ahead: the clock was set back, or the limit was a slower one. Starts
        # must not be held up until that time comes again.
        return self.next if self.next <= now + limit.furthest else now

    def again(self, limit: Limit, now: int, cost: int = 1) -> int | None:
        """When there will be room, if the rate leaves none now, for one that it counts as so many starts. None: there
        is room, or all places are taken."""
        # Where all places are taken, the end of an attempt makes room, and no time is known for it.
        if not limit.count or limit.is_over(now) or (limit.most is not None and self.running >= limit.most):
            return None
        at = self._next_on_time(limit, now) - (limit.at_once - cost) * limit.spacing
        return at if at > now else None

    def started(self, limit: Limit, count: int, now: int, cost: int = 1) -> "Level":
        """The level after this many more starts, each of which the rate counts as `cost`."""
        following = self.next
        if limit.count:
            # Not before now: time in which nothing started must not add up to a burst.
            following = max(self._next_on_time(limit, now), now) + count * cost * limit.spacing
        return Level(self.running + count, following)

    def with_correction(self, limit: Limit, by: int, now: int) -> "Level":
        """The level after the rate counts so many starts more; below 0: fewer."""
        if not limit.count or not by:
            return self
        on_time = self._next_on_time(limit, now)
        # As in `started`: what is counted now was not paid for by time in which nothing started.
        following = (max(on_time, now) if by > 0 else on_time) + by * limit.spacing
        # Further ahead it would be taken for the time of a clock that was set back, and the whole debt be lost.
        return Level(self.running, max(0, min(following, now + limit.furthest)))

    def with_moved(self, limit: Limit, count: int, now: int) -> "Level":
        """The level after a part of a rate got so many starts from others, who may have used them a moment ago."""
        if not limit.count or not count:
            return self
        on_time = self._next_on_time(limit, now)
        following = max(on_time, now) + count * limit.spacing
        # Once nothing starts for a whole period, all of it is free again, however often it was moved.
        return Level(self.running, max(on_time, min(following, now + limit.count * limit.spacing)))

    def ended(self, count: int) -> "Level":
        """The level after this many attempts ended."""
        # Never below 0: that would let too many start later.
        return Level(max(0, self.running - count), self.next)

    def idle(self, now: int) -> bool:
        """Whether the level says no more than one that was never used, so that a store may drop it."""
        return not self.running and self.next <= now


def waiting_lane(task: str, lane: str | None, limits: Mapping[str, Limit]) -> str | None:
    """The lane in which a job waits: the one it has; if it has none and its task is limited, the task's lane "".

    A job gets a lane when it is inserted, when its task gets a limit while the job is unfinished, and when a finished
    job starts anew. It keeps the lane for good, also when the limit is lifted. limits: all that are set, by name.
    """
    is_limited = TASK + task in limits or EACH + task in limits
    return "" if lane is None and is_limited else lane


def rate(text: str) -> tuple[int, int]:
    """How many in how many microseconds, from `"100/s"`, `"10/m"` or `"5/2h"`; ValueError for other text."""
    found = _RATE.fullmatch(text) if isinstance(text, str) and len(text) <= MAX_SHORT else None
    # The error below shows the whole rate; one of the duration alone would not.
    with contextlib.suppress(ValueError):
        if found is not None and 0 < int(found[1]) <= UNLIMITED:
            unit = _PERIODS.get(found[3].rstrip("s") or "s", found[3])
            if period := microseconds(f"{found[2] or 1}{unit}"):
                return int(found[1]), period
    raise ValueError(f'rate {shorten(text)}: so many in a period, such as "100/s", "10/m" or "5/2h"')


def checked_spending(total: int) -> int:
    """How many starts a job has used of its rates. ValueError."""
    # Not isinstance: True is an int.
    if type(total) is not int or not 0 <= total <= MAX_COST:
        raise ValueError(f"spend({shorten(str(total))}): how many starts its rates count, from 0 to {MAX_COST}")
    return total


def checked_cost(cost: object, place: str = "") -> int:
    """How many starts of a job its rates count. ValueError; place: whose it is, for the message."""
    if type(cost) is not int or not 1 <= cost <= MAX_COST:
        # By str: the result of another node, which is not there yet, then says itself what is wrong.
        shown = shorten(cost if isinstance(cost, int | float) else str(cost))
        raise ValueError(f"{place}cost={shown}: how many starts a rate counts, from 1 to {MAX_COST}")
    return cost


def check_cost_within(cost: int, limits: Mapping[str, Limit]) -> None:
    """ValueError if a job costs more than one of these limits, by name, lets start in a whole period."""
    for name, limit in limits.items():
        if limit.count and cost > limit.count:
            raise ValueError(f"cost={cost} is more than {name} lets start in a whole period: {limit.rate_text}")


def parse_limit(most: int | None = None, rate_text: str | None = None, weight: int | None = None) -> Limit | None:
    """The limit of these settings; None if there is none. ValueError."""
    if most is None and rate_text is None and weight is None:
        return None
    # Not isinstance: True is an int.
    if most is not None and (type(most) is not int or not 0 <= most <= UNLIMITED):
        raise ValueError(f"limit={most!r}: how many at once, from 0 to {UNLIMITED}")
    if weight is not None and (type(weight) is not int or not 1 <= weight <= MOST_WEIGHT):
        raise ValueError(f"weight={weight!r}: how many starts beside those of other keys, from 1 to {MOST_WEIGHT}")
    count, period = (0, 0) if rate_text is None else rate(rate_text)
    return Limit(most, count, period, weight=weight or 1)

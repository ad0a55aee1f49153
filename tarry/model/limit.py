"""Limits: how many jobs run at once, and how many start in a period. They delay; nothing fails for them.

A limit has a name: `queue:mail` for all jobs of a queue, `task:shop.send` for all of a task, `each:shop.send` for those
of a task that have the same key, each key by itself. How far a limit is used is a Level, and the arithmetic of both is
here. A rate is counted as the Generic Cell Rate Algorithm does it (ITU-T I.371): one time says all.
"""

import contextlib
import re

from msgspec import Struct

from tarry.model.duration import SECOND, microseconds

QUEUE, TASK, EACH = "queue:", "task:", "each:"
UNLIMITED = 2**31
_RATE = re.compile(r"\s*(\d+)\s*/\s*(\d*\.?\d*)\s*([a-z]+)\s*")
_PERIODS = {"second": "s", "sec": "s", "minute": "m", "min": "m", "hour": "h", "day": "d"}


class Limit(Struct, frozen=True):
    """At most `most` at once, and at most `count` starts in any `period` (microseconds). None and 0: no such bound."""

    most: int | None = None
    count: int = 0
    period: int = 0

    @property
    def at_once(self) -> int:
        """How many may start at the same moment: a twentieth of the rate, so that they come in batches and not one by
        one."""
        return max(1, self.count // 20)

    @property
    def spacing(self) -> int:
        """Microseconds from one start to the next in the long run; such that with `at_once` at the beginning of a
        period there are never more than `count` in it. Whole ones, rounded up: so nothing is ever a little too many."""
        return -(-self.period // (self.count - self.at_once + 1))

    def __str__(self) -> str:
        parts = [] if self.most is None else [f"{self.most} at once"]
        if self.count:
            parts.append(f"{self.count} in {self.period / SECOND:g} s")
        return ", ".join(parts) or "none"


class Level(Struct, frozen=True):
    """How far a limit is used."""

    running: int = 0
    next: int = 0
    """When the next start would be on time, had they come evenly spaced; microseconds, 0 for none yet."""

    def room(self, limit: Limit, now: int) -> int:
        """How many may start now."""
        room = UNLIMITED if limit.most is None else max(0, limit.most - self.running)
        if limit.count:
            ahead = max(self._following(limit, now) - now, 0)
            room = min(room, max(0, limit.at_once - -(-ahead // limit.spacing)))
        return room

    def _following(self, limit: Limit, now: int) -> int:
        """When the next start would be on time. Further ahead than it can have come by this limit: then the clock was
        set back (or the limit was a slower one), and starts are not held up until that time comes again."""
        return self.next if self.next <= now + limit.at_once * limit.spacing + limit.period else now

    def again(self, limit: Limit, now: int) -> int | None:
        """When there will be room if there is none now for the rate's sake; None: it is full, or has room."""
        if not limit.count or (limit.most is not None and self.running >= limit.most):
            return None
        at = self._following(limit, now) - (limit.at_once - 1) * limit.spacing
        return at if at > now else None

    def started(self, limit: Limit, count: int, now: int) -> "Level":
        """After so many more have started."""
        following = self.next
        if limit.count:
            following = max(self._following(limit, now), now) + count * limit.spacing
        return Level(self.running + count, following)

    def ended(self, count: int) -> "Level":
        """After so many no longer run."""
        return Level(max(0, self.running - count), self.next)

    def idle(self, now: int) -> bool:
        """As good as never used."""
        return not self.running and self.next <= now


def rate(text: str) -> tuple[int, int]:
    """`"100/s"`, `"10/m"`, `"5/2h"`: how many in how many microseconds; ValueError if it says neither."""
    found = _RATE.fullmatch(text) if isinstance(text, str) else None
    with contextlib.suppress(ValueError):
        if found is not None and int(found[1]):
            unit = _PERIODS.get(found[3].rstrip("s") or "s", found[3])
            if period := microseconds(f"{found[2] or 1}{unit}"):
                return int(found[1]), period
    raise ValueError(f'rate {text!r}: so many in a period, such as "100/s", "10/m" or "5/2h"')


def limited(most: int | None = None, rate_text: str | None = None) -> Limit | None:
    """The limit of these words, None for none; ValueError."""
    if most is None and rate_text is None:
        return None
    if most is not None and (type(most) is not int or most < 0):
        raise ValueError(f"limit={most!r}: how many at once, 0 or more")
    count, period = (0, 0) if rate_text is None else rate(rate_text)
    return Limit(most, count, period)

"""The shares of a limit that several stores keep to together: how large each is to be. Nothing here asks a store.

Each store has a share of the limit as its own limit. What must hold at every moment: for each store the larger of its
share and of what runs there, added up, is no more than the limit. A share may be lowered at any time. One may be raised
only by what is free then, which is known only once all lowered shares are stored: what runs was started before that.

A rate's share may be lowered and raised at any time, but what it is raised by counts as just used: whoever had it may
have used it a moment ago.
"""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from tarry.model.duration import SECOND
from tarry.model.limit import UNLIMITED, Level, Limit, LimitShare

LASTS = 8 * SECOND
"""For so long a share is good once it was written."""
ROTATE_EVERY = 10_000_000
"""Microseconds for which one store keeps the only place of a limit that others want, too."""


class Use(Struct, frozen=True):
    """How one store uses its share of a number, and whether jobs wait there for it."""

    share: int
    used: int
    is_wanted: bool

    @property
    def is_short(self) -> bool:
        """Whether it could use more."""
        return self.is_wanted and self.used >= self.share


def targets(whole: int, uses: Sequence[Use], turn: int) -> list[int]:
    """How large each share is to be. turn: a number that grows, so that stores take turns where there are fewer places
    than stores that want one."""
    short = [number for number, use in enumerate(uses) if use.is_short]
    if not short:
        return [use.share for use in uses]
    fair = whole // sum(use.is_wanted for use in uses)
    kept = {number: _kept(use, whole, fair, len(uses)) for number, use in enumerate(uses) if not use.is_short}
    base, more = divmod(max(0, whole - sum(kept.values())), len(short))
    first = turn % len(short) if base == 0 else 0
    ranks = {number: (place - first) % len(short) for place, number in enumerate(short)}
    return [kept[number] if number in kept else base + (ranks[number] < more) for number in range(len(uses))]


def _kept(use: Use, whole: int, fair: int, among: int) -> int:
    """What a store keeps that has enough, while others want more."""
    # Where jobs wait not down to what it just uses: between two short jobs that is little.
    return min(use.share, fair if use.is_wanted else use.used + whole // (10 * among))


def raise_towards(whole: int, held: Sequence[int], shares: Sequence[int], wanted: Sequence[int]) -> list[int]:
    """The shares, raised towards what is wanted as far as there is room. held: what each store may run or hold now, at
    least its share. That may be more than the limit: a store that is back may still count what was lost with it, while
    others have got its share. No share is raised then to where one more could start."""
    free = whole - sum(held)
    more = []
    for has, share, want in zip(held, shares, wanted, strict=True):
        # What runs above a share that was lowered counts already.
        step = max(0, min(want - share, free + max(0, has - share)))
        more.append(share + step)
        free -= max(0, share + step - has)
    return more


def fit(whole: int, shares: Sequence[int]) -> Sequence[int]:
    """The shares, none larger than an equal part if together they are more than the limit: two may have set it at the
    same moment, or a store has come back with what it had some time ago."""
    return shares if sum(shares) <= whole else [*map(min, shares, equal_parts(whole, len(shares)))]


def equal_parts(whole: int, among: int) -> list[int]:
    """The parts of a number, which add up to it."""
    return [whole // among + (number < whole % among) for number in range(among)]


def first_shares(limit: Limit, among: int, until: int = 0, set_at: int = 0) -> list[Limit]:
    """The shares of a limit that is set on all stores for the first time."""
    most = [None] * among if limit.most is None else equal_parts(limit.most, among)
    counts = equal_parts(limit.count, among)
    return [share_of(limit, *each, until, set_at) for each in zip(most, counts, strict=True)]


def share_of(whole: Limit, most: int | None, count: int, until: int = 0, set_at: int = 0) -> Limit:
    """A share with these numbers, as a store keeps it. until: when it ends; 0: never."""
    # A rate of no start at all cannot be said as a rate: nothing may run then.
    if whole.count and not count:
        most = 0
    return replace(whole, most=most, count=count, share=LimitShare(whole.most, whole.count, until, set_at))


def most_of(share: Limit) -> int | None:
    """How many at once the share allows; of a limit without such a number, None."""
    return None if share.share is None or share.share.most is None else share.most or 0


def with_whole(share: Limit, whole: Limit, equal: Limit) -> Limit:
    """A share of a limit that has changed: no larger than before, nor than an equal part. equal: that part."""
    if share.share is None:
        return equal
    old, new = most_of(share), most_of(equal)
    # What had no such bound has a new one: any equal part of it will do.
    most = new if old is None or new is None else min(old, new)
    count = equal.count if not share.share.count else min(share.count, equal.count)
    return share_of(whole, most, count, share.share.until, set_at_of(equal))


def newest(parts: Sequence[Limit]) -> Limit:
    """Of shares of a limit the one that knows it as it was set last."""

    # Of two that were set at the same moment the smaller one.
    def rank(part: Limit) -> tuple[int, int, int, int]:
        whole = part.whole
        most = UNLIMITED if whole.most is None else whole.most
        return -set_at_of(part), most, whole.count or UNLIMITED, -whole.period

    return min(parts, key=rank)


def set_at_of(share: Limit) -> int:
    """When the limit of which it is a share was set; microseconds, 0: not known."""
    return 0 if share.share is None else share.share.set_at


def tokens_used(share: Limit, level: Level, now: int) -> int:
    """About how many starts of the share of a rate are used."""
    if not share.count:
        return 0
    left = level.starts(share, now)
    return share.count - share.count * left // share.at_once


def is_fresh(level: Level, period: int, now: int) -> bool:
    """Whether nothing has started for a whole period, so that what a share is lowered by need not count as used."""
    return level.next + period <= now

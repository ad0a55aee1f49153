"""Merges the answers of several stores into one."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from tarry.model.job import Job, State
from tarry.model.limit import EACH, Level, Limit
from tarry.store.rules.base import Backlog, PlaceAnswer, Tally, Want, band

Limits = dict[str, tuple[Limit, Level]]


def fair_share(whole: int, among: int) -> int:
    """An equal part, rounded up."""
    # It is cheaper to ask a shard for one job too many than to call once more.
    return -(-whole // among)


def unmet(wants: Sequence[Want], jobs: Sequence[Job]) -> list[Want]:
    """What is still wanted after these jobs came."""
    came: defaultdict[tuple[str, int], int] = defaultdict(int)
    for job in jobs:
        came[job.queue, band(job.priority)] += 1
    left = []
    for want in wants:
        # What came is counted once, also when two wants name the same queue and band.
        met = min(came[want.queue, want.band], want.count)
        came[want.queue, want.band] -= met
        left.append(replace(want, count=want.count - met))
    return left


def earliest(times: Iterable[int | None]) -> int | None:
    """The earliest of these times; None if there is none."""
    return min((time for time in times if time is not None), default=None)


def tallies(all: Iterable[Tally]) -> list[Tally]:
    """One tally for each queue, task and state."""
    groups: defaultdict[tuple[str, str, State], list[Tally]] = defaultdict(list)
    for tally in all:
        groups[tally.queue, tally.task, tally.state].append(tally)
    return [_sum(group) for _, group in sorted(groups.items())]


def _sum(group: Sequence[Tally]) -> Tally:
    return replace(
        group[0],
        count=sum(tally.count for tally in group),
        oldest=min(tally.oldest for tally in group),
        bytes=sum(tally.bytes for tally in group),
    )


def backlog(parts: Iterable[Backlog], now: int, most: int) -> Backlog:
    """What waits on all shards."""
    # Only shards where something waits: an empty shard says `now` for its oldest job.
    there = [part for part in parts if part.count]
    return Backlog(min(most, sum(part.count for part in there)), min((part.oldest for part in there), default=now))


def values(parts: Mapping[int, Mapping[str, bytes]], home: Callable[[str], int]) -> dict[str, bytes]:
    """Named values by name."""
    # After a shard was added, a value may be on two shards. The one on the shard of its name counts.
    found: dict[str, bytes] = {}
    for number, part in parts.items():
        found |= {name: part[name] for name in part if name not in found or home(name) == number}
    return dict(sorted(found.items()))


def places(one: PlaceAnswer, other: PlaceAnswer) -> PlaceAnswer:
    """The answers of two stores that were asked for one place, the second one where the first had none."""
    if other.is_taken:
        return other
    again = earliest((one.again, other.again))
    return PlaceAnswer(False, again, max(one.most, other.most), one.is_limited or other.is_limited)


def queues(parts: Iterable[Mapping[str, bool]]) -> dict[str, bool]:
    """Queues by name; one is paused if it is on any shard."""
    seen: dict[str, bool] = {}
    for queue, paused in (item for part in parts for item in part.items()):
        seen[queue] = seen.get(queue, False) or paused
    return dict(sorted(seen.items()))


def levels(parts: Sequence[Sequence[Level]]) -> list[Level]:
    """The same levels on all shards, each as one."""
    return [_level(found) for found in zip(*parts, strict=True)]


def _level(found: Collection[Level]) -> Level:
    return Level(sum(level.running for level in found), max(level.next for level in found))


def limits(parts: Mapping[int, Limits], among: int) -> Limits:
    """The limits by name, from the limits of each shard by its number. A limit that is not set alike on all shards
    counts as none."""
    names = sorted({name for part in parts.values() for name in part})
    return {name: _limit(name, [part.get(name) for part in parts.values()], among) for name in names}


def _limit(name: str, found: Sequence[tuple[Limit, Level] | None], among: int) -> tuple[Limit, Level]:
    pairs = [pair for pair in found if pair is not None]
    level = _level([level for _, level in pairs])
    wholes = {limit.whole for limit, _ in pairs}
    # A shard that was added does not keep to the limit, nor one that has no share of it. While a shard is away that is
    # not known, and the limit stays.
    is_shared = among == 1 or name.startswith(EACH) or all(limit.share is not None for limit, _ in pairs)
    alike = len(pairs) == len(found) and len(wholes) == 1 and is_shared
    return (pairs[0][0] if among == 1 else min(wholes, key=str) if alike or len(found) < among else Limit()), level

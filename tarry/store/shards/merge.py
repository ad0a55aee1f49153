"""Merges the answers of several stores into one."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec.structs import replace

from tarry.model.job import Job, State
from tarry.model.limit import QUEUE, Level, Limit
from tarry.store.rules.base import Backlog, Tally, Want, band

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


def limit_share(name: str, limit: Limit, number: int, among: int) -> Limit:
    """The part of a limit for the shard of that number: of a queue's limit a share of at least one, else all."""
    # The jobs of a limited task live on one shard, so that shard needs the whole limit.
    if not name.startswith(QUEUE):
        return limit
    # `and` keeps None (no limit) and 0 (nothing may start). Else a share of 0 would stop the queue on this shard.
    most = limit.most and max(1, limit.most // among + (number < limit.most % among))
    count = limit.count and max(1, limit.count // among + (number < limit.count % among))
    return replace(limit, most=most, count=count)


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
    return {
        name: _limit(name, {n: part[name] for n, part in parts.items() if name in part}, parts, among) for name in names
    }


def _limit(
    name: str, pairs: Mapping[int, tuple[Limit, Level]], parts: Mapping[int, Limits], among: int
) -> tuple[Limit, Level]:
    level = _level([level for _, level in pairs.values()])
    whole = next(iter(pairs.values()))[0]
    if name.startswith(QUEUE):
        most = None if whole.most is None else sum(limit.most or 0 for limit, _ in pairs.values())
        whole = replace(whole, most=most, count=sum(limit.count for limit, _ in pairs.values()))
    # A shard that was added does not keep to the limit. While a shard is away that is not known, and the limit stays.
    alike = all(number in pairs and pairs[number][0] == limit_share(name, whole, number, among) for number in parts)
    return (whole if alike or len(parts) < among else Limit()), level

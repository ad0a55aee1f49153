"""Several stores' answers as one."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from tarry.model.job import Job, State
from tarry.model.limit import QUEUE, Level, Limit
from tarry.store.base import Backlog, Tally, Want, band

Limits = dict[str, tuple[Limit, Level]]


def part(whole: int, among: int) -> int:
    """A fair part, rounded up: better one shard asked for a job too many than one call more."""
    return -(-whole // among)


def unmet(wants: Sequence[Want], jobs: Sequence[Job]) -> list[Want]:
    """What is still wanted when these jobs were had."""
    had: defaultdict[tuple[str, int], int] = defaultdict(int)
    for job in jobs:
        had[job.queue, band(job.priority)] += 1
    left = []
    for want in wants:
        met = min(had[want.queue, want.band], want.count)
        had[want.queue, want.band] -= met
        left.append(replace(want, count=want.count - met))
    return left


def earliest(times: Iterable[int | None]) -> int | None:
    """The first moment of these; None if there is none."""
    return min((time for time in times if time is not None), default=None)


def tallies(all: Iterable[Tally]) -> list[Tally]:
    """One for each queue, task and state."""
    groups: defaultdict[tuple[str, str, State], list[Tally]] = defaultdict(list)
    for tally in all:
        groups[tally.queue, tally.task, tally.state].append(tally)
    return [_summed(group) for _, group in sorted(groups.items())]


def _summed(group: Sequence[Tally]) -> Tally:
    return replace(
        group[0],
        count=sum(tally.count for tally in group),
        oldest=min(tally.oldest for tally in group),
        bytes=sum(tally.bytes for tally in group),
    )


def backlog(parts: Iterable[Backlog], now: int, most: int) -> Backlog:
    """What waits in all of them."""
    there = [part for part in parts if part.count]
    return Backlog(min(most, sum(part.count for part in there)), min((part.oldest for part in there), default=now))


def cells(parts: Mapping[int, Mapping[str, bytes]], place: Callable[[str], int]) -> dict[str, bytes]:
    """By name; of one that is on several shards, as where one was added, that of its own place."""
    found: dict[str, bytes] = {}
    for number, part in parts.items():
        found |= {name: part[name] for name in part if name not in found or place(name) == number}
    return dict(sorted(found.items()))


def share(name: str, limit: Limit, number: int, among: int) -> Limit:
    """What of a limit the shard of that number keeps to: of a queue's a part, at least one; of others all."""
    if not name.startswith(QUEUE):
        return limit
    most = limit.most and max(1, limit.most // among + (number < limit.most % among))
    count = limit.count and max(1, limit.count // among + (number < limit.count % among))
    return replace(limit, most=most, count=count)


def queues(parts: Iterable[Mapping[str, bool]]) -> dict[str, bool]:
    """By name; paused if any of them says so."""
    seen: dict[str, bool] = {}
    for queue, paused in (item for part in parts for item in part.items()):
        seen[queue] = seen.get(queue, False) or paused
    return dict(sorted(seen.items()))


def limits(parts: Mapping[int, Limits], among: int) -> Limits:
    """The limits by name, from those of each shard by its number.

    A limit that is not set alike on all of them, as where one was added, is none: some shard does not keep to it.
    """
    names = sorted({name for part in parts.values() for name in part})
    return {
        name: _limit(name, {n: part[name] for n, part in parts.items() if name in part}, parts, among) for name in names
    }


def _limit(
    name: str, pairs: Mapping[int, tuple[Limit, Level]], parts: Mapping[int, Limits], among: int
) -> tuple[Limit, Level]:
    level = Level(sum(level.running for _, level in pairs.values()), max(level.next for _, level in pairs.values()))
    whole = next(iter(pairs.values()))[0]
    if name.startswith(QUEUE):
        most = None if whole.most is None else sum(limit.most or 0 for limit, _ in pairs.values())
        whole = replace(whole, most=most, count=sum(limit.count for limit, _ in pairs.values()))
    alike = all(number in pairs and pairs[number][0] == share(name, whole, number, among) for number in parts)
    return (whole if alike or len(parts) < among else Limit()), level

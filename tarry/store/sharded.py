"""Many stores as one. A job's id decides its shard, so that everybody finds it without asking.

The shard is drawn by rendezvous hashing: of all stores the one whose hash with the id is highest, so that with one
store more only the jobs that now belong there are looked for elsewhere. What the promises say of order and of keys
holds within one shard; `mint` sees to it that jobs with the same key meet in the same one. A call that fails on one
shard fails, and what the other shards did of it stays: the same as a lost reply, and the same remedy, send it again.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from typing import TypeVar

from msgspec.structs import replace

from tarry.errors import ConfigError
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.limit import QUEUE, Level, Limit
from tarry.store.base import Exchange, Fact, Query, Store, Tally, Want, band
from tarry.store.bell import Bell
from tarry.store.ids import text, uuid7

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class ShardedStore(Store):
    """The stores, in any order: only their urls decide where a job lives, so each url must be there once."""

    def __init__(self, stores: Sequence[Store]) -> None:
        urls = [store.url for store in stores]
        if not urls or len(set(urls)) < len(urls):
            raise ConfigError(f"store = {urls}: shards must be one or more stores, each named once")
        self.url = " ".join(urls)
        self.stores = tuple(stores)
        self._hashes = [blake2b(url.encode() + b"\0", digest_size=8) for url in urls]
        self._turns = count()

    def shard(self, name: bytes) -> int:
        """The number of the store where what has this name or id lives."""
        return max(range(len(self.stores)), key=lambda number: self._weight(number, name))

    def _weight(self, number: int, name: bytes) -> bytes:
        digest = self._hashes[number].copy()
        digest.update(name)
        return digest.digest()

    def mint(self, task: str, key: str | None = None, lane: str | None = None) -> bytes:
        """An id; with a key or a lane, one that falls on the shard of that key, or of the task."""
        if key is None and lane is None:
            return uuid7()
        home = self.home(task, key, lane)
        while self.shard(drawn := uuid7()) != home:
            pass
        return drawn

    def home(self, task: str, key: str | None, lane: str | None = None) -> int:
        """The number of the store where jobs of that task and key live. Those of a task with lanes live all on one,
        which can count them, and so their keys do too."""
        place = f"{task}\0{key}" if lane is None else f"{task}"
        return self.shard(blake2b(place.encode(), digest_size=16).digest())

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        """As promised; ValueError, and nothing is stored, if a job with a key or lane has an id that `mint` did not
        make."""
        for job in jobs:
            placed = job.key is not None or job.lane is not None
            if placed and self.shard(job.id) != self.home(job.task, job.key, job.lane):
                raise ValueError(f"job {text(job.id)} with key {job.key!r} is on the wrong shard: mint its id")
        places = self._places(job.id for job in jobs)
        return _rejoined(places, {n: self.stores[n].insert(_at(jobs, where)) for n, where in places.items()})

    def claim(self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int) -> list[Job]:
        if limit <= 0 or not wants:
            return []
        return self._turn({}, (), wants, limit, owner, lease, now)[1]

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        places = self._places(change.id for change in changes)
        return _rejoined(places, {n: self.stores[n].apply(_at(changes, at), now) for n, at in places.items()})

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        places = self._places(change.id for change in changes)
        answers, jobs = self._turn(places, changes, wants, max(limit, 0), owner, lease, now)
        valid = _rejoined(places, {number: answer.valid for number, answer in answers.items()})
        return Exchange(valid, jobs, _earliest(answer.next_due for answer in answers.values()))

    def _turn(
        self,
        places: dict[int, list[int]],
        changes: Sequence[Change],
        wants: Sequence[Want],
        limit: int,
        owner: str,
        lease: int,
        now: int,
    ) -> tuple[dict[int, Exchange], list[Job]]:
        """One exchange with each shard, each asked for its part; then the rest from those that may have more."""
        answers: dict[int, Exchange] = {}
        jobs: list[Job] = []
        more: list[int] = []
        for left, number in self._order():
            part = _part(limit - len(jobs), left)
            fair = [replace(want, count=_part(want.count, left)) for want in _unmet(wants, jobs)]
            mine = _at(changes, places.get(number, ()))
            answers[number] = self.stores[number].exchange(mine, fair, part, owner, lease, now)
            jobs += answers[number].jobs
            if len(answers[number].jobs) == part:
                more.append(number)
        for number in more:
            if room := limit - len(jobs):
                jobs += self.stores[number].claim(_unmet(wants, jobs), room, owner, lease, now)
        return answers, sorted(jobs, key=lambda job: (-job.priority, job.due, job.id))

    def _order(self) -> list[tuple[int, int]]:
        """Every shard, another first each time; with each, how many are still to come, itself counted."""
        size, turn = len(self.stores), next(self._turns)
        return [(size - place, (turn + place) % size) for place in range(size)]

    def next_due(self) -> int | None:
        return _earliest(store.next_due() for store in self.stores)

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        claims = list(held)
        places = self._places(which for which, _ in claims)
        lost = [self.stores[n].extend(owner, _at(claims, where), lease, now) for n, where in places.items()]
        return [which for part in lost for which in part]

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        jobs: list[Job] = []
        for store in self.stores:
            jobs += store.reclaim(now, of, limit - len(jobs))
        return jobs

    def owners(self) -> list[str]:
        return sorted({owner for store in self.stores for owner in store.owners()})

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        return self.stores[self.shard(name.encode())].hold(name, owner, until, now)

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        places = self._places(ids)
        return _rejoined(places, {n: self.stores[n].get(_at(ids, where)) for n, where in places.items()})

    def find(self, query: Query) -> list[Job]:
        found = [job for store in self.stores for job in store.find(query)]
        return sorted(found, key=lambda job: job.id)[: query.limit]

    def counts(self) -> list[Tally]:
        groups: defaultdict[tuple[str, str, State], list[Tally]] = defaultdict(list)
        for tally in (tally for store in self.stores for tally in store.counts()):
            groups[tally.queue, tally.task, tally.state].append(tally)
        return [_summed(tallies) for _, tallies in sorted(groups.items())]

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        """As promised; each shard may keep an equal part of the bytes."""
        pruned, among = 0, len(self.stores)
        parts = {queue: most // among for queue, most in (by_queue or {}).items()}
        for store in self.stores:
            pruned += store.prune(now, most_bytes // among, limit - pruned, parts)
        return pruned

    def pause(self, queue: str, paused: bool) -> None:
        for store in self.stores:
            store.pause(queue, paused)

    def mark(self, marks: Sequence[tuple[bytes, int, bytes]]) -> None:
        for n, where in self._places(id for id, _, _ in marks).items():
            self.stores[n].mark(_at(marks, where))

    def limit(self, name: str, limit: Limit | None) -> None:
        """As promised for tasks, whose jobs live all on one shard if they were enqueued limited. The limit of a queue
        is shared out: each shard keeps to its part, which is at least one."""
        among = len(self.stores)
        for number, store in enumerate(self.stores):
            store.limit(name, _share(limit, number, among) if limit and name.startswith(QUEUE) else limit)

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        found: defaultdict[str, list[tuple[Limit, Level]]] = defaultdict(list)
        for store in self.stores:
            for name, pair in store.limits().items():
                found[name].append(pair)
        return {name: _joined(name, pairs) for name, pairs in sorted(found.items())}

    def cells(self, prefix: str) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        for store in self.stores:
            found |= store.cells(prefix)
        return dict(sorted(found.items()))

    def write(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        return self.stores[self.shard(name.encode())].write(name, value, was)

    def queues(self) -> dict[str, bool]:
        seen: defaultdict[str, bool] = defaultdict(bool)
        for queue, paused in (item for store in self.stores for item in store.queues().items()):
            seen[queue] |= paused
        return dict(sorted(seen.items()))

    def bell(self) -> Bell:
        return _Chime([store.bell() for store in self.stores])

    def ring_recall(self) -> None:
        for store in self.stores:
            store.ring_recall()

    def time(self) -> int:
        """The first store's clock: all processes list the stores in the same order, so all have the same time."""
        return self.stores[0].time()

    def facts(self) -> list[Fact]:
        return [replace(fact, name=f"{store.url} {fact.name}") for store in self.stores for fact in store.facts()]

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def _places(self, ids: Iterable[bytes]) -> dict[int, list[int]]:
        """For each shard that has any of them, which: their positions."""
        places: dict[int, list[int]] = {}
        for position, which in enumerate(ids):
            places.setdefault(self.shard(which), []).append(position)
        return places


class _Chime(Bell):
    """One sleeper that hears the bells of all shards."""

    def __init__(self, bells: Sequence[Bell]) -> None:
        super().__init__()
        self._bells = bells

    def arm(self, topic: str) -> None:
        for bell in self._bells:
            bell.arm(topic)

    def disarm(self) -> None:
        for bell in self._bells:
            bell.disarm()

    def filenos(self) -> list[int]:
        return [*super().filenos(), *(fd for bell in self._bells for fd in bell.filenos())]

    def clear(self) -> bytes:
        for bell in self._bells:
            bell.clear()
        return super().clear()

    def close(self) -> None:
        super().close()
        for bell in self._bells:
            bell.close()


def _part(whole: int, among: int) -> int:
    """A fair part, rounded up: better one shard asked for a job too many than one call more."""
    return -(-whole // among)


def _unmet(wants: Sequence[Want], jobs: Sequence[Job]) -> list[Want]:
    """What is still wanted when these jobs were had."""
    had: defaultdict[tuple[str, int], int] = defaultdict(int)
    for job in jobs:
        had[job.queue, band(job.priority)] += 1
    unmet = []
    for want in wants:
        met = min(had[want.queue, want.band], want.count)
        had[want.queue, want.band] -= met
        unmet.append(replace(want, count=want.count - met))
    return unmet


def _at(items: Sequence[Item], positions: Sequence[int]) -> list[Item]:
    return [items[position] for position in positions]


def _rejoined(places: dict[int, list[int]], answers: dict[int, list[Answer]]) -> list[Answer]:
    """The shards' answers, in the order in which their questions came."""
    pairs = [pair for number, where in places.items() for pair in zip(where, answers[number], strict=True)]
    return [answer for _, answer in sorted(pairs, key=lambda pair: pair[0])]


def _share(limit: Limit, number: int, among: int) -> Limit:
    most = limit.most and max(1, limit.most // among + (number < limit.most % among))
    count = limit.count and max(1, limit.count // among + (number < limit.count % among))
    return replace(limit, most=most, count=count)


def _joined(name: str, pairs: Sequence[tuple[Limit, Level]]) -> tuple[Limit, Level]:
    first = pairs[0][0]
    level = Level(sum(level.running for _, level in pairs), max(level.next for _, level in pairs))
    if not name.startswith(QUEUE):
        return first, level
    most = None if first.most is None else sum(limit.most or 0 for limit, _ in pairs)
    return replace(first, most=most, count=sum(limit.count for limit, _ in pairs)), level


def _earliest(times: Iterable[int | None]) -> int | None:
    return min((time for time in times if time is not None), default=None)


def _summed(tallies: Sequence[Tally]) -> Tally:
    return replace(
        tallies[0],
        count=sum(tally.count for tally in tallies),
        oldest=min(tally.oldest for tally in tallies),
        bytes=sum(tally.bytes for tally in tallies),
    )

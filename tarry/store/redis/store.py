"""The store in a Redis server: one script a verb, so that each call is done whole.

All keys begin with one hash tag and so live in one slot of a cluster. A job is one field of a hash; the lines in which
jobs wait, in the order in which they are to come, are sorted sets of pages (`lua/pages.lua`). Who runs what is a hash
of its own: so a claim writes few bytes and leaves the record alone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any

from tarry.errors import StoreNewer
from tarry.model.change import Change
from tarry.model.job import Job
from tarry.model.limit import Level, Limit
from tarry.store.base import Backlog, Exchange, Fact, Query, Store, Tally, Want
from tarry.store.redis import scripts
from tarry.store.redis.changes import packed, rounds
from tarry.store.redis.exchange import NO_CHANGES, Claim, earliest, made
from tarry.store.redis.facts import facts, refuse_eviction
from tarry.store.redis.insert import parts, words
from tarry.store.redis.link import Call, Link, Script, Word
from tarry.store.redis.pruning import Pruning
from tarry.store.redis.reading import jobs
from tarry.store.redis.record import CODE, STATES, called, epoch_bytes, rank
from tarry.store.shards.joined import unmet
from tarry.store.shared.bell import Bell
from tarry.store.shared.transport import Transport
from tarry.store.shared.uncertain import a_part_is_done

AT_ONCE = 1000
"""At most so many jobs a script, which nobody else is served during."""
SCHEMA = 1
SAFER = "rediss:// with ssl_ca_certs=FILE in the URL"
"""Said by `tarry check` of a server that is reached without TLS that is verified."""
CONFIRMED_WITHIN = 5.0
_BYTES = 4 * 2**20
"""A script's arguments take about so much at most, unless one job does alone."""


class RedisStore(Store):
    """Jobs in the server that `link` leads to, in keys that begin with `prefix`, which is a hash tag: `{tarry}`."""

    confirms = True

    def __init__(self, link: Link, prefix: str, transport: Transport | None = None) -> None:
        self.url = link.url
        self._transport = transport
        self._link = link
        self._prefix = prefix
        self._keys = (f"{prefix}:jobs",)
        self._pruning = Pruning(partial(self._run, scripts.PRUNE))
        refuse_eviction(link)
        there = int(self._run(scripts.OPEN, SCHEMA))
        if there > SCHEMA:
            raise StoreNewer(f"{self.url} has schema {there}, this tarry knows {SCHEMA}: upgrade tarry here")

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        lives = [job.id for job in jobs]
        pieces = list(parts(jobs, AT_ONCE, _BYTES))
        start = 0
        for piece, held in zip(pieces, self._run_all(scripts.INSERT, map(words, pieces)), strict=True):
            for position, id in zip(held[::2], held[1::2], strict=True):
                lives[start + position] = id
            start += len(piece)
        return lives

    def confirm(self, jobs: Sequence[Job]) -> None:
        self._link.replicated(1, CONFIRMED_WITHIN, False)

    def claim(self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int) -> list[Job]:
        return self.exchange((), wants, limit, owner, lease, now).jobs

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        return self.exchange(changes, (), 0, "", 0, now).valid

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        """As promised. More changes or jobs than a script takes are several scripts, each done whole."""
        claim = Claim(owner, lease, now)
        *first, last = [packed(part) for part in rounds(changes, AT_ONCE)] or [NO_CHANGES]
        asked = [claim.words(part, (), 0) for part in first] + [claim.words(last, wants, min(limit, AT_ONCE))]
        answers = self._run_all(scripts.EXCHANGE, asked)
        valid = made(changes, zip([*first, last], [answer[0] for answer in answers], strict=True))
        _, flat, due, again = answers[-1]
        found = claim.jobs(flat)
        if len(found) == AT_ONCE < limit:
            with a_part_is_done():
                due = self._claim_on(claim, wants, limit, found)
        found.sort(key=rank)
        return Exchange(valid, found, earliest(due, again))

    def _claim_on(self, claim: Claim, wants: Sequence[Want], limit: int, found: list[Job]) -> bytes:
        """Adds what more than one script claims; answers what is due next. The first made due jobs ready."""
        while True:
            most = min(limit - len(found), AT_ONCE)
            asked = claim.words(NO_CHANGES, unmet(wants, found), most, promote=False)
            _, flat, due, _ = self._run(scripts.EXCHANGE, *asked)
            found += claim.jobs(flat)
            if len(flat) < 2 * AT_ONCE or len(found) == limit:
                return bytes(due)

    def next_due(self) -> int | None:
        page = self._link.command("ZRANGE", f"{self._prefix}:due", 0, 0)
        return int.from_bytes(page[0][:8], "big") if page else None

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        if not held:
            return []
        claims = list(held)
        parts = [claims[start : start + AT_ONCE] for start in range(0, len(claims), AT_ONCE)]
        asked = [[now, owner, lease, *_flat((id, epoch_bytes(epoch)) for id, epoch in part)] for part in parts]
        return list(chain.from_iterable(self._run_all(scripts.EXTEND, asked)))

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        return jobs(self._run(scripts.RECLAIM, now, limit, *(() if of is None else (of,))))

    def owners(self) -> list[str]:
        return sorted(owner.decode() for owner in self._link.command("HKEYS", f"{self._prefix}:held"))

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        return bool(self._run(scripts.HOLD, name, owner, until, now))

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        found: list[Job | None] = []
        parts = [ids[start : start + AT_ONCE] for start in range(0, len(ids), AT_ONCE)]
        for part, (records, entries) in zip(parts, self._run_all(scripts.GET, parts), strict=True):
            known = {job.id: job for job in jobs([*_flat(zip(part, records, entries, strict=True))])}
            found += [known.get(id) for id in part]
        return found

    def find(self, query: Query) -> list[Job]:
        found: list[Job] = []
        states = "".join(str(CODE[state]) for state in query.states)
        before = "" if query.before is None else query.before
        narrow = {"queue": query.queue, "task": query.task, "key": query.key}
        wanted = [word for name, value in narrow.items() if value is not None for word in (name, value)]
        after = query.after
        while len(found) < query.limit:
            most = min(query.limit - len(found), AT_ONCE)
            flat, after = self._run(scripts.FIND, after.ljust(16, b"\0"), most, states, before, *wanted)
            found += jobs(flat)
            after = after or (found[-1].id if len(flat) == 3 * most else b"")
            if not after:
                break
        return found

    def counts(self) -> list[Tally]:
        oldest: dict[bytes, int] = {}
        after = bytes(16)
        while after:
            flat, after = self._run(scripts.OLDEST, after)
            for group, due in zip(flat[::2], flat[1::2], strict=True):
                time = int.from_bytes(due, "big")
                oldest[group] = min(time, oldest.get(group, time))
        counts, sizes = (self._hash(name) for name in ("counts", "sizes"))
        now = 0 if counts.keys() <= oldest.keys() else self.time()
        return [
            Tally(*called(group[1:]), STATES[int(group[:1])], int(n), oldest.get(group, now), int(sizes.get(group, 0)))
            for group, n in sorted(counts.items())
        ]

    def leaving(self, start: int, end: int, limit: int) -> list[Job]:
        return jobs(self._run(scripts.LEAVING, start, end, limit))

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        return self._pruning.prune(now, most_bytes, limit, by_queue or {})

    def pause(self, queue: str, paused: bool) -> None:
        self._run(scripts.PAUSE, queue, int(paused))

    def queues(self) -> dict[str, bool]:
        ready, paused = self._run(scripts.QUEUES)
        return {queue.decode(): False for queue in sorted(ready)} | {queue.decode(): True for queue in paused}

    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        return Backlog(*map(int, self._run(scripts.BACKLOG, now, most, int(queues is None), *(queues or ()))))

    def mark(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> None:
        words = ((id, epoch_bytes(epoch), progress) for id, epoch, progress in marks)
        if flat := _flat(words):
            self._run(scripts.MARK, owner, *flat)

    def limit(self, name: str, limit: Limit | None) -> None:
        kind, _, which = name.partition(":")
        numbers = () if limit is None else (_written(limit),)
        after = bytes(16) if self._run(scripts.LIMIT, name, kind, which, *numbers) else b""
        with a_part_is_done():
            while after:
                after = self._run(scripts.LAYING, which, after)

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        limits = {name.decode(): _read(value) for name, value in sorted(self._hash("limits").items())}
        levels = self._link.command("HMGET", f"{self._prefix}:levels", *limits) if limits else ()
        return {
            name: (limit, Level(*map(int, level.split())) if level else Level())
            for (name, limit), level in zip(limits.items(), levels, strict=True)
        }

    def recount(self, now: int) -> int:
        return int(self._run(scripts.RECOUNT, now))

    def cells(self, prefix: str) -> dict[str, bytes]:
        start = prefix.encode()
        cells = sorted((name, value) for name, value in self._hash("cells").items() if name.startswith(start))
        return {name.decode(): value for name, value in cells}

    def cell(self, name: str) -> bytes | None:
        value: bytes | None = self._link.command("HGET", f"{self._prefix}:cells", name)
        return value

    def write(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        words = [(0, b"") if word is None else (1, word) for word in (was, value)]
        return bool(self._run(scripts.WRITE, name, *_flat(words)))

    def bell(self) -> Bell:
        return self._link.bell(f"{self._prefix}:bell")

    def ring_recall(self) -> None:
        self._link.command("PUBLISH", f"{self._prefix}:bell:c", "")

    def time(self) -> int:
        seconds, microseconds = self._link.command("TIME")
        return int(seconds) * 1_000_000 + int(microseconds)

    def facts(self) -> list[Fact]:
        way = [self._transport.fact(SAFER)] if self._transport else []
        return [*facts(self._link), Fact("schema", str(SCHEMA)), *way]

    def close(self) -> None:
        self._link.close()

    def _run(self, script: Script, *args: Word) -> Any:
        return self._link.run(script, self._keys, args)

    def _run_all(self, script: Script, calls: Iterable[Sequence[Word]]) -> list[Any]:
        asked = [Call(script, self._keys, args) for args in calls]
        return self._link.run_all(asked) if asked else []

    def _hash(self, name: str) -> dict[bytes, bytes]:
        flat = self._link.command("HGETALL", f"{self._prefix}:{name}")
        return dict(zip(flat[::2], flat[1::2], strict=True))


def _flat(rows: Iterable[Iterable[Any]]) -> list[Any]:
    return list(chain.from_iterable(rows))


def _written(limit: Limit) -> str:
    """Also the numbers that follow from it, so that the scripts need not know how."""
    most = "-" if limit.most is None else limit.most
    spacing = limit.spacing if limit.count else 0
    return f"{most} {limit.count} {limit.period} {limit.at_once} {spacing}"


@lru_cache(maxsize=1000)
def _read(text: bytes) -> Limit:
    most, count, period, *_ = text.decode().split()
    return Limit(None if most == "-" else int(most), int(count), int(period))

"""The store in a Redis server: one script for each verb, so that each call is done whole or not at all.

All keys begin with one hash tag and so live in one slot of a cluster. A job is one field of a hash. Jobs wait in lines,
which are sorted sets of pages (`lua/lines.lua`). Another hash says which owner runs which job, so a claim writes few
bytes and leaves the record alone.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache, partial
from itertools import chain
from typing import Any

from tarry.errors import QueueFull, StoreError, TenantFull
from tarry.model.bound import Bound, KeyBounds
from tarry.model.change import Change
from tarry.model.job import Job, JobLabel
from tarry.model.limit import UNLIMITED, KeyLimit, Level, Limit, LimitShare
from tarry.model.wake import WakeReason
from tarry.store.redis import scripts
from tarry.store.redis.changes import PackedChanges, pack_changes, split_rounds
from tarry.store.redis.diagnostics import diagnostics, refuse_eviction
from tarry.store.redis.exchange import NO_CHANGES, ClaimRequest, earliest, parse_validity
from tarry.store.redis.flows import RedisFlows
from tarry.store.redis.history import RedisHistory
from tarry.store.redis.insert import bounded_arguments, insert_arguments, split_jobs, supersede_arguments
from tarry.store.redis.link.base import RedisLink, Script, ScriptCall, Word
from tarry.store.redis.link.line_wakeup import LineWakeup
from tarry.store.redis.link.wakeup import channel
from tarry.store.redis.pruning import RedisPruner
from tarry.store.redis.reading import parse_jobs
from tarry.store.redis.record import STATE_BYTE, STATE_OF_BYTE, epoch_bytes, place_in_line, split_names
from tarry.store.redis.rights import require_rights, rights
from tarry.store.redis.schema import RedisSchema
from tarry.store.redis.waiting import RedisWaiting
from tarry.store.rules import key_limits
from tarry.store.rules.base import (
    NOTHING,
    Backlog,
    Diagnostic,
    Exchange,
    NextClaim,
    PlaceAnswer,
    Query,
    ShareChange,
    Store,
    Tally,
    ValueChange,
    Want,
)
from tarry.store.rules.kept_places import KeptPlace
from tarry.store.rules.lanes import JobKey
from tarry.store.rules.sleeper import Wakeup
from tarry.store.shards.merge import unmet
from tarry.store.shared.transport import Transport
from tarry.store.shared.uncertain import NOT_DONE, a_part_is_done

# The server does nothing else while a script runs.
AT_ONCE = 1000
"""The most jobs of one script."""
SAFER = "rediss:// with ssl_ca_certs=FILE in the URL"
"""The advice of `tarry check` where the server is not reached through verified TLS."""
CONFIRMED_WITHIN = 5.0
"""Seconds that `confirm` waits for replicas."""
_WRITTEN_AT_ONCE = 100
"""Named values of one script."""
_MAX_BYTES = 4 * 2**20
"""The arguments of a script take about so many bytes at most, unless one job alone takes more."""

_IDS_OF_PAGE = 30
"""How many ids a page has at most: `PAGE_BYTES` in `lua/lines.lua`."""


class RedisStore(Store):
    """Jobs in the server that `link` leads to, in keys that begin with `prefix`, which is a hash tag: `{tarry}`."""

    can_confirm = is_pooled = True

    def __init__(self, link: RedisLink, prefix: str, transport: Transport | None = None) -> None:
        self.url = link.url
        self._transport = transport
        self._link = link
        self._prefix = prefix
        # In a cluster the keys of a script say which node runs it. The others begin with the same tag.
        self._keys = (f"{prefix}:jobs",)
        self._pruning = RedisPruner(partial(self._run, scripts.PRUNE))
        self.history = RedisHistory(self._run)
        self.waiting = RedisWaiting(self._run, self._run_all)
        self.flows = RedisFlows(self, self._run, self._command)
        # First: a script that is refused one of its commands is broken off half done.
        require_rights(self._run, self.url)
        # Before anything is stored: a server that evicts keys throws jobs away.
        refuse_eviction(link)
        self._schema = RedisSchema(link, prefix)
        self._schema.ensure()

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        if len(jobs) == 1:
            # What most calls insert, so by the shortest way.
            return self._run(scripts.INSERT, *insert_arguments(jobs))[1:] or [jobs[0].id]
        stored_ids = [job.id for job in jobs]
        pieces = list(split_jobs(jobs, AT_ONCE, _MAX_BYTES))
        start = 0
        # The script answers only the jobs whose key another job holds, by their positions in the piece.
        for piece, held in zip(pieces, self._run_all(scripts.INSERT, map(insert_arguments, pieces)), strict=True):
            for position, id in zip(held[::2], held[1::2], strict=True):
                stored_ids[start + position] = id
            start += len(piece)
        return stored_ids

    def insert_bounded(
        self,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound],
        now: int,
        freed: Collection[str] = (),
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes | QueueFull]:
        # Counts are always true here, so nothing has to be counted.
        answers: list[bytes | QueueFull] = [job.id for job in jobs]
        start = 0
        for piece in split_jobs(jobs, AT_ONCE, _MAX_BYTES):
            with a_part_is_done(start > 0):
                held, full, full_keys = self._run(scripts.INSERT_BOUNDED, *bounded_arguments(piece, bounds, key_bounds))
            for position, id in zip(held[::2], held[1::2], strict=True):
                answers[start + position] = id
            for position in full:
                queue = piece[position].queue
                answers[start + position] = QueueFull(queue, bounds[queue].most)
            for position in full_keys:
                answers[start + position] = _key_full(piece[position], key_bounds)
            start += len(piece)
        return answers

    def supersede(self, change: Change, job: Job, now: int) -> bool:
        return bool(self._run(scripts.SUPERSEDE, *supersede_arguments(change, job, now)))

    def oldest_waiting(self, queue: str, limit: int) -> list[Job]:
        return parse_jobs(self._run(scripts.OLDEST_WAITING, queue, max(0, limit)))

    def confirm(self, jobs: Sequence[Job]) -> None:
        self._link.wait_for_replicas(1, CONFIRMED_WITHIN, False)

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        """As promised. More changes or jobs than a script takes go with several scripts, each done whole."""
        claim = ClaimRequest(owner, lease, now)
        *first, last = [pack_changes(part) for part in split_rounds(changes, AT_ONCE)] or [NO_CHANGES]
        # Only the last one claims, when all changes are made.
        asked = [self._exchange(part, claim.arguments(part, (), 0)) for part in first]
        asked.append(self._exchange(last, claim.arguments(last, wants, min(limit, AT_ONCE))))
        answers = self._link.run_all(asked)
        valid = parse_validity(changes, zip([*first, last], [answer[0] for answer in answers], strict=True))
        _, flat, due, again, at = answers[-1][:5]
        found = claim.jobs(flat, at)
        unanswered = False
        if len(found) == AT_ONCE < limit:
            try:
                due = self._claim_on(claim, wants, limit, found)
            except StoreError as error:
                # No error may leave this: changes are made and jobs are claimed. It may have given more.
                unanswered = not isinstance(error, NOT_DONE)
        found.sort(key=place_in_line)
        return Exchange(
            valid,
            found,
            earliest(due, again),
            unanswered=unanswered,
            more_to_release=any(answer[6] for answer in answers if answer[6:]),
            is_held_back=answers[-1][5:6] == [1],
        )

    def _exchange(self, changes: PackedChanges, words: Sequence[Word]) -> ScriptCall:
        return ScriptCall(scripts.EXCHANGE_NODES if changes.effects else scripts.EXCHANGE, self._keys, words)

    def _claim_on(self, claim: ClaimRequest, wants: Sequence[Want], limit: int, found: list[Job]) -> bytes:
        """Adds to `found` what further scripts claim; answers the next due."""
        while True:
            most = min(limit - len(found), AT_ONCE)
            # No promote: the first script has made due jobs ready.
            asked = claim.arguments(NO_CHANGES, unmet(wants, found), most, promote=False)
            _, flat, due, _, at = self._run(scripts.EXCHANGE, *asked)[:5]
            found += claim.jobs(flat, at)
            if len(flat) < 2 * AT_ONCE or len(found) == limit:
                return bytes(due)

    def sleep_and_claim(self, wakeup: Wakeup, seconds: float, also: Sequence[int], claim: NextClaim) -> Exchange | None:
        if not isinstance(wakeup, LineWakeup):
            return super().sleep_and_claim(wakeup, seconds, also, claim)
        request = ClaimRequest(claim.owner, claim.lease, "")
        words = request.arguments(NO_CHANGES, claim.wants, min(claim.limit, AT_ONCE))
        _, answer = wakeup.sleep_with(ScriptCall(scripts.EXCHANGE, self._keys, words), seconds, also)
        if answer is None:
            return None
        _, flat, due, again, at = answer[:5]
        found = sorted(request.jobs(flat, at), key=place_in_line)
        return Exchange([], found, earliest(due, again), claimed_at=int(at))

    def next_due(self) -> int | None:
        page = self._link.command("ZRANGE", f"{self._prefix}:due", 0, 0)
        return int.from_bytes(page[0][:8], "big") if page else None

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        if not held:
            return []
        claims = list(held)
        parts = [claims[start : start + AT_ONCE] for start in range(0, len(claims), AT_ONCE)]
        asked = [[now, owner, lease, *_flatten((id, epoch_bytes(epoch)) for id, epoch in part)] for part in parts]
        return list(chain.from_iterable(self._run_all(scripts.EXTEND, asked)))

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        return parse_jobs(self._run(scripts.RECLAIM, now, limit, *(() if of is None else (of,))))

    def owners(self) -> list[str]:
        return sorted(owner.decode("utf-8", "replace") for owner in self._link.command("HKEYS", f"{self._prefix}:held"))

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        return bool(self._run(scripts.HOLD, name, owner, until, now))

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        found: list[Job | None] = []
        parts = [ids[start : start + AT_ONCE] for start in range(0, len(ids), AT_ONCE)]
        for part, (records, entries) in zip(parts, self._run_all(scripts.GET, parts), strict=True):
            known = {job.id: job for job in parse_jobs([*_flatten(zip(part, records, entries, strict=True))])}
            found += [known.get(id) for id in part]
        return found

    def find(self, query: Query) -> list[Job]:
        found: list[Job] = []
        states = "".join(str(STATE_BYTE[state]) for state in query.states)
        before = "" if query.before is None else query.before
        narrow = {"queue": query.queue, "task": query.task, "key": query.key}
        wanted = [word for name, value in narrow.items() if value is not None for word in (name, value)]
        if query.queues:
            wanted += ["queues", _joined_patterns(query.queues)]
        if query.tasks:
            wanted += ["tasks", _joined_patterns(query.tasks)]
        for name, value in query.labels:
            wanted += ["label", f"{name}={value}"]
        after = query.after
        while len(found) < query.limit:
            most = min(query.limit - len(found), AT_ONCE)
            words = (after.ljust(16, b"\0"), most, states, before, query.until, *wanted)
            flat, after = self._run(scripts.FIND, *words)
            found += parse_jobs(flat)
            # It answers where it stopped if it looked at many jobs and found few. With a full page the last id says it.
            after = after or (found[-1].id if len(flat) == 3 * most else b"")
            if not after:
                break
        return found

    def id_behind(self, after: bytes, count: int, label: JobLabel | None = None) -> bytes | None:
        # Not 0: the page with `after` may end with it. And that page counts, too.
        pages = max(1, count // _IDS_OF_PAGE - 1)
        words = (after.ljust(16, b"\0"), pages) if label is None else (after.ljust(16, b"\0"), pages, "=".join(label))
        return self._run(scripts.ID_BEHIND, *words) or None

    def counts(self) -> list[Tally]:
        # Counts are kept; the oldest jobs must be looked for, in pages, so that other calls get their turn between.
        oldest: dict[bytes, int] = {}
        after = bytes(16)
        while after:
            flat, after = self._run(scripts.OLDEST, after)
            for group, due in zip(flat[::2], flat[1::2], strict=True):
                time = int.from_bytes(due, "big")
                oldest[group] = min(time, oldest.get(group, time))
        counts, sizes = (self._hash(name) for name in ("counts", "sizes"))
        # Jobs that came after the look at the oldest are as old as now. Mostly there are none, and no clock is needed.
        now = 0 if counts.keys() <= oldest.keys() else self.time()
        return [
            Tally(
                *split_names(group[1:]),
                state=STATE_OF_BYTE[int(group[:1])],
                count=int(n),
                oldest=oldest.get(group, now),
                bytes=int(sizes.get(group, 0)),
            )
            for group, n in sorted(counts.items())
        ]

    def expiring(self, start: int, end: int, limit: int) -> list[Job]:
        return parse_jobs(self._run(scripts.EXPIRING, start, end, limit))

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        return self._pruning.prune(now, most_bytes, limit, by_queue or {})

    def pause(self, queue: str, paused: bool) -> None:
        self._run(scripts.PAUSE, queue, int(paused))

    def queues(self) -> dict[str, bool]:
        ready, paused = self._run(scripts.QUEUES)
        return {queue.decode("utf-8", "replace"): False for queue in sorted(ready)} | {
            queue.decode("utf-8", "replace"): True for queue in paused
        }

    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        return Backlog(*map(int, self._run(scripts.BACKLOG, now, most, int(queues is None), *(queues or ()))))

    def save_progress(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> list[bool]:
        words = ((id, epoch_bytes(epoch), progress) for id, epoch, progress in marks)
        if not (flat := _flatten(words)):
            return []
        return [answer == 49 for answer in self._run(scripts.SAVE_PROGRESS, owner, *flat)]

    def limit(self, name: str, limit: Limit | None) -> None:
        kind, _, which = name.partition(":")
        numbers = () if limit is None else (_format_limit(limit),)
        self._give_lanes(which, self._run(scripts.SET_LIMIT, name, kind, which, *numbers))

    def _give_lanes(self, which: str, lines: Sequence[bytes]) -> None:
        """Moves the jobs of these lines of a task that is limited now into lanes."""
        # In parts, so that other calls get a turn between.
        with a_part_is_done():
            for line in lines:
                after = b""
                while after := self._run(scripts.MIGRATE, which, line, after):
                    pass

    def change_shares(self, changes: Sequence[ShareChange], now: int) -> list[bool]:
        words = (
            (each.name, _format_limit(each.was), _format_limit(each.limit), each.used, int(each.gives_more))
            for each in changes
        )
        return [made == 1 for made in self._run(scripts.CHANGE_SHARES, now, *_flatten(words))] if changes else []

    def limit_key(self, task: str, lane: str, limit: KeyLimit | None) -> None:
        value = () if limit is None else (key_limits.encode(limit),)
        self._give_lanes(task, self._run(scripts.LIMIT_KEY, task, lane, *value))

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        limits = {
            name.decode("utf-8", "replace"): _parse_limit(value) for name, value in sorted(self._hash("limits").items())
        }
        return {
            name: (limit, level) for (name, limit), level in zip(limits.items(), self.levels([*limits]), strict=True)
        }

    def levels(self, names: Sequence[str]) -> list[Level]:
        texts = self._link.command("HMGET", f"{self._prefix}:levels", *names) if names else ()
        return [Level(*map(int, text.split())) if text else Level() for text in texts]

    def take_place(self, name: str, key: JobKey, until: int, cost: int, now: int) -> PlaceAnswer:
        is_taken, again, most, is_limited = map(
            int, self._run(scripts.TAKE_PLACE, name, KeptPlace(until, *key).encode(), cost, now)
        )
        time = None if is_taken or again < 0 else again
        return PlaceAnswer(bool(is_taken), time, UNLIMITED if most < 0 else most, bool(is_limited))

    def recount(self, now: int) -> int:
        return int(self._run(scripts.RECOUNT, now))

    def kv_list(self, prefix: str) -> dict[str, bytes]:
        return _cells(self._run(scripts.KV_LIST, prefix))

    def kv_page(self, prefix: str, after: str, limit: int) -> dict[str, bytes]:
        begin = b"(" + after.encode() if after >= prefix else b"[" + prefix.encode()
        return _cells(self._run(scripts.KV_PAGE, begin, b"(" + prefix.encode() + b"\xff", max(0, limit)))

    def kv_count(self, prefix: str) -> int:
        begin = b"[" + prefix.encode()
        return int(self._link.command("ZLEXCOUNT", f"{self._prefix}:cellnames", begin, b"(" + begin[1:] + b"\xff"))

    def kv_read(self, names: Sequence[str]) -> list[bytes | None]:
        return [*self._link.command("HMGET", f"{self._prefix}:cells", *names)] if names else []

    def kv_get(self, name: str) -> bytes | None:
        value: bytes | None = self._link.command("HGET", f"{self._prefix}:cells", name)
        return value

    def kv_cas(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        words = [(0, b"") if word is None else (1, word) for word in (was, value)]
        return bool(self._run(scripts.KV_CAS, name, *_flatten(words)))

    def kv_write(self, changes: Sequence[ValueChange]) -> list[bool]:
        made: list[bool] = []
        for start in range(0, len(changes), _WRITTEN_AT_ONCE):
            part = changes[start : start + _WRITTEN_AT_ONCE]
            words = [
                (name, *_flatten([(0, b"") if word is None else (1, word) for word in (was, value)]))
                for name, value, was in part
            ]
            made += map(bool, self._run(scripts.KV_WRITE, *_flatten(words)))
        return made

    def wakeup(self) -> Wakeup:
        return self._link.wakeup(self._prefix)

    def worker_wakeup(self) -> Wakeup:
        return self._link.worker_wakeup(self._prefix)

    def wake_for_recall(self) -> None:
        self._link.command("PUBLISH", channel(self._prefix, WakeReason.RECALL), "")

    def time(self) -> int:
        seconds, microseconds = self._link.command("TIME")
        return int(seconds) * 1_000_000 + int(microseconds)

    def diagnostics(self) -> list[Diagnostic]:
        way = [self._transport.fact(SAFER)] if self._transport else []
        facts = diagnostics(self._link, *self._keys)
        return [*facts, rights(self._run), Diagnostic("schema", str(self._schema.version())), *way]

    def close(self) -> None:
        self._link.close()

    def _command(self, name: str, key: str, *words: Word) -> Any:
        """One plain command on a key of the store."""
        return self._link.command(name, f"{self._prefix}:{key}", *words)

    def _run(self, script: Script, *args: Word) -> Any:
        return self._link.run(script, self._keys, args)

    def _run_all(self, script: Script, calls: Iterable[Sequence[Word]]) -> list[Any]:
        asked = [ScriptCall(script, self._keys, args) for args in calls]
        return self._link.run_all(asked) if asked else []

    def _hash(self, name: str) -> dict[bytes, bytes]:
        flat = self._link.command("HGETALL", f"{self._prefix}:{name}")
        return dict(zip(flat[::2], flat[1::2], strict=True))


def _cells(flat: Sequence[bytes]) -> dict[str, bytes]:
    """Named values, of which the names and values come in turn."""
    cells = sorted(zip(flat[::2], flat[1::2], strict=True))
    return {name.decode("utf-8", "replace"): value for name, value in cells}


def _flatten(rows: Iterable[Iterable[Any]]) -> list[Any]:
    return list(chain.from_iterable(rows))


def _format_limit(limit: Limit) -> str:
    """The limit's numbers as the scripts read them."""
    most = "-" if limit.most is None else limit.most
    spacing = limit.spacing if limit.count else 0
    # The last two follow from the others: so the scripts need not compute them at each claim.
    weight = f" d{limit.weight}" if limit.weight != 1 else ""
    return f"{most} {limit.count} {limit.period} {limit.at_once} {spacing}{weight}{_format_share(limit.share)}"


def _format_share(share: LimitShare | None) -> str:
    if share is None:
        return ""
    # As it was before there was such a time: a part changes only if it is still written as it was.
    set_at = f":{share.set_at}" if share.set_at else ""
    return f" s{'-' if share.most is None else share.most}:{share.count}:{share.until}{set_at}"


def _parse_share(text: str) -> LimitShare:
    most, count, until, *set_at = text.split(":")
    return LimitShare(_parse_most(most), int(count), int(until), *map(int, set_at[:1]))


def _parse_most(text: str) -> int | None:
    return None if text == "-" else int(text)


@lru_cache(maxsize=1000)
def _parse_limit(text: bytes) -> Limit:
    try:
        most, count, period, _, _, *rest = text.decode().split()
        weight = next((int(word[1:]) for word in rest if word.startswith("d")), 1)
        share = next((_parse_share(word[1:]) for word in rest if word.startswith("s")), None)
        has_keys, has_weights = "k" in rest, "w" in rest
        return Limit(_parse_most(most), int(count), int(period), has_keys, weight, has_weights, share)
    except ValueError:
        return Limit()


def _key_full(job: Job, key_bounds: KeyBounds) -> TenantFull:
    lane = job.lane or ""
    return TenantFull(job.queue, key_bounds[job.task, lane], task=job.task, tenant=lane)


def _joined_patterns(patterns: Sequence[str]) -> str:
    return "\0".join(pattern.replace("\0", "") for pattern in patterns)

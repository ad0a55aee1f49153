"""Many stores as one. A job's id decides its shard, so that everybody finds it without asking.

The shard is drawn by rendezvous hashing: of all stores the one whose hash with the id is highest, so that with one
store more only the jobs that now belong there are looked for elsewhere. What the promises say of order and of keys
holds within one shard; `mint` sees to it that jobs with the same key meet in the same one. A call that fails on one
shard fails, and what the other shards did of it stays: the same as a lost reply, and the same remedy, send it again.

A shard may be away. It then costs the others nothing (see `shard`): ids of new jobs are drawn for those that are there,
`exchange` goes on with them, and every other verb asks all that it can before it raises PartlyUnavailable.

A job need not be where it belongs: a shard was added, or is drained, or a job with a key was moved to where its key
lives. So whoever was given a job from elsewhere remembers where it was, and what is not at home is looked for on all.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import count, islice
from typing import Any, TypeVar

from msgspec.structs import replace

from tarry.errors import (
    ConfigError,
    StoreAway,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.limit import Level, Limit
from tarry.store.base import Backlog, Exchange, Fact, Query, Store, Tally, Want
from tarry.store.ids import text, uuid7
from tarry.store.shards import joined
from tarry.store.shards.answers import Answers, chosen, pieced, positions
from tarry.store.shards.chime import Chime
from tarry.store.shards.ring import Ring
from tarry.store.shards.shard import Shard
from tarry.store.shards.turn import Turn
from tarry.store.shared.bell import Bell

Answer = TypeVar("Answer")

REMEMBERED = 200_000
"""Jobs of which it is known where they are, at most: far more than a process has in hand."""


class ShardedStore(Store):
    """The stores, in any order: only their names decide where a job lives, so each must be there once."""

    def __init__(self, stores: Sequence[Store | Shard]) -> None:
        self.shards = tuple(store if isinstance(store, Shard) else Shard.of(store) for store in stores)
        urls = [shard.url for shard in self.shards]
        names = [shard.name for shard in self.shards]
        if not names or len(set(names)) < len(names):
            raise ConfigError(f"store = {urls}: shards must be one or more stores, each named once")
        self.url = " ".join(urls)
        self._ring = Ring({number: shard.name for number, shard in enumerate(self.shards) if not shard.draining})
        if not self._ring.numbers:
            raise ConfigError(f"store = {urls}: all are draining; new jobs need one that is not")
        self._turns = count()
        self._whereabouts: dict[bytes, int] = {}

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores themselves."""
        return tuple(shard.store for shard in self.shards)

    @property
    def joins(self) -> int:
        return sum(shard.joins for shard in self.shards)

    # Where things live

    def shard(self, name: bytes) -> int:
        """The number of the store where what has this name or id belongs."""
        return self._ring.place(name)

    def mint(self, task: str, key: str | None = None, lane: str | None = None) -> bytes:
        """An id that falls on a shard that is there; with a key or a lane, on that of the key, or of the task."""
        drawn = uuid7()
        if key is None and lane is None:
            takers = [number for number in self._ring.numbers if self.shards[number].takes]
            if len(takers) in (0, len(self._ring.numbers)):
                return drawn
        else:
            takers = [self.home(task, key, lane)]
        while self.shard(drawn) not in takers:
            drawn = uuid7()
        return drawn

    def home(self, task: str, key: str | None, lane: str | None = None) -> int:
        """The number of the store where jobs of that task and key live. Those of a task with lanes live all on one,
        which can count them, and so their keys do too."""
        place = f"{task}\0{key}" if lane is None else f"{task}"
        return self.shard(blake2b(place.encode(), digest_size=16).digest())

    def elsewhere(self, job: Job) -> bytes | None:
        takes = any(self.shards[number].takes for number in self._ring.numbers)
        return self.mint(job.task) if takes and job.key is None and job.lane is None else None

    def fits(self, job: Job) -> bool:
        return (job.key is None and job.lane is None) or self.shard(job.id) == self.belongs(job)

    def belongs(self, job: Job) -> int:
        """The number of the store where a job is to be kept: where its key or lane lives, else as its id says."""
        if job.key is None and job.lane is None:
            return self.shard(job.id)
        return self.home(job.task, job.key, job.lane)

    def _places(self, ids: Iterable[bytes]) -> dict[int, list[int]]:
        """For each shard that has any of them, as far as is known here, which: their positions."""
        places: dict[int, list[int]] = {}
        known = self._whereabouts
        for position, which in enumerate(ids):
            number = known.get(which)
            places.setdefault(self.shard(which) if number is None else number, []).append(position)
        return places

    def _saw(self, number: int, jobs: Iterable[Job]) -> None:
        """These were found there."""
        known = self._whereabouts
        known.update(dict.fromkeys([job.id for job in jobs], number))
        if len(known) > REMEMBERED:
            for id in list(islice(known, REMEMBERED // 2)):
                known.pop(id, None)

    # Asking

    def _ask(self, numbers: Iterable[int], call: Callable[[int, Store], Answer]) -> Answers[Answer]:
        """Asks each of these shards, whatever the others answer."""
        answers: Answers[Answer] = Answers()
        for number in numbers:
            try:
                answers[number] = self.shards[number].ask(lambda store: call(number, store))  # noqa: B023
            except StoreError as error:
                answers.errors[number] = error
        return answers

    def _ask_all(self, call: Callable[[Store], Answer]) -> Answers[Answer]:
        return self._ask(range(len(self.shards)), lambda number, store: call(store))

    # Keeping

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        """As promised; ValueError, and nothing is stored, if a job with a key or lane has an id that `mint` did not
        make. PartlyUnavailable tells of each job that is not stored why: with StoreAway, StoreFull and StoreReadOnly
        surely, with others perhaps."""
        for job in jobs:
            if not self.fits(job):
                raise ValueError(f"job {text(job.id)} with key {job.key!r} is on the wrong shard: mint its id")
        places: dict[int, list[int]] = {}
        for position, job in enumerate(jobs):
            places.setdefault(self.shard(job.id), []).append(position)
        answers = self._ask(places, lambda n, store: store.insert(chosen(jobs, places[n])))
        for number, error in answers.errors.items():
            if isinstance(error, StoreFull | StoreReadOnly):
                self.shards[number].refuse()
        return pieced(answers, places, [job.id for job in jobs])

    def insert_within(self, connection: Any, jobs: Sequence[Job]) -> list[bytes]:
        if len(self.shards) > 1:
            return super().insert_within(connection, jobs)
        return self.shards[0].ask(lambda store: store.insert_within(connection, jobs))

    @property
    def confirms(self) -> bool:
        return all(shard.store.confirms for shard in self.shards if not shard.away)

    def confirm(self, jobs: Sequence[Job]) -> None:
        places = self._places(job.id for job in jobs)
        self._ask(places, lambda n, store: store.confirm(chosen(jobs, places[n]))).told(None)

    # The turn of a worker

    def claim(self, wants: Sequence[Want], limit: int, owner: str, lease: int, now: int) -> list[Job]:
        """As promised, of those shards that are there; an error if none is."""
        if limit <= 0 or not wants:
            return []
        return self.exchange((), wants, limit, owner, lease, now).jobs

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        places = self._places(change.id for change in changes)
        answers = self._ask(places, lambda n, store: store.apply(chosen(changes, places[n]), now))
        valid, missing = positions(answers, places, [False] * len(changes))
        self._look_elsewhere(changes, places, valid, missing, now)
        return answers.told(valid, missing)

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        turn = Turn(changes, self._places(change.id for change in changes), wants, max(limit, 0), owner, lease, now)
        answers: Answers[Exchange] = Answers()
        for left, number in self._order():
            self._exchanged(turn, number, left, answers)
        for number in turn.more:
            self._claimed(turn, number, answers)
        if not answers:
            answers.told(None)
            raise StoreAway("; ".join(f"{shard.url} is away: {shard.away}" for shard in self.shards))
        return self._summed(turn, answers)

    def _exchanged(self, turn: Turn, number: int, left: int, answers: Answers[Exchange]) -> None:
        """One exchange, with a shard's own changes, for its part; `left`: among how many the rest is to be shared."""
        part = joined.part(turn.room, left)
        fair = [replace(want, count=joined.part(want.count, left)) for want in joined.unmet(turn.wants, turn.jobs)]
        mine = chosen(turn.changes, turn.places.get(number, ()))
        try:
            answer = self.shards[number].ask(
                lambda store: store.exchange(mine, fair, part, turn.owner, turn.lease, turn.now)
            )
        except StoreError as error:
            self._failed(turn, number, error)
            answers.errors[number] = error
            return
        answers[number] = answer
        self._saw(number, answer.jobs)
        turn.jobs += answer.jobs
        if len(answer.jobs) == part:
            turn.more.append(number)

    def _claimed(self, turn: Turn, number: int, answers: Answers[Exchange]) -> None:
        """What is still wanted, from a shard that may have more."""
        if not turn.room:
            return
        try:
            jobs = self.shards[number].ask(
                lambda store: store.claim(
                    joined.unmet(turn.wants, turn.jobs), turn.room, turn.owner, turn.lease, turn.now
                )
            )
        except StoreError as error:
            self._failed(turn, number, error)
            return
        self._saw(number, jobs)
        turn.jobs += jobs

    def _failed(self, turn: Turn, number: int, error: StoreError) -> None:
        if not isinstance(error, StoreAway):
            turn.unheard = True
        if not isinstance(error, StoreUnavailable):
            # One that is full or damaged, too, is not to be asked in every turn.
            self.shards[number].lose(error)

    def _summed(self, turn: Turn, answers: Answers[Exchange]) -> Exchange:
        missing = {at for number, where in turn.places.items() if number not in answers for at in where}
        valid = [False] * len(turn.changes)
        for number, answer in answers.items():
            for at, good in zip(turn.places.get(number, ()), answer.valid, strict=True):
                valid[at] = good
        self._look_elsewhere(turn.changes, turn.places, valid, missing, turn.now)
        return Exchange(
            valid,
            sorted(turn.jobs, key=lambda job: (-job.priority, job.due, job.id)),
            joined.earliest(answer.next_due for answer in answers.values()),
            self._away(answers),
            tuple(missing),
            turn.unheard,
        )

    def _away(self, answers: Answers[Exchange]) -> str:
        """Who did not answer, and why; one may have failed just now and be back already."""
        failed = {number: str(error) for number, error in answers.errors.items()}
        known = {n: f"{shard.url} is away: {shard.away}" for n, shard in enumerate(self.shards) if shard.away}
        return "; ".join((failed | known).values())

    def _order(self) -> list[tuple[int, int]]:
        """Every shard that is there, another first each time; with each, how many are still to come, itself counted."""
        there = [number for number, shard in enumerate(self.shards) if not shard.away]
        size, turn = len(there), next(self._turns)
        return [(size - place, there[(turn + place) % size]) for place in range(size)]

    def _look_elsewhere(
        self,
        changes: Sequence[Change],
        places: Mapping[int, Sequence[int]],
        valid: list[bool],
        missing: Collection[int],
        now: int,
    ) -> None:
        """Changes that were not valid where the job was looked for may be elsewhere. Of a job that runs, where it was
        claimed is known for sure: it is moved only when it does not run."""
        known, running = self._whereabouts, State.RUNNING
        strays: dict[int, int] = {}
        for number, where in places.items():
            for at in where if not missing else [at for at in where if at not in missing]:
                change = changes[at]
                seen = known.pop(change.id, None)
                if not valid[at] and (seen is None or change.was is not running):
                    strays[at] = number
        if not strays:
            return
        for number in range(len(self.shards)):
            left = [at for at in strays if not valid[at] and strays[at] != number]
            again = chosen(changes, left)
            answers = self._ask([number] if left else (), lambda _, store: store.apply(again, now))  # noqa: B023
            for at, good in zip(left, answers.get(number, ()), strict=False):
                valid[at] = good

    # Owning

    def next_due(self) -> int | None:
        answers = self._ask_all(lambda store: store.next_due())
        return answers.told(joined.earliest(answers.values()))

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        """As promised; PartlyUnavailable with what is lost on the others where a shard that has some of it is away."""
        claims = list(held)
        places = self._places(which for which, _ in claims)
        answers = self._ask(places, lambda n, store: store.extend(owner, chosen(claims, places[n]), lease, now))
        return answers.told([which for lost in answers.values() for which in lost])

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        """As promised; but of a shard that has just come back, nothing that is overdue: its workers could not prolong
        their leases, and first have a moment to do so."""
        jobs: list[Job] = []
        answers: Answers[list[Job]] = Answers()
        for number, place in enumerate(self.shards):
            room = limit - len(jobs)
            if room > 0 and not (of is None and place.joined_lately):
                answers.add(self._ask([number], lambda _, store: store.reclaim(now, of, room)))  # noqa: B023
                self._saw(number, answers.get(number, ()))
                jobs += answers.get(number, ())
        return answers.told(jobs)

    def owners(self) -> list[str]:
        answers = self._ask_all(lambda store: store.owners())
        return answers.told(sorted({owner for owners in answers.values() for owner in owners}))

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        """As promised while the shard where the name lives is there; else that of the next one counts, and then two
        owners who see different shards away may both have it."""
        errors: list[StoreError] = []
        for number in self._ring.order(name.encode()):
            try:
                return self.shards[number].ask(lambda store: store.hold(name, owner, until, now))
            except StoreUnavailable as error:
                errors.append(error)
        raise errors[0]

    # For people

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        """As promised; a job of which it is not known that there is none, since a shard is away, is `missing`."""
        places = self._places(ids)
        answers = self._ask(places, lambda n, store: store.get(chosen(ids, places[n])))
        nothing: list[Job | None] = [None] * len(ids)
        found, missing = positions(answers, places, nothing)
        nowhere = [at for at, job in enumerate(found) if job is None and at not in missing]
        if nowhere and len(self.shards) > 1:
            self._find_elsewhere(ids, found, missing, nowhere, answers)
        return answers.told(found, missing)

    def _find_elsewhere(
        self,
        ids: Sequence[bytes],
        found: list[Job | None],
        missing: dict[int, StoreError],
        nowhere: Sequence[int],
        answers: Answers[list[Job | None]],
    ) -> None:
        for at in nowhere:
            self._whereabouts.pop(ids[at], None)
        left = list(nowhere)
        for number in range(len(self.shards)):
            if not left:
                return
            got = self._ask([number], lambda _, store: store.get(chosen(ids, left)))  # noqa: B023
            for at, job in zip(left, got.get(number, ()), strict=False):
                found[at] = job
            self._saw(number, [job for job in got.get(number, ()) if job is not None])
            answers.errors |= got.errors
            left = [at for at in left if found[at] is None]
        if answers.errors:
            missing |= dict.fromkeys(left, next(iter(answers.errors.values())))

    def find(self, query: Query) -> list[Job]:
        answers = self._ask_all(lambda store: store.find(query))
        for number, jobs in answers.items():
            self._saw(number, jobs)
        every = {job.id: job for jobs in answers.values() for job in jobs}
        return answers.told([every[id] for id in sorted(every)][: query.limit])

    def counts(self) -> list[Tally]:
        answers = self._ask_all(lambda store: store.counts())
        return answers.told(joined.tallies(tally for tallies in answers.values() for tally in tallies))

    def leaving(self, start: int, end: int, limit: int) -> list[Job]:
        answers = self._ask_all(lambda store: store.leaving(start, end, limit))
        every = {job.id: job for jobs in answers.values() for job in jobs}
        return answers.told(sorted(every.values(), key=lambda job: (job.until, job.id))[:limit])

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        """As promised; each shard may keep an equal part of the bytes."""
        among = len(self.shards)
        parts = {queue: most // among for queue, most in (by_queue or {}).items()}
        answers: Answers[int] = Answers()
        for number in range(among):
            room = limit - sum(answers.values())
            answers.add(self._ask([number], lambda _, store: store.prune(now, most_bytes // among, room, parts)))  # noqa: B023
        return answers.told(sum(answers.values()))

    def pause(self, queue: str, paused: bool) -> None:
        self._ask_all(lambda store: store.pause(queue, paused)).told(None)

    def queues(self) -> dict[str, bool]:
        answers = self._ask_all(lambda store: store.queues())
        return answers.told(joined.queues(answers.values()))

    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        answers = self._ask_all(lambda store: store.backlog(queues, now, most))
        return answers.told(joined.backlog(answers.values(), now, most))

    def mark(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> None:
        places = self._places(id for id, _, _ in marks)
        self._ask(places, lambda n, store: store.mark(owner, chosen(marks, places[n]))).told(None)

    def limit(self, name: str, limit: Limit | None) -> None:
        """As promised for tasks, whose jobs live all on one shard if they were enqueued limited. The limit of a queue
        is shared out: each shard keeps to its part, which is at least one."""
        numbers = range(len(self.shards))
        parts = [limit and joined.share(name, limit, number, len(numbers)) for number in numbers]
        self._ask(numbers, lambda n, store: store.limit(name, parts[n])).told(None)

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        """As promised; a limit that is not set alike on all shards, as where one was added, is none."""
        answers = self._ask_all(lambda store: store.limits())
        return answers.told(joined.limits(answers, len(self.shards)))

    def recount(self, now: int) -> int:
        answers = self._ask_all(lambda store: store.recount(now))
        return answers.told(sum(answers.values()))

    def cells(self, prefix: str) -> dict[str, bytes]:
        answers = self._ask_all(lambda store: store.cells(prefix))
        return answers.told(joined.cells(answers, lambda name: self.shard(name.encode())))

    def cell(self, name: str) -> bytes | None:
        answers, place = self._ask_all(lambda store: store.cell(name)), self.shard(name.encode())
        there = {number: value for number, value in answers.items() if value is not None}
        return answers.told(there.get(place, next(iter(there.values()), None)))

    def write(self, name: str, value: bytes | None, was: bytes | None) -> bool:
        """As promised; written where it is, if that is not where it belongs yet."""
        place = self.shard(name.encode())
        if was is not None:
            others = [n for n, shard in enumerate(self.shards) if n != place and not shard.away]
            has = (n for n in (place, *others) if self.shards[n].ask(lambda store: store.cell(name)) is not None)
            place = next(has, place)
        return self.shards[place].ask(lambda store: store.write(name, value, was))

    def bell(self) -> Bell:
        return Chime(self.shards)

    def ring_recall(self) -> None:
        self._ask_all(lambda store: store.ring_recall())

    def time(self) -> int:
        """The clock of the first store that is there: all processes list the stores in the same order, so all have the
        same time."""
        error: StoreError | None = None
        for place in self.shards:
            try:
                return place.ask(lambda store: store.time())
            except StoreUnavailable as why:
                error = error or why
        assert error is not None
        raise error

    def facts(self) -> list[Fact]:
        """Of each shard, or what is wrong with it."""
        return [fact for place in self.shards for fact in place.facts()]

    def connect(self, patient: bool = False) -> None:
        """Opens all, at the same time. Who cannot be reached is tried again in the background; but if that is all of
        them, StoreUnavailable, unless `patient`. What time does not heal, as a wrong password, is raised for each."""
        errors: list[Exception] = []
        threads = [threading.Thread(target=_connect, args=(place, errors)) for place in self.shards]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if not patient and all(place.away for place in self.shards):
            errors.append(StoreUnavailable("; ".join(place.away for place in self.shards)))
        if errors:
            self.close()
            raise errors[0]

    def close(self) -> None:
        for place in self.shards:
            place.close()


def _connect(place: Shard, errors: list[Exception]) -> None:
    try:
        place.connect()
    except Exception as error:
        errors.append(error)

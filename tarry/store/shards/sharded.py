"""Several stores as one. A job's id decides its shard, so that every process finds it without asking.

Rendezvous hashing decides: the job belongs on the store whose hash with the id is the highest. So after a store is
added, only the jobs that now belong there are looked for elsewhere. The promises about order and keys hold within one
shard; `new_id` puts jobs with the same key on the same shard. A call that fails on one shard fails, and what the other
shards did stays: as after a lost reply, the caller sends it again.

A shard may be away. It then costs the others nothing (see `shard`): ids of new jobs are drawn for shards that are up,
`exchange` goes on with them, and every other verb asks all that it can before it raises PartlyUnavailable.

A job need not be where it belongs: a shard was added, or is drained, or a job with a key was moved to the shard of its
key. So a process that saw a job elsewhere remembers where, and looks on all shards for a job that is not at home.
"""

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

from tarry.errors import (
    ConfigError,
    QueueFull,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TarryError,
)
from tarry.model.bound import Bound, KeyBounds
from tarry.model.change import Change
from tarry.model.flow.node_ids import is_node
from tarry.model.job import LEADING, Job, JobLabel
from tarry.model.limit import EACH, KeyLimit, Level, Limit
from tarry.store.rules.base import (
    NOTHING,
    Backlog,
    Diagnostic,
    Exchange,
    PlaceAnswer,
    Query,
    ShareChange,
    Store,
    Tally,
    Want,
    drop_order,
)
from tarry.store.rules.ids import text
from tarry.store.rules.kept_places import attempt_of
from tarry.store.rules.lanes import JobKey
from tarry.store.rules.sleeper import Wakeup
from tarry.store.shards import merge
from tarry.store.shards.answers import ShardAnswers, ShardedValues, ask_shards, assemble, pick, place_answers, present
from tarry.store.shards.exchange import Applied, AskedShards, ShardExchange, ShardExchangeRequest, apply_elsewhere
from tarry.store.shards.flows import FlowPlaces, ShardedFlows
from tarry.store.shards.history import ShardedHistory
from tarry.store.shards.location import LocatedJobs, NewIds, RendezvousHash
from tarry.store.shards.shard import Shard, ShardWakeup, connect_all
from tarry.store.shards.waiting import ShardedWaiting

if TYPE_CHECKING:
    from tarry.store.shards.key_limit_setting import KeyLimitSetting
    from tarry.store.shards.share_mover import ShareMover
    from tarry.store.shards.topology import ListedShard

T = TypeVar("T")


class ShardedStore(ShardedValues):
    """Several stores, in any order. Each has a name of its own."""

    def __init__(
        self, stores: Sequence[Store | Shard], make_shard: "Callable[[ListedShard], Shard] | None" = None
    ) -> None:
        """make_shard: one that was added while this process ran; None: the list never changes."""
        # A list, which grows: the parts below hold the same one.
        self.shards = [store if isinstance(store, Shard) else Shard.from_store(store) for store in stores]
        self._make_shard, self._additions, self._has_changed = make_shard, 0, False
        self._stop_following: Callable[[], None] = lambda: None
        urls = [shard.url for shard in self.shards]
        # Only names decide where a job lives: two stores with one name cannot be told apart.
        if not urls or len({shard.name for shard in self.shards}) < len(urls):
            raise ConfigError(f"store = {urls}: shards must be one or more stores, each named once")
        self.url = " ".join(urls)
        # Nothing belongs on a draining shard, so the mover empties it.
        named = {number: shard.name for number, shard in enumerate(self.shards) if not shard.draining}
        self._hashing = RendezvousHash(named)
        if not self._hashing.numbers:
            raise ConfigError(f"store = {urls}: all are draining; new jobs need one that is not")
        # Workers that begin at the same moment begin with different shards.
        self._turns, self._asked = count(random.randrange(len(self.shards))), AskedShards(self.shards)
        self._located, self._new_ids = LocatedJobs(self._hashing.place_of_job), NewIds(self._hashing)
        self.history = ShardedHistory(self.shards)
        self.waiting = ShardedWaiting(self.shards)
        places = FlowPlaces(self._hashing, self.home, self.draw_id)
        self.flows = ShardedFlows(self.shards, self._hashing, self._located, places)

    @property
    def stores(self) -> tuple[Store, ...]:
        """The stores themselves."""
        return tuple(shard.store for shard in self.shards if not shard.is_removed)

    @property
    def topology_version(self) -> int:
        return sum(shard.join_count for shard in self.shards) + self._additions

    # Where things live

    def shard(self, name: bytes) -> int:
        """The number of the store where this name belongs, or this id of a job that is in no flow."""
        return self._hashing.place(name)

    def new_id(self, task: str, key: str | None = None, lane: str | None = None) -> bytes:
        """An id that belongs on a shard that is up; with a key, on the key's shard; with the lane of a key, on its."""
        home = self.home(task, key, lane)
        if home is not None:
            return self._new_ids.draw_for(home)
        id, place = self._new_ids.draw()
        # If none can take it, any id will do: the insert says what is wrong.
        while not self.shards[place].accepts_jobs and self._takers():
            id, place = self._new_ids.draw()
        return id

    def draw_id(self, draw: Callable[[], bytes], task: str, key: str | None, lane: str | None = None) -> bytes:
        """`new_id`, of the ids that `draw` gives."""
        drawn = draw()
        home = self.home(task, key, lane)
        takers = self._takers() if home is None else [home]
        # If none can take it, any id will do: the insert says what is wrong.
        if home is None and len(takers) in (0, len(self._hashing.numbers)):
            return drawn
        # The id alone must tell the shard to every process. So ids are drawn until one belongs there.
        while not self._hashing.has_job_in(takers, drawn):
            drawn = draw()
        return drawn

    def _takers(self) -> list[int]:
        return [number for number in self._hashing.numbers if self.shards[number].accepts_jobs]

    def home(self, task: str, key: str | None, lane: str | None = None) -> int | None:
        """The number of the store where jobs of that task, key and lane live; None: any."""
        if key is None and not lane:
            return None
        # All jobs of a lane live on one store, which can count them. Their keys must live there, too. Not by the task:
        # so all tasks of a tenant are on one store, and a flow may have several of them.
        place = f"\0{lane}" if lane else f"{task}\0{key and key.removeprefix(LEADING)}"
        return self._hashing.place_of_key(place)

    def reroute(self, job: Job) -> bytes | None:
        return self.new_id(job.task) if self._takers() and self._is_free(job) else None

    def _is_free(self, job: Job) -> bool:
        """Whether a new job may go to any store."""
        return self.home(job.task, job.key, job.lane) is None

    def belongs(self, job: Job) -> bool:
        return self._hashing.place_of_job(job.id) == self.shard_of(job)

    def shard_of(self, job: Job) -> int:
        """The number of the store where a job belongs: the store of its lane, if that is of a key, or of its key; else
        the one that its id says. A flow lives whole on one store, also its nodes with lanes."""
        home = self._home_of(job)
        return self._hashing.place_of_job(job.id) if home is None else home

    def _home_of(self, job: Job) -> int | None:
        return None if is_node(job.id) else self.home(job.task, job.key, job.lane)

    def _ask(self, numbers: Iterable[int], call: Callable[[int, Store], T]) -> ShardAnswers[T]:
        return ask_shards(self.shards, numbers, call)

    def _ask_all(self, call: Callable[[Store], T]) -> ShardAnswers[T]:
        return ask_shards(self.shards, present(self.shards), lambda number, store: call(store))

    # Keeping

    def insert(self, jobs: Sequence[Job]) -> list[bytes]:
        """As promised; ValueError, and nothing is stored, if a job with a key or lane has an id that `new_id` did not
        make. PartlyUnavailable has an error for each job that is not stored: with StoreAway, StoreFull and
        StoreReadOnly the job is surely not stored, with other errors it may be."""
        return self._insert(jobs, lambda number, store, part: store.insert(part))

    def _places(self, jobs: Sequence[Job]) -> dict[int, list[int]]:
        """The positions of new jobs by the shard of each; ValueError."""
        # All are checked before any is stored. On another shard the key would be free, and two jobs could hold it.
        places: dict[int, list[int]] = {}
        for position, job in enumerate(jobs):
            place, home = self._new_ids.place_of(job.id), self._home_of(job)
            # After the stores have changed its id may say where its key lived before. It is found all the same.
            if not self._has_changed and home not in (None, place):
                raise ValueError(f"job {text(job.id)} with key {job.key!r} is on the wrong shard: mint its id")
            places.setdefault(place if home is None else home, []).append(position)
        return places

    def _check_silent(self, jobs: Sequence[Job], places: Mapping[int, Sequence[int]]) -> None:
        """Marks shards away that do not answer, if others can take some of these jobs."""
        for number, positions in places.items():
            if self._takers() not in ([], [number]) and any(self._is_free(jobs[at]) for at in positions):
                self.shards[number].check_answers()

    def _insert(self, jobs: Sequence[Job], call: Callable[[int, Store, Sequence[Job]], list[Any]]) -> list[Any]:
        places = self._places(jobs)
        self._check_silent(jobs, places)
        answers = self._ask(places, lambda n, store: call(n, store, pick(jobs, places[n])))
        for number, error in answers.errors.items():
            # It is up, so nothing else keeps `new_id` from drawing more ids for it.
            if isinstance(error, StoreFull | StoreReadOnly):
                self.shards[number].pause_inserts()
        return assemble(answers, places, [job.id for job in jobs])

    def insert_bounded(
        self,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound],
        now: int,
        freed: Collection[str] = (),
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes | QueueFull]:
        """As promised; a bound is shared out: each shard keeps to its part, which is at least one. So is that
        of the key "", whose jobs belong on no certain shard; those of another key are on one."""
        among = len(self._hashing.numbers)
        # No job belongs on a shard that is draining, so it gets no part.
        parts = {
            number: {queue: bound.share(place, among) for queue, bound in bounds.items()}
            for place, number in enumerate(self._hashing.numbers)
        }

        key_parts = {
            number: {key: most if key[1] else Bound(most).share(place, among).most for key, most in key_bounds.items()}
            for place, number in enumerate(self._hashing.numbers)
        }

        def insert(number: int, store: Store, part: Sequence[Job]) -> list[bytes | QueueFull]:
            return store.insert_bounded(part, parts[number], now, freed, key_parts[number])

        return self._insert(jobs, insert)

    def supersede(self, change: Change, job: Job, now: int) -> bool:
        """As promised: who holds a key is on the shard of the jobs that want it."""
        shard = self.shards[self.shard_of(job)]
        return shard.ask(lambda store: store.supersede(change, job, now))

    def oldest_waiting(self, queue: str, limit: int) -> list[Job]:
        answers = self._ask_all(lambda store: store.oldest_waiting(queue, limit))
        for number, jobs in answers.items():
            self._located.note(number, jobs)
        every = {job.id: job for jobs in answers.values() for job in jobs}
        return answers.result(sorted(every.values(), key=drop_order)[: max(0, limit)])

    def insert_within(
        self,
        connection: Any,
        jobs: Sequence[Job],
        bounds: Mapping[str, Bound] = NOTHING,
        now: int = 0,
        key_bounds: KeyBounds = NOTHING,
    ) -> list[bytes]:
        if len(self.shards) > 1:
            return super().insert_within(connection, jobs, bounds, now, key_bounds)
        return self.shards[0].ask(lambda store: store.insert_within(connection, jobs, bounds, now, key_bounds))

    @property
    def can_confirm(self) -> bool:
        return all(shard.store.can_confirm for shard in self.shards if not shard.away)

    @property
    def is_pooled(self) -> bool:
        return all(shard.store.is_pooled for shard in self.shards if not shard.away)

    def confirm(self, jobs: Sequence[Job]) -> None:
        places = self._located.group(job.id for job in jobs)
        self._ask(places, lambda n, store: store.confirm(pick(jobs, places[n]))).result(None)

    # The turn of a worker

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        places = self._located.group(change.id for change in changes)
        answers = self._ask(places, lambda n, store: store.apply(pick(changes, places[n]), now))
        valid, missing = place_answers(answers, places, [False] * len(changes))
        apply_elsewhere(self.shards, self._located, places, changes, Applied(valid, missing, now))
        return answers.result(valid, missing)

    def exchange(
        self, changes: Sequence[Change], wants: Sequence[Want], limit: int, owner: str, lease: int, now: int
    ) -> Exchange:
        """As promised; an owner that has got jobs in each of its last turns asks few shards at a time, so it may get
        a job that has just come a moment later."""
        request = ShardExchangeRequest(changes, wants, max(limit, 0), owner, lease, now)
        return ShardExchange(self.shards, self._located, request, self._asked.of(owner)).run(next(self._turns))

    # Owning

    def next_due(self) -> int | None:
        answers = self._ask_all(lambda store: store.next_due())
        return answers.result(merge.earliest(answers.values()))

    def extend(self, owner: str, held: Collection[tuple[bytes, int]], lease: int, now: int) -> list[bytes]:
        """As promised; PartlyUnavailable, with what is lost on the other shards, if a shard with some of it is away."""
        claims = list(held)
        places = self._located.group(which for which, _ in claims)
        answers = self._ask(places, lambda n, store: store.extend(owner, pick(claims, places[n]), lease, now))
        return answers.result([which for lost in answers.values() for which in lost])

    def reclaim(self, now: int, of: str | None = None, limit: int = 1000) -> list[Job]:
        """As promised; nothing overdue of a shard that has just come back."""
        jobs: list[Job] = []
        answers: ShardAnswers[list[Job]] = ShardAnswers()
        for number in present(self.shards):
            shard = self.shards[number]
            room = limit - len(jobs)
            # While the shard was away workers could not prolong their leases there. They get a moment to do so.
            if room > 0 and not (of is None and shard.has_joined_lately):
                answers.add(self._ask([number], lambda _, store: store.reclaim(now, of, room)))  # noqa: B023
                self._located.note(number, answers.get(number, ()))
                jobs += answers.get(number, ())
        return answers.result(jobs)

    def owners(self) -> list[str]:
        answers = self._ask_all(lambda store: store.owners())
        return answers.result(sorted({owner for owners in answers.values() for owner in owners}))

    def hold(self, name: str, owner: str, until: int, now: int) -> bool:
        """As promised while the shard of the name is up. Else the hold on the next shard counts, and two owners that
        see different shards away may both have it."""
        errors: list[StoreError] = []
        for number in self._hashing.order(name.encode()):
            try:
                return self.shards[number].ask(lambda store: store.hold(name, owner, until, now))
            except StoreUnavailable as error:
                errors.append(error)
        raise errors[0]

    # For people

    def get(self, ids: Sequence[bytes]) -> list[Job | None]:
        """As promised; a job that is not found, while a shard that may have it is away, is `missing`."""
        places = self._located.group(ids)
        answers = self._ask(places, lambda n, store: store.get(pick(ids, places[n])))
        nothing: list[Job | None] = [None] * len(ids)
        found, missing = place_answers(answers, places, nothing)
        nowhere = [at for at, job in enumerate(found) if job is None and at not in missing]
        if nowhere and len(self.shards) > 1:
            left, errors = self._find_elsewhere(ids, nowhere, found)
            answers.errors |= errors
            if answers.errors:
                missing |= dict.fromkeys(left, next(iter(answers.errors.values())))
        return answers.result(found, missing)

    def _find_elsewhere(
        self, ids: Sequence[bytes], nowhere: Sequence[int], found: list[Job | None]
    ) -> tuple[list[int], dict[int, StoreError]]:
        """Looks on all shards for jobs that were not where they were thought to be, and puts them into `found`. Answers
        the positions of jobs that are nowhere, and the errors of shards that did not answer."""
        # What was remembered is wrong by now.
        for at in nowhere:
            self._located.forget(ids[at])
        left = list(nowhere)
        errors: dict[int, StoreError] = {}
        for number in present(self.shards) if left else ():
            answers = self._ask([number] if left else (), lambda _, store: store.get(pick(ids, left)))  # noqa: B023
            for at, job in zip(left, answers.get(number, ()), strict=False):
                found[at] = job
            self._located.note(number, [job for job in answers.get(number, ()) if job is not None])
            errors |= answers.errors
            left = [at for at in left if found[at] is None]
        return left, errors

    def find(self, query: Query) -> list[Job]:
        answers = self._ask_all(lambda store: store.find(query))
        for number, jobs in answers.items():
            self._located.note(number, jobs)
        every = {job.id: job for jobs in answers.values() for job in jobs}  # while a job moves it is on two shards
        return answers.result([every[id] for id in sorted(every)][: query.limit])

    def id_behind(self, after: bytes, count: int, label: JobLabel | None = None) -> bytes | None:
        answers = self._ask_all(lambda store: store.id_behind(after, max(1, count // len(self.shards)), label))
        return answers.result(min(filter(None, answers.values()), default=None))

    def counts(self) -> list[Tally]:
        answers = self._ask_all(lambda store: store.counts())
        return answers.result(merge.tallies(tally for tallies in answers.values() for tally in tallies))

    def expiring(self, start: int, end: int, limit: int) -> list[Job]:
        answers = self._ask_all(lambda store: store.expiring(start, end, limit))
        every = {job.id: job for jobs in answers.values() for job in jobs}
        return answers.result(sorted(every.values(), key=lambda job: (job.keep_until, job.id))[:limit])

    def prune(self, now: int, most_bytes: int, limit: int = 1000, by_queue: Mapping[str, int] | None = None) -> int:
        """As promised; each shard may keep an equal part of the bytes."""
        numbers = present(self.shards)
        among = len(numbers)
        parts = {queue: most // among for queue, most in (by_queue or {}).items()}
        answers: ShardAnswers[int] = ShardAnswers()
        for number in numbers:
            room = limit - sum(answers.values())
            answers.add(self._ask([number], lambda _, store: store.prune(now, most_bytes // among, room, parts)))  # noqa: B023
        return answers.result(sum(answers.values()))

    def pause(self, queue: str, paused: bool) -> None:
        self._ask_all(lambda store: store.pause(queue, paused)).result(None)

    def queues(self) -> dict[str, bool]:
        answers = self._ask_all(lambda store: store.queues())
        return answers.result(merge.queues(answers.values()))

    def backlog(self, queues: Collection[str] | None, now: int, most: int) -> Backlog:
        answers = self._ask_all(lambda store: store.backlog(queues, now, most))
        return answers.result(merge.backlog(answers.values(), now, most))

    def save_progress(self, owner: str, marks: Sequence[tuple[bytes, int, bytes]]) -> list[bool]:
        places = self._located.group(id for id, _, _ in marks)
        answers = self._ask(places, lambda n, store: store.save_progress(owner, pick(marks, places[n])))
        return assemble(answers, places, [False] * len(marks))

    def limit(self, name: str, limit: Limit | None) -> None:
        """As promised; each shard has a share of the limit of a task or queue, which `move_shares` moves. All have the
        same limit for each key of a task: the jobs of a key are on one shard."""
        if limit is not None and len(self.shards) > 1 and not name.startswith(EACH):
            from tarry.store.shards.limit_setting import set_shares  # noqa: PLC0415 - few processes set limits

            set_shares(self.shards, name, limit, self.time()).result(None)
            return
        self._ask_all(lambda store: store.limit(name, limit)).result(None)
        if name.startswith(EACH):
            self._key_limits.spread(name.removeprefix(EACH))

    def shares_of(self, id: bytes) -> dict[str, tuple[Limit, Level]]:
        (number,) = self._located.group([id])
        limits = self.shards[number].ask(lambda store: store.limits())
        return {name: pair for name, pair in limits.items() if pair[0].share is not None}

    def move_shares(self, owner: str, now: int, lease: int) -> bool:
        return len(self.shards) > 1 and self._share_mover.run(owner, now, lease)

    @cached_property
    def _share_mover(self) -> "ShareMover":
        from tarry.store.shards.share_mover import ShareMover  # noqa: PLC0415 - only keepers move shares

        return ShareMover(self.shards, self.hold)

    def change_shares(self, changes: Sequence[ShareChange], now: int) -> list[bool]:
        """As promised, on all shards; a change counts as made if each of them has made it."""
        answers = self._ask_all(lambda store: store.change_shares(changes, now))
        return answers.result([all(made) for made in zip(*answers.values(), strict=True)])

    def limit_key(self, task: str, lane: str, limit: KeyLimit | None) -> None:
        """As promised, on all shards: the key's jobs live on one of them, which another one may be tomorrow."""
        self._key_limits.set_one(task, lane, limit)

    @cached_property
    def _key_limits(self) -> "KeyLimitSetting":
        from tarry.store.shards.key_limit_setting import KeyLimitSetting  # noqa: PLC0415 - see `limit`

        return KeyLimitSetting(self.shards, self.hold, self.time, self.shard)

    def limits(self) -> dict[str, tuple[Limit, Level]]:
        """As promised; a limit that is not set alike on all shards counts as none."""
        answers = self._ask_all(lambda store: store.limits())
        return answers.result(merge.limits(answers, len(present(self.shards))))

    def levels(self, names: Sequence[str]) -> list[Level]:
        """As promised: the sums of all shards, and the last of their times."""
        answers = self._ask_all(lambda store: store.levels(names))
        return answers.result(merge.levels([*answers.values()]))

    def take_place(self, name: str, key: JobKey, until: int, cost: int, now: int) -> PlaceAnswer:
        """As promised, on the shard of the attempt; where only limits of all keys count it, and have no room there, on
        another one."""
        id = attempt_of(name)[0]
        (number,) = self._located.group([id])
        answer = self._take_place_on(number, name, key, until, cost, now)
        others = [n for n, shard in enumerate(self.shards) if n != number and not shard.away] if not key[2] else []
        for other in others:
            if answer.is_taken:
                break
            answer = merge.places(answer, self._take_place_on(other, name, key, until, cost, now))
            if answer.is_taken:
                # Its end has to be told there.
                self._located.note_place(id, other)
        return answer

    def _take_place_on(self, number: int, name: str, key: JobKey, until: int, cost: int, now: int) -> PlaceAnswer:
        return self.shards[number].ask(lambda store: store.take_place(name, key, until, cost, now))

    def recount(self, now: int) -> int:
        answers = self._ask_all(lambda store: store.recount(now))
        return answers.result(sum(answers.values()))

    def wakeup(self) -> Wakeup:
        return ShardWakeup(self.shards, self._asked.note_news)

    def wake_for_recall(self) -> None:
        self._ask_all(lambda store: store.wake_for_recall())

    def time(self) -> int:
        """The clock of one store that is up: the first by name, so all processes have the same time."""
        # Not the first of the list: settings may have another order on each host, and a store may be added meanwhile.
        error: StoreError | None = None
        for shard in sorted(self.shards, key=lambda shard: shard.name):
            try:
                return shard.ask(lambda store: store.time())
            except StoreUnavailable as why:
                error = error or why
        assert error is not None
        raise error

    def diagnostics(self) -> list[Diagnostic]:
        """The facts of each shard, or what is wrong with it, and how they share limits."""
        from tarry.store.shards.limit_setting import describe_shares  # noqa: PLC0415 - see `limit`

        facts = [line for shard in self.shards if not shard.is_removed for line in shard.diagnostics()]
        with suppress(StoreError):
            facts += describe_shares(self.shards, self.time()) if len(self.shards) > 1 else ()
        return facts

    def connect(self, patient: bool = False) -> None:
        """Opens all stores. A store that cannot be reached is tried again in the background; if none can be reached,
        StoreUnavailable, unless `patient`. An error that time does not heal, as a wrong password, is raised."""
        try:
            connect_all(self.shards, patient)
        except BaseException:
            self.close()
            raise

    @property
    def is_listed(self) -> bool:
        """Whether the stores may change while this process runs."""
        return self._make_shard is not None

    def make_shard(self, listed: "ListedShard") -> Shard:
        """A store that is not among these yet."""
        assert self._make_shard is not None
        return self._make_shard(listed)

    def follow(self, stop: Callable[[], None]) -> None:
        """Somebody tells it of changes from now on, by `use`. stop: ends that; called at its close."""
        self._stop_following = stop

    def use(self, listed: "Sequence[ListedShard]") -> None:
        """From now on these are the stores; nothing is sent any more to one that is not among them, or was removed."""
        # One that was removed is closed for good: if it is added again, that is another one with its name.
        there = {shard.name: shard for shard in self.shards if not shard.is_removed}
        for one in listed:
            if self._make_shard is not None and one.name not in there and one.state != "removed":
                there[one.name] = self._add(self._make_shard(one))
        states = {one.name: one.state for one in listed}
        for name, shard in there.items():
            state = states.get(name, "removed")
            shard.draining, shard.joining = state != "up", state == "joining"
        takers = {number: shard.name for number, shard in enumerate(self.shards) if not shard.draining}
        # Before the places: a job may just be on its way.
        self._has_changed = self._has_changed or self._hashing.numbers != tuple(takers)
        self._hashing.use(takers)
        for number, shard in enumerate(self.shards):
            if states.get(shard.name, "removed") == "removed" and not shard.is_removed:
                # What was seen there has been moved, or is lost. Twice: a call that goes on may see some more.
                self._located.forget_place(number)
                shard.remove()
                self._located.forget_place(number)

    def _add(self, shard: Shard) -> Shard:
        try:
            shard.connect()
        except TarryError as error:
            # Time does not heal it, but whoever changes the list may. The other changes must hold here all the same.
            shard.mark_away(error)
        self.shards.append(shard)
        self._additions += 1
        return shard

    def close(self) -> None:
        self._stop_following()
        for shard in self.shards:
            shard.close()

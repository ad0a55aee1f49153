"""One exchange of a worker with several stores, and which of them it asks for jobs: those that may have some, few at a
time, and each of them soon."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tarry.errors import StoreAway, StoreError, StoreUnavailable
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.store.rules.base import Exchange, Want
from tarry.store.shards import merge
from tarry.store.shards.answers import ShardAnswers, ask_shards, pick
from tarry.store.shards.location import LocatedJobs
from tarry.store.shards.shard import Shard

ENOUGH = 512
"""Jobs for which one store more is asked at the same time: a call for fewer costs more than they do."""
BUSY_AFTER = 8
"""A worker that got jobs so often in a row, or all that it asked for in its last turn, is busy: it asks few stores at a
time. Those that gave nothing in so many turns are asked only now and then."""
ASKED_AGAIN = 0.02
"""Seconds after which a store is worth a call again, also one that gave nothing, and comes before those that were asked
since."""
MOST_OWNERS = 1000


class AskedShards:
    """What one process knows of all of its workers. Where threads meet a count may be lost, which costs a call."""

    def __init__(self, shards: Sequence[Shard]) -> None:
        self._shards = shards
        self._owners: dict[str, OwnerAsks] = {}
        self._heard = 0
        """How often somebody has begun to listen for news: then all stores are worth a look."""

    def note_news(self) -> None:
        """Any store may have jobs now."""
        self._heard += 1

    def of(self, owner: str) -> "OwnerAsks":
        """What is known for this owner, up to date."""
        asks = self._owners.get(owner)
        if asks is None:
            if len(self._owners) >= MOST_OWNERS:
                self._owners.clear()
            asks = self._owners[owner] = OwnerAsks()
        asks.hear(self._heard, len(self._shards))
        return asks


class OwnerAsks:
    """What stores gave to one owner, by their numbers."""

    def __init__(self) -> None:
        self._streak = 0
        """How many turns in a row brought jobs."""
        self._was_filled = False
        """Whether the last one brought as many as were wanted."""
        self._empty: list[int] = []
        """How often in a row it gave nothing while others did."""
        self._asked_at: list[float] = []
        """`time.monotonic()`."""
        self.next_due: list[int | None] = []
        """When its next scheduled job is due, as its last answer said."""
        self._heard = -1

    def hear(self, heard: int, count: int) -> None:
        """Makes all stores worth a look if there was news since the last call, or one more. count: of the stores."""
        self.grow(count)
        if heard != self._heard:
            self._heard = heard
            # Not busy or idle: one that does not get what it wants from few asks the others, too.
            self._empty = [0] * len(self._empty)

    def grow(self, count: int) -> None:
        """There are so many stores."""
        more = count - len(self._empty)
        if more > 0:
            # These first: another thread looks at them by the numbers of the other.
            self._asked_at += [0.0] * more
            self.next_due += [None] * more
            self._streak, self._was_filled, self._empty = 0, False, [0] * count

    @property
    def is_busy(self) -> bool:
        """Whether it got jobs in each of its last turns, or all that it wanted in the last one."""
        return self._was_filled or self._streak >= BUSY_AFTER

    def at_once(self, limit: int) -> int:
        """How many stores to ask for so many jobs at the same time."""
        return -(-limit // ENOUGH) if self.is_busy else len(self._empty)

    def choose(self, there: Sequence[int], settled: Collection[int], now: int) -> list[int]:
        """The stores that are worth a look, those first that are to be asked first. there: those that are up, in turn;
        settled: those that are called anyway. now: the store's time."""
        moment = time.monotonic()
        worth = [number for number in there if self._is_worth(number, moment, now)]

        def place(number: int) -> tuple[int, float]:
            is_late = moment - self._asked_at[number] >= ASKED_AGAIN
            return (0, self._asked_at[number]) if is_late else (1 if number in settled else 2, self._asked_at[number])

        return sorted(worth, key=place)

    def _is_worth(self, number: int, moment: float, now: int) -> bool:
        due = self.next_due[number]
        return (
            self._empty[number] < BUSY_AFTER
            or moment - self._asked_at[number] >= ASKED_AGAIN
            or (due is not None and due <= now)
        )

    def record(self, came: Mapping[int, int], limit: int) -> None:
        """Records how many jobs each store gave that was asked for some in this turn, and how many were wanted."""
        moment, any_came = time.monotonic(), any(came.values())
        self._was_filled = any_came and sum(came.values()) >= limit
        self._streak = self._streak + 1 if any_came else 0
        for number, jobs in came.items():
            self._asked_at[number] = moment
            # While nobody has jobs a worker sleeps soon, and each of its looks asks all.
            if any_came:
                self._empty[number] = 0 if jobs else self._empty[number] + 1


class ShardExchangeRequest(Struct, frozen=True):
    """What `Store.exchange` is given."""

    changes: Sequence[Change]
    wants: Sequence[Want]
    limit: int
    owner: str
    lease: int
    now: int


class Applied(Struct):
    """Which changes were made, by their positions. missing: the positions whose shard did not answer."""

    valid: list[bool]
    missing: Collection[int]
    now: int


class ShardExchange:
    """Each shard makes its own changes, and gives its share of the jobs; for a busy owner only as many shards as the
    limit is worth. Then the others give what is still wanted. asks: what is known of the shards for this owner."""

    def __init__(
        self, shards: Sequence[Shard], located: LocatedJobs, request: ShardExchangeRequest, asks: OwnerAsks
    ) -> None:
        self._located, self._request, self._asks = located, request, asks
        self._places = located.group(change.id for change in request.changes)
        # Those of this moment, and after the places: another thread may add one.
        self._shards = tuple(shards)
        asks.grow(len(self._shards))
        self._answers: ShardAnswers[Exchange] = ShardAnswers()
        self._jobs: list[Job] = []
        self._fruitful: list[int] = []
        """The shards that gave their whole share, so they may have more."""
        self._unheard = False
        self._came: dict[int, int] = {}
        """How many jobs each shard has given that was asked for some."""

    def run(self, turn: int) -> Exchange:
        """Asks the shards. StoreAway, or the error of the only shard, if none answers."""
        there = [number for number, shard in enumerate(self._shards) if not shard.away]
        # Another shard is first in each turn of shards that are alike.
        there = [there[(turn + place) % len(there)] for place in range(len(there))]
        wanted = self._asks.choose(there, self._places.keys(), self._request.now) if self._request.limit else []
        at_once = self._asks.at_once(self._request.limit)
        for place, number in enumerate(wanted[:at_once]):
            self._exchange(number, min(at_once, len(wanted)) - place)
        for number in there:
            # Who asks for no job learns whether anybody answers, and when one is due.
            is_due = number in self._places or not (self._request.limit or (self._places and self._asks.is_busy))
            if number not in self._answers and is_due:
                self._exchange(number, 0)
        self._claim_more(wanted[at_once:])
        if not self._answers:
            self._answers.result(None)
            raise StoreAway("; ".join(f"{shard.url} is away: {shard.away}" for shard in self._shards))
        self._asks.record(self._came, self._request.limit)
        return self._result()

    def _claim_more(self, others: Sequence[int]) -> None:
        """Asks for what is still wanted: first shards that were not asked for jobs, then those that may have more."""
        for place, number in enumerate(others):
            if not self._room:
                return
            if number in self._answers:
                self._claim(number)
            elif number not in self._answers.errors:
                self._exchange(number, len(others) - place)
        for number in self._fruitful:
            if self._room:
                self._claim(number)

    @property
    def _room(self) -> int:
        """How many more jobs may come."""
        return max(self._request.limit - len(self._jobs), 0)

    @property
    def _unmet(self) -> list[Want]:
        return merge.unmet(self._request.wants, self._jobs)

    def _exchange(self, number: int, left: int) -> None:
        """Sends a shard its own changes and asks for its share. left: how many shards share what is still wanted; 0: it
        is not asked for any."""
        request, part = self._request, merge.fair_share(self._room, left) if left else 0
        wants = [replace(want, count=merge.fair_share(want.count, left)) for want in self._unmet] if left else []
        changes = pick(request.changes, self._places.get(number, ()))
        try:
            answer = self._shards[number].ask(
                lambda store: store.exchange(changes, wants, part, request.owner, request.lease, request.now)
            )
        except StoreError as error:
            self._fail(number, error)
            self._answers.errors[number] = error
            return
        self._answers[number] = answer
        self._take(number, answer.jobs)
        self._asks.next_due[number] = answer.next_due
        if left:
            self._came[number] = len(answer.jobs)
            if len(answer.jobs) == part:
                self._fruitful.append(number)

    def _claim(self, number: int) -> None:
        """Asks a shard that may have more for what is still wanted."""
        request = self._request
        try:
            jobs = self._shards[number].ask(
                lambda store: store.claim(self._unmet, self._room, request.owner, request.lease, request.now)
            )
        except StoreError as error:
            # Not into the errors of the answers: the shard has made its changes.
            self._fail(number, error)
            return
        self._came[number] = self._came.get(number, 0) + len(jobs)
        self._take(number, jobs)

    def _take(self, number: int, jobs: Sequence[Job]) -> None:
        self._located.note(number, jobs)
        self._jobs += jobs

    def _fail(self, number: int, error: StoreError) -> None:
        # StoreAway promises that nothing was done. After any other error the shard may have given jobs.
        if not isinstance(error, StoreAway):
            self._unheard = True
        if not isinstance(error, StoreUnavailable):
            # `Shard.ask` marks only unreachable shards. A full or damaged one must not be asked in every turn either.
            self._shards[number].mark_away(error)

    def _result(self) -> Exchange:
        changes, answers = self._request.changes, self._answers
        missing = {at for number, where in self._places.items() if number not in answers for at in where}
        applied = Applied([False] * len(changes), missing, self._request.now)
        for number, answer in answers.items():
            for at, good in zip(self._places.get(number, ()), answer.valid, strict=True):
                applied.valid[at] = good
        apply_elsewhere(self._shards, self._located, self._places, changes, applied)
        return Exchange(
            applied.valid,
            sorted(self._jobs, key=lambda job: (-job.priority, job.due, job.id)),
            merge.earliest(self._due_times()),
            self._away(),
            tuple(missing),
            self._unheard,
            more_to_release=any(answer.more_to_release for answer in answers.values()),
            is_held_back=any(answer.is_held_back for answer in answers.values()),
        )

    def _due_times(self) -> Iterator[int | None]:
        """When the next scheduled job of each shard that is up is due: as it says now, or has said last."""
        for number, shard in enumerate(self._shards):
            if number in self._answers:
                yield self._answers[number].next_due
            elif not shard.away:
                yield self._asks.next_due[number]

    def _away(self) -> str:
        """Which shards did not answer, and why."""
        # Both: a shard may have failed in this turn and be back already.
        failed = {number: str(error) for number, error in self._answers.errors.items()}
        known = {
            n: f"{shard.url} is away: {shard.away}"
            for n, shard in enumerate(self._shards)
            if shard.away and not shard.is_removed
        }
        return "; ".join((failed | known).values())


def apply_elsewhere(
    shards: Sequence[Shard],
    located: LocatedJobs,
    places: Mapping[int, Sequence[int]],
    changes: Sequence[Change],
    applied: Applied,
) -> None:
    """Tries changes on all other shards if they were not valid where their jobs were looked for."""
    valid, missing = applied.valid, applied.missing
    strays: dict[int, int] = {}
    for number, where in places.items():
        for at in where if not missing else [at for at in where if at not in missing]:
            # After this change the job need not stay there.
            seen = located.forget(changes[at].id)
            # A running job is not moved: if it was seen, it is there, and the change is just not valid.
            if not valid[at] and (seen is None or changes[at].was is not State.RUNNING):
                strays[at] = number
    for number in range(len(shards) if strays else 0):
        left = [at for at in strays if not valid[at] and strays[at] != number]
        again = pick(changes, left)
        answers = ask_shards(shards, [number] if left else (), lambda _, store: store.apply(again, applied.now))  # noqa: B023
        # Not strict: a shard that does not answer has no answers here, and the changes stay invalid.
        for at, good in zip(left, answers.get(number, ()), strict=False):
            valid[at] = good

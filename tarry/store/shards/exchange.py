"""One exchange of a worker with several stores."""

from collections.abc import Collection, Mapping, Sequence

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
    """Each shard that is up makes its own changes and gives its share of the jobs. Then the shards that may have more
    give what is still wanted."""

    def __init__(self, shards: Sequence[Shard], located: LocatedJobs, request: ShardExchangeRequest) -> None:
        self._shards, self._located, self._request = shards, located, request
        self._places = located.group(change.id for change in request.changes)
        self._answers: ShardAnswers[Exchange] = ShardAnswers()
        self._jobs: list[Job] = []
        self._fruitful: list[int] = []
        """The shards that gave their whole share, so they may have more."""
        self._unheard = False

    def run(self, turn: int) -> Exchange:
        """Asks all shards. StoreAway, or the error of the only shard, if none answers."""
        # Another shard is first in each turn: shares are rounded up, so a small limit is met by the first shards alone.
        there = [number for number, shard in enumerate(self._shards) if not shard.away]
        for place in range(len(there)):
            self._exchange(there[(turn + place) % len(there)], len(there) - place)
        for number in self._fruitful:
            if self._room:
                self._claim(number)
        if not self._answers:
            self._answers.result(None)
            raise StoreAway("; ".join(f"{shard.url} is away: {shard.away}" for shard in self._shards))
        return self._result()

    @property
    def _room(self) -> int:
        """How many more jobs may come."""
        return max(self._request.limit - len(self._jobs), 0)

    @property
    def _unmet(self) -> list[Want]:
        return merge.unmet(self._request.wants, self._jobs)

    def _exchange(self, number: int, left: int) -> None:
        """Sends a shard its own changes and asks for its share. left: how many shards share what is still wanted."""
        request, part = self._request, merge.fair_share(self._room, left)
        wants = [replace(want, count=merge.fair_share(want.count, left)) for want in self._unmet]
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
            merge.earliest(answer.next_due for answer in answers.values()),
            self._away(),
            tuple(missing),
            self._unheard,
            more_to_release=any(answer.more_to_release for answer in answers.values()),
        )

    def _away(self) -> str:
        """Which shards did not answer, and why."""
        # Both: a shard may have failed in this turn and be back already.
        failed = {number: str(error) for number, error in self._answers.errors.items()}
        known = {n: f"{shard.url} is away: {shard.away}" for n, shard in enumerate(self._shards) if shard.away}
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

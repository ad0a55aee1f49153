"""The places under limits that are kept without a running job: by attempts whose jobs have ended, and by programs that
take one outside of jobs (`Store.take_place`).

Whoever cancels a running job ends it at once. Its body goes on until the worker has interrupted it, so until then no
other job may start in its place. For each such attempt that a limit counts, the store keeps a named value in the same
step as the change, and levels count it like a running job. A later outcome of the attempt, which is not valid any more,
removes it and lowers the levels. The worker prolongs it while the body goes on; once its time is over, or its owner is
dead, the keeper removes it.

Of a job that has lost its key to a newer one (`Store.supersede`) the value is kept though no limit counts it. The newer
job names it in its headers, and is held back until it is gone.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tarry.errors import StoreError
from tarry.model import overrides
from tarry.model.change import Change
from tarry.model.duration import SECOND
from tarry.model.job import Job, State
from tarry.model.limit import Limit
from tarry.store.rules.base import Store
from tarry.store.rules.lanes import EndedAttempt, JobKey, count_by_level
from tarry.store.rules.owner import is_outside
from tarry.store.rules.partial_result import reachable_part

TAKEN_FOR = 10 * SECOND
"""How long a place that was taken outside of jobs is kept without a sign of life; what a store that is away may have
goes to no other store before that."""
PREFIX = "place:"
"""What the names of these values begin with. `lua/places.lua` has it too."""
_SEPARATOR = "\x1f"
"""Between until, queue, task and, of a job that has one, lane. Redis reads it, too."""


class KeptPlace(Struct, frozen=True):
    """What levels count for an attempt whose job has ended. until: microseconds."""

    until: int
    queue: str
    task: str
    lane: str | None

    @property
    def job_key(self) -> JobKey:
        """What limits need."""
        return self.queue, self.task, self.lane

    @property
    def names(self) -> str:
        """What the named value has behind the time."""
        return _SEPARATOR.join((self.queue, self.task) if self.lane is None else (self.queue, self.task, self.lane))

    def encode(self) -> bytes:
        """The named value."""
        return f"{self.until}{_SEPARATOR}{self.names}".encode()


def places_to_keep(
    ended: Iterable[EndedAttempt], limits: Mapping[str, Limit], leased: Callable[[str], int | None], now: int
) -> dict[str, bytes]:
    """What a store keeps of these attempts, which go on, where limits count them. leased: the end of an owner's
    lease."""
    kept: dict[str, bytes] = {}
    for change, key in ended:
        if count_by_level([key], limits):
            until = leased(change.owner)
            kept[name_for(change)] = KeptPlace(now if until is None else until, *key).encode()
    return kept


def place_of(change: Change, until: int) -> KeptPlace:
    """The place of the attempt that `Store.supersede` ends with this change."""
    # A change that counts has its job.
    assert change.job is not None
    return KeptPlace(until, change.job.queue, change.job.task, change.job.lane)


def followed_place(change: Change, leased: int | None, now: int) -> tuple[str, bytes]:
    """Its name and value. leased: the end of its owner's lease; None: not known."""
    return name_for(change), place_of(change, now if leased is None else leased).encode()


def held_back(store: Store, jobs: Iterable[Job], now: int) -> set[bytes]:
    """The ids of those jobs that must not start yet, since an attempt that they follow goes on, or it is not known
    whether it does."""
    # Few jobs follow one, so each is asked for by itself.
    return {job.id for job in jobs if job.headers and places_followed(store, job, now)}


def places_followed(store: Store, job: Job, now: int) -> list[str]:
    """The names of the places that go, or may go, before the job starts."""
    return [name for name in overrides.followed_places(job.headers) if _is_kept(store, name, now)]


def places_to_follow(store: Store, old: Job, change: Change, now: int) -> list[str]:
    """The names of the places that a job has to wait for which supersedes `old` by this change: those that this had to
    wait for itself, since it may run only to be held back; and if it runs, that of its attempt."""
    own = [name_for(change)] if change.keeps_places else []
    return [*places_followed(store, old, now), *own]


def _is_kept(store: Store, name: str, now: int) -> bool:
    try:
        value = reachable_part(lambda: store.kv_get(name))
    except StoreError:
        return True
    return value is not None and decode(value).until > now


_AT_ONCE = 1000
_DIGITS = 19
"""Of the largest time that a store takes."""


def decode(value: bytes) -> KeptPlace:
    """The place in a named value; one that counts nowhere and is over, if it is none."""
    until, *names = value.decode("utf-8", "replace").split(_SEPARATOR, 3)
    if not until.isdecimal() or len(until) > _DIGITS or len(names) < 2:
        return KeptPlace(0, "", "", None)
    return KeptPlace(int(until), names[0], names[1], names[2] if names[2:] else None)


def job_keys(values: Iterable[bytes]) -> list[JobKey]:
    """What limits need of these places."""
    return [decode(value).job_key for value in values]


def name_of(owner: str, id: bytes, epoch: int) -> str:
    """The name of the value for this attempt."""
    return f"{_prefix_of(id, epoch)}{owner}"


def _prefix_of(id: bytes, epoch: int) -> str:
    return f"{PREFIX}{id.hex()}:{epoch}:"


def attempt_of(name: str) -> tuple[bytes, int, str]:
    """Id, epoch and owner of the attempt whose value has this name; of no job, if it is no such name."""
    try:
        id, epoch, owner = name.removeprefix(PREFIX).split(":", 2)
        return bytes.fromhex(id), int(epoch), owner
    except ValueError:
        return bytes(16), 0, ""


def name_for(change: Change) -> str:
    """The name of the value for the attempt that a change ends."""
    return name_of(change.owner, change.id, change.epoch)


def given_up(changes: Sequence[Change], valid: Sequence[bool]) -> dict[str, Change]:
    """By the names of places, which may not exist: the changes that end them. These were not valid, since others had
    ended the attempt."""
    # A second cancel tells nothing of the attempt. Of several ends the first one counts.
    return {
        name_for(change): change
        for change, good in zip(reversed(changes), reversed(valid), strict=True)
        if not good and change.was is State.RUNNING and not change.keeps_places
    }


def ended_by(given_up: Mapping[str, Change], rows: Iterable[tuple[str, bytes]]) -> list[EndedAttempt]:
    """The attempts whose places are freed. given_up: of that function. rows: names and values of places that were
    there."""
    return [(given_up[name], decode(value).job_key) for name, value in rows]


def prolong(store: Store, owner: str, attempts: Collection[tuple[bytes, int]], lease: int, now: int) -> list[str]:
    """Prolongs the places of these attempts (id, epoch), which their owner still runs, to `now + lease`; writes nothing
    while more than half of that is left. Returns the names of those that last so long now. StoreError."""
    names = {name_of(owner, id, epoch) for id, epoch in attempts}
    found = reachable_part(lambda: store.kv_list(PREFIX))
    lasting = []
    for name in names.intersection(found):
        place = decode(found[name])
        longer = replace(place, until=now + lease).encode()
        if place.until >= now + lease // 2 or store.kv_cas(name, longer, found[name]):
            lasting.append(name)
    return lasting


def free_over(store: Store, now: int, is_dead: Callable[[str], bool]) -> int:
    """Frees the places whose time is over or whose owner is dead; answers how many. StoreError."""
    found = reachable_part(lambda: store.kv_list(PREFIX))
    over = [name for name, value in found.items() if decode(value).until <= now or is_dead(attempt_of(name)[2])]
    for start in range(0, len(over), _AT_ONCE):
        give_back(store, over[start : start + _AT_ONCE], now)
    # Of several stores another one may have it by now. Then the next recount lowers the levels.
    left = reachable_part(lambda: store.kv_list(PREFIX)) if over else {}
    for name in left.keys() & set(over):
        store.kv_cas(name, None, left[name])
    return len(over)


def free_outside(store: Store, attempts: Iterable[tuple[bytes, int]], now: int) -> None:
    """Frees the places of these attempts (id, epoch), of which the programs outside that ran them say that they are
    over. StoreError."""
    for id, epoch in attempts:
        names = reachable_part(lambda: store.kv_list(_prefix_of(id, epoch)))  # noqa: B023
        give_back(store, [name for name in names if is_outside(attempt_of(name)[2])], now)


def give_back(store: Store, names: Collection[str], now: int) -> None:
    """Frees the places of these names, as their owner; those that are not there are none. StoreError."""
    if names:
        reachable_part(lambda: store.apply([_late_outcome(name, now) for name in names], now))


def _late_outcome(name: str, now: int) -> Change:
    """An outcome as of the attempt's owner. It is not valid, since the job has ended."""
    id, epoch, owner = attempt_of(name)
    return Change(id, State.RUNNING, epoch, State.READY, now, now, owner=owner)

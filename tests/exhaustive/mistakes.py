"""Wrong variants of the rules: the check must see each."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from msgspec import Struct
from msgspec.structs import replace

from tarry.model import lifecycle, moving
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.model.outcome import Lost, Outcome
from tarry.store.memory import index, store
from tarry.store.memory.store import MemoryStore
from tests.exhaustive.explorer import TRAP, Explored, explore
from tests.exhaustive.job_acts import RULES
from tests.exhaustive.models import MODELS
from tests.exhaustive.store_state import NEVER

Patch = Callable[[], AbstractContextManager[Any]]
_MOST_STATES = 30_000


class Mistake(Struct, frozen=True):
    """patch: makes it for as long as the context lasts. model: the one that must see it; told: a part of what it then
    says."""

    name: str
    model: str
    told: str
    patch: Patch
    depth: int = 16

    def explore(self) -> Explored:
        """What the check says."""
        with self.patch():
            return explore(MODELS[self.model].build(), self.depth, _MOST_STATES)


def in_place_of(target: Any, name: str, wrong: Callable[..., Any]) -> Patch:
    """A patch: in place of the function `wrong` is called, which gets the right one first."""
    right = getattr(target, name)
    return lambda: mock.patch.object(target, name, lambda *args, **named: wrong(right, *args, **named))


def _apply_without(*fields: str) -> Callable[..., bool]:
    """The fence without some of state, epoch and owner."""

    def apply(right: Callable[..., bool], memory: MemoryStore, change: Change, now: int) -> bool:
        job = memory._jobs.get(change.id)
        seen = {"state": "was"}
        as_now = {seen.get(field, field): getattr(job, field) for field in fields} if job else {}
        return right(memory, replace(change, **as_now), now)

    return apply


def _live_too(right: Callable[..., bool], memory: MemoryStore, job: Job, of: str | None, now: int) -> bool:
    return of is None or right(memory, job, of, now)


def _with_key_kept(right: Callable[..., Change], *args: Any, **named: Any) -> Change:
    return replace(right(*args, **named), key_held_until=None)


def _blamed_always(right: Callable[..., Change], job: Job, outcome: Outcome, *args: Any) -> Change:
    return right(job, Lost(on=True) if isinstance(outcome, Lost) else outcome, *args)


def _cancel_anything(right: Callable[..., Change], job: Job, *args: Any, **named: Any) -> Change:
    change = right(replace(job, state=State.READY) if job.state.finished else job, *args, **named)
    return replace(change, was=job.state)


def _for_ever(right: Callable[..., Change], *args: Any, **named: Any) -> Change:
    change = right(*args, **named)
    return change if change.to is not State.SCHEDULED else replace(change, due=NEVER)


def _unchecked_key(right: Callable[..., Any], memory_index: index.JobIndex, job: Job, now: int) -> bytes | None:
    found = right(memory_index, job, now)
    return None if job.id in memory_index.jobs else found


def _in_lifecycle(name: str, wrong: Callable[..., Any]) -> Patch:
    return in_place_of(lifecycle, name, wrong)


def _in_store(name: str, wrong: Callable[..., Any]) -> Patch:
    return in_place_of(MemoryStore, name, wrong)


def value(target: Any, name: str, wrong: Any) -> Patch:
    """A patch of one value."""
    return lambda: mock.patch.object(target, name, wrong)


def _claim_as_before(right: Callable[..., Job], job: Job, owner: str, now: int) -> Job:
    return replace(right(job, owner, now), epoch=job.epoch)


def _parked_for_ever(right: Callable[..., Change], job: Job) -> Change:
    return replace(right(job), to=State.SCHEDULED, due=NEVER)


def _delete_running(right: Callable[..., Change], job: Job) -> Change:
    return Change(job.id, job.state, job.epoch, None, owner=job.owner)


JOB_MISTAKES = (
    Mistake("the fence looks at no owner", "failover", "another's", _in_store("_apply", _apply_without("owner"))),
    Mistake("the fence looks at no epoch", "keyed", "stale change", _in_store("_apply", _apply_without("epoch"))),
    Mistake("the fence looks at no state", "moved", "stale change", _in_store("_apply", _apply_without("state"))),
    Mistake(
        "a claim does not raise the epoch", "keyed", "did not raise", in_place_of(store, "claim_job", _claim_as_before)
    ),
    Mistake("a claim takes the key away", "two keyed", "key", in_place_of(index, "held_when_claimed", lambda *_: 0)),
    Mistake("an end keeps the key", "keyed", "holds its key", _in_lifecycle("_finish", _with_key_kept)),
    Mistake(
        "a job that starts anew takes its key from another",
        "two keyed",
        "key is held twice",
        in_place_of(index.JobIndex, "find_holder", _unchecked_key),
    ),
    Mistake("jobs under valid leases are taken back", "keyed", "two attempts", _in_store("_is_lost", _live_too)),
    Mistake("no number of deaths is too many", "deaths", "above the bound", value(lifecycle, "MAX_CRASHES", 99)),
    Mistake(
        "a lease that ran out counts as a failure", "keyed", "counted wrongly", _in_lifecycle("_after", _blamed_always)
    ),
    Mistake("the retry rule allows one more", "keyed", "retry rule", value(RULES.retry, "limit", 2)),
    Mistake("what has ended can be cancelled", "keyed", "history", _in_lifecycle("cancel", _cancel_anything)),
    Mistake("what failed waits for ever", "keyed", "never comes", _in_lifecycle("_failure", _for_ever)),
    Mistake(
        "a parked job does not say what it was",
        "moved",
        TRAP,
        in_place_of(moving, "park", lambda right, job: replace(right(job), note=b"")),
        depth=7,
    ),
    Mistake(
        "a job that was moved is not restored",
        "moved",
        "never comes",
        in_place_of(moving, "restore", _parked_for_ever),
    ),
    Mistake(
        "what has started expires at its next attempt",
        "expiring",
        "expired",
        value(lifecycle, "has_started", lambda outcome: False),
    ),
    Mistake(
        "an interrupted attempt is not on record",
        "keyed",
        "record",
        _in_lifecycle("_with_record", lambda right, job, change, *rest: change),
    ),
    Mistake("a job can be deleted while it runs", "keyed", "deleted", _in_lifecycle("forget", _delete_running)),
)

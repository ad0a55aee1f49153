"""A memory store as a value: what is kept of it between two steps, and times as words.

Of a time only this matters: whether it has come. So each is NOW, LATER or NEVER, and that one comes is a step of a
model, at any moment: any order of times is tried, also such as cannot be.
"""

from collections.abc import Iterable
from functools import lru_cache

from msgspec.structs import replace

from tarry.model import moving
from tarry.model.duration import DAY
from tarry.model.job import HELD, RELATIVE, Job, State
from tarry.store.memory.store import MemoryStore

NOW = 1_790_000_000_000_000
LATER = NOW + DAY
NEVER = moving.NEVER
LEASE = DAY
"""Longer than half a day: so `MemoryStore` prolongs a lease only if it has run out or is new."""


def word(time: int) -> int:
    """NOW for a time that has come, LATER for one that will; 0, HELD, NEVER and relative times stay."""
    if time < RELATIVE or time in (NEVER, HELD):
        return time
    return NOW if time <= NOW else LATER


@lru_cache(maxsize=100_000)
def plain(job: Job) -> Job:
    """A job without what no rule reads again: texts, records, and how long ago something was."""
    note = job.note if moving.is_parked(job) else b""
    return replace(
        job,
        due=word(job.due),
        expires=word(job.expires),
        key_held_until=word(job.key_held_until),
        state_since=NOW,
        keep_until=LATER if job.state.finished else 0,
        note=note,
        attempts=b"",
        progress=b"",
    )


def store_with(jobs: Iterable[Job], leased: Iterable[str]) -> MemoryStore:
    """A store that has these jobs, and leases of these owners that have not run out."""
    store = MemoryStore(lambda: NOW)
    for job in jobs:
        store._index.put(job.id, job)
    store._leases |= dict.fromkeys(leased, LATER)
    return store


def jobs_in(store: MemoryStore) -> tuple[Job, ...]:
    """The jobs of a store, by id."""
    return tuple(plain(job) for _, job in sorted(store._jobs.items()))


def leases_in(store: MemoryStore) -> tuple[str, ...]:
    """The owners whose leases have not run out."""
    return tuple(sorted(owner for owner, until in store._leases.items() if until > NOW))


def waits(job: Job) -> bool:
    """Whether it is in a line of its store."""
    return job.state in (State.READY, State.SCHEDULED)

"""Reads from the store why a job may not run. Cheap at any size: it counts and lists up to a bound."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from msgspec.structs import replace

from tarry.keeper.waiting_reasons import (
    MOST_COUNTED,
    EndpointState,
    LimitHolder,
    LimitUse,
    WaitingFacts,
)
from tarry.model.checks.unreadable import read_note
from tarry.model.duration import SECOND
from tarry.model.job import Job, State, order_label
from tarry.model.lifecycle import NO_KEY, UNKNOWN_TASK, UNREAD
from tarry.model.limit import EACH, QUEUE, TASK, KeyLimit, Level, Limit, waiting_lane
from tarry.store.queries.hosts import list_hosts
from tarry.store.rules import ids, kept_places
from tarry.store.rules.base import Store
from tarry.store.rules.lanes import lane_level
from tarry.store.rules.partial_result import partial_result
from tarry.store.rules.waiting import CappedCount
from tarry.worker.external_queues import is_external

MOST_OWNERS, MOST_RUNNING = 64, 5000
"""Workers whose jobs are read, and jobs that are read of all of them, to find those that hold a limit."""
MOST_HOLDERS = 100
"""Jobs that are listed of those that hold a limit."""

T = TypeVar("T")


class StoreReader:
    """Asks a store; of several stores, those that can be reached. away: why the others could not be."""

    def __init__(self, store: Store) -> None:
        self.store, self.away = store, ""

    def ask(self, question: Callable[[], T]) -> T:
        """The answer of the stores that are there; StoreError if none is."""
        answer, error = partial_result(question)
        if error is not None:
            self.away = str(error)
        return answer


def read_facts(store: Store, job: Job, now: int, is_listed: bool, endpoint: EndpointState) -> WaitingFacts:
    """What is known of the job and of what could hold it back; StoreError. now: by the store's clock, in microseconds.
    is_listed: whether the app of whoever asks has its task."""
    if job.state is State.RUNNING or job.state.finished:
        return WaitingFacts(job, now)
    reader = StoreReader(store)
    # What comes due later has no place in the line yet.
    is_due = job.state is State.READY or job.due <= now
    before = reader.ask(lambda: store.waiting.before(job, MOST_COUNTED)) if is_due else CappedCount(0)
    return WaitingFacts(
        job,
        now,
        reader.ask(store.queues).get(job.queue, False),
        reader.ask(lambda: is_external(store, job.queue, now)),
        list(_limit_uses(reader, job, now)),
        list_hosts(store, now),
        before,
        is_listed,
        _type_of_note(job) == UNKNOWN_TASK,
        _type_of_note(job) == NO_KEY,
        endpoint,
        [kept_places.attempt_of(name) for name in kept_places.places_followed(store, job, now)],
        _job_ahead(store, job, now),
        reader.away,
        str(read_note(job.note).get("message", "")) if _type_of_note(job) == UNREAD else "",
    )


def running_jobs(reader: StoreReader, now: int) -> Iterator[Job]:
    """The jobs that run, worker by worker, of the first workers by name; at most `MOST_RUNNING`. Then the jobs that
    others have ended and whose attempts go on, as far as limits count these."""
    left = MOST_RUNNING
    for owner in islice(sorted(reader.ask(reader.store.owners)), MOST_OWNERS):
        # As many of each as a store gives at once. Asked at once, so that the loop variables are these.
        jobs = reader.ask(lambda: reader.store.reclaim(now, of=owner))[:left]  # noqa: B023
        yield from jobs
        left -= len(jobs)
        if not left:
            return
    yield from _jobs_with_places(reader, now, left)


def _jobs_with_places(reader: StoreReader, now: int, most: int) -> Iterator[Job]:
    found = list(islice(reader.ask(lambda: reader.store.kv_list(kept_places.PREFIX)).items(), most))
    attempts = [kept_places.attempt_of(name) for name, _ in found]
    jobs = reader.ask(lambda: reader.store.get([id for id, _, _ in attempts]))
    for (id, _, owner), (_, value), job in zip(attempts, found, jobs, strict=True):
        place = kept_places.decode(value)
        since = now if job is None else job.state_since
        yield Job(id, place.task, b"", place.queue, owner=owner, state_since=since, lane=place.lane)


def limit_holders(running: Iterable[Job], name: str, lane: str | None = None) -> list[LimitHolder]:
    """Those of the running jobs that take places of a limit: the ones that have run for the longest first, at most
    `MOST_HOLDERS`. lane: of a limit for each key, whose places are meant."""
    found = [holder_of(job) for job in running if _takes_place(job, name, lane)]
    return sorted(found, key=lambda holder: holder.since)[:MOST_HOLDERS]


def holder_of(job: Job) -> LimitHolder:
    """What is shown of a job that runs."""
    return LimitHolder(ids.text(job.id), job.task, job.queue, job.owner, job.state_since / SECOND)


def _takes_place(job: Job, name: str, lane: str | None) -> bool:
    if name.startswith(QUEUE):
        return job.queue == name.removeprefix(QUEUE)
    task = name.removeprefix(TASK if name.startswith(TASK) else EACH)
    return job.task == task and (lane is None or job.lane == lane)


def _limit_uses(reader: StoreReader, job: Job, now: int) -> Iterator[LimitUse]:
    found = reader.ask(reader.store.limits)
    shares = reader.ask(lambda: reader.store.shares_of(job.id))
    for name in (QUEUE + job.queue, TASK + job.task):
        if name in found:
            yield replace(_with_holders(reader, name, *found[name], now), share=shares.get(name))
    if EACH + job.task in found:
        yield _use_of_key(reader, job, found, now)


def _with_holders(
    reader: StoreReader, name: str, limit: Limit, level: Level, now: int, lane: str | None = None
) -> LimitUse:
    # Who holds it is read only where that matters: it takes a query for each worker.
    is_full = limit.most is not None and level.running >= limit.most > 0
    return LimitUse(name, limit, level, limit_holders(running_jobs(reader, now), name, lane) if is_full else ())


def _use_of_key(reader: StoreReader, job: Job, limits: Mapping[str, tuple[Limit, Level]], now: int) -> LimitUse:
    """Of a limit for each key, and what the key has of its own."""
    name, limit = EACH + job.task, limits[EACH + job.task][0]
    lane = waiting_lane(job.task, job.lane, {each: one for each, (one, _) in limits.items()}) or ""
    own = _read_own(reader, job.task, lane) if limit.has_key_limits else None
    (level,) = reader.ask(lambda: reader.store.levels([lane_level(job.task, lane)]))
    if own is None:
        return _with_holders(reader, name, limit, level, now, lane)
    found = _with_holders(reader, name, own.over(limit), level, now, lane)
    return replace(found, name=f"{name}={lane}", is_paused=own.is_paused)


def _read_own(reader: StoreReader, task: str, lane: str) -> KeyLimit | None:
    from tarry.store.rules.key_limits import read_key_limit  # noqa: PLC0415 - few keys have numbers of their own

    return reader.ask(lambda: read_key_limit(reader.store, task, lane))


def _job_ahead(store: Store, job: Job, now: int) -> Job | None:
    if order_label(job.headers) is None:
        return None
    from tarry.store.queries.key_order import KeyTurns  # noqa: PLC0415 - few tasks are ordered

    return KeyTurns(store).job_before(job, now)


def _type_of_note(job: Job) -> object:
    return read_note(job.note).get("type")

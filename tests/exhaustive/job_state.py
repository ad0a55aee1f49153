"""A state of the model of jobs, and which states are the same."""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from tarry.model.job import Job
from tests.exhaustive.job_acts import ENDING
from tests.exhaustive.store_state import NOW, plain


class Message(Struct, frozen=True):
    """A change on its way to the store. source: a worker, `keeper`, `hand`, `mover`, or `net` for a copy that comes
    late. job: as the sender saw it; what is sent is computed from it."""

    source: str
    act: str
    job: Job


class Attempt(Struct, frozen=True):
    """A job that a worker runs. alone: nobody else may run it now: since it began, the lease has not run out, and no
    person has ended it."""

    job: Job
    alone: bool = True


class WorkerState(Struct, frozen=True):
    """held: what it runs."""

    held: Attempt | None = None


class Kept(Struct, frozen=True):
    """What a store falls back to."""

    jobs: tuple[Job, ...] = ()
    leased: tuple[str, ...] = ()


class World(Struct, frozen=True):
    """jobs: in the store, by id. client: what it knows of each job: `new`, `sent` (no answer), `stored`, `refused` (its
    key is taken), `over` (it was deleted). kept: the jobs and leases as they are safe on disk, or on the replica, so
    that the store may fall back to them; None: it loses nothing."""

    jobs: tuple[Job, ...]
    client: tuple[str, ...]
    leased: tuple[str, ...] = ()
    workers: tuple[WorkerState, ...] = (WorkerState(), WorkerState())
    sent: tuple[Message, ...] = ()
    kept: Kept | None = None

    def by(self, source: str) -> Message | None:
        """What this sender has on its way."""
        return next((message for message in self.sent if message.source == source), None)

    def seen(self) -> Iterator[Job]:
        """Every record of a job that is anywhere."""
        yield from self.jobs
        yield from self.kept.jobs if self.kept else ()
        yield from (worker.held.job for worker in self.workers if worker.held)
        yield from (message.job for message in self.sent)


def job_id(number: int) -> bytes:
    """A UUIDv7."""
    return bytes((1, 0x92, 0, 0, 0, number, 0x70, 0, 0x80, *bytes(7)))


def new_job(number: int, **fields: object) -> Job:
    """A job in a queue of its own, so that a worker can choose it."""
    job = Job(job_id(number), "task", b"", f"q{number}", due=NOW, state_since=NOW)
    return plain(replace(job, **fields))


def with_worker(state: World, number: int, **new: object) -> tuple[WorkerState, ...]:
    worker = state.workers[number]
    if "alone" in new:
        new = {"held": worker.held and replace(worker.held, alone=new["alone"])}
    return (*state.workers[:number], replace(worker, **new), *state.workers[number + 1 :])


def recalled(workers: Sequence[WorkerState], job: Job) -> tuple[WorkerState, ...]:
    """The workers, once a person has ended this job."""
    return tuple(
        replace(one, held=replace(one.held, alone=False)) if one.held and one.held.job.id == job.id else one
        for one in workers
    )


def tidy(state: World) -> World:
    """The state without what makes no difference: which worker is the first, by which name a dead owner went, how high
    an epoch is, what a record says whose epoch is over, and leases under which nothing runs."""
    state = _with_used_leases(_without_old(state))
    order = _order(state)
    names = {f"w{place}": f"w{at}" for at, place in enumerate(order)}
    for job in state.seen():
        if job.owner and not job.owner.startswith("w"):
            names.setdefault(job.owner, f"d{len(names) - len(order)}")
    workers = tuple(state.workers[place] for place in order)
    return renamed(replace(state, workers=workers), names)


def _with_used_leases(state: World) -> World:
    kept = state.kept and replace(state.kept, leased=_used(state.kept.leased, state.kept.jobs))
    return replace(state, leased=_used(state.leased, state.jobs), kept=kept)


def _used(leased: Sequence[str], jobs: Sequence[Job]) -> tuple[str, ...]:
    running = {job.owner for job in jobs}
    return tuple(name for name in leased if name in running)


def _order(state: World) -> list[int]:
    """The numbers of the workers, those first that do less."""
    return sorted(range(len(state.workers)), key=lambda number: _weight(state, number))


def _weight(state: World, number: int) -> tuple[object, ...]:
    name, held = f"w{number}", state.workers[number].held
    message = state.by(name)
    owned = [job.owner == name for job in state.jobs]
    told = (message.act, message.job.id, message.job.epoch) if message else ()
    safe = [job.owner == name for job in state.kept.jobs] if state.kept else []
    return (
        held is not None,
        (held.alone, held.job.id, held.job.epoch) if held else (),
        told,
        owned,
        safe,
        name in state.leased,
    )


_CURRENT = 2
"""The epoch of each job that was claimed more than once. Those of later claims, which the store may lose, follow; that
of older records is less by one."""


def _without_old(state: World) -> World:
    """Epochs by their order, and of records of earlier epochs only that they are such."""
    living = _living_epochs(state)
    state = replace(state, sent=tuple(_of_old(message, living) for message in state.sent))
    return _mapped(state, lambda job: _current(job, living))


def _living_epochs(state: World) -> dict[bytes, int]:
    """For each job the lowest epoch that the store may still have. It may give the next ones once more."""
    kept = state.jobs if state.kept is None else state.kept.jobs
    safe = {job.id: job.epoch for job in kept}
    return {job.id: min(job.epoch, safe.get(job.id, 0)) for job in state.jobs} | {
        id: epoch for id, epoch in safe.items() if id not in {job.id for job in state.jobs}
    }


def _current(job: Job, living: dict[bytes, int]) -> Job:
    epoch = living.get(job.id, job.epoch)
    lowest = min(epoch, _CURRENT)
    if job.epoch >= epoch:
        return replace(job, epoch=lowest + job.epoch - epoch)
    # A record of an epoch that is over: nothing else of it may matter.
    old = new_job(int(job.queue[1:]), key=job.key, key_ttl=job.key_ttl)
    return replace(old, state=job.state, owner=job.owner, epoch=lowest - 1)


def _of_old(message: Message, living: dict[bytes, int]) -> Message:
    if message.job.epoch >= living.get(message.job.id, 0):
        return message
    if message.source.startswith(("w", "net")):
        return replace(message, act="returned" if message.act in ENDING else "released")
    return message


def _with_owner(job: Job, owner: str) -> Job:
    return job if job.owner == owner else replace(job, owner=owner)


def renamed(state: World, names: dict[str, str]) -> World:
    leased = tuple(sorted(names.get(name, name) for name in state.leased))
    sent = tuple(replace(message, source=names.get(message.source, message.source)) for message in state.sent)
    safe = tuple(sorted(names.get(name, name) for name in state.kept.leased)) if state.kept else ()
    kept = state.kept and replace(state.kept, leased=safe)
    state = replace(state, leased=leased, sent=sent, kept=kept)
    return _mapped(state, lambda job: _with_owner(job, names.get(job.owner, job.owner)))


def _mapped(state: World, new: Callable[[Job], Job]) -> World:
    workers = tuple(
        replace(one, held=replace(one.held, job=new(one.held.job))) if one.held else one for one in state.workers
    )
    sent = (replace(message, job=new(message.job)) for message in sorted(state.sent, key=lambda one: one.source))
    kept = state.kept and replace(state.kept, jobs=tuple(map(new, state.kept.jobs)))
    return replace(state, jobs=tuple(map(new, state.jobs)), workers=workers, sent=tuple(sent), kept=kept)

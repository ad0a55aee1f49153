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


class World(Struct, frozen=True):
    """jobs: in the store, by id. client: what it knows of each job: `new`, `sent` (no answer), `stored`, `refused` (its
    key is taken), `over` (it was deleted)."""

    jobs: tuple[Job, ...]
    client: tuple[str, ...]
    leased: tuple[str, ...] = ()
    workers: tuple[WorkerState, ...] = (WorkerState(), WorkerState())
    sent: tuple[Message, ...] = ()

    def by(self, source: str) -> Message | None:
        """What this sender has on its way."""
        return next((message for message in self.sent if message.source == source), None)

    def seen(self) -> Iterator[Job]:
        """Every record of a job that is anywhere."""
        yield from self.jobs
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
    state = _without_old(state)
    running = {job.owner for job in state.jobs}
    state = replace(state, leased=tuple(name for name in state.leased if name in running))
    names = {f"w{place}": f"w{at}" for at, place in enumerate(_order(state))}
    for job in state.seen():
        if job.owner and not job.owner.startswith("w"):
            names.setdefault(job.owner, f"d{len(names)}")
    workers = tuple(state.workers[place] for place in _order(state))
    return renamed(replace(state, workers=workers), names)


def _order(state: World) -> list[int]:
    """The numbers of the workers, those first that do less."""
    return sorted(range(len(state.workers)), key=lambda number: _weight(state, number))


def _weight(state: World, number: int) -> tuple[object, ...]:
    name, held = f"w{number}", state.workers[number].held
    message = state.by(name)
    owned = [job.owner == name for job in state.jobs]
    told = (message.act, message.job.id, message.job.epoch) if message else ()
    return (
        held is not None,
        (held.alone, held.job.id, held.job.epoch) if held else (),
        told,
        owned,
        name in state.leased,
    )


def _without_old(state: World) -> World:
    """Epochs by their order, and of records of earlier epochs only that they are such."""
    living = {job.id: job.epoch for job in state.jobs}
    workers = tuple(
        replace(one, held=replace(one.held, job=_current(one.held.job, living))) if one.held else one
        for one in state.workers
    )
    sent = tuple(_of_old(message, living) for message in state.sent)
    jobs = tuple(replace(job, epoch=min(job.epoch, _CURRENT)) for job in state.jobs)
    return replace(state, jobs=jobs, workers=workers, sent=sent)


_CURRENT = 2
"""The epoch of each job that was claimed more than once. That of older records is less by one."""


def _current(job: Job, living: dict[bytes, int]) -> Job:
    epoch = living.get(job.id, job.epoch)
    if job.epoch == epoch:
        return replace(job, epoch=min(epoch, _CURRENT))
    # A record of an epoch that is over: nothing else of it may matter.
    old = new_job(int(job.queue[1:]), key=job.key, key_ttl=job.key_ttl)
    return replace(old, state=job.state, owner=job.owner, epoch=min(epoch, _CURRENT) - 1)


def _of_old(message: Message, living: dict[bytes, int]) -> Message:
    job = _current(message.job, living)
    if job.epoch == message.job.epoch == living.get(job.id, job.epoch) or job.epoch == _CURRENT:
        return replace(message, job=job)
    act = (
        "returned" if message.act in ENDING else "released" if message.source.startswith(("w", "net")) else message.act
    )
    return Message(message.source, act, job)


def _with_owner(job: Job, owner: str) -> Job:
    return job if job.owner == owner else replace(job, owner=owner)


def renamed(state: World, names: dict[str, str]) -> World:
    leased = tuple(sorted(names.get(name, name) for name in state.leased))
    sent = tuple(replace(message, source=names.get(message.source, message.source)) for message in state.sent)
    state = replace(state, leased=leased, sent=sent)
    return _mapped(state, lambda job: _with_owner(job, names.get(job.owner, job.owner)))


def _mapped(state: World, new: Callable[[Job], Job]) -> World:
    workers = tuple(
        replace(one, held=replace(one.held, job=new(one.held.job))) if one.held else one for one in state.workers
    )
    sent = (replace(message, job=new(message.job)) for message in sorted(state.sent, key=lambda one: one.source))
    return replace(state, jobs=tuple(map(new, state.jobs)), workers=workers, sent=tuple(sent))

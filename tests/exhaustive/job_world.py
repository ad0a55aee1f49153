"""Jobs, two workers, a keeper, people, a mover and a client around one store, with answers that are lost.

A step runs `lifecycle` and the verbs of `MemoryStore`. Of epochs only their order is kept, and owners that died are
numbered anew, so that the states are finite however often a job runs.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from tarry.model import moving
from tarry.model.change import Change
from tarry.model.job import Job, State
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import NORMAL, Want
from tests.exhaustive.explorer import Step
from tests.exhaustive.job_acts import BY_HAND, OUTCOMES, TAKER_ACTS, compute
from tests.exhaustive.job_checks import fault_of_change, fault_of_decision, fault_of_state
from tests.exhaustive.job_state import Attempt, Kept, Message, WorkerState, World, recalled, renamed, tidy, with_worker
from tests.exhaustive.store_state import LATER, LEASE, NOW, jobs_in, leases_in, plain, store_with, waits


class Options(Struct, frozen=True):
    """What happens in a model. outcomes: how attempts end; hands: what people do. loses: how many claims of a job the
    store may lose at once, with all that came after the first of them; 0: it loses nothing."""

    outcomes: Sequence[str] = (
        *(name for name in OUTCOMES if name not in ("expired", "lease lost", "died")),
        *TAKER_ACTS,
    )
    hands: Sequence[str] = BY_HAND
    moves: bool = True
    late_copies: bool = True
    deaths: bool = True
    loses: int = 0


class JobWorld:
    """The model. jobs: as their client sends them."""

    def __init__(self, name: str, jobs: Sequence[Job], options: Options) -> None:
        self.name, self._new, self._options = name, tuple(jobs), options
        self._changes: dict[tuple[Job, str], Change | None] = {}

    def starts(self) -> Iterator[World]:
        yield World((), ("new",) * len(self._new), kept=Kept() if self._options.loses else None)

    def is_end(self, state: World) -> bool:
        known = {job.id: job for job in state.jobs}
        return all(
            client in ("stored", "refused", "over") and (job.id not in known or known[job.id].state.finished)
            for client, job in zip(state.client, self._new, strict=True)
        )

    def fault(self, state: World) -> str:
        known = {job.id for job in state.jobs}
        for told, job in zip(state.client, self._new, strict=True):
            if told == "stored" and job.id not in known:
                return "an acknowledged job is missing"
        return fault_of_state(state)

    # Steps

    def steps(self, state: World) -> Iterator[Step[World]]:
        yield from self._client_steps(state)
        for number in range(len(state.workers)):
            yield from self._worker_steps(state, number)
        yield from self._keeper_steps(state)
        if self._options.hands:
            yield from self._decisions(state, "hand", self._options.hands)
        if self._options.moves:
            yield from self._decisions(state, "mover", ("park", "restore"), helps=True)
        for source in ("keeper", "hand", "mover", "net"):
            yield from self._send(state, source)
        yield from self._time_steps(state)
        if state.kept:
            yield from self._loss_steps(state, state.kept)

    def _client_steps(self, state: World) -> Iterator[Step[World]]:
        for number, job in enumerate(self._new):
            if state.client[number] in ("stored", "over"):
                continue
            store = store_with(state.jobs, state.leased)
            (living,) = store.insert([job])
            for told in ("stored" if living == job.id else "refused", "sent"):
                client = (*state.client[:number], told, *state.client[number + 1 :])
                lost = ", answer lost" if told == "sent" else ""
                # What was acknowledged is safe, and with it all that was written before.
                safe: dict[str, Any] = (
                    {} if lost or state.kept is None else {"kept": Kept(jobs_in(store), leases_in(store))}
                )
                label = f"client inserts job {number}{lost}"
                yield self._step(state, store, label, helps=not lost, client=client, **safe)

    def _worker_steps(self, state: World, number: int) -> Iterator[Step[World]]:
        name, worker = f"w{number}", state.workers[number]
        yield from self._exchanges(state, number)
        if worker.held and not state.by(name):
            yield from self._outcomes(state, number, worker.held)
        if worker.held:
            yield self._extend(state, number, worker.held)
        message = state.by(name)
        if not message:
            yield from self._look(state, number)
        if self._options.late_copies and message and not state.by("net"):
            copied = (*state.sent, replace(message, source="net"))
            yield self._step(state, None, f"a copy of what {name} sends is delayed", helps=False, sent=copied)
        if self._options.deaths and (worker.held or message or any(job.owner == name for job in state.jobs)):
            yield self._death(state, number)

    def _exchanges(self, state: World, number: int) -> Iterator[Step[World]]:
        """It sends what has ended and claims a job, in one call."""
        name, worker = f"w{number}", state.workers[number]
        message = state.by(name)
        claims: list[int | None] = [None] if message else []
        if worker.held is None:
            claims += [
                at for at, job in enumerate(self._new) if any(self._may_start(state, one, job) for one in state.jobs)
            ]
        for claim in claims:
            yield from self._exchange(state, number, message, claim)

    def _exchange(self, state: World, number: int, message: Message | None, claim: int | None) -> Iterator[Step[World]]:
        name = f"w{number}"
        change = self._change(message) if message else None
        store = store_with(state.jobs, state.leased)
        wants = [] if claim is None else [Want(f"q{claim}", NORMAL, 1)]
        answer = store.exchange([change] if change else [], wants, 1, name, LEASE, NOW)
        fault = self._judge(state, store, message, answer.valid, [job.id for job in answer.jobs])
        what = " and ".join(
            ([f"sends '{message.act}'"] if message else []) + ([] if claim is None else [f"claims job {claim}"])
        )
        held = Attempt(plain(answer.jobs[0])) if answer.jobs else state.workers[number].held
        known = with_worker(state, number, held=held)
        sent = tuple(one for one in state.sent if one != message)
        yield self._step(state, store, f"{name} {what}", fault, sent=sent, workers=known)
        yield self._step(state, store, f"{name} {what}, answer lost", fault, helps=False)

    def _outcomes(self, state: World, number: int, held: Attempt) -> Iterator[Step[World]]:
        is_late = 0 < held.job.expires <= NOW
        for act in ("expired",) if is_late else self._options.outcomes:
            message = Message(f"w{number}", act, held.job)
            workers = with_worker(state, number, held=None)
            label = f"w{number}: job {held.job.queue[1:]} {act}"
            yield self._step(
                state, None, label, self._judge_change(message), sent=(*state.sent, message), workers=workers
            )

    def _extend(self, state: World, number: int, held: Attempt) -> Step[World]:
        name = f"w{number}"
        store = store_with(state.jobs, state.leased)
        gone = store.extend(name, [(held.job.id, held.job.epoch)], LEASE, NOW)
        workers = with_worker(state, number, held=None) if gone else state.workers
        return self._step(state, store, f"{name} extends its lease", workers=workers)

    def _look(self, state: World, number: int) -> Iterator[Step[World]]:
        """It looks for jobs that a lost answer has brought, and gives them back."""
        name = f"w{number}"
        held = state.workers[number].held
        found = store_with(state.jobs, state.leased).reclaim(NOW, name)
        for job in map(plain, found):
            if held is None or (job.id, job.epoch) != (held.job.id, held.job.epoch):
                sent = (*state.sent, Message(name, "released", job))
                yield self._step(
                    state, None, f"{name} gives back job {job.queue[1:]}, which it did not know of", sent=sent
                )

    def _death(self, state: World, number: int) -> Step[World]:
        name = f"w{number}"
        left = tuple(message for message in state.sent if message.source != name)
        workers = (*state.workers[:number], WorkerState(), *state.workers[number + 1 :])
        dead = renamed(replace(state, sent=left, workers=workers), {name: f"new {name}"})
        return Step(f"{name} dies", tidy(dead), helps=False)

    def _keeper_steps(self, state: World) -> Iterator[Step[World]]:
        if state.by("keeper"):
            return
        store = store_with(state.jobs, state.leased)
        for job in store.reclaim(NOW):
            yield self._decide(state, "keeper", "lease lost", plain(job))
        for name in store.owners():
            for job in store.reclaim(NOW, name) if name.startswith("d") else ():
                for act in ("lease lost", "died"):
                    yield self._decide(state, "keeper", act, plain(job))

    def _decisions(self, state: World, source: str, acts: Sequence[str], helps: bool = False) -> Iterator[Step[World]]:
        if state.by(source):
            return
        for job in state.jobs:
            for act in acts:
                if _is_due(act, job) and self._change(Message(source, act, job)):
                    yield self._decide(state, source, act, job, helps)

    def _decide(self, state: World, source: str, act: str, job: Job, helps: bool = True) -> Step[World]:
        message = Message(source, act, job)
        label = f"{source} decides: job {job.queue[1:]} '{act}'"
        return self._step(state, None, label, self._judge_change(message), helps=helps, sent=(*state.sent, message))

    def _send(self, state: World, source: str) -> Iterator[Step[World]]:
        message = state.by(source)
        change = self._change(message) if message else None
        if message is None or change is None:
            return
        store = store_with(state.jobs, state.leased)
        valid = store.apply([change], NOW)
        fault = self._judge(state, store, message, valid)
        workers = recalled(state.workers, message.job) if message.act in BY_HAND and valid[0] else state.workers
        sent = tuple(one for one in state.sent if one != message)
        client = state.client
        if change.to is None and valid[0]:
            client = tuple("over" if job.id == change.id else told for job, told in zip(self._new, client, strict=True))
        label = f"{source} sends '{message.act}' of job {message.job.queue[1:]}"
        yield self._step(state, store, label, fault, sent=sent, workers=workers, client=client)

    def _time_steps(self, state: World) -> Iterator[Step[World]]:
        for name in state.leased:
            leased = tuple(one for one in state.leased if one != name)
            number = int(name[1:]) if name.startswith("w") else None
            workers = state.workers if number is None else with_worker(state, number, alone=False)
            yield self._step(
                state, None, f"the lease of {name} runs out", helps=number is None, leased=leased, workers=workers
            )
        for at, job in enumerate(state.jobs):
            for field in ("due", "expires", "key_held_until"):
                if getattr(job, field) == LATER and (field != "expires" or waits(job)):
                    jobs = (*state.jobs[:at], replace(job, **{field: NOW}), *state.jobs[at + 1 :])
                    label = f"job {job.queue[1:]}: the time of '{field}' comes"
                    yield self._step(state, None, label, jobs=jobs)

    def _loss_steps(self, state: World, kept: Kept) -> Iterator[Step[World]]:
        if (kept.jobs, kept.leased) == (state.jobs, state.leased):
            return
        yield self._step(state, None, "all is written to disk", kept=Kept(state.jobs, state.leased))
        workers = tuple(
            replace(one, held=replace(one.held, alone=one.held.alone and _is_still_held(one.held, kept.jobs)))
            if one.held
            else one
            for one in state.workers
        )
        label = "a power cut, or a failover: what was not on disk is lost"
        # It breaks all connections: a worker sends its outcomes again, all others look anew.
        sent = tuple(message for message in state.sent if message.source.startswith("w"))
        yield self._step(
            state, None, label, helps=False, jobs=kept.jobs, leased=kept.leased, workers=workers, sent=sent
        )

    def _may_start(self, state: World, job: Job, new: Job) -> bool:
        is_due = job.state is State.READY or (job.state is State.SCHEDULED and job.due <= NOW)
        if job.id != new.id or not is_due or state.kept is None:
            return job.id == new.id and is_due
        safe = next((one.epoch for one in state.kept.jobs if one.id == job.id), 0)
        return job.epoch - safe < self._options.loses

    # What holds of each step

    def _judge(
        self,
        state: World,
        store: MemoryStore,
        message: Message | None,
        valid: Sequence[bool],
        claimed: Sequence[bytes] = (),
    ) -> str:
        """What a call of the store violates."""
        before = {job.id: job for job in state.jobs}
        after = store._jobs
        made = message if message and valid[0] else None
        for id, old in before.items():
            new = after.get(id)
            act = made.act if made and made.job.id == id else ""
            if fault := fault_of_change(old, new, act, made.job if made else old, id in claimed):
                return fault
        return ""

    def _judge_change(self, message: Message) -> str:
        change = self._change(message)
        return "" if change is None else fault_of_decision(message, change)

    def _change(self, message: Message) -> Change | None:
        """What a message asks for; None: it is not possible."""
        place = message.job, message.act
        if place not in self._changes:
            self._changes[place] = compute(*place)
        return self._changes[place]

    def _step(
        self, state: World, store: MemoryStore | None, label: str, fault: str = "", helps: bool = True, **new: object
    ) -> Step[World]:
        if store is not None:
            new |= {"jobs": jobs_in(store), "leased": leases_in(store)}
        return Step(label, tidy(replace(state, **new)), fault, helps)


def _is_due(act: str, job: Job) -> bool:
    """Whether anybody would do that to this job."""
    if act == "park":
        return waits(job) and not moving.is_parked(job)
    return act != "restore" or moving.is_parked(job)


def _is_still_held(attempt: Attempt, jobs: Sequence[Job]) -> bool:
    """Whether the store knows of an attempt."""
    seen = attempt.job.id, attempt.job.epoch, attempt.job.owner
    return any((job.id, job.epoch, job.owner) == seen for job in jobs)

"""Approvals: which tasks wait for a person's decision (`approve`), and the decision."""

import hashlib
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from tarry.client.clock import Clock
from tarry.errors import JobNotFound, PartlyUnavailable
from tarry.model.duration import DAY, SECOND
from tarry.model.flow.node_ids import flow_of, is_node
from tarry.model.flow.signal import MOST_VALUE, Signal, SignalWait
from tarry.model.job import Job, State
from tarry.model.lifecycle import NotPossible
from tarry.model.moving import NEVER
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.rules.partial_result import partial_result, reachable_part
from tarry.tasks.durable.durable_waits import APPROVE, Approval, Decision

PAGE, MOST_PAGES = 1000, 100
"""Waiting jobs that are read at once, and how often."""
KEPT = 30 * DAY
"""How long a decision is kept; microseconds. A task may ask for it again when it is tried again."""


class ApprovalRecord(Struct, frozen=True):
    """A job that waits for a decision. Times are seconds since the epoch; null: none."""

    key: str
    question: str
    id: str
    """The job."""
    task: str
    queue: str
    flow: str | None
    """The flow of which it is a job."""
    since: float
    until: float | None
    """When it goes on without a decision."""


class WaitingApproval(Struct, frozen=True):
    """A job that waits for a decision, and where it waits."""

    address: SignalWait
    job: Job

    @property
    def question(self) -> str:
        """What is asked."""
        return self.address.name.removeprefix(APPROVE)


class FoundApprovals(Struct, frozen=True):
    """Jobs that wait for a decision, by question and key. is_whole: no others match. away: a shard that was not asked,
    and may have others."""

    jobs: list[WaitingApproval]
    is_whole: bool
    away: PartlyUnavailable | None = None


def _any(one: WaitingApproval) -> bool:
    return True


def read_approvals(
    store: Store,
    question: str | None = None,
    wanted: Callable[[WaitingApproval], bool] = _any,
    limit: int = PAGE * MOST_PAGES,
    after: SignalWait | None = None,
) -> FoundApprovals:
    """The first jobs that wait for a decision and are wanted, `limit` at most. question: only that one. after: only
    those after this one. At most PAGE * MOST_PAGES jobs are looked at. StoreError."""
    name, found, away = APPROVE + (question or ""), list[WaitingApproval](), None
    for _ in range(MOST_PAGES):
        page, missing = partial_result(partial(store.flows.awaiting, name, PAGE, after))
        away = away or missing
        # Other questions that begin with the same text come after all of this one.
        own = [one for one in page if question is None or one.name == name]
        found += [one for one in _with_jobs(store, own) if wanted(one)]
        is_whole = len(own) < PAGE
        if is_whole or len(found) > limit:
            return FoundApprovals(found[:limit], is_whole and len(found) <= limit, away)
        after = own[-1]
    return FoundApprovals(found[:limit], False, away)


def approval_of(store: Store, job: bytes) -> WaitingApproval | None:
    """Which decision a job waits for; None: none, or it is not among the first 100,000. StoreError."""
    after: SignalWait | None = None
    for _ in range(MOST_PAGES):
        page = reachable_part(partial(store.flows.awaiting, APPROVE, PAGE, after))
        if own := [one for one in page if one.job == job]:
            return next(iter(_with_jobs(store, own)), None)
        if len(page) < PAGE:
            break
        after = page[-1]
    return None


def _with_jobs(store: Store, found: list[SignalWait]) -> list[WaitingApproval]:
    jobs = reachable_part(partial(store.get, [one.job for one in found])) if found else []
    # Between the two reads a job may have been cancelled, or have gone on.
    return [
        WaitingApproval(one, job)
        for one, job in zip(found, jobs, strict=True)
        if job is not None and job.state is State.SCHEDULED and job.epoch == one.epoch
    ]


def approval_record(waiting: WaitingApproval) -> ApprovalRecord:
    """The record of a job that waits for a decision."""
    job = waiting.job
    flow = ids.text(flow_of(job.id)) if is_node(job.id) else None
    until = None if job.due >= NEVER else job.due / SECOND
    return ApprovalRecord(
        waiting.address.key, waiting.question, ids.text(job.id), job.task, job.queue, flow, job.state_since / SECOND,
        until,
    )  # fmt: skip


def find_approvals(
    store: Store, key: str, question: str | None, allows: Callable[[str], bool] = lambda queue: True
) -> list[WaitingApproval]:
    """The jobs that wait for this decision. JobNotFound if there are none; NotPossible if the key belongs to several
    questions. allows: whether whoever decides may see that queue: jobs of others are left out."""
    read = _of_key(store, key, question)
    found = [one for one in read.jobs if allows(one.job.queue)]
    if read.away is not None:
        raise PartlyUnavailable(str(read.away), found, read.away.missing)
    if not found and not read.is_whole and question is None:
        raise NotPossible(f"more than {PAGE * MOST_PAGES:,} jobs wait for approvals: name the question of {key!r}")
    if not found:
        asked = "" if question is None else f" of {question!r}"
        raise JobNotFound(f"no job waits for an approval{asked} with the key {key!r}: it is decided, or not asked yet")
    questions = sorted({one.question for one in found})
    if len(questions) > 1:
        raise NotPossible(
            f"several questions have the key {key!r}, name one of them: {', '.join(map(repr, questions))}"
        )
    return found


def _of_key(store: Store, key: str, question: str | None) -> FoundApprovals:
    """The jobs that wait with this key: with the question at its own place, at most PAGE; else among all that wait."""
    if question is None:
        return read_approvals(store, wanted=lambda one: one.address.key == key)
    name = APPROVE + question
    first = SignalWait(name, key, bytes(16), 0, 0)
    page, away = partial_result(partial(store.flows.awaiting, name, PAGE, first))
    own = [one for one in page if (one.name, one.key) == (name, key)]
    return FoundApprovals(_with_jobs(store, own), len(own) < PAGE, away)


def decide(store: Store, clock: Clock, waiting: list[WaitingApproval], decision: Approval) -> int:
    """Tells these jobs of one question and key the decision; returns how many it woke. No other job takes it for its
    own, whether it waits now or asks later. NotPossible if somebody else has decided meanwhile; ValueError if the note
    is too long."""
    address = waiting[0].address
    value = msgspec.json.encode(
        Decision(**msgspec.structs.asdict(decision), jobs=[ids.text(one.job.id) for one in waiting])
    )
    if len(value) > MOST_VALUE:
        raise ValueError(f"the note has {len(value):,} bytes; {MOST_VALUE:,} can be kept")
    # Of this wait: of two who decide at once, the first counts.
    of = f"{address.job.hex()} {address.epoch}".encode()
    id = hashlib.blake2b(of, digest_size=16).digest()
    now = clock.now()
    woken = store.flows.signal(Signal(address.name, address.key, id, value, now + KEPT), now)
    if not woken:
        raise NotPossible(f"{waiting[0].question!r} with the key {address.key!r} is decided already")
    # Others at this address are woken, too, and wait again.
    return min(woken, len(waiting))

"""Approvals: which tasks wait for a person's decision (`approve`), and the decision."""

import hashlib
from collections.abc import Callable
from functools import partial

import msgspec
from msgspec import Struct

from tarry.client.clock import Clock
from tarry.errors import JobNotFound, NotAllowed
from tarry.model.duration import DAY, SECOND
from tarry.model.flow.node_ids import flow_of, is_node
from tarry.model.flow.signal import MOST_VALUE, Awaiting, Signal
from tarry.model.job import Job, State
from tarry.model.lifecycle import NotPossible
from tarry.model.moving import NEVER
from tarry.store import ids
from tarry.store.base import Store
from tarry.store.shared.partial_result import made_of, reachable_part
from tarry.tasks.durable.waiting import APPROVE, Approval

MOST_WAITING = 1000
"""How many waiting jobs are looked at."""
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

    address: Awaiting
    job: Job

    @property
    def question(self) -> str:
        """What is asked."""
        return self.address.name.removeprefix(APPROVE)


def waiting_approvals(store: Store, question: str | None = None) -> list[WaitingApproval]:
    """The jobs that wait for a decision, by question and key: the first MOST_WAITING. question: only that one.
    PartlyUnavailable: its answer is without those of a shard that is away."""
    name = APPROVE + (question or "")
    wanted = (lambda one: True) if question is None else (lambda one: one.name == name)
    return made_of(
        partial(store.flows.awaiting, name, MOST_WAITING), lambda found: _with_jobs(store, list(filter(wanted, found)))
    )


def _with_jobs(store: Store, found: list[Awaiting]) -> list[WaitingApproval]:
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
    questions. allows: whether whoever decides may see that queue; NotAllowed if others wait for the same decision."""
    waiting = [one for one in waiting_approvals(store, question) if one.address.key == key]
    found = [one for one in waiting if allows(one.job.queue)]
    if not found:
        asked = "" if question is None else f" of {question!r}"
        raise JobNotFound(f"no job waits for an approval{asked} with the key {key!r}: it is decided, or not asked yet")
    questions = sorted({one.question for one in found})
    if len(questions) > 1:
        raise NotPossible(
            f"several questions have the key {key!r}, name one of them: {', '.join(map(repr, questions))}"
        )
    if any(one.question in questions for one in waiting if not allows(one.job.queue)):
        raise NotAllowed("jobs of queues that this token is not for wait for the same decision")
    return found


def decide(store: Store, clock: Clock, waiting: list[WaitingApproval], decision: Approval) -> int:
    """Tells the jobs of one question and key the decision; returns how many it woke. NotPossible if somebody else has
    decided meanwhile; ValueError if the note is too long."""
    address = waiting[0].address
    value = msgspec.json.encode(decision)
    if len(value) > MOST_VALUE:
        raise ValueError(f"the note has {len(value):,} bytes; {MOST_VALUE:,} can be kept")
    # Of this wait: of two who decide at once, the first counts.
    of = f"{address.job.hex()} {address.epoch}".encode()
    id = hashlib.blake2b(of, digest_size=16).digest()
    now = clock.now()
    woken = store.flows.signal(Signal(address.name, address.key, id, value, now + KEPT), now)
    if not woken:
        raise NotPossible(f"{waiting[0].question!r} with the key {address.key!r} is decided already")
    return woken

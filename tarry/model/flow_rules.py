"""What becomes of a flow when one of its nodes ends. `model/lifecycle.py` calls it, and no other file decides this.

A node that does not end well stops its flow: no node that is still blocked is released, and once the active ones have
ended, the flow ends, too. With GO_ON it tells the others as if it had ended well. With COMPENSATE it stops the flow,
and what is done is undone before the flow ends. A node that is tried again, snoozes or sleeps has not ended.
"""

from functools import lru_cache
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.model.change import Change
from tarry.model.checks.decoders import json_decoder
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.flow.effect import NodeEffect
from tarry.model.flow.node_ids import flow_of, index_of, is_root
from tarry.model.flow.wiring import (
    AFTER,
    COMPENSATE,
    GO_ON,
    Gate,
    NodeLinks,
    Ref,
    added_nodes,
    opened_by,
    split,
    unwrap,
    wrap,
)
from tarry.model.flow_row import FlowChange, FlowRow, Phase
from tarry.model.job import HELD, RELATIVE, Job, State
from tarry.model.outcome import outcome_note

FLOW_CANCELLED = "FlowCancelled"
"""The type in the note of a node that was cancelled with its flow: it has told nobody, whatever it is to do."""

_STOPS = NodeLinks()


class _FlowNote(Struct):
    """What is kept of how a node failed."""

    type: str = ""
    message: str = ""
    node: int = 0


_notes = json_decoder(_FlowNote)


def refusal(job: Job) -> str:
    """Why a job changes with its flow only: it is a root, or waits for others. Empty: it is neither."""
    what = "it is a flow" if is_root(job.id) else "it waits in a flow" if job.state is State.BLOCKED else ""
    return what and f"{what}: see `tarry flows show {UUID(bytes=flow_of(job.id))}`"


def effect_of_end(job: Job, to: State, note: bytes) -> NodeEffect | None:
    """What it does to the flow that a node ends: one that runs, is ready or is scheduled. note: how it ended, as JSON.
    None: nothing, since a person ran it again after its end had counted."""
    wiring = wiring_of(job)
    if wiring.alone:
        return None
    if to is State.DONE:
        added = added_nodes(note)
        return _effect_on(wiring.tells) if added is None else _effect_of_adding(wiring, added, opened_by(note))
    ended = _read(note)
    if _goes_on(wiring, ended):
        return _effect_on(wiring.tells)
    ended.node = index_of(job.id)
    return NodeEffect(active=-1, failed=1, armed=_asks_for_undo(wiring, ended), note=msgspec.json.encode(ended))


def _goes_on(wiring: NodeLinks, ended: _FlowNote) -> bool:
    """Whether a node that did not end well tells those behind it all the same."""
    return wiring.on_failure == GO_ON and ended.type != FLOW_CANCELLED


def _asks_for_undo(wiring: NodeLinks, ended: _FlowNote) -> bool:
    """Whether a failed node asks for the others to be undone."""
    return wiring.on_failure == COMPENSATE and ended.type != FLOW_CANCELLED


# One for all members of a group: stores add up effects, and those that are the same at once.
@lru_cache(maxsize=100)
def _effect_on(gates: tuple[Gate, ...]) -> NodeEffect:
    return NodeEffect(active=-1, tells=gates)


def _effect_of_adding(wiring: NodeLinks, added: Ref, opened: int) -> NodeEffect:
    """The effect of a good end with new nodes, which tell what it would have told."""
    raises = tuple((gate, added.count - 1) for gate in wiring.tells)
    return NodeEffect(active=-1, blocked=added.count, raises=raises, opens=(Gate(added.first, opened, 1),))


def effect_of_return(job: Job) -> NodeEffect | None:
    """What it does to the flow that a person runs a finished node again. None: nothing, since its end has told the
    others; it runs as a job of its own (`alone`)."""
    wiring = wiring_of(job)
    if wiring.alone or job.state is State.DONE:
        return None
    ended = _read(job.note)
    if _goes_on(wiring, ended):
        return None
    return NodeEffect(active=1, failed=-1, armed=-_asks_for_undo(wiring, ended))


def end_of_node(job: Job, to: State, change: Change) -> Change:
    """The change that ends a node. The node is kept as long as its flow."""
    return replace(change, to=to, keep_until=HELD, node=effect_of_end(job, to, change.note))


def deletion_of_node(job: Job, change: Change) -> Change:
    """The change that deletes a node. One that has not finished stays, as a cancelled one: its flow counts on it."""
    if job.state.finished:
        return change
    note = outcome_note("Cancelled", "it was deleted")
    kept = replace(
        change, state_since=job.state_since, failures=job.failures, crashes=job.crashes, note=note, owner=job.owner
    )
    return end_of_node(job, State.CANCELLED, kept)


def takes_results(job: Job) -> bool:
    """Whether arguments of the job are results of other nodes of its flow: they do not stand in its body."""
    envelope, _ = split(job.id, job.body)
    return bool(envelope) and any(take.place != AFTER for take in wiring_of(job).takes)


def return_of_node(job: Job, change: Change) -> Change:
    """The change by which a person runs a finished node again."""
    effect = effect_of_return(job)
    return replace(change, body=alone(job.body)) if effect is None else replace(change, node=effect)


def reopen(root: Job, now: int) -> Change:
    """The root of a flow that has ended, and now goes on with its failed nodes. It counts as active, so that the flow
    cannot end before they are ready: `end_reopening` then ends that."""
    return Change(
        root.id, root.state, root.epoch, State.BLOCKED, now, root.due, root.failures, root.crashes,
        key_held_until=None if root.key is None else HELD, seen_times=(root.due, root.expires),
        node=NodeEffect(active=1, revives=True),
    )  # fmt: skip


def end_reopening(root: Job) -> Change:
    """The root of a flow whose failed nodes are ready again, after `reopen`."""
    # State and epoch are the same before and after: the time tells which change was made already, so that a copy of
    # either that comes late is not made.
    return Change(
        root.id, State.BLOCKED, root.epoch, State.BLOCKED, root.state_since, root.due + 1, root.failures, root.crashes,
        seen_times=(root.due, root.expires), node=NodeEffect(active=-1),
    )  # fmt: skip


def release(job: Job, now: int) -> Job:
    """A blocked node once its gate is open. Its lane is for the store to say, as for a job that comes back."""
    # Below RELATIVE they count from now.
    due = max(now, now + job.due if job.due < RELATIVE else job.due)
    expires = due + job.expires if 0 < job.expires < RELATIVE else job.expires
    state = State.SCHEDULED if due > now else State.READY
    return replace(job, state=state, due=due, expires=expires, state_since=now)


def wake(job: Job, now: int) -> Job:
    """A job that slept for a signal, once that has come."""
    return replace(job, state=State.READY, due=min(job.due, now), state_since=now)


def flow_end(flow: FlowRow) -> tuple[State, bytes]:
    """How a flow ends, now that none of its nodes is active: the state of its root, and its note."""
    if flow.ends is State.DONE and flow.blocked > 0:
        message = f"{flow.blocked} of its jobs wait for others that are gone"
        return State.DEAD, msgspec.json.encode(_FlowNote("Stuck", message))
    return flow.ends, b"" if flow.ends is State.DONE else flow.note


def cancel_flow(flow: bytes, reason: str = "") -> FlowChange:
    """The flow is no longer wanted: no node starts any more. Those that are active are then to be cancelled, too."""
    note = msgspec.json.encode(_FlowNote(FLOW_CANCELLED, reason))
    return FlowChange(flow, Phase.RUNNING, Phase.CANCELLING, State.CANCELLED, note)


def time_out(flow: FlowRow) -> FlowChange:
    """Its deadline has come: as if it were cancelled, but it is dead then."""
    note = flow.note or msgspec.json.encode(_FlowNote("Deadline", "it did not end in time"))
    return FlowChange(flow.id, flow.phase, Phase.CANCELLING, State.DEAD, note)


class CountedNodes(Struct, frozen=True):
    """What a count of a flow's nodes found. None of its gates was open."""

    active: int
    """Ready, scheduled or running."""
    failed: int
    """Dead or cancelled so that they stop the flow."""
    found: int
    """All that are there, without the root."""


def repair(flow: FlowRow, counted: CountedNodes) -> FlowChange | None:
    """How the row of a flow, whose numbers have not changed for long, becomes what was counted: the flow then ends, or
    can end. None: it is right. Nodes that were active and are gone count as failed."""
    if counted.active == flow.active:
        return None
    gone = max(0, min(flow.active - counted.active, flow.size - 1 - counted.found))
    return FlowChange(
        flow.id, flow.phase, flow.phase, note=flow.note or (lost(gone) if gone else None),
        seen=(flow.active, flow.blocked, flow.failed), active=counted.active, failed=counted.failed + gone,
    )  # fmt: skip


def stops(job: Job) -> bool:
    """Whether a node has ended so that it stops its flow."""
    return job.state.finished and effect_of_return(job) is not None


def keep(flow: FlowRow, state: State) -> int:
    """How long a flow is kept after that end; microseconds."""
    return flow.keep_dead if state is State.DEAD else flow.keep_done


def lost(count: int) -> bytes:
    """The note of a flow of which so many nodes are gone."""
    return msgspec.json.encode(_FlowNote("Lost", f"{count} of its jobs are gone: they were deleted by hand"))


def alone(body: bytes) -> bytes:
    """The body of a node that is run again after it has told."""
    try:
        wiring, arguments = unwrap(body)
    except UNREADABLE:
        return body
    return wrap(replace(wiring or _STOPS, alone=True), arguments)


def wiring_of(job: Job) -> NodeLinks:
    """How a node is tied to others. If its body cannot be read, as by an older version: to none, and it stops the flow
    unless it ends well."""
    try:
        return unwrap(job.body)[0] or _STOPS
    except UNREADABLE:
        return _STOPS


def _read(note: bytes) -> _FlowNote:
    try:
        return _notes.decode(note)
    except UNREADABLE:
        return _FlowNote()

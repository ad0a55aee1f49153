"""What becomes of a flow when one of its nodes ends. `model/lifecycle.py` calls it, and no other file decides this.

A node that does not end well stops its flow: no node that is still blocked is released, and once the active ones have
ended, the flow ends, too. With GO_ON it tells the others as if it had ended well. With COMPENSATE it stops the flow,
and what is done is undone before the flow ends. A node that is tried again, snoozes or sleeps has not ended.
"""

from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tarry.model.flow.effect import NodeEffect
from tarry.model.flow.node_ids import flow_of, index_of, is_root
from tarry.model.flow.wiring import COMPENSATE, GO_ON, Wiring, unwrap, wrap
from tarry.model.job import Job, State

FLOW_CANCELLED = "FlowCancelled"
"""The type in the note of a node that was cancelled with its flow: it has told nobody, whatever it is to do."""

_STOPS = Wiring()


class _Note(Struct):
    """What is kept of how a node failed."""

    type: str = ""
    message: str = ""
    node: int = 0


_notes = msgspec.json.Decoder(_Note)


def refusal(job: Job) -> str:
    """Why a job changes with its flow only: it is a root, or waits for others. Empty: it is neither."""
    if is_root(job.id):
        return "it is a flow: see `tarry flows --help`"
    return f"it waits in flow {UUID(bytes=flow_of(job.id))}: cancel the flow" if job.state is State.BLOCKED else ""


def effect_of_end(job: Job, to: State, note: bytes) -> NodeEffect | None:
    """What it does to the flow that a node ends: one that runs, is ready or is scheduled. note: how it ended, as JSON.
    None: nothing, since a person ran it again after its end had counted."""
    wiring = wiring_of(job)
    if wiring.alone:
        return None
    ended = _read(note)
    if to is State.DONE or (wiring.on_failure == GO_ON and ended.type != FLOW_CANCELLED):
        return NodeEffect(active=-1, tells=wiring.tells)
    ended.node = index_of(job.id)
    arms = wiring.on_failure == COMPENSATE and ended.type != FLOW_CANCELLED
    return NodeEffect(active=-1, failed=1, arms=arms, note=msgspec.json.encode(ended))


def effect_of_return(job: Job) -> NodeEffect | None:
    """What it does to the flow that a person runs a finished node again. None: nothing, since its end has told the
    others; it runs as a job of its own (`alone`)."""
    wiring = wiring_of(job)
    has_told = wiring.on_failure == GO_ON and _read(job.note).type != FLOW_CANCELLED
    return None if wiring.alone or has_told or job.state is State.DONE else NodeEffect(active=1, failed=-1)


def alone(body: bytes) -> bytes:
    """The body of a node that is run again after it has told."""
    try:
        wiring, arguments = unwrap(body)
    except ValueError:
        return body
    return wrap(replace(wiring or _STOPS, alone=True), arguments)


def wiring_of(job: Job) -> Wiring:
    """How a node is tied to others. If its body cannot be read, as by an older version: to none, and it stops the flow
    unless it ends well."""
    try:
        return unwrap(job.body)[0] or _STOPS
    except ValueError:
        return _STOPS


def _read(note: bytes) -> _Note:
    try:
        return _notes.decode(note)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return _Note()

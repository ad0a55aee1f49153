"""Methods about signals: send one, list who waits for a person's decision, and decide."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from tarry import errors
from tarry.client.flows.approvals import (
    ApprovalRecord,
    approval_record,
    decide,
    find_approvals,
    read_approvals,
)
from tarry.model.checks.decoders import decode_json
from tarry.model.flow.signal import MOST_ADDRESS, SignalWait
from tarry.model.lifecycle import NotPossible
from tarry.model.quantity import Short
from tarry.operate.access import Scope
from tarry.operate.call import MethodCall
from tarry.operate.limits import EVERY_QUEUE
from tarry.operate.method import method, methods_of
from tarry.operate.problem import RequestError, checking
from tarry.tasks.durable.durable_waits import APPROVE, Approval

_ID, MOST_CURSOR = 16, 8 * MOST_ADDRESS + 100
"""Bytes of the id of a job; characters of a cursor."""
SignalAddress = Annotated[str, Meta(min_length=1, max_length=MOST_ADDRESS, pattern=r"^[^\x00]*$")]


class SignalRequest(Struct, forbid_unknown_fields=True):
    """A signal to send."""

    name: SignalAddress
    key: SignalAddress
    value: Any = None
    """Any JSON of up to 64 KB: what `wait_for` returns."""
    id: Annotated[str, Meta(min_length=1, max_length=500)] | None = None
    """The same one sent twice to this name and key is one signal: so a request can be sent again."""
    keep: float | Short = "30d"
    """How long it is kept for jobs that wait for it later: seconds, or text such as "7d"."""


class SignalAnswer(Struct, frozen=True):
    """What became of a signal."""

    woken: int
    """How many jobs waited for it, and go on. 0 is no error: it is kept for those that come."""


class ApprovalsQuery(Struct, forbid_unknown_fields=True):
    """Which approvals to list."""

    question: SignalAddress | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 1000
    cursor: Annotated[str, Meta(max_length=MOST_CURSOR)] = ""
    """`next` of the answer before."""


class ApprovalList(Struct, frozen=True):
    """Jobs that wait for a person's decision, by question and key."""

    approvals: list[ApprovalRecord]
    """As many as `limit`."""
    missing: str | None = None
    """Why some are not listed: a store that is away; null: all are."""
    next: str = ""
    """The `cursor` of those that follow; empty: there are none."""


class ApprovalPath(Struct):
    """Names an approval."""

    key: SignalAddress


class DecisionRequest(Struct, forbid_unknown_fields=True):
    """What a person decided."""

    ok: bool
    note: Annotated[str, Meta(max_length=10_000)] = ""
    question: SignalAddress | None = None
    """Which question; needed only if several have this key."""


class DecisionAnswer(Struct, frozen=True):
    """A decision that was told."""

    key: str
    question: str
    ok: bool
    by: str
    """Who decided: the name of the token or the person; empty: this server needs none."""
    woken: int
    """How many jobs go on."""


@method("POST /v1/signals", Scope.PUT, command="flows signal")
def send_signal(call: MethodCall, body: SignalRequest) -> SignalAnswer:
    """Sends a signal to the jobs that wait, or will wait, by `wait_for(name, key=key)`.

    A signal is not bound to a queue, so this takes a caller for all queues. Signals whose name begins with `approve:`
    are decisions, which have a method of their own."""
    call.check(EVERY_QUEUE)
    call.subject = f"{body.name} {body.key}"
    if body.name.startswith(APPROVE):
        said = f"name: {APPROVE} is for decisions: {call.way_to(decide_approval)} keeps who made them"
        raise RequestError(said, "name", 422)
    with checking("signal"):
        return SignalAnswer(call.app.signal(body.name, key=body.key, value=body.value, id=body.id, keep=body.keep))


@method("GET /v1/approvals", Scope.READ, command="flows approvals")
def list_approvals(call: MethodCall, query: ApprovalsQuery) -> ApprovalList:
    """Lists the jobs that wait for a person's decision (`approve`)."""
    found = read_approvals(
        call.client.store,
        query.question,
        lambda one: call.allows(one.job.queue),
        query.limit,
        _read_cursor(query.cursor),
    )
    # Of the last one that the caller may see: it tells nothing of others.
    following = "" if found.is_whole or not found.jobs else _cursor(found.jobs[-1].address)
    away = str(found.away) if found.away else None
    return ApprovalList([approval_record(one) for one in found.jobs], away, following)


def _cursor(last: SignalWait) -> str:
    return urlsafe_b64encode(msgspec.json.encode(last.place)).decode().rstrip("=")


def _read_cursor(cursor: str) -> SignalWait | None:
    if not cursor:
        return None
    try:
        written = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        name, key, job = decode_json(written, tuple[str, str, bytes])
    except (ValueError, msgspec.MsgspecError):
        raise RequestError("cursor: not one that an answer had", "cursor", 422) from None
    if len(job) != _ID or "\0" in name + key:
        raise RequestError("cursor: not one that an answer had", "cursor", 422)
    return SignalWait(name, key, job, 0, 0)


@method("POST /v1/approvals/{key}", Scope.OPERATE, errors=(errors.JobNotFound, NotPossible), command="flows approve")
def decide_approval(call: MethodCall, path: ApprovalPath, body: DecisionRequest) -> DecisionAnswer:
    """Decides what jobs wait for: they go on with `ok`, the note, and who decided.

    If two decide at once, the first counts, and the other one is told so (409)."""
    client = call.client
    found = find_approvals(client.store, path.key, body.question, call.allows)
    for one in found:
        call.check(one.job.queue)
    decision = Approval(body.ok, call.caller.name, body.note)
    with checking("note"):
        woken = decide(client.store, client.clock, found, decision)
    return DecisionAnswer(path.key, found[0].question, body.ok, call.caller.name, woken)


METHODS = methods_of(__name__)

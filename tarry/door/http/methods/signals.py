"""Methods about signals: send one, list who waits for a person's decision, and decide."""

from functools import partial
from typing import Annotated, Any

from msgspec import Meta, Struct

from tarry import errors
from tarry.client.flows.approvals import (
    ApprovalRecord,
    approval_record,
    decide,
    find_approvals,
    waiting_approvals,
)
from tarry.door.http.method import ApiCall, ApiMethod, api_method
from tarry.door.http.methods.limits import EVERY_QUEUE
from tarry.door.http.problem import RequestError, checking
from tarry.door.identity.access import Scope
from tarry.model.flow.signal import MOST_ADDRESS
from tarry.model.lifecycle import NotPossible
from tarry.model.quantity import Short
from tarry.store.shared.partial_result import partial_result
from tarry.tasks.durable.waiting import APPROVE, Approval

Address = Annotated[str, Meta(min_length=1, max_length=MOST_ADDRESS, pattern=r"^[^\x00]*$")]


class SignalRequest(Struct, forbid_unknown_fields=True):
    """A signal to send."""

    name: Address
    key: Address
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

    question: Address | None = None


class ApprovalList(Struct, frozen=True):
    """Jobs that wait for a person's decision, by question and key."""

    approvals: list[ApprovalRecord]
    """The first 1,000."""
    missing: str | None = None
    """Why some are not listed: a store that is away; null: all are."""


class ApprovalPath(Struct):
    """Names an approval."""

    key: Address


class DecisionRequest(Struct, forbid_unknown_fields=True):
    """What a person decided."""

    ok: bool
    note: Annotated[str, Meta(max_length=10_000)] = ""
    question: Address | None = None
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


@api_method("POST /v1/signals", Scope.PUT)
def send_signal(call: ApiCall, body: SignalRequest) -> SignalAnswer:
    """Sends a signal to the jobs that wait, or will wait, by `wait_for(name, key=key)`.

    A signal is not bound to a queue, so this takes a caller for all queues. Signals whose name begins with `approve:`
    are decisions, which have a method of their own."""
    call.check(EVERY_QUEUE)
    if body.name.startswith(APPROVE):
        said = f"name: {APPROVE} is for decisions: POST /v1/approvals/KEY keeps who made them"
        raise RequestError(said, "name", 422)
    with checking("signal"):
        return SignalAnswer(
            call.service.app.signal(body.name, key=body.key, value=body.value, id=body.id, keep=body.keep)
        )


@api_method("GET /v1/approvals", Scope.READ)
def list_approvals(call: ApiCall, query: ApprovalsQuery) -> ApprovalList:
    """Lists the jobs that wait for a person's decision (`approve`)."""
    found, away = partial_result(partial(waiting_approvals, call.service.client.store, query.question))
    seen = [approval_record(one) for one in found if call.allows(one.job.queue)]
    return ApprovalList(seen, str(away) if away else None)


@api_method("POST /v1/approvals/{key}", Scope.OPERATE, errors=(errors.JobNotFound, NotPossible))
def decide_approval(call: ApiCall, path: ApprovalPath, body: DecisionRequest) -> DecisionAnswer:
    """Decides what jobs wait for: they go on with `ok`, the note, and who decided.

    If two decide at once, the first counts, and the other one is told so (409)."""
    client = call.service.client
    found = find_approvals(client.store, path.key, body.question, call.allows)
    for one in found:
        call.check(one.job.queue)
    decision = Approval(body.ok, call.caller.name, body.note)
    with checking("note"):
        woken = decide(client.store, client.clock, found, decision)
    return DecisionAnswer(path.key, found[0].question, body.ok, call.caller.name, woken)


METHODS: tuple[ApiMethod, ...] = (send_signal, list_approvals, decide_approval)

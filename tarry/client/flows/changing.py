"""Cancels flows, and runs those again that have failed. Each is many changes of nodes, page by page."""

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from tarry.client.audit.acting import signed
from tarry.model import lifecycle
from tarry.model.change import Change
from tarry.model.flow import rules
from tarry.model.flow.effect import NodeEffect
from tarry.model.flow.flow import FlowChange, Phase
from tarry.model.flow.node_ids import index_of
from tarry.model.job import HELD, Job, State
from tarry.model.lifecycle import NotPossible
from tarry.model.outcome import outcome_note
from tarry.tasks.shield import shielded

if TYPE_CHECKING:
    from tarry.client.client import Client

ACTIVE = (State.READY, State.SCHEDULED, State.RUNNING)
FAILED = (State.DEAD, State.CANCELLED)
_AT_ONCE = 500


def cancel(client: "Client", flow: bytes, reason: str = "") -> bool:
    """Cancels a flow that runs, and its nodes that are active; False if it does not run. What this leaves behind if it
    breaks off, the keeper does."""
    with shielded:
        note = outcome_note(rules.FLOW_CANCELLED, reason)
        change = FlowChange(flow, Phase.RUNNING, Phase.CANCELLING, ends=State.CANCELLED, note=note)
        if not client.store.flows.change(change, client.clock.now()):
            return False
    cancel_nodes(client, flow, reason)
    return True


def cancel_nodes(client: "Client", flow: bytes, reason: str) -> None:
    """Cancels the active nodes of a flow that is being cancelled."""
    note = outcome_note(rules.FLOW_CANCELLED, reason)

    def rule(job: Job, now: int) -> Change:
        change = replace(client.cancel_change(job, now, reason), note=note)
        # Once more, by the new note: it tells nobody, whatever follows from its failure otherwise.
        return signed(job, rules.end_of_node(job, State.CANCELLED, change), "cancelled", now)

    for page in _pages(client, flow, ACTIVE):
        _apply(client, page, rule)
        if any(job.state is State.RUNNING for job in page):
            # Otherwise its worker learns of the cancel only at its next regular look.
            client.store.wake_for_recall()


def retry(client: "Client", flow: bytes) -> bool:
    """Runs the failed nodes of a flow that has ended again; False if there are none, it was undone, or another flow
    has its key."""
    row = client.store.flows.get(flow)
    if row is None or row.phase is not Phase.ENDED or row.undo > 0 or row.ends is State.DONE:
        return False
    # The hold: without it the flow would end whenever the nodes of one page have ended before the next page comes.
    if not _change_root(client, flow, NodeEffect(active=1, revives=True)):
        return False
    for page in _pages(client, flow, FAILED):
        _apply(client, [job for job in page if rules.effect_of_return(job)], _run_again)
    _change_root(client, flow, NodeEffect(active=-1))
    return True


def _run_again(job: Job, now: int) -> Change:
    return signed(job, lifecycle.run_now(job, now), "retried", now)


def _change_root(client: "Client", flow: bytes, effect: NodeEffect) -> bool:
    """Makes the root wait for nodes, with this effect on its flow. It takes its key again."""
    with shielded:
        root = client.store.get([flow])[0]
        if root is None:
            return False
        now, held = client.clock.now(), None if root.key is None else HELD
        change = Change(
            flow, root.state, root.epoch, State.BLOCKED, now, attempts=root.attempts, key_held_until=held, node=effect
        )
        return client.store.apply([change], now)[0]


def _pages(client: "Client", flow: bytes, states: Collection[State]) -> Iterator[list[Job]]:
    after = 0
    while page := client.store.flows.nodes(flow, after, _AT_ONCE, states):
        yield page
        after = index_of(page[-1].id)


def _apply(client: "Client", jobs: Collection[Job], rule: Callable[[Job, int], Change]) -> None:
    """Makes these changes; a job that has changed meanwhile gets a second try, and is then left to the keeper."""
    left = list(jobs)
    for _ in range(2):
        if not left:
            return
        with shielded:
            now = client.clock.now()
            changes = [change for job in left if (change := _possible(rule, job, now))]
            made = client.store.apply(changes, now)
            refused = [change.id for change, is_made in zip(changes, made, strict=True) if not is_made]
            left = [job for job in client.store.get(refused) if job is not None]


def _possible(rule: Callable[[Job, int], Change], job: Job, now: int) -> Change | None:
    try:
        return rule(job, now)
    except NotPossible:
        return None

"""Wrong variants of the rules of flows."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from tarry.model import flow_rules
from tarry.model.change import Change
from tarry.model.flow.effect import NodeEffect
from tarry.model.flow.wiring import Gate
from tarry.model.flow_row import GateRow, Phase
from tarry.model.job import Job
from tarry.store.memory.flows import MemoryFlows, MemoryTables
from tarry.store.rules import flow_settle
from tarry.store.rules.flow_settle import FlowSettling
from tests.exhaustive.explorer import TRAP
from tests.exhaustive.mistakes import Mistake, Patch, in_place_of, value


def _told_once_more(
    right: Callable[..., None], one: FlowSettling, gate: Gate, row: GateRow | None, raised: int, told: int
) -> None:
    right(one, gate, row, raised, told + 1)


def _undo_unasked(right: Callable[..., bool], one: FlowSettling) -> bool:
    armed, one.row = one.row.armed, replace(one.row, armed=one.row.failed)
    undoes = right(one)
    one._tables.save((replace(one.row, armed=armed),))
    return undoes


def _still_active(right: Callable[..., NodeEffect | None], *args: Any) -> NodeEffect | None:
    effect = right(*args)
    return replace(effect, active=0) if effect and effect.failed else effect


def _as_any_end(right: Callable[..., NodeEffect | None], job: Job, to: Any, note: bytes) -> NodeEffect | None:
    return right(job, to, b"{}")


def _still_failed(right: Callable[..., NodeEffect | None], job: Job) -> NodeEffect | None:
    effect = right(job)
    return effect and replace(effect, failed=0)


def _still_armed(right: Callable[..., NodeEffect | None], job: Job) -> NodeEffect | None:
    effect = right(job)
    return effect and replace(effect, armed=0)


def _not_active(right: Callable[..., Change], root: Job, now: int) -> Change:
    change = right(root, now)
    return replace(change, node=NodeEffect(revives=True))


def _undo_at_once(right: Callable[..., bool], one: FlowSettling) -> Any:
    if one.row.failed and one.row.undo > 0 and one.row.phase is Phase.RUNNING:
        one._undo_or_end()
        return flow_settle.Settled()
    return right(one)


def _of_settling(name: str, wrong: Callable[..., Any]) -> Patch:
    return in_place_of(FlowSettling, name, wrong)


def _of_rules(name: str, wrong: Callable[..., Any]) -> Patch:
    return in_place_of(flow_rules, name, wrong)


def _of_tables(name: str, answer: Any) -> Patch:
    return value(MemoryTables, name, lambda *args: answer)


FLOW_MISTAKES = (
    Mistake("a gate opens one end too early", "diamond", "before its parents", _of_settling("_count", _told_once_more)),
    Mistake(
        "a cancelled flow leaves gates open", "diamond", "active", value(FlowSettling, "close_gates", lambda one: None)
    ),
    Mistake("any failure has all undone", "two ways", "unasked", _of_settling("_undo_or_end", _undo_unasked)),
    Mistake("the undoing does not wait for the others", "undo", "quiet", _of_settling("finish", _undo_at_once)),
    Mistake("a failed node stays active", "diamond", "active", _of_rules("effect_of_end", _still_active)),
    Mistake("a node cancelled with its flow tells others", "go on", "failed", _of_rules("effect_of_end", _as_any_end)),
    Mistake("a failed node counts when it runs again", "chain", "failed", _of_rules("effect_of_return", _still_failed)),
    Mistake("a mended failure still has all undone", "two ways", "armed", _of_rules("effect_of_return", _still_armed)),
    Mistake("a retry opens no gate that was held", "diamond", "dead though", _of_tables("told_gates", [])),
    Mistake("a flow may end while it is retried", "chain", "ended again", _of_rules("reopen", _not_active)),
    Mistake("the audit repairs nothing", "chain", "active", value(flow_rules, "repair", lambda *args: None)),
    Mistake("the keeper releases nothing", "diamond", TRAP, value(MemoryFlows, "release_more", lambda *args: False)),
    Mistake("a root does not end with its flow", "chain", "root", _of_tables("end_root", None)),
    Mistake(
        "a flow forgets a node that is deleted",
        "deleted",
        "active",
        value(flow_rules, "deletion_of_node", lambda job, change: change),
    ),
    Mistake("a released node is not made ready", "chain", "blocked", _of_tables("release", 0)),
)

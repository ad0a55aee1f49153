"""Effects, flows and gates as the bytes that `lua/flows.lua` and `lua/flow_changes.lua` read."""

from collections.abc import Iterable, Sequence
from struct import Struct as Form

from tarry.model.change import Change
from tarry.model.flow.effect import NodeEffect
from tarry.model.flow.signal import Awaited
from tarry.model.flow.wiring import Gate
from tarry.model.flow_row import FlowRow, GateRow, Phase
from tarry.model.job import State
from tarry.store.redis.link.base import Word
from tarry.store.redis.record import STATE_BYTE, STATE_OF_BYTE
from tarry.store.rules import flows as verbs

_TOUCHES, _REVIVES, _AWAITS = 1, 2, 4
_HEAD, _GATE, _RAISED = Form(">BiiiiIIII"), Form(">III"), Form(">IIIi")
_FLOW, _ROW, _LENGTH, _AFTER = Form(">BBQiiiiiiQQ"), Form(">IIIi"), Form(">H"), Form(">Q")
_NOTHING = NodeEffect()


def touching_flows(changes: Sequence[Change]) -> list[Change]:
    """Those of the changes that do something to a flow, or await a signal."""
    return [change for change in changes if change.node is not None or change.awaits is not None]


def pack_effects(changes: Sequence[Change], ids: Sequence[bytes]) -> list[Word]:
    """What the changes do besides, in their order. ids: of all changes of the script, in the order in which it gets
    them."""
    places = {id: place for place, id in enumerate(ids, 1)}
    # By identity: to hash an effect takes longer than all else here, and those of a group are one (`flow.rules`).
    kinds: dict[tuple[int, Awaited | None], int] = {}
    texts: list[bytes] = []
    numbers: list[int] = []
    for change in changes:
        kind = id(change.node), change.awaits
        number = kinds.get(kind)
        if number is None:
            number = kinds[kind] = len(texts) + 1
            texts.append(_pack_kind(change.node, change.awaits))
        numbers += (places[change.id], number)
    return [*texts, Form(f">{len(numbers)}H").pack(*numbers), len(texts), verbs.RELEASED_AT_ONCE]


def _pack_kind(node: NodeEffect | None, awaits: Awaited | None) -> bytes:
    effect = node or _NOTHING
    flags = _TOUCHES * (node is not None) + _REVIVES * effect.revives
    lists = len(effect.tells), len(effect.raises), len(effect.opens)
    head = _HEAD.pack(
        flags + _AWAITS * (awaits is not None), effect.active, effect.failed, effect.armed, effect.blocked, *lists,
        len(effect.note),
    )  # fmt: skip
    raised = b"".join(_RAISED.pack(gate.first, gate.count, gate.parents, more) for gate, more in effect.raises)
    waits = b"" if awaits is None else _AFTER.pack(awaits.after) + pack_address(awaits.name, awaits.key)
    return b"".join((head, _pack_gates(effect.tells), raised, _pack_gates(effect.opens), effect.note, waits))


def _pack_gates(gates: Iterable[Gate]) -> bytes:
    return b"".join(_GATE.pack(gate.first, gate.count, gate.parents) for gate in gates)


def pack_address(name: str, key: str) -> bytes:
    """The address of a signal: the length of the name, the name and the key."""
    first = name.encode()
    return _LENGTH.pack(len(first)) + first + key.encode()


def pack_flow(row: FlowRow) -> bytes:
    """A flow's row."""
    return (
        _FLOW.pack(
            row.phase, STATE_BYTE[row.ends], row.at, row.size, row.active, row.blocked, row.failed, row.armed,
            row.undo, row.keep_done, row.keep_dead,
        )
        + row.note
    )  # fmt: skip


def parse_flow(id: bytes, text: bytes) -> FlowRow:
    """The flow of a row; one that has ended, if the row is too short to be one that tarry has written."""
    if len(text) < _FLOW.size:
        text = bytes([Phase.ENDED, STATE_BYTE[State.DEAD]]) + bytes(_FLOW.size - 2)
    phase, ends, *numbers = _FLOW.unpack_from(text)
    at, size, active, blocked, failed, armed, undo, keep_done, keep_dead = numbers
    end = STATE_OF_BYTE.get(ends, State.DEAD)
    return FlowRow(
        id, Phase(phase), at, size, active, blocked, failed, armed, end, undo, keep_done, keep_dead,
        text[_FLOW.size :],
    )  # fmt: skip


def pack_gate_rows(gates: Iterable[GateRow]) -> bytes:
    """The gates: the index of the first node of each, and its numbers."""
    return b"".join(_ROW.pack(gate.first, gate.count, gate.waits, gate.next) for gate in gates)

"""What changes do to flows, as the arguments of `exchange_nodes_v1` in PostgreSQL."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from tarry.model.change import Change
from tarry.model.flow.wiring import Gate
from tarry.store.flows import flows as verbs
from tarry.store.flows.settle import EffectSum, GateSum, add_up, effects_by_flow
from tarry.store.postgres import packing as pack

_ARMS, _REVIVES = 1, 2


def pack_effects(changes: Sequence[Change]) -> list[Any]:
    """The arguments of `exchange_nodes_v1` that `exchange_v1` does not have."""
    sums = [(id, add_up(effects)) for id, effects in sorted(effects_by_flow(changes).items())]
    return [
        pack.uuids([id for id, _ in sums]),
        *_pack_sums([one for _, one in sums]),
        verbs.RELEASED_AT_ONCE,
        *_pack_awaited(changes),
    ]


def _pack_sums(sums: Sequence[EffectSum]) -> Iterable[Any]:
    for name in ("active", "failed", "blocked"):
        yield pack.big_ints([getattr(one, name) for one in sums])
    yield pack.ints([_ARMS * one.arms + _REVIVES * one.revives for one in sums])
    yield pack.blobs([one.note for one in sums])
    gates = [[*one.gates, *map(_opening, one.opens)] for one in sums]
    ends = [0, *itertools.accumulate(map(len, gates))]
    yield pack.ints([end + 1 for end in ends[:-1]])
    yield pack.ints(ends[1:])
    rows = [gate for some in gates for gate in some]
    for name in ("first", "count", "parents"):
        yield pack.big_ints([getattr(row.gate, name) for row in rows])
    yield pack.big_ints([row.raised for row in rows])
    yield pack.big_ints([row.told for row in rows])


def _opening(gate: Gate) -> GateSum:
    """A gate that waits for nothing."""
    return GateSum(Gate(gate.first, gate.count, 0), 0, 0)


def _pack_awaited(changes: Sequence[Change]) -> Iterable[Any]:
    awaited = [(place, change.awaits) for place, change in enumerate(changes, 1) if change.awaits is not None]
    yield pack.ints([place for place, _ in awaited])
    yield pack.texts([awaits.name for _, awaits in awaited])
    yield pack.texts([awaits.key for _, awaits in awaited])
    yield pack.big_ints([awaits.after for _, awaits in awaited])

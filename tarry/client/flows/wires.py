"""Who tells whom in a flow: its gates, and for each node the gates that wait for its end."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct

from tarry.model.flow.wiring import Gate, Ref

ParentEdges = tuple[tuple[int, int], ...]
"""Indices of nodes as ranges, first and count, in order and apart from each other."""


class Edges(Struct, frozen=True):
    """gates: by index. tells: the gates that each node tells, by its index."""

    gates: list[Gate]
    tells: dict[int, list[Gate]]


def joined(refs: Iterable[Ref]) -> ParentEdges:
    """The nodes of these results, as ranges."""
    ranges: list[tuple[int, int]] = []
    for first, count in sorted({(ref.first, len(ref.nodes)) for ref in refs}):
        if ranges and first <= sum(ranges[-1]):
            start = ranges[-1][0]
            ranges[-1] = start, max(sum(ranges[-1]), first + count) - start
        else:
            ranges.append((first, count))
    return tuple(ranges)


def wire(parents: Sequence[ParentEdges]) -> Edges:
    """The wires between nodes. parents: what each waits for, from the node with the index 1."""
    gates = _gates(parents)
    tells: defaultdict[int, list[Gate]] = defaultdict(list)
    for gate in gates:
        for first, count in parents[gate.first - 1]:
            for index in range(first, first + count):
                tells[index].append(gate)
    return Edges(gates, dict(tells))


def _gates(parents: Sequence[ParentEdges]) -> list[Gate]:
    gates: list[Gate] = []
    for index, own in enumerate(parents, 1):
        if not own:
            continue
        # Nodes that follow each other and wait for the same are one gate: a wide group costs one row.
        if gates and gates[-1].first + gates[-1].count == index and parents[gates[-1].first - 1] == own:
            gates[-1] = Gate(gates[-1].first, gates[-1].count + 1, gates[-1].parents)
        else:
            gates.append(Gate(index, 1, sum(count for _, count in own)))
    return gates

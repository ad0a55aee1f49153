"""In which layer of a drawing each box stands, and which ties of boxes are drawn.

Boxes are numbered from 0. `parents` has for each box the numbers of those that it waits for.
"""

from collections.abc import Sequence
from functools import reduce
from operator import or_

from msgspec import Struct

MOST_ACROSS, FEW_ACROSS = 7, 5
"""Boxes of one layer; and of each of several layers, where there are more."""

ParentIndexes = Sequence[Sequence[int]]


class LayerEdge(Struct, frozen=True):
    """The child waits for the parent."""

    parent: int
    child: int


def layers_of(parents: ParentIndexes) -> list[int]:
    """The layer of each box, from 0: its longest way from a box that waits for none; deeper where a layer would have
    too many boxes."""
    found: dict[int, int] = {}
    # For each box those that it waits for and that have no layer yet.
    waiting = {box: set(each) - {box} for box, each in enumerate(parents)}
    layer = 0
    while waiting:
        # Folded boxes may wait for each other in a circle: one of them begins.
        free = [box for box, left in waiting.items() if not left] or [min(waiting)]
        taken = free[: _across(len(free))]
        found |= dict.fromkeys(taken, layer)
        layer, waiting = layer + 1, {box: left.difference(taken) for box, left in waiting.items() if box not in found}
    return [found[box] for box in range(len(parents))]


def _across(boxes: int) -> int:
    """How many of so many boxes stand in the first layer of them."""
    layers = 1 if boxes <= MOST_ACROSS else -(-boxes // FEW_ACROSS)
    return -(-boxes // layers)


def ties_of(parents: ParentIndexes, layers: Sequence[int]) -> list[LayerEdge]:
    """The ties to draw. A tie that others imply is left out: where C waits for B, and B for A, it adds nothing to a
    picture that C waits for A, too."""
    found: list[LayerEdge] = []
    # For each box those above it, as the bits of a number.
    above = [0] * len(layers)
    for child in sorted(range(len(layers)), key=layers.__getitem__):
        direct = sorted({each for each in parents[child] if layers[each] < layers[child]})
        implied = reduce(or_, (above[each] for each in direct), 0)
        above[child] = reduce(or_, (1 << each for each in direct), implied)
        found += [LayerEdge(each, child) for each in direct if not implied >> each & 1]
    return found

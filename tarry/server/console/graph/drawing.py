"""Where each box of a graph stands, and the lines between them. In units of SVG, of which one is a CSS pixel."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from tarry.server.console.graph.layers import LayerEdge, ParentIndexes, layers_of, ties_of
from tarry.server.console.graph.rows import GraphRows, rows_of

WIDTH, HEIGHT = 176, 48
"""Of a box."""
MOST_STEPS = 800
"""Layers that all ties together go down: more lines are no clearer, and make a page long."""
_BETWEEN, _BELOW, _MARGIN = 16, 34, 8
"""Between two boxes side by side; between two layers; around all, for what stands out of a box."""
_BEND = 12
"""What a line takes between two boxes."""
_SWEEPS = 8
"""The last one goes down: a box stands below those that it waits for."""


class Corner(Struct, frozen=True):
    """The upper left corner of a box."""

    x: int
    y: int


class Drawing(Struct, frozen=True):
    """A graph from above: whoever waits stands below those that it waits for."""

    width: int
    height: int
    places: Sequence[Corner]
    """Of the boxes, in their order."""
    lines: Sequence[str]
    """Paths from layer to layer, each once: ties of one box may share them."""
    left_out: int
    """Ties that are too many to be drawn."""


def draw(parents: ParentIndexes) -> Drawing:
    """The drawing of boxes, each with the numbers of those that it waits for."""
    layers = layers_of(parents)
    all_ties = ties_of(parents, layers)
    ties = _shortest(all_ties, layers)
    rows = rows_of(layers, ties)
    middles = _middles(rows, len(layers))
    width = round(max(middles[: len(layers)], default=0)) + WIDTH // 2 + _MARGIN
    height = len(rows.rows) * (HEIGHT + _BELOW) - _BELOW + 2 * _MARGIN
    places = [Corner(round(middles[box]) - WIDTH // 2, _top(layer)) for box, layer in enumerate(layers)]
    lines = dict.fromkeys(line for way in rows.ways for line in _lines(way, middles, layers))
    return Drawing(width, max(height, 0), places, list(lines), len(all_ties) - len(ties))


def _shortest(ties: Sequence[LayerEdge], layers: Sequence[int]) -> list[LayerEdge]:
    """As many ties as are drawn, those first that go down the least."""
    ordered = sorted(ties, key=lambda tie: layers[tie.child] - layers[tie.parent])
    sums = accumulate(layers[tie.child] - layers[tie.parent] for tie in ordered)
    return [tie for tie, steps in zip(ordered, sums, strict=True) if steps <= MOST_STEPS]


def _top(layer: int) -> int:
    return _MARGIN + layer * (HEIGHT + _BELOW)


def _middles(drawn: GraphRows, boxes: int) -> list[float]:
    """How far from the left the middle of each point is."""
    found = [0.0] * sum(map(len, drawn.rows))
    for row in drawn.rows:
        _put(found, row, [0.0] * len(row), boxes)
    above, below = drawn.above(), drawn.below()
    for sweep in range(_SWEEPS):
        is_down = sweep % 2 == 1
        for row in drawn.rows if is_down else reversed(drawn.rows):
            _put(found, row, [_wanted_place(found, each, above if is_down else below) for each in row], boxes)
    left = min((middle - _half(point, boxes) for point, middle in enumerate(found)), default=0.0)
    return [middle - left + _MARGIN for middle in found]


def _wanted_place(middles: Sequence[float], point: int, tied: Mapping[int, Sequence[int]]) -> float:
    others = tied.get(point)
    return sum(middles[each] for each in others) / len(others) if others else middles[point]


def _put(middles: list[float], row: Sequence[int], wanted: Sequence[float], boxes: int) -> None:
    """Puts the points of a row as near to where they are wanted as their order and widths let them."""
    steps = [_half(one, boxes) + _half(other, boxes) for one, other in pairwise(row)]
    offsets = [sum(steps[:at]) for at in range(len(row))]
    nearest = _fit_ascending([want - offset for want, offset in zip(wanted, offsets, strict=True)])
    for point, place, offset in zip(row, nearest, offsets, strict=True):
        middles[point] = place + offset


def _half(point: int, boxes: int) -> float:
    """Half of what a point takes in its row, with the room beside it."""
    return (WIDTH + _BETWEEN) / 2 if point < boxes else _BEND / 2


def _fit_ascending(values: Sequence[float]) -> list[float]:
    """The numbers nearest to these, by the sum of squares, of which none is less than the one before."""
    pools: list[tuple[float, int]] = []
    for value in values:
        total, count = value, 1
        # Those that are out of order come to stand at their common middle.
        while pools and pools[-1][0] / pools[-1][1] > total / count:
            before, many = pools.pop()
            total, count = total + before, count + many
        pools.append((total, count))
    return [total / count for total, count in pools for _ in range(count)]


def _lines(way: Sequence[int], middles: Sequence[float], layers: Sequence[int]) -> Iterator[str]:
    """From the parent's lower edge by the bends to the child's upper edge, with a head there."""
    y = _top(layers[way[0]]) + HEIGHT
    for one, other in pairwise(way):
        x, to, middle, end = round(middles[one]), round(middles[other]), y + _BELOW // 2, y + _BELOW
        path = f"M{x} {y}" + (f"V{end}" if to == x else f"C{x} {middle} {to} {middle} {to} {end}")
        # A bend goes on to the lower edge of its layer.
        yield path + ("m-4-6l4 6 4-6" if other == way[-1] else f"v{HEIGHT}")
        y = end + HEIGHT

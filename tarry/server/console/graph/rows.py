"""The order of the boxes within each layer, so that few ties cross."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from tarry.server.console.graph.layers import LayerEdge

_SWEEPS = 6
"""Down and up in turn: more change nothing that is seen."""


class GraphRows(Struct, frozen=True):
    """The points of a drawing by layer, from the left. Points below the number of boxes are boxes; the others are
    bends, at which a tie passes a layer between two boxes."""

    rows: Sequence[Sequence[int]]
    ways: Sequence[Sequence[int]]
    """The points of each tie, from the parent to the child."""

    def above(self) -> Mapping[int, Sequence[int]]:
        """For each point the parents of the ties that end at it or pass it."""
        return _find_neighbours((point, way[0]) for way in self.ways for point in way[1:])

    def below(self) -> Mapping[int, Sequence[int]]:
        """For each point the children of the ties that begin at it or pass it."""
        return _find_neighbours((point, way[-1]) for way in self.ways for point in way[:-1])


def rows_of(layers: Sequence[int], ties: Sequence[LayerEdge]) -> GraphRows:
    """The boxes of each layer with the bends between them, in an order in which few ties cross."""
    rows: list[list[int]] = [[] for _ in range(max(layers, default=-1) + 1)]
    for box, layer in enumerate(layers):
        rows[layer].append(box)
    bends: dict[tuple[int, bool, int], int] = {}
    ways = []
    for tie, (end, is_parent) in zip(ties, _busier_ends(ties), strict=True):
        way = [tie.parent]
        for layer in range(layers[tie.parent] + 1, layers[tie.child]):
            # Ties of one box go the same way as long as they can: one line is clearer than many side by side.
            if (bend := bends.setdefault((end, is_parent, layer), len(layers) + len(bends))) not in rows[layer]:
                # At the side, where it stays if nothing draws it away.
                rows[layer].insert(0 if is_parent else len(rows[layer]), bend)
            way.append(bend)
        ways.append([*way, tie.child])
    return _sort_rows(GraphRows(rows, ways))


def _busier_ends(ties: Sequence[LayerEdge]) -> Iterator[tuple[int, bool]]:
    """For each tie its end with more ties, and whether that is its parent."""
    down, up = Counter(tie.parent for tie in ties), Counter(tie.child for tie in ties)
    for tie in ties:
        is_parent = down[tie.parent] >= up[tie.child]
        yield tie.parent if is_parent else tie.child, is_parent


def _find_neighbours(pairs: Iterable[tuple[int, int]]) -> Mapping[int, Sequence[int]]:
    found: dict[int, list[int]] = {}
    # Several ties may go the same way.
    for one, other in dict.fromkeys(pairs):
        found.setdefault(one, []).append(other)
    return found


def _sort_rows(drawn: GraphRows) -> GraphRows:
    """Each point near the middle of the boxes that it is tied to, by layers down and up in turn."""
    rows, above, below = [list(row) for row in drawn.rows], drawn.above(), drawn.below()
    shares = {point: share for row in rows for point, share in _shares(row)}
    for sweep in range(_SWEEPS):
        is_down = sweep % 2 == 0
        for row in rows if is_down else reversed(rows):
            tied = above if is_down else below
            middles = {point: _mean([shares[each] for each in tied.get(point, [point])]) for point in row}
            row.sort(key=middles.__getitem__)
            shares |= _shares(row)
    return GraphRows(rows, drawn.ways)


def _shares(row: Sequence[int]) -> Iterator[tuple[int, float]]:
    """Where each point of a row stands, as a share of the row's width."""
    return ((point, (at + 0.5) / len(row)) for at, point in enumerate(row))


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 6)

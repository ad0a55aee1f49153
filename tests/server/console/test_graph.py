"""Drawings of graphs: whoever waits stands below, boxes stand apart, and lines pass between them."""

import re
from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.server.console.graph.drawing import HEIGHT, MOST_STEPS, WIDTH, Corner, Drawing, draw
from tarry.server.console.graph.layers import MOST_ACROSS, LayerEdge, ParentIndexes, layers_of, ties_of
from tarry.server.console.graph.rows import rows_of

MOST_BOXES = 200
Point = tuple[int, int]
_STEP = re.compile(r"([MCVv])([-\d ]+)")


@st.composite
def graphs(draw: st.DrawFn) -> ParentIndexes:
    """Graphs of which each box waits for some before it; now and then for one after it, as folded boxes may."""
    count = draw(st.integers(0, 30))
    found = [draw(st.lists(st.integers(0, max(0, box - 1)), max_size=min(box, 4))) for box in range(count)]
    if count and draw(st.integers(0, 5)) == 0:
        found[draw(st.integers(0, count - 1))].append(draw(st.integers(0, count - 1)))
    return found


def steps(line: str) -> list[tuple[Point, Point]]:
    """The steps that a line makes, without its head: each from a point to another."""
    found: list[Point] = []
    for kind, text in _STEP.findall(line.partition("m")[0]):
        x, y = [int(each) for each in text.split()][-2:] if kind in "MC" else (found[-1][0], int(text))
        found.append((x, y + found[-1][1] if kind == "v" else y))
    return list(pairwise(found))


def is_apart(one: Corner, other: Corner) -> bool:
    return abs(one.x - other.x) > WIDTH or abs(one.y - other.y) > HEIGHT


def check(drawing: Drawing) -> None:
    assert all(is_apart(one, other) for one, other in combinations(drawing.places, 2))
    for place in drawing.places:
        assert 0 < place.x <= place.x + WIDTH < drawing.width
        assert 0 < place.y <= place.y + HEIGHT < drawing.height
    for (x, top), (to, end) in (step for line in drawing.lines for step in steps(line)):
        assert top < end
        # Where it goes straight down beside a box, it is not behind it.
        if x == to and end - top == HEIGHT:
            assert all(not (box.y == top and box.x <= x <= box.x + WIDTH) for box in drawing.places)


def drawn_ties(drawing: Drawing) -> set[LayerEdge]:
    """Which boxes a reader of the picture sees tied: by lines from a lower edge to an upper edge."""
    onwards: dict[Point, set[Point]] = {}
    for start, end in (step for line in drawing.lines for step in steps(line)):
        onwards.setdefault(start, set()).add(end)
    tops = {(place.x + WIDTH // 2, place.y): box for box, place in enumerate(drawing.places)}
    found = set()
    for parent, place in enumerate(drawing.places):
        reached = [(place.x + WIDTH // 2, place.y + HEIGHT)]
        for point in reached:
            reached += onwards.get(point, set()) - set(reached)
        found |= {LayerEdge(parent, tops[point]) for point in reached if point in tops}
    return found


@given(graphs())
def test_boxes_stand_apart_and_below_those_that_they_wait_for(parents: ParentIndexes) -> None:
    drawing = draw(parents)
    assert len(drawing.places) == len(parents)
    check(drawing)
    layers = layers_of(parents)
    assert drawn_ties(drawing) >= set(ties_of(parents, layers))
    if all(each < box for box, above in enumerate(parents) for each in above):
        assert all(layers[each] < layers[box] for box, above in enumerate(parents) for each in above)


@given(graphs())
def test_a_line_is_drawn_or_implied_by_others(parents: ParentIndexes) -> None:
    layers = layers_of(parents)
    ties = ties_of(parents, layers)
    reached: dict[int, set[int]] = {box: {box} for box in range(len(parents))}
    for tie in sorted(ties, key=lambda tie: layers[tie.child]):
        reached[tie.child] |= reached[tie.parent]
    wanted = {LayerEdge(each, box) for box, above in enumerate(parents) for each in above if layers[each] < layers[box]}
    assert set(ties) <= wanted
    assert all(tie.parent in reached[tie.child] for tie in wanted)


def test_what_others_imply_is_left_out() -> None:
    parents: ParentIndexes = [[], [], [0, 1], [0, 1, 2], [0, 0]]
    assert layers_of(parents) == [0, 0, 1, 2, 1]
    assert ties_of(parents, layers_of(parents)) == [LayerEdge(0, 2), LayerEdge(1, 2), LayerEdge(0, 4), LayerEdge(2, 3)]


def test_a_circle_of_boxes_is_drawn() -> None:
    parents = [[1], [0], [1, 2]]
    assert layers_of(parents) == [0, 1, 2]
    assert ties_of(parents, [0, 1, 2]) == [LayerEdge(0, 1), LayerEdge(1, 2)]
    check(draw(parents))


def test_a_wide_layer_is_several() -> None:
    at_most = layers_of([[]] + [[0]] * MOST_ACROSS)
    assert at_most == [0] + [1] * MOST_ACROSS
    parents: ParentIndexes = [[]] + [[0]] * 30 + [list(range(1, 31))]
    assert layers_of(parents) == [0, *(1 + at // 5 for at in range(30)), 7]
    drawing = draw(parents)
    check(drawing)
    # The boxes, and the lines that pass at their sides.
    assert drawing.width < 8 * WIDTH


def test_ties_of_one_box_go_the_same_way() -> None:
    parents: ParentIndexes = [[]] + [[0]] * 15 + [list(range(1, 16))]
    layers = layers_of(parents)
    drawn = rows_of(layers, ties_of(parents, layers))
    bends = {point for way in drawn.ways for point in way if point >= len(parents)}
    # Layers of five: two are passed by ties to those below, and two by ties to the last box.
    assert len(bends) == 4
    assert sorted(point for row in drawn.rows for point in row) == list(range(len(parents) + 4))


def test_lines_that_need_not_cross_do_not() -> None:
    # Two chains, told crosswise.
    drawing = draw([[], [], [1], [0]])
    left, right = drawing.places[2].x, drawing.places[3].x
    assert drawn_ties(drawing) == {LayerEdge(1, 2), LayerEdge(0, 3)}
    assert (drawing.places[0].x < drawing.places[1].x) == (right < left)


@pytest.mark.parametrize(
    "parents",
    [
        [],
        [[]],
        [[box - 1] if box else [] for box in range(MOST_BOXES)],
        [list(range(box)) for box in range(MOST_BOXES)],
        [[]] * MOST_BOXES,
        [[] if box < MOST_BOXES // 2 else list(range(MOST_BOXES // 2)) for box in range(MOST_BOXES)],
    ],
)
def test_the_largest_graphs_are_drawn(parents: ParentIndexes) -> None:
    drawing = draw(parents)
    check(drawing)
    assert sum(map(len, drawing.lines)) < 50_000
    layers = layers_of(parents)
    ties = ties_of(parents, layers)
    shown = drawn_ties(drawing)
    assert drawing.left_out >= len(set(ties) - shown)
    assert bool(drawing.left_out) == (sum(layers[tie.child] - layers[tie.parent] for tie in ties) > MOST_STEPS)

"""The graph of a flow: what each box says, and where it stands."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from unicodedata import east_asian_width

from msgspec import Struct

from tarry.client.flows.flow_records import BoxRecord, FlowDetail
from tarry.model.flow.node_ids import node_id
from tarry.model.job import FINISHED, State
from tarry.server.console.graph.drawing import WIDTH, Corner, Drawing, draw
from tarry.store.rules import ids

SHOWN_FIRST = (
    State.DEAD,
    State.RUNNING,
    State.READY,
    State.SCHEDULED,
    State.CANCELLED,
    State.BLOCKED,
    State.DONE,
)
"""By which of the states of its jobs a box is known: what needs attention before what is over."""
MOST_LABEL = 19
"""Letters of a label that fit into a box; a Chinese one takes the room of two."""
_MANY = 1000
_PADDING = 10
"""Between a box and its bar."""


class Segment(NamedTuple):
    """A part of the bar of a box. In units of SVG, from the left of the box."""

    state: State
    x: int
    width: int


class ShownBox(Struct, frozen=True):
    """A box of the graph, and what is written in it."""

    box: BoxRecord
    corner: Corner
    state: State
    label: str
    """Cut, if it is long."""
    counts: Sequence[tuple[State, int]]
    bar: Sequence[Segment]
    """Of several jobs, their states; empty: it is one job."""
    where: str
    """The page of its job, or of its jobs."""

    @property
    def ended(self) -> int:
        """How many of its jobs have ended."""
        return sum(count for state, count in self.counts if state in FINISHED)

    @property
    def took(self) -> float | None:
        """Seconds from the begin of the first to the end of the last; None: not known, or not over."""
        box = self.box
        return box.ended - box.started if box.started and box.ended and box.since is None else None

    @property
    def others(self) -> Sequence[tuple[State, int]]:
        """The counts that are written besides that: as many as there is room for."""
        found = [(state, count) for state, count in self.counts if state not in (State.DONE, State.BLOCKED)]
        return found[: 2 if self.box.count < _MANY else 1]


class FlowGraph(Struct, frozen=True):
    """The drawing of a flow, and its boxes in order."""

    drawing: Drawing
    boxes: Sequence[ShownBox]


def drawn_flow(flow: FlowDetail) -> FlowGraph:
    """The graph of a flow."""
    places = {box.first: at for at, box in enumerate(flow.boxes)}
    drawing = draw([[places[first] for first in box.after] for box in flow.boxes])
    boxes = [_shown(flow.id, box, corner) for box, corner in zip(flow.boxes, drawing.places, strict=True)]
    return FlowGraph(drawing, boxes)


def label_of(box: BoxRecord) -> str:
    """The label of a box, with how many jobs it has."""
    return box.label if box.count == 1 else f"{box.label} ×{box.count:,}"


def _shown(flow: str, box: BoxRecord, corner: Corner) -> ShownBox:
    counts = [(state, box.states[state]) for state in SHOWN_FIRST if box.states.get(state)]
    state = counts[0][0] if counts else State.BLOCKED
    bar = _bar(box.states) if box.count > 1 else []
    return ShownBox(box, corner, state, _cut(box), counts, bar, page_of(flow, box))


def page_of(flow: str, box: BoxRecord) -> str:
    """The page of the only job of a box, or of its jobs."""
    if box.count == 1:
        return f"/jobs/{ids.text(node_id(ids.parse(flow), box.first))}"
    return f"/flows/{flow}/nodes" + (f"?after={box.first - 1}" if box.first > 1 else "")


def _bar(states: Mapping[State, int]) -> list[Segment]:
    """The states as parts of a bar: what is done from the left, what waits at the right."""
    total, room, passed = sum(states.values()), WIDTH - 2 * _PADDING, 0
    found = []
    for state in (State.DONE, *(each for each in SHOWN_FIRST if each is not State.DONE)):
        start = room * passed // total if total else 0
        passed += states.get(state, 0)
        # However few they are, they are seen.
        width = max(2, room * passed // total - start) if states.get(state) else 0
        found.append(Segment(state, _PADDING + min(start, room - width), width))
    return [each for each in found if each.width]


def _cut(box: BoxRecord) -> str:
    """The end of a label, which differs most, where it does not fit."""
    most = MOST_LABEL - (len(f"{box.count:,}") + 1 if box.count > 1 else 0)
    if _width(box.label) <= most:
        return box.label
    kept = box.label
    while _width(kept) > most - 1:
        kept = kept[1:]
    return f"…{kept}"


def _width(text: str) -> int:
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)

"""The graph of a flow as people see it: boxes of alike nodes, and which box comes after which."""

from msgspec import Struct

from tarry.model.flow.node_ids import index_of
from tarry.model.flow_row import FlowRow
from tarry.model.job import State
from tarry.store.rules import flow_folding
from tarry.store.rules.flow_folding import NodeGroup, NodeGrouping
from tarry.store.rules.flows import StoreFlows

LOOKED_AT = 20_000
"""How many nodes are read for a page; a person at a terminal waits for more (`ALL_LOOKED_AT`)."""
ALL_LOOKED_AT = 200_000
PAGE = 1000
LONG = 5000
"""After so many alike nodes the others of their box are skipped, if there are too many to read them all."""
_SAMPLES = 4
_FAILED = (State.DEAD, State.CANCELLED)


class Graph(Struct, frozen=True):
    """The boxes of a flow, by the index of their first node. Each box comes after those that it names."""

    boxes: tuple[NodeGroup, ...]
    looked_at: int
    """How many nodes were read."""
    left_out: int = 0
    """How many nodes are in no box: there are more boxes than are shown, or too many nodes to read them all."""

    @property
    def is_whole(self) -> bool:
        """Whether each node was read, and is in a box."""
        return not self.left_out and all(box.count == box.looked_at for box in self.boxes)


def read_graph(flows: StoreFlows, row: FlowRow, most: int = LOOKED_AT) -> Graph:
    """The graph of a flow, from up to about `most` of its nodes.

    Where that is not all, it looks at parts of long runs of alike nodes and at where they end, and takes those between
    for alike; the counts by state of such a box are of the nodes that it looked at.
    """
    reader = _GraphReader(flows, row, most)
    reader.read()
    reader.read_failed()
    return Graph(reader.folding.boxes(), reader.looked_at, reader.left_out())


class _GraphReader:
    """Reads the nodes of a flow by pages."""

    def __init__(self, flows: StoreFlows, row: FlowRow, most: int) -> None:
        self._flows, self._row, self._most = flows, row, most
        self.folding = NodeGrouping(row)
        self.looked_at = 0
        # Index of the last node that was read; all that follow may be gone, or were never stored.
        self._at, self._is_done = 0, False

    def read(self) -> None:
        """Reads pages until the end, or until enough is read."""
        while self.looked_at < self._most and not self._is_done:
            self._page(self._at, min(PAGE, self._most - self.looked_at))
            if self.folding.run_length >= LONG and self._row.size - self._at > self._most - self.looked_at:
                self._skip()

    def read_failed(self) -> None:
        """Adds failed nodes that were not read: they are what people look for."""
        if self._row.failed > self.folding.failed:
            for job in self._flows.nodes(self._row.id, 0, flow_folding.FAILED_SHOWN, _FAILED):
                self.folding.add_failed(job)

    def left_out(self) -> int:
        """How many nodes are in no box."""
        return self.folding.left_out + (0 if self._is_done else max(0, self._row.size - 1 - self._at))

    def _page(self, after: int, count: int) -> None:
        page = self._flows.nodes(self._row.id, after, count)
        for job in page:
            self.folding.add(job)
        self.looked_at += len(page)
        self._at = max(self._at, after, index_of(page[-1].id) if page else 0)
        self._is_done = len(page) < count

    def _skip(self) -> None:
        """Goes to the end of a run of alike nodes, and looks at pages on the way."""
        begin = self._at
        gap = (self._last_alike() - begin) // _SAMPLES
        size = min(PAGE, gap)
        for at in range(begin + gap - size, begin + gap * _SAMPLES, gap or 1):
            # Where nodes are gone, a page reaches beyond its part.
            self.folding.skip(max(0, at - self._at))
            self._page(max(at, self._at), size)

    def _last_alike(self) -> int:
        """The index of the last node of the run, found by halves: as if no other node stood amid the run."""
        low, high = self._at, self.folding.run_ends_before(self._row.size) - 1
        # The whole run, in most flows: so that is tried first.
        middle = high
        while low < high:
            if self._is_alike(middle):
                low = middle
            else:
                high = middle - 1
            middle = (low + high + 1) // 2
        return low

    def _is_alike(self, index: int) -> bool:
        found = self._flows.nodes(self._row.id, index - 1, 1)
        return bool(found) and index_of(found[0].id) == index and self.folding.continues(found[0])

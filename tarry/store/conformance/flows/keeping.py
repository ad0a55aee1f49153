"""Promises about how long flows are kept, and how they are read."""

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import DAY, HOUR
from tarry.model.flow.node_ids import index_of, node_id
from tarry.model.flow_row import Phase
from tarry.model.job import State
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.flows import (
    BAD,
    FlowCase,
    end,
    node,
    numbers,
    root,
    row_of,
    run,
    states,
    stored,
    tend_all,
)
from tarry.store.conformance.cases.jobs import NOW, PLENTY, put, settle, taken
from tarry.store.rules import flows as verbs
from tarry.store.rules.base import Store
from tarry.store.rules.flows import FlowQuery


class FlowKeeping(FlowCase):
    """Flows: how long they are kept, and how they are read."""

    def test_nodes_outlive_pruning_by_age_and_bytes(self, store: Store) -> None:
        """Also where the rules of their task say that a done job is forgotten at once."""
        flow = stored(store, [[], [1]])
        (job,) = taken(store)
        settle(store, job, Returned(b'"%b"' % (b"x" * 1000)), Rules(keep_done=0))
        put(store, 3)
        for plain in [job for job in taken(store) if job.id[:12] != flow[:12]]:
            settle(store, plain, Returned(b'"%b"' % (b"y" * 100)))
        assert store.prune(NOW, PLENTY) == 0
        assert store.prune(NOW, 0) == 3
        assert store.prune(NOW + 100 * DAY, 0) == 0
        assert (states(store, flow)[0], len(node(store, flow, 1).note)) == ("d", 1002)

    def test_flow_goes_in_pieces(self, store: Store) -> None:
        """Once its time has come: its nodes, then its rows and its root; also those that never ran."""
        flow = stored(store, [[], *([1] for _ in range(8)), list(range(2, 10))])
        run(store, flow, 1, outcome=BAD)
        at = row_of(store, flow).at
        assert at == NOW + DAY
        assert not store.flows.tend(at - 1, 4)
        assert tend_all(store, at, 4) >= 3
        assert store.get([node_id(flow, index) for index in range(11)]) == [None] * 11
        assert store.flows.get(flow) is None
        assert store.flows.find(FlowQuery()) == []

    def test_a_node_that_runs_once_more_is_not_deleted(self, store: Store) -> None:
        """The flow stays until it has ended."""
        flow = stored(store, [[], []])
        run(store, flow, 1, 2)
        store.apply([lifecycle.run_now(node(store, flow, 1), NOW)], NOW)
        at = row_of(store, flow).at
        tend_all(store, at)
        assert states(store, flow) == "r"
        later = row_of(store, flow).at
        assert later > at
        end(store, taken(store), now=at)
        tend_all(store, later)
        assert store.flows.get(flow) is None

    def test_too_many_nodes_oldest_flow_goes(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """That which is to go first, if more than `KEPT_NODES` of ended flows are kept on a shard."""
        monkeypatch.setattr(verbs, "KEPT_NODES", 5)
        if self.shards > 1:
            pytest.skip("each shard keeps so many")
        first, second, third = (stored(store, [[], []]) for _ in range(3))
        by_flow = {job.id: job for job in taken(store)}
        for number, flow in enumerate((second, first)):
            end(store, [by_flow[node_id(flow, index)] for index in (1, 2)], now=NOW + number)
        tend_all(store, NOW + 1)
        assert store.flows.get(second) is None
        assert store.flows.get(first) is not None
        assert numbers(store, third) == (Phase.RUNNING, 2, 0, 0)

    def test_nodes_by_index(self, store: Store) -> None:
        """By pages, all or those in some states; the root is none of them."""
        flow, other = stored(store, [[], [], [], [1, 2]]), stored(store, [[]])
        run(store, flow, 2)
        pages = [store.flows.nodes(flow, after, 2) for after in (0, 2, 4)]
        assert [[index_of(job.id) for job in page] for page in pages] == [[1, 2], [3, 4], []]
        assert [index_of(job.id) for job in store.flows.nodes(flow, 0, 9, (State.READY, State.BLOCKED))] == [1, 3, 4]
        assert [index_of(job.id) for job in store.flows.nodes(flow, 1, 1, {State.READY})] == [3]
        assert store.flows.nodes(flow, 0, 0) == []
        assert [job.id for job in store.flows.nodes(other, 0, 9)] == [node_id(other, 1)]
        assert store.flows.nodes(store.flows.new_id("order"), 0, 9) == []

    def test_flows_newest_first(self, store: Store) -> None:
        """By id, by pages, each with its root."""
        found = sorted(
            [
                stored(store, [[], [1]], name=name, key=key)
                for name, key in (("order", "1"), ("order", "2"), ("return", "1"), ("return", None))
            ],
            reverse=True,
        )
        rows = store.flows.find(FlowQuery())
        assert [row.id for row in rows] == found
        assert [row.root for row in rows] == [root(store, row.id) for row in rows]
        assert [replace(row, root=None) for row in rows] == [row_of(store, row.id) for row in rows]
        assert [row.id for row in store.flows.find(FlowQuery(limit=2))] == found[:2]
        assert [row.id for row in store.flows.find(FlowQuery(before=found[1], limit=2))] == found[2:]
        for query, count in (
            (FlowQuery(name="order"), 2),
            (FlowQuery(key="1"), 2),
            (FlowQuery(name="order", key="2"), 1),
            (FlowQuery(queues=("x*", "def*")), 4),
            (FlowQuery(name="order", queues=("default",)), 2),
            (FlowQuery(queues=("x*",)), 0),
        ):
            assert len(store.flows.find(query)) == count

    def test_flows_by_phase_and_time(self, store: Store) -> None:
        """For the keeper, who looks for those whose deadline has come."""
        late, soon = (stored(store, [[]], at=at) for at in (NOW + HOUR, NOW + 1))
        ended = stored(store, [[]])
        end(store, [job for job in taken(store) if job.id == node_id(ended, 1)])
        found = [row.id for row in store.flows.find(FlowQuery(phases=(Phase.RUNNING,), at_before=NOW + 2))]
        assert found == [soon]
        assert {row.id for row in store.flows.find(FlowQuery(phases=(Phase.RUNNING, Phase.UNDOING)))} == {late, soon}
        assert [row.id for row in store.flows.find(FlowQuery(phases=(Phase.ENDED,)))] == [ended]

"""Promises about storing flows: whole or not at all, once."""

import pytest
from msgspec.structs import replace

from tarry.errors import StoreError, StoreUnavailable
from tarry.model.flow_row import Phase
from tarry.model.job import State
from tarry.store.conformance.cases.flows import (
    FlowCase,
    flow_of,
    node,
    numbers,
    root,
    row_of,
    run,
    states,
    stored,
    tend_all,
)
from tarry.store.conformance.cases.jobs import NOW, seen, taken
from tarry.store.flaky import FlakyStore
from tarry.store.rules import flows as verbs
from tarry.store.rules.base import Query, Store

CHAIN = [[], [1], [2]]
WIDE: list[list[int]] = [[], *([1] for _ in range(6)), [2, 3, 4, 5, 6, 7]]


class FlowStoring(FlowCase):
    """Flows: how they are stored."""

    def test_a_flow_is_stored_with_its_root_and_its_rows(self, store: Store) -> None:
        """The root is blocked, and so is each node that waits for others."""
        new = flow_of(store, [[], [], [1, 2]])
        assert store.flows.insert(new, NOW) == new.root.id
        assert store.get([new.root.id, *(job.id for job in new.nodes)]) == [new.root, *new.nodes]
        assert store.flows.get(new.root.id) == new.flow
        assert states(store, new.root.id) == "rrb"

    def test_a_plain_insert_takes_blocked_jobs(self, store: Store) -> None:
        """As the nodes that a node adds while it runs; they are in the counts, but in no queue's backlog."""
        (job,) = flow_of(store, [[], [1]]).nodes[1:]
        assert store.insert([job]) == [job.id]
        assert seen(store, job) == job
        assert store.find(Query(states=(State.BLOCKED,))) == [job]
        assert [(tally.state, tally.count) for tally in store.counts()] == [(State.BLOCKED, 1)]
        assert store.backlog(None, NOW, 10).count == 0
        assert (store.queues(), store.next_due()) == ({}, None)

    @pytest.mark.parametrize("after", [False, True])
    def test_flow_is_stored_whole_or_not_at_all(
        self, store: Store, after: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whichever call fails: either all is there, or no node ever runs. Sent again, it is one flow."""
        monkeypatch.setattr(verbs, "STORED_AT_ONCE", 3)
        for fail_at in range(1, 50):
            flaky = FlakyStore(store, fail_at, after)
            new = flow_of(store, WIDE)
            try:
                flaky.flows.insert(new, NOW)
            except StoreUnavailable:
                row = store.flows.get(new.root.id)
                # The reply of the last call may be all that is lost.
                if row is None or row.phase is Phase.STORING:
                    tend_all(store)
                    assert taken(store) == []
                assert store.flows.insert(new, NOW) == new.root.id
            assert numbers(store, new.root.id) == (Phase.RUNNING, 1, 7, 0)
            tend_all(store)
            assert run(store, new.root.id, 1) == [1]
            assert states(store, new.root.id) == "d" + "r" * 6 + "b"
            run(store, new.root.id, *range(2, 8))
            run(store, new.root.id, 8)
            if flaky.calls < fail_at:
                return
        raise AssertionError("storing a flow takes too many calls")

    def test_same_flow_twice_is_one(self, store: Store) -> None:
        """Also when it has gone on meanwhile."""
        new = flow_of(store, CHAIN)
        assert [store.flows.insert(new, NOW) for _ in range(2)] == [new.root.id] * 2
        run(store, new.root.id, 1)
        assert store.flows.insert(new, NOW) == new.root.id
        assert numbers(store, new.root.id) == (Phase.RUNNING, 1, 1, 0)
        assert states(store, new.root.id) == "drb"

    def test_key_gives_the_unfinished_flow(self, store: Store) -> None:
        """Of the flows of one name; another name has keys of its own."""
        first = stored(store, CHAIN, key="7")
        assert store.flows.insert(flow_of(store, CHAIN, key="7"), NOW) == first
        assert len(store.flows.find(verbs.FlowQuery())) == 1
        for other in (flow_of(store, CHAIN, key="8"), flow_of(store, CHAIN, key="7", name="return")):
            assert store.flows.insert(other, NOW) == other.root.id

    def test_key_is_free_after_the_end(self, store: Store) -> None:
        """Of whatever kind it is."""
        first = stored(store, [[]], key="7")
        run(store, first, 1)
        assert root(store, first).state is State.DONE
        second = stored(store, [[]], key="7")
        assert second != first

    @pytest.mark.parametrize("parents", [CHAIN, WIDE])
    def test_key_of_a_flow_that_is_not_whole_is_refused(
        self, store: Store, parents: list[list[int]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its client may have died: the flow would never run, and nobody else would store it."""
        monkeypatch.setattr(verbs, "STORED_AT_ONCE", 3)
        late = flow_of(store, WIDE, key="7")
        store.flows._insert(verbs.frame_of(late, NOW), NOW)
        new = flow_of(store, parents, key="7")
        with pytest.raises(StoreError, match=r"another client is storing flow .* with the key '7'") as refused:
            store.flows.insert(new, NOW)
        assert refused.value.stored is False
        tend_all(store, NOW + verbs.STORING_TIME)
        assert store.flows.insert(new, NOW + verbs.STORING_TIME) == new.root.id

    def test_large_flow_is_invisible_until_its_commit(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """None of its nodes runs while others are still to be stored."""
        monkeypatch.setattr(verbs, "STORED_AT_ONCE", 3)
        new = flow_of(store, WIDE)
        store.flows._insert(verbs.frame_of(new, NOW), NOW)
        store.flows._insert_nodes([replace(job, state=State.BLOCKED) for job in new.nodes])
        assert not store.flows.tend(NOW)
        assert taken(store) == []
        assert store.flows.insert(new, NOW) == new.root.id
        assert tend_all(store) >= 1
        assert (run(store, new.root.id, 1), row_of(store, new.root.id).at) == ([1], new.flow.at)

    def test_the_first_nodes_of_a_large_flow_keep_their_times(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """They are ready or scheduled, as those of a small one."""
        monkeypatch.setattr(verbs, "STORED_AT_ONCE", 1)
        later = {"due": NOW + 5, "state": State.SCHEDULED}
        flow = stored(store, [[], [], [1], []], fields={2: later})
        tend_all(store)
        assert states(store, flow) == "rsbr"
        assert node(store, flow, 2).due == NOW + 5
        assert numbers(store, flow) == (Phase.RUNNING, 3, 1, 0)

    def test_abandoned_flow_is_deleted(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """After ten minutes, by tending. What its client still sends then does not bring it to life."""
        monkeypatch.setattr(verbs, "STORED_AT_ONCE", 3)
        new = flow_of(store, WIDE, key="7")
        store.flows._insert(verbs.frame_of(new, NOW), NOW)
        store.flows._insert_nodes([replace(job, state=State.BLOCKED) for job in new.nodes[:4]])
        before = NOW + verbs.STORING_TIME - 1
        assert not store.flows.tend(before)
        assert len(store.flows.nodes(new.root.id, 0, 10)) == 4
        assert store.flows.tend(before + 1)
        assert root(store, new.root.id).state is State.CANCELLED
        tend_all(store, before + 1)
        assert store.get([new.root.id, *(job.id for job in new.nodes)]) == [None] * 9
        assert store.flows.get(new.root.id) is None
        # Nor are its nodes stored, which nobody would delete.
        late = [replace(job, state=State.BLOCKED) for job in new.nodes[4:]]
        for send in (store.flows._insert_nodes, store.flows.add_nodes):
            with pytest.raises(StoreError, match="deleted meanwhile"):
                send(late)
        assert store.get([job.id for job in late]) == [None] * len(late)
        again = flow_of(store, [[]], key="7")
        assert store.flows.insert(again, before + 1) == again.root.id

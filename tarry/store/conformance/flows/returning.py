"""Promises about nodes and flows that are tried again."""

import pytest

from tarry.model import flow_rules, lifecycle
from tarry.model.flow.wiring import COMPENSATE, GO_ON, unwrap
from tarry.model.flow_row import FlowChange, Phase
from tarry.model.job import State
from tarry.model.lifecycle import NotPossible
from tarry.model.outcome import Cancelled, Outcome, Returned
from tarry.store.conformance.cases.flows import (
    BAD,
    FlowCase,
    end,
    flow_of,
    node,
    numbers,
    root,
    run,
    states,
    stored,
)
from tarry.store.conformance.cases.jobs import NOW, taken
from tarry.store.rules import flow_operating
from tarry.store.rules.base import Store

CHAIN = [[], [1], [2]]


class FlowReturning(FlowCase):
    """Flows: nodes and flows that are tried again."""

    def test_retry_opens_held_gates(self, store: Store) -> None:
        """A failed node that is run again while the flow goes on: what waited behind other nodes starts."""
        flow = stored(store, [[], [], [1], [2], []])
        run(store, flow, 1, outcome=BAD)
        run(store, flow, 2)
        assert states(store, flow) == "xdbbr"
        assert _again(store, flow, 1)
        assert states(store, flow) == "rdbrr"
        assert numbers(store, flow) == (Phase.RUNNING, 3, 1, 0)
        for index in (1, 3, 4, 5):
            run(store, flow, index)
        assert root(store, flow).state is State.DONE

    def test_a_flow_goes_on_from_its_failed_nodes(self, store: Store) -> None:
        """The root is held while they come back; the flow may then end well, with its key."""
        flow = stored(store, [[], [], [1, 2]], key="7")
        run(store, flow, 1, outcome=BAD)
        run(store, flow, 2, outcome=Cancelled())
        assert root(store, flow).state is State.DEAD
        assert store.apply([flow_rules.reopen(root(store, flow), NOW)], NOW) == [True]
        assert numbers(store, flow) == (Phase.RUNNING, 1, 1, 2)
        assert store.backlog(None, NOW, 10).count == 0, "the root waits for its nodes, not for a worker"
        assert store.flows.insert(flow_of(store, CHAIN, key="7"), NOW) == flow
        assert _again(store, flow, 1)
        assert _again(store, flow, 2)
        assert store.apply([flow_rules.end_reopening(root(store, flow))], NOW) == [True]
        assert (states(store, flow), numbers(store, flow)) == ("rrb", (Phase.RUNNING, 2, 1, 0))
        for index in (1, 2, 3):
            run(store, flow, index)
        assert (root(store, flow).state, root(store, flow).note) == (State.DONE, b"")

    def test_a_flow_does_not_go_on_while_another_has_its_key(self, store: Store) -> None:
        """Two unfinished flows of a name never have the same key."""
        flow = stored(store, [[]], key="7")
        run(store, flow, 1, outcome=BAD)
        stored(store, CHAIN, key="7")
        assert store.apply([flow_rules.reopen(root(store, flow), NOW)], NOW) == [False]
        assert numbers(store, flow) == (Phase.ENDED, 0, 0, 1)

    def test_the_end_of_a_retry_counts_once(self, store: Store) -> None:
        """Also if its call is made twice. Else the flow ends while one of its nodes is active."""
        flow = stored(store, [[], [1]])
        run(store, flow, 1, outcome=BAD)
        store.apply([flow_rules.reopen(root(store, flow), NOW)], NOW)
        _again(store, flow, 1)
        change = flow_rules.end_reopening(root(store, flow))
        assert [store.apply([change], NOW), store.apply([change], NOW)] == [[True], [False]]
        assert (states(store, flow), numbers(store, flow)) == ("rb", (Phase.RUNNING, 1, 1, 0))

    def test_a_retry_that_comes_late_begins_nothing(self, store: Store) -> None:
        """The flow was retried meanwhile, and has ended again: nobody would end this retry."""
        flow = stored(store, CHAIN)
        run(store, flow, 1, outcome=BAD)
        late = flow_rules.reopen(root(store, flow), NOW)
        assert store.apply([late], NOW) == [True]
        _again(store, flow, 1)
        store.apply([flow_rules.end_reopening(root(store, flow))], NOW)
        run(store, flow, 1, outcome=BAD)
        before = numbers(store, flow)
        assert store.apply([late], NOW) == [False]
        assert (root(store, flow).state, numbers(store, flow)) == (State.DEAD, before)

    def test_failed_count_survives_a_broken_retry(self, store: Store) -> None:
        """A retry that broke off leaves a hold. Once that is taken away, the flow ends as before, and a retry works."""
        flow = stored(store, [[], [], [1, 2]])
        run(store, flow, 1, outcome=BAD)
        run(store, flow, 2, outcome=BAD)
        store.apply([flow_rules.reopen(root(store, flow), NOW)], NOW)
        _again(store, flow, 1)
        run(store, flow, 1)
        assert numbers(store, flow) == (Phase.RUNNING, 1, 1, 1)
        assert store.flows.change(FlowChange(flow, Phase.RUNNING, Phase.RUNNING, active=0, seen=(1, 1, 1)), NOW)
        assert (root(store, flow).state, numbers(store, flow)) == (State.DEAD, (Phase.ENDED, 0, 1, 1))
        store.apply([flow_rules.reopen(root(store, flow), NOW)], NOW)
        _again(store, flow, 2)
        store.apply([flow_rules.end_reopening(root(store, flow))], NOW)
        run(store, flow, 2)
        assert states(store, flow) == "ddr"

    @pytest.mark.parametrize(("outcome", "policy"), [(Returned(), 0), (BAD, GO_ON)])
    def test_a_node_that_has_told_runs_alone(self, store: Store, outcome: Outcome, policy: int) -> None:
        """Its second end counts nothing and tells nobody."""
        flow = stored(store, CHAIN, policies={1: policy})
        run(store, flow, 1, outcome=outcome)
        before = numbers(store, flow)
        assert _again(store, flow, 1)
        wiring, arguments = unwrap(node(store, flow, 1).body)
        assert (wiring and wiring.alone, arguments) == (True, b"{}")
        run(store, flow, 1, outcome=BAD)
        assert _again(store, flow, 1)
        run(store, flow, 1)
        assert (numbers(store, flow), states(store, flow)) == (before, "drb")

    def test_a_node_of_an_ended_flow_runs_and_opens_nothing(self, store: Store) -> None:
        """Until the flow itself goes on."""
        flow = stored(store, CHAIN)
        run(store, flow, 1, outcome=BAD)
        assert _again(store, flow, 1)
        run(store, flow, 1)
        assert (states(store, flow), numbers(store, flow)) == ("dbb", (Phase.ENDED, 0, 2, 0))
        store.apply([flow_rules.reopen(root(store, flow), NOW)], NOW)
        store.apply([flow_rules.end_reopening(root(store, flow))], NOW)
        assert states(store, flow) == "drb"
        end(store, taken(store))
        run(store, flow, 3)
        assert root(store, flow).state is State.DONE

    def test_people_cancel_and_retry_flows(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """With all that is active, by pages; and a retry lets it go on where it was."""
        monkeypatch.setattr(flow_operating, "PAGE", 2)
        flow = stored(store, [*([] for _ in range(5)), [1, 2, 3, 4, 5]], policies={2: GO_ON})
        run(store, flow, 1)
        taken(store, 2)
        flow_operating.cancel_flow(store, flow, NOW, "no")
        assert (states(store, flow), root(store, flow).state) == ("dccccb", State.CANCELLED)
        with pytest.raises(NotPossible, match=r"^it has ended$"):
            flow_operating.cancel_flow(store, flow, NOW)
        assert flow_operating.retry_flow(store, flow, NOW) == 4
        assert numbers(store, flow) == (Phase.RUNNING, 4, 1, 0)
        with pytest.raises(NotPossible, match=r"^it has not ended: it is running$"):
            flow_operating.retry_flow(store, flow, NOW)
        run(store, flow, 2, 3, 4, 5)
        run(store, flow, 6)
        assert root(store, flow).state is State.DONE
        with pytest.raises(NotPossible, match=r"^it is done$"):
            flow_operating.retry_flow(store, flow, NOW)

    def test_no_retry_without_the_failed_nodes(self, store: Store) -> None:
        """It says so, and the flow ends again."""
        flow = stored(store, [[], [], [1, 2]])
        run(store, flow, 1, outcome=BAD)
        run(store, flow, 2, outcome=BAD)
        store.apply([lifecycle.forget(node(store, flow, 1))], NOW)
        with pytest.raises(NotPossible, match=r"^1 of its failed jobs were deleted"):
            flow_operating.retry_flow(store, flow, NOW)
        run(store, flow, 2)
        assert numbers(store, flow) == (Phase.ENDED, 0, 1, 1)
        with pytest.raises(NotPossible, match="gone"):
            flow_operating.retry_flow(store, store.flows.new_id("order"), NOW)

    def test_a_cancelled_flow_is_not_undone_and_can_be_retried(self, store: Store) -> None:
        """Nothing of it has failed: who cancelled it did not ask for the undoing."""
        flow = stored(store, [[], [1], []], policies={1: COMPENSATE, 2: COMPENSATE}, undo=3)
        run(store, flow, 1)
        flow_operating.cancel_flow(store, flow, NOW)
        assert (root(store, flow).state, states(store, flow)) == (State.CANCELLED, "dcb")
        assert flow_operating.retry_flow(store, flow, NOW) == 1
        assert run(store, flow, 2) == [2]
        assert (root(store, flow).state, states(store, flow)) == (State.DONE, "ddb")

    def test_a_cancelled_flow_whose_retry_broke_off_is_not_undone(self, store: Store) -> None:
        """It ends again, and what was cancelled with it had asked for nothing."""
        flow = stored(store, [[], [1], []], policies={1: COMPENSATE, 2: COMPENSATE}, undo=3)
        run(store, flow, 1)
        flow_operating.cancel_flow(store, flow, NOW)
        store.apply([flow_rules.reopen(root(store, flow), NOW)], NOW)
        store.apply([flow_rules.end_reopening(root(store, flow))], NOW)
        assert (states(store, flow), numbers(store, flow)) == ("dcb", (Phase.ENDED, 0, 0, 1))

    def test_a_flow_cancelled_before_it_was_undone_can_be_retried(self, store: Store) -> None:
        """Also where one of its nodes had asked for the undoing; and where that fails again, it is undone."""
        flow = stored(store, [[], [], []], policies={1: COMPENSATE}, undo=3)
        run(store, flow, 1, outcome=BAD)
        flow_operating.cancel_flow(store, flow, NOW)
        assert (root(store, flow).state, states(store, flow)) == (State.CANCELLED, "xcb")
        assert flow_operating.retry_flow(store, flow, NOW) == 2
        assert run(store, flow, 1, outcome=BAD) == [1, 2]
        assert run(store, flow, 2) == [2]
        assert states(store, flow) == "xdr"

    def test_no_retry_of_what_is_undone(self, store: Store) -> None:
        """What was done would be missing."""
        flow = stored(store, [[], []], policies={1: COMPENSATE}, undo=2)
        run(store, flow, 1, outcome=BAD)
        with pytest.raises(NotPossible, match="what it had done is being undone"):
            flow_operating.cancel_flow(store, flow, NOW)
        run(store, flow, 2)
        with pytest.raises(NotPossible, match="undone"):
            flow_operating.retry_flow(store, flow, NOW)


def _again(store: Store, flow: bytes, index: int) -> bool:
    """A person runs a finished node again; whether that was possible."""
    return store.apply([lifecycle.run_now(node(store, flow, index), NOW)], NOW) == [True]

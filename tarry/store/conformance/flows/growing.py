"""Promises about nodes that a node adds while it runs."""

import threading

from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.flow.effect import NodeEffect
from tarry.model.flow.node_ids import MAX_NODES, node_id
from tarry.model.flow.wiring import Gate, NodeLinks, wrap
from tarry.model.flow_row import Phase
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Returned
from tarry.store.conformance.cases.flows import (
    BAD,
    FlowCase,
    end,
    numbers,
    root,
    row_of,
    run,
    states,
    stored,
    tend_all,
)
from tarry.store.conformance.cases.jobs import NOW, side_by_side, taken
from tarry.store.rules.base import Store


class FlowGrowing(FlowCase):
    """Flows: nodes that are added at run time."""

    def test_indices_are_given_once(self, store: Store) -> None:
        """Also to 8 threads; none once the flow has ended, is gone, or is as large as may be."""
        flow, given = stored(store, [[], [1]]), list[int]()
        lock = threading.Lock()

        def work(number: int) -> None:
            for _ in range(5):
                first = store.flows.grow(flow, 3)
                assert first is not None
                with lock:
                    given.append(first)

        side_by_side(8, work)
        assert sorted(given) == list(range(3, 3 + 40 * 3, 3))
        assert row_of(store, flow).size == 123
        assert store.flows.grow(flow, MAX_NODES - 122) is None
        assert store.flows.grow(flow, MAX_NODES - 123) == 123
        ended = stored(store, [[]])
        end(store, [job for job in taken(store) if job.id == node_id(ended, 1)])
        assert store.flows.grow(ended, 1) is None
        assert store.flows.grow(store.flows.new_id("order"), 1) is None

    def test_raised_gate_waits_for_new_nodes(self, store: Store) -> None:
        """They are released by the end of the node that added them, and what waited for that node waits for them."""
        flow = stored(store, [[], [1]])
        added = _fan_out(store, flow, 3)
        assert states(store, flow) == "dbrrr"
        assert numbers(store, flow) == (Phase.RUNNING, 3, 1, 0)
        run(store, flow, *added[:2])
        assert states(store, flow) == "dbddr"
        run(store, flow, added[2])
        assert states(store, flow) == "drddd"
        run(store, flow, 2)
        assert root(store, flow).state is State.DONE

    def test_a_raised_gate_may_be_raised_again(self, store: Store) -> None:
        """A node that was added adds others in its turn."""
        flow = stored(store, [[], [1]])
        first, second = _fan_out(store, flow, 2)
        inner = _fan_out(store, flow, 2, by=first)
        run(store, flow, second)
        run(store, flow, inner[0])
        assert states(store, flow) == "dbdddr"
        run(store, flow, inner[1])
        assert states(store, flow) == "drdddd"

    def test_a_node_may_add_one(self, store: Store) -> None:
        """The gate behind it then waits for as many as before."""
        flow = stored(store, [[], [1]])
        (added,) = _fan_out(store, flow, 1)
        assert states(store, flow) == "dbr"
        run(store, flow, added)
        assert states(store, flow) == "drd"

    def test_many_added_nodes_are_released_in_pieces(self, store: Store) -> None:
        """As those of a wide gate."""
        flow = stored(store, [[], [1]])
        added = _fan_out(store, flow, 1200)
        assert numbers(store, flow) == (Phase.RUNNING, 1200, 1, 0)
        tend_all(store)
        run(store, flow, *added)
        assert states(store, flow)[:2] == "dr"

    def test_nodes_of_a_failed_attempt_are_nobodys(self, store: Store) -> None:
        """They are not counted, never run, and go with the flow."""
        flow = stored(store, [[], [1]])
        (job,) = taken(store)
        added = _insert_blocked(store, flow, 3, Gate(2, 1, 1))
        end(store, [job], BAD)
        assert (numbers(store, flow), root(store, flow).state) == ((Phase.ENDED, 0, 1, 1), State.DEAD)
        assert states(store, flow) == "xbbbb"
        tend_all(store, row_of(store, flow).at)
        assert store.get([node_id(flow, index) for index in added]) == [None] * 3


def _fan_out(store: Store, flow: bytes, count: int, by: int = 1) -> list[int]:
    """Ends the node `by` with so many new nodes; their indices. All else that is ready is given back."""
    gate = Gate(2, 1, max(2, count))
    indices = _insert_blocked(store, flow, count, gate if count > 1 else Gate(2, 1, 1))
    job = next(job for job in taken(store) if job.id == node_id(flow, by))
    others = [other for other in store.reclaim(NOW, "ann") if other.id != job.id]
    change = lifecycle.after(job, Returned(), DEFAULT, NOW)
    opens = Gate(indices[0], count, 1)
    raised = Gate(2, 1, 1) if by == 1 else Gate(2, 1, 2)
    effect = NodeEffect(active=-1, blocked=count, raises=((raised, count - 1),), opens=(opens,))
    assert store.apply([replace(change, node=effect)], NOW) == [True]
    store.apply([lifecycle.give_back(other, NOW) for other in others], NOW)
    return indices


def _insert_blocked(store: Store, flow: bytes, count: int, tells: Gate) -> list[int]:
    first = store.flows.grow(flow, count)
    assert first is not None
    body = wrap(NodeLinks((tells,)), b"{}")
    indices = list(range(first, first + count))
    nodes = [Job(node_id(flow, index), "mail", body, state=State.BLOCKED, state_since=NOW) for index in indices]
    for _ in range(2):
        # A repetition after an answer that was lost changes nothing.
        store.flows.add_nodes(nodes)
    return indices

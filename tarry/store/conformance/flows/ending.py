"""Promises about the end of a flow: when none of its nodes is active, and never before."""

import pytest
from msgspec import json
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.duration import DAY, HOUR
from tarry.model.flow.node_ids import index_of, node_id
from tarry.model.flow.wiring import COMPENSATE, GO_ON
from tarry.model.flow_row import FlowChange, Phase
from tarry.model.flow_rules import FLOW_CANCELLED
from tarry.model.job import HELD, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Cancelled, Expired, Lost, Outcome, Raised, Returned
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
from tarry.store.conformance.cases.jobs import NOW, seen, taken
from tarry.store.conformance.cases.sleepers import Sleepers, wakes
from tarry.store.rules.base import Store
from tarry.store.rules.sleeper import RESULT

CHAIN = [[], [1], [2]]
BAD_ENDS: list[Outcome] = [BAD, Cancelled("no"), Expired(), Raised(b"", final=True)]


class FlowEnding(FlowCase):
    """Flows: how they end."""

    def test_flow_ends_with_its_last_node(self, store: Store) -> None:
        """In the same call; its root then is done, gives up its key, and is kept as long as the flow."""
        flow = stored(store, CHAIN, key="7")
        for index in (1, 2):
            run(store, flow, index)
            assert root(store, flow).state is State.BLOCKED
        run(store, flow, 3, now=NOW + 9)
        assert numbers(store, flow) == (Phase.ENDED, 0, 0, 0)
        ended = root(store, flow)
        assert (ended.state, ended.note, ended.state_since) == (State.DONE, b"", NOW + 9)
        assert (ended.key_held_until, ended.keep_until) == (0, HELD)
        assert (row_of(store, flow).at, row_of(store, flow).ends) == (NOW + 9 + HOUR, State.DONE)

    @pytest.mark.parametrize("outcome", BAD_ENDS)
    def test_failure_holds_gates(self, store: Store, outcome: Outcome) -> None:
        """Nothing new starts in the flow, also behind nodes that are done after it; what runs runs on."""
        flow = stored(store, [[], [], [1], [2]])
        by_index = {index_of(job.id): job for job in taken(store)}
        end(store, [by_index[1]], outcome)
        assert numbers(store, flow) == (Phase.RUNNING, 1, 2, 1)
        assert root(store, flow).state is State.BLOCKED
        end(store, [by_index[2]])
        assert states(store, flow)[1:] == "dbb"
        assert numbers(store, flow) == (Phase.ENDED, 0, 2, 1)

    def test_dead_when_nothing_is_active(self, store: Store) -> None:
        """The note of the root says which node failed first, and how."""
        flow = stored(store, [[], [], [1, 2]])
        run(store, flow, 2, outcome=BAD)
        run(store, flow, 1, outcome=Cancelled("late"))
        assert root(store, flow).state is State.DEAD
        assert json.decode(root(store, flow).note) == {"type": "ValueError", "message": "no", "node": 2}
        assert row_of(store, flow).at == NOW + DAY

    @pytest.mark.parametrize("outcome", BAD_ENDS)
    def test_go_on_tells(self, store: Store, outcome: Outcome) -> None:
        """As if the node were done."""
        flow = stored(store, CHAIN, policies={1: GO_ON})
        run(store, flow, 1, outcome=outcome)
        assert states(store, flow)[1:] == "rb"
        run(store, flow, 2)
        run(store, flow, 3)
        assert (root(store, flow).state, numbers(store, flow)) == (State.DONE, (Phase.ENDED, 0, 0, 0))

    def test_poison_ends_the_flow(self, store: Store) -> None:
        """A node whose workers died fails like another."""
        flow = stored(store, CHAIN)
        now = NOW
        for _ in range(lifecycle.MAX_CRASHES):
            run(store, flow, 1, outcome=Lost(on=True), now=now)
            now += HOUR
        assert (states(store, flow), root(store, flow).state) == ("xbb", State.DEAD)

    def test_deleted_node_counts_as_cancelled(self, store: Store) -> None:
        """One that has not ended stays, as a cancelled one, since its flow counts on it."""
        flow = stored(store, [[], [], [1, 2]], fields={2: {"due": NOW + HOUR, "state": State.SCHEDULED}})
        for index in (1, 2):
            assert store.apply([lifecycle.forget(node(store, flow, index))], NOW) == [True]
        assert states(store, flow) == "ccb"
        assert (root(store, flow).state, numbers(store, flow)) == (State.DEAD, (Phase.ENDED, 0, 1, 2))
        assert store.apply([lifecycle.forget(node(store, flow, 1))], NOW) == [True]
        assert states(store, flow) == "cb"
        assert numbers(store, flow) == (Phase.ENDED, 0, 1, 2)

    def test_lost_rows_end_the_flow(self, store: Store) -> None:
        """Nodes that are gone when their gate opens count as failed."""
        flow = stored(store, CHAIN)
        if not self.lose(store, node(store, flow, 2)):
            pytest.skip("no way to lose a blocked node of this store")
        run(store, flow, 1)
        assert numbers(store, flow) == (Phase.ENDED, 0, 1, 1)
        assert json.decode(root(store, flow).note)["type"] == "Lost"

    def test_blocked_nodes_that_nobody_releases_end_the_flow(self, store: Store) -> None:
        """It is dead, and says so, since it would wait for ever."""
        flow = stored(store, [[], [], [1, 2]])
        assert store.flows.change(FlowChange(flow, Phase.RUNNING, Phase.RUNNING, active=0), NOW)
        assert (root(store, flow).state, json.decode(root(store, flow).note)["type"]) == (State.DEAD, "Stuck")

    def test_undo_starts_when_all_is_quiet(self, store: Store) -> None:
        """Once nothing else of the failed flow is active; the flow ends with it, as dead."""
        flow = stored(store, [[], [], [1, 2], []], policies={1: COMPENSATE}, undo=4)
        by_index = {index_of(job.id): job for job in taken(store)}
        end(store, [by_index[1]], BAD)
        assert states(store, flow) == "xrbb"
        end(store, [by_index[2]])
        assert states(store, flow) == "xdbr"
        assert numbers(store, flow) == (Phase.UNDOING, 1, 1, 1)
        assert root(store, flow).state is State.BLOCKED
        run(store, flow, 4)
        assert (root(store, flow).state, numbers(store, flow)) == (State.DEAD, (Phase.ENDED, 0, 1, 1))

    @pytest.mark.parametrize("outcome", [BAD, Cancelled()])
    def test_a_failed_undo_ends_the_flow(self, store: Store, outcome: Outcome) -> None:
        """It is not undone twice."""
        flow = stored(store, [[], []], policies={1: COMPENSATE, 2: COMPENSATE}, undo=2)
        run(store, flow, 1, outcome=BAD)
        run(store, flow, 2, outcome=outcome)
        assert numbers(store, flow) == (Phase.ENDED, 0, 0, 2)

    def test_no_undo_unless_a_failure_asks_for_it(self, store: Store) -> None:
        """Nor where all ended well."""
        failed, good = stored(store, [[], []], undo=2), stored(store, [[], []], policies={1: COMPENSATE}, undo=2)
        by_flow = {job.id[:12]: job for job in taken(store)}
        end(store, [by_flow[failed[:12]]], BAD)
        end(store, [by_flow[good[:12]]])
        assert (states(store, failed), root(store, failed).state) == ("xb", State.DEAD)
        assert (states(store, good), root(store, good).state) == ("db", State.DONE)

    def test_no_undo_of_what_was_mended(self, store: Store) -> None:
        """The node that failed was tried again while others ran, and was done then."""
        flow = stored(store, [[], [], []], policies={1: COMPENSATE}, undo=3)
        run(store, flow, 1, outcome=BAD)
        assert store.apply([lifecycle.run_now(node(store, flow, 1), NOW)], NOW) == [True]
        assert run(store, flow, 1, 2) == [1, 2]
        assert (states(store, flow), root(store, flow).state) == ("ddb", State.DONE)

    def test_no_undo_for_a_failure_that_was_mended(self, store: Store) -> None:
        """A later one that asks for none stops the flow, and no more."""
        flow = stored(store, [[], [], []], policies={1: COMPENSATE}, undo=3)
        run(store, flow, 1, outcome=BAD)
        assert store.apply([lifecycle.run_now(node(store, flow, 1), NOW)], NOW) == [True]
        by_index = {index_of(job.id): job for job in taken(store)}
        end(store, [by_index[1]])
        end(store, [by_index[2]], BAD)
        assert (states(store, flow), root(store, flow).state) == ("dxb", State.DEAD)

    def test_no_undo_for_a_failure_mended_while_another_stands(self, store: Store) -> None:
        """Also where it failed several times, and where the other comes in the call that mends it."""
        flow, other = (stored(store, [[], [], [], []], policies={1: COMPENSATE}, undo=4) for _ in range(2))
        by_id = {job.id: job for job in taken(store)}
        for id in (flow, other):
            end(store, [by_id[node_id(id, 1)]], BAD)
        end(store, [by_id[node_id(flow, 2)]], BAD)
        for _ in range(2):
            assert store.apply([lifecycle.run_now(node(store, flow, 1), NOW)], NOW) == [True]
            assert run(store, flow, 1, outcome=BAD) == [1]
        again = [lifecycle.run_now(node(store, id, 1), NOW) for id in (flow, other)]
        failure = lifecycle.after(by_id[node_id(other, 2)], BAD, DEFAULT, NOW)
        assert store.apply([*again, failure], NOW) == [True] * 3
        assert run(store, flow, 1) == [1, 1]
        end(store, [by_id[node_id(id, 3)] for id in (flow, other)])
        assert [(states(store, id), root(store, id).state) for id in (flow, other)] == [("dxdb", State.DEAD)] * 2

    def test_undo_for_the_failure_that_stands(self, store: Store) -> None:
        """Of two that asked for it one was mended."""
        flow = stored(store, [[], [], [], []], policies={1: COMPENSATE, 2: COMPENSATE}, undo=4)
        by_index = {index_of(job.id): job for job in taken(store)}
        end(store, [by_index[1], by_index[2]], BAD)
        assert store.apply([lifecycle.run_now(node(store, flow, 1), NOW)], NOW) == [True]
        assert run(store, flow, 1) == [1]
        end(store, [by_index[3]])
        assert (states(store, flow), numbers(store, flow)) == ("dxdr", (Phase.UNDOING, 1, 0, 1))

    def test_undo_for_a_failed_node_that_was_deleted(self, store: Store) -> None:
        """Nobody can mend it any more."""
        flow = stored(store, [[], [], []], policies={1: COMPENSATE}, undo=3)
        run(store, flow, 1, outcome=BAD)
        assert store.apply([lifecycle.forget(node(store, flow, 1))], NOW) == [True]
        run(store, flow, 2)
        assert (states(store, flow), numbers(store, flow)) == ("dr", (Phase.UNDOING, 1, 0, 1))

    def test_no_undo_where_a_count_found_no_failure(self, store: Store) -> None:
        """The audit has counted the nodes, and none has failed: what a failure had asked for is gone with it."""
        flow = stored(store, [[], [], []], policies={1: COMPENSATE}, undo=3)
        run(store, flow, 1, outcome=BAD)
        assert store.flows.change(FlowChange(flow, Phase.RUNNING, Phase.RUNNING, seen=(1, 0, 1), failed=0), NOW)
        run(store, flow, 2)
        assert (root(store, flow).state, numbers(store, flow)) == (State.DONE, (Phase.ENDED, 0, 0, 0))

    def test_a_flow_ends_once(self, store: Store) -> None:
        """A failed node that a person runs again later counts no more than that."""
        flow = stored(store, [[], [1]])
        run(store, flow, 1, outcome=BAD)
        ended = row_of(store, flow)
        assert store.apply([lifecycle.run_now(node(store, flow, 1), NOW)], NOW) == [True]
        run(store, flow, 1, now=NOW + HOUR)
        assert row_of(store, flow) == replace(ended, failed=0)
        assert (states(store, flow), root(store, flow).state) == ("db", State.DEAD)

    def test_cancelled_flow_releases_nothing(self, store: Store) -> None:
        """From the change on; it ends with the last of its active nodes, whatever becomes of them."""
        flow = stored(store, [[], [], [1], [2]])
        by_index = {index_of(job.id): job for job in taken(store)}
        change = FlowChange(flow, Phase.RUNNING, Phase.CANCELLING, State.CANCELLED, b'{"type":"FlowCancelled"}')
        assert store.flows.change(change, NOW)
        end(store, [by_index[1]])
        assert numbers(store, flow) == (Phase.CANCELLING, 1, 2, 0)
        stopped = lifecycle.cancel(by_index[2], DEFAULT, NOW)
        assert store.apply([stopped], NOW) == [True]
        assert (states(store, flow), root(store, flow).state) == ("dcbb", State.CANCELLED)
        assert root(store, flow).note == b'{"type":"FlowCancelled"}'

    def test_a_cancelled_flow_closes_its_open_gates(self, store: Store) -> None:
        """What a wide gate has not released yet stays blocked, and the flow does not wait for it."""
        flow = stored(store, [[], *([1] for _ in range(1300))])
        run(store, flow, 1)
        assert store.flows.change(FlowChange(flow, Phase.RUNNING, Phase.CANCELLING, State.CANCELLED), NOW)
        assert numbers(store, flow) == (Phase.CANCELLING, 1000, 300, 0)
        assert tend_all(store) == 0
        end(store, taken(store))
        assert (root(store, flow).state, numbers(store, flow)) == (State.CANCELLED, (Phase.ENDED, 0, 300, 0))

    def test_change_of_a_flow_is_fenced(self, store: Store) -> None:
        """By its phase, and by the numbers that were seen."""
        flow = stored(store, CHAIN)
        for change in (
            FlowChange(flow, Phase.UNDOING, Phase.ENDED, active=0),
            FlowChange(flow, Phase.RUNNING, Phase.RUNNING, active=0, seen=(2, 2, 0)),
            FlowChange(flow, Phase.RUNNING, Phase.RUNNING, active=0, seen=(1, 1, 0)),
            FlowChange(flow, Phase.RUNNING, Phase.RUNNING, active=0, seen=(1, 2, 1)),
            FlowChange(store.flows.new_id("order"), Phase.RUNNING, Phase.CANCELLING),
        ):
            assert not store.flows.change(change, NOW), change
        assert numbers(store, flow) == (Phase.RUNNING, 1, 2, 0)
        assert store.flows.change(FlowChange(flow, Phase.RUNNING, Phase.RUNNING, at=5, seen=(1, 2, 0)), NOW)
        assert row_of(store, flow).at == 5

    def test_a_cancelled_node_of_a_cancelled_flow_has_told_nobody(self, store: Store) -> None:
        """Also where its failure would not stop the flow."""
        flow = stored(store, CHAIN, policies={1: GO_ON})
        (job,) = taken(store)
        assert store.apply([lifecycle.cancel(job, DEFAULT, NOW, "", FLOW_CANCELLED)], NOW) == [True]
        assert (states(store, flow), numbers(store, flow)) == ("cbb", (Phase.ENDED, 0, 2, 1))

    def test_a_node_with_other_times_than_seen_does_nothing_to_its_flow(self, store: Store) -> None:
        """The end of a node that depends on its times, as any other change that does."""
        flow = stored(store, CHAIN)
        (job,) = taken(store)
        change = lifecycle.after(job, Returned(), DEFAULT, NOW)
        assert store.apply([replace(change, seen_times=(job.due + 1, 0))], NOW) == [False]
        assert (states(store, flow), numbers(store, flow)) == ("rbb", (Phase.RUNNING, 1, 2, 0))
        assert store.apply([replace(change, seen_times=(job.due, 0))], NOW) == [True]
        assert numbers(store, flow) == (Phase.RUNNING, 1, 1, 0)

    def test_result_waiter_is_woken(self, store: Store) -> None:
        """By the end of the flow, as by that of a job."""
        flow = stored(store, [[]])
        (job,) = taken(store)
        with Sleepers(store) as sleepers:
            sleeper = sleepers.listen(RESULT)
            end(store, [job])
            assert wakes(sleeper)
        assert seen(store, root(store, flow)).state is State.DONE

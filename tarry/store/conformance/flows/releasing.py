"""Promises about the end of a parent: it releases its children, once, in the same call."""

import threading
from contextlib import closing

import pytest
from msgspec.structs import replace

from tarry.model import flow_rules, lifecycle
from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.flow.node_ids import index_of
from tarry.model.flow_row import Phase
from tarry.model.job import Job, State
from tarry.model.lifecycle import DEFAULT
from tarry.model.limit import Limit
from tarry.model.outcome import Released, Returned, Snoozed
from tarry.store.conformance.cases.flows import (
    BAD,
    FlowCase,
    end,
    flow_of,
    node,
    numbers,
    row_of,
    run,
    states,
    stored,
    tend_all,
)
from tarry.store.conformance.cases.jobs import EVERYTHING, LEASE, NOW, side_by_side, taken
from tarry.store.conformance.cases.sleepers import Sleepers, wakes
from tarry.store.rules import flows as verbs
from tarry.store.rules.base import Store
from tarry.store.rules.sleeper import WORK

CHAIN = [[], [1], [2]]
DIAMOND = [[], [1], [1], [2, 3]]


class FlowReleasing(FlowCase):
    """Flows: how nodes become ready."""

    def test_blocked_node_is_never_claimed(self, store: Store) -> None:
        """Neither the root nor a node that waits, whatever its times are."""
        flow = stored(store, CHAIN, fields={3: {"priority": 9, "expires": 1}})
        assert [index_of(job.id) for job in taken(store, now=NOW + HOUR)] == [1]
        assert taken(store, now=NOW + 2 * HOUR) == []
        assert states(store, flow) == "rbb"
        assert store.backlog(None, NOW, 10).count == 0

    def test_last_parent_makes_ready_in_the_same_exchange(self, store: Store) -> None:
        """Whose claim gives the child."""
        flow = stored(store, DIAMOND)
        ran: list[Job] = []
        for expected in ([2, 3], [4]):
            jobs = ran or taken(store)
            changes = [lifecycle.after(job, Returned(), DEFAULT, NOW) for job in jobs]
            answer = store.exchange(changes, EVERYTHING, 10, "ann", LEASE, NOW)
            ran = answer.jobs
            assert (sorted(index_of(job.id) for job in ran), answer.valid) == (expected, [True] * len(jobs))
            assert not answer.more_to_release
        assert numbers(store, flow) == (Phase.RUNNING, 1, 0, 0)

    def test_one_parent_of_two_releases_nothing(self, store: Store) -> None:
        """In whatever order they end."""
        flow = stored(store, DIAMOND)
        run(store, flow, 1)
        run(store, flow, 3)
        assert states(store, flow) == "drdb"
        assert run(store, flow, 2) == [2]
        assert states(store, flow) == "dddr"

    def test_two_parents_in_one_call_release_once(self, store: Store) -> None:
        """Each end counts."""
        flow = stored(store, DIAMOND)
        run(store, flow, 1)
        run(store, flow, 2, 3)
        assert states(store, flow) == "dddr"
        assert numbers(store, flow) == (Phase.RUNNING, 1, 0, 0)

    @pytest.mark.parametrize("outcome", [Released(), Snoozed(SECOND)])
    def test_a_node_that_comes_again_tells_nothing(self, store: Store, outcome: Released | Snoozed) -> None:
        """It has not ended."""
        flow = stored(store, CHAIN)
        run(store, flow, 1, outcome=outcome)
        assert states(store, flow)[1:] == "bb"
        assert numbers(store, flow) == (Phase.RUNNING, 1, 2, 0)

    def test_stale_end_tells_nothing(self, store: Store) -> None:
        """A change that is not made does nothing to the flow; nor does the same one once more."""
        flow = stored(store, [[], [], [1, 2]])
        jobs = {index_of(job.id): job for job in taken(store)}
        stale = lifecycle.after(replace(jobs[1], epoch=7), Returned(), DEFAULT, NOW)
        good = lifecycle.after(jobs[1], Returned(), DEFAULT, NOW)
        assert store.apply([stale, good, good], NOW) == [False, True, False]
        assert store.apply([good, stale], NOW) == [False, False]
        assert numbers(store, flow) == (Phase.RUNNING, 1, 1, 0)
        end(store, [jobs[2]])
        assert states(store, flow) == "ddr"

    def test_two_parents_at_once_release_once(self, store: Store) -> None:
        """Also when 8 threads end them."""
        flow = stored(store, [*([] for _ in range(16)), list(range(1, 17)), [17]])
        jobs = taken(store)
        ready = threading.Barrier(8)

        def work(number: int) -> None:
            ready.wait(30)
            for job in jobs[number::8]:
                end(store, [job])

        side_by_side(8, work)
        assert states(store, flow) == "d" * 16 + "rb"
        assert numbers(store, flow) == (Phase.RUNNING, 1, 1, 0)

    def test_ends_of_several_flows_in_one_call(self, store: Store) -> None:
        """Each counts for its own flow."""
        flows = [stored(store, CHAIN) for _ in range(3)]
        end(store, taken(store))
        assert [states(store, flow) for flow in flows] == ["drb"] * 3

    def test_delay_counts_from_release(self, store: Store) -> None:
        """And not from the enqueue."""
        flow = stored(store, CHAIN, fields={2: {"due": MINUTE}})
        run(store, flow, 1, now=NOW + HOUR)
        child = node(store, flow, 2)
        assert (child.state, child.due, child.state_since) == (State.SCHEDULED, NOW + HOUR + MINUTE, NOW + HOUR)
        assert taken(store, now=child.due - 1) == []
        assert [index_of(job.id) for job in taken(store, now=child.due)] == [2]

    @pytest.mark.parametrize(("due", "state"), [(NOW + HOUR, State.SCHEDULED), (NOW - HOUR, State.READY)])
    def test_time_of_its_own(self, store: Store, due: int, state: State) -> None:
        """A node with a time is not ready before it, and at once if that is over."""
        flow = stored(store, CHAIN, fields={2: {"due": due}})
        run(store, flow, 1)
        child = node(store, flow, 2)
        assert (child.state, child.due) == (state, max(due, NOW))

    @pytest.mark.parametrize(
        ("expires", "then"),
        [(0, 0), (MINUTE, NOW + 2 * MINUTE), (NOW + HOUR, NOW + HOUR)],
        ids=["none", "span", "time"],
    )
    def test_expiry_counts_from_due(self, store: Store, expires: int, then: int) -> None:
        """If it is a span; a time stays."""
        flow = stored(store, CHAIN, fields={2: {"due": MINUTE, "expires": expires}})
        run(store, flow, 1)
        assert node(store, flow, 2).expires == then

    def test_lane_of_a_released_node(self, store: Store) -> None:
        """As that of a job that comes back: by the limits that are there when it is released."""
        flow = stored(store, [[], *([1] for _ in range(3))], fields={4: {"lane": "k"}})
        store.limit("task:mail", Limit(2))
        run(store, flow, 1)
        assert [job.lane for job in store.flows.nodes(flow, 1, 9)] == ["", "", "k"]
        assert len(taken(store)) == 2
        assert taken(store, owner="bob") == []

    def test_wide_gate_in_pieces(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """A call releases `RELEASED_AT_ONCE` nodes at most, and says if there are more; `tend` goes on."""
        flow = stored(store, [[], *([1] for _ in range(2500)), list(range(2, 2502))])
        (first,) = taken(store)
        answer = store.exchange([lifecycle.after(first, Returned(), DEFAULT, NOW)], (), 0, "ann", LEASE, NOW)
        assert (answer.valid, answer.more_to_release) == ([True], True)
        assert numbers(store, flow) == (Phase.RUNNING, 2500, 1, 0)
        assert states(store, flow).count("r") == verbs.RELEASED_AT_ONCE
        assert store.flows.tend(NOW, 700)
        assert states(store, flow).count("r") == 1700
        tend_all(store)
        assert states(store, flow) == "d" + "r" * 2500 + "b"
        assert numbers(store, flow) == (Phase.RUNNING, 2500, 1, 0)
        assert not store.flows.tend(NOW)

    def test_pieces_go_on_after_a_crash(self, store: Store) -> None:
        """Each node is released once, whoever tends and however often; also in a store that is opened anew."""
        flow = stored(store, [[], *([1] for _ in range(1500))])
        run(store, flow, 1)
        with closing(self.reopen(store) or store) as again:
            ended = taken(again)
            end(again, ended)
            side_by_side(4, lambda number: _tend_by_pieces(again))
            assert len(taken(again)) == 1501 - 1 - len(ended)
            assert numbers(again, flow) == (Phase.RUNNING, 1500 - len(ended), 0, 0)

    def test_the_last_piece_after_the_first_nodes_have_ended(self, store: Store) -> None:
        """What is open counts as active, so the flow does not end before all have run."""
        flow = stored(store, [[], *([1] for _ in range(1200))])
        run(store, flow, 1)
        end(store, taken(store))
        assert numbers(store, flow)[:2] == (Phase.RUNNING, 200)
        tend_all(store)
        end(store, taken(store))
        assert numbers(store, flow) == (Phase.ENDED, 0, 0, 0)

    def test_release_wakes_workers(self, store: Store) -> None:
        """Those that sleep, as with an insert; and who waits for the flow learns of its end."""
        flow = stored(store, [[], [1]])
        (first,) = taken(store)
        with Sleepers(store) as sleepers:
            sleeper = sleepers.listen(WORK + "default")
            end(store, [first])
            assert wakes(sleeper)
        assert run(store, flow, 2) == [2]

    def test_like_the_model(self, store: Store) -> None:
        """What a released node becomes is what `flow_rules.release` says."""
        fields = {
            index: {"due": due, "expires": expires, "priority": index}
            for index, (due, expires) in enumerate(
                [(0, 0), (5, 7), (NOW + 9, 3), (NOW - 9, NOW + 1), (0, 1), (NOW, 2)], 2
            )
        }
        new = flow_of(store, [[], *([1] for _ in fields)], fields=fields)
        store.flows.insert(new, NOW)
        run(store, new.root.id, 1, now=NOW + 1)
        assert store.flows.nodes(new.root.id, 1, 10) == [flow_rules.release(job, NOW + 1) for job in new.nodes[1:]]

    def test_a_failed_node_releases_nothing(self, store: Store) -> None:
        """Nor does one that is done after it."""
        flow = stored(store, [[], [], [1], [2]])
        jobs = taken(store)
        by_index = {index_of(job.id): job for job in jobs}
        end(store, [by_index[1]], BAD)
        end(store, [by_index[2]])
        assert states(store, flow) == "xdbb"

    def test_many_gates_are_one_piece_of_work(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Pairs, each added in turn: what counts is how many nodes are released, not by how many gates."""
        monkeypatch.setattr(verbs, "RELEASED_AT_ONCE", 1)
        flow = stored(store, [parents for number in range(20) for parents in ([], [2 * number + 1])])
        end(store, taken(store))
        assert states(store, flow).count("b") == 19
        assert store.flows.release_more(NOW, 10)
        assert states(store, flow).count("b") == 9
        assert store.flows.release_more(NOW, 10)
        assert states(store, flow).count("b") == 0
        assert not store.flows.release_more(NOW, 10)

    def test_flows_take_turns(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """A flow with much left to release holds up no other, whichever comes first."""
        if self.shards > 1:
            pytest.skip("each shard releases so many")
        monkeypatch.setattr(verbs, "RELEASED_AT_ONCE", 1)
        large = [stored(store, [[], *([1] for _ in range(40))]) for _ in range(3)]
        end(store, taken(store))
        for _ in range(3):
            assert store.flows.release_more(NOW, 5)
        # One of them had a node released by the change that ended its parent.
        assert sorted(states(store, flow).count("r") for flow in large) == [5, 5, 6]
        for _ in range(3):
            assert store.flows.release_more(NOW, 5)
        assert sorted(states(store, flow).count("r") for flow in large) == [10, 10, 11]

    def test_old_flows_go_while_others_are_released(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Deleting is a part of its own."""
        monkeypatch.setattr(verbs, "RELEASED_AT_ONCE", 1)
        old = stored(store, [[]])
        end(store, taken(store))
        large = stored(store, [[], *([1] for _ in range(20))])
        end(store, taken(store))
        at = row_of(store, old).at
        while store.flows.tidy(at, 5):
            pass
        assert store.flows.get(old) is None
        assert states(store, large).count("b") >= 19


def _tend_by_pieces(store: Store) -> None:
    tend_all(store, limit=50)

"""Promise 8 once more: the model says in which lane a job waits, also where a store repeats the rule in SQL or Lua."""

import pytest
from msgspec.structs import replace

from tarry.model import lifecycle
from tarry.model.job import State
from tarry.model.limit import Limit, waiting_lane
from tarry.store.conformance.cases.jobs import NOW, Promises, in_state, made, put, seen, taken
from tarry.store.rules.base import Store

LANES = [None, "", "a"]
STATES = [State.DONE, State.DEAD, State.CANCELLED, State.RUNNING, State.SCHEDULED, State.READY]


class LaneAssignment(Promises):
    """A job gets its lane when it is inserted, when a limit is set, and when it starts anew after its end."""

    @pytest.mark.parametrize("name", ["queue:default", "task:mail", "each:mail"])
    def test_the_model_says_in_which_lane_a_job_waits(self, store: Store, name: str) -> None:
        """Jobs keep the lane when the limit is lifted."""
        jobs = [in_state(store, state, lane=lane) for state in STATES for lane in LANES]
        store.limit(name, Limit(1000))
        limits = store.limits()
        wanted = [
            waiting_lane(job.task, job.lane, {name: limit for name, (limit, _) in limits.items()}) for job in jobs
        ]
        ended = [job for job in jobs if job.state.finished]
        assert store.apply([lifecycle.run_now(job, NOW) for job in ended], NOW) == [True] * len(ended)
        assert [seen(store, job).lane for job in jobs] == wanted
        new = [put(store, lane=lane)[0] for lane in LANES]
        assert [seen(store, job).lane for job in new] == wanted[: len(LANES)]
        store.limit(name, None)
        assert [seen(store, job).lane for job in (*jobs, *new)] == wanted + wanted[: len(LANES)]

    @pytest.mark.parametrize("state", [State.SCHEDULED, State.READY, State.RUNNING])
    def test_lanes_survive(self, store: Store, state: State) -> None:
        """A job keeps its lane in every state."""
        job = in_state(store, state, lane="käse")
        assert seen(store, job).lane == "käse"

    def test_a_job_that_says_no_lane_is_limited_all_the_same(self, store: Store) -> None:
        """A limit also counts for jobs that are inserted without a lane."""
        # Such a job may come from a program that does not know the limit yet.
        store.limit("task:mail", Limit(1))
        store.insert([replace(job, id=store.new_id("mail", None, "")) for job in made(store, 3)])
        assert len(taken(store)) == 1

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tarry.cli.top.rates import CounterRates, RateTracker, WaitTracker
from tarry.model.job import Job, State
from tarry.store.rules.base import Tally


def tallies(queue: str = "q", task: str = "t", **counts: int) -> list[Tally]:
    return [Tally(queue, task, State(state), count, 0, 0) for state, count in counts.items()]


def test_of_one_look_nothing_is_known() -> None:
    flow = RateTracker().update(tallies(ready=5), 1.0)["q"]
    assert (flow.came, flow.left, flow.died, flow.least) == (None, None, None, False)


def test_what_came_left_and_died() -> None:
    flows = RateTracker()
    flows.update(tallies(ready=10, done=100), 1.0)
    flow = flows.update(tallies(ready=14, done=105, dead=1), 3.0)["q"]
    assert (flow.came, flow.left, flow.died, flow.least) == (5.0, 3.0, 0.5, False)


def test_a_queue_that_is_new_came_whole() -> None:
    flows = RateTracker()
    flows.update([], 1.0)
    assert flows.update(tallies(ready=10), 2.0)["q"].came == 10.0


def test_a_look_in_which_records_were_forgotten_counts_only_if_there_is_no_other() -> None:
    flows = RateTracker()
    flows.update(tallies(ready=0, done=100), 0.0)
    flow = flows.update(tallies(ready=0, done=90), 1.0)["q"]
    assert (flow.came, flow.left, flow.least) == (0.0, 0.0, True)
    flow = flows.update(tallies(ready=0, done=97), 2.0)["q"]
    assert (flow.came, flow.left, flow.least) == (7.0, 7.0, False)
    flow = flows.update(tallies(ready=0, done=4), 3.0)["q"]
    assert (flow.came, flow.left, flow.least) == (7.0, 7.0, False)


def test_one_task_that_is_pruned_does_not_hide_another() -> None:
    flows = RateTracker()
    flows.update([*tallies(task="a", done=100), *tallies(task="b", done=5)], 0.0)
    flow = flows.update([*tallies(task="a", done=10), *tallies(task="b", done=8)], 1.0)["q"]
    assert (flow.left, flow.least) == (3.0, True)


def test_a_purged_queue_left() -> None:
    flows = RateTracker()
    flows.update(tallies(ready=50), 0.0)
    assert flows.update([], 1.0)["q"].left == 50.0
    assert "q" not in flows.update([], 2.0) or flows.update([], 3.0)["q"].came is not None


def test_rates_are_of_the_last_seconds_or_the_last_two_looks() -> None:
    flows = RateTracker()
    flows.update(tallies(done=0), 0.0)
    flows.update(tallies(done=1000), 1.0)
    assert flows.update(tallies(done=1000), 60.0)["q"].left == 0.0
    assert flows.update(tallies(done=1030), 120.0)["q"].left == 0.5


counts = some.lists(
    some.builds(
        Tally,
        queue=some.sampled_from("ab"),
        task=some.sampled_from("xy"),
        state=some.sampled_from(State),
        count=some.integers(0, 100),
        oldest=some.just(0),
        bytes=some.just(0),
    ),
    unique_by=lambda tally: (tally.queue, tally.task, tally.state),
)


@given(some.lists(counts, max_size=8))
def test_no_rate_is_ever_negative(looks: Sequence[Sequence[Tally]]) -> None:
    flows = RateTracker()
    for at, look in enumerate(looks):
        for flow in flows.update(look, float(at)).values():
            assert min(flow.came or 0, flow.left or 0, flow.died or 0) >= 0


def test_the_pace_of_a_counter() -> None:
    per_second = CounterRates()
    assert per_second.update({"a": 10}, 0.0) == {}
    assert per_second.update({"a": 14}, 2.0) == {"a": 2.0}
    assert per_second.update({"a": 0, "b": 3}, 3.0) == {}
    assert per_second.update({"a": 5, "b": 3}, 4.0) == {"a": 5.0, "b": 0.0}
    assert per_second.update({"a": 5}, 40.0)["a"] == pytest.approx(0.0)


def test_waits_are_the_median_of_those_that_were_seen_once_each() -> None:
    waits = WaitTracker()
    jobs = [
        Job(bytes([n]), "t", b"", "q", due=1_000_000, state_since=1_000_000 * (1 + n), state=State.RUNNING)
        for n in range(3)
    ]
    assert waits.update(jobs) == {"q": 1.0}
    assert waits.update(jobs[2:]) == {"q": 1.0}
    assert waits.update([Job(b"z", "t", b"", "q", due=9_000_000, state_since=1_000_000, state=State.RUNNING)]) == {
        "q": 0.5
    }

"""Flow control and circuit breaker: the rule alone, then with endpoints that hang, fail and recover."""

import asyncio
import threading
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry import State as JobState
from tarry.model.duration import MINUTE, SECOND
from tarry.push.endpoint import endpoint_cells, flow
from tarry.push.endpoint.flow import (
    CHANGE_INTERVAL,
    FAILURES,
    FIRST_OPEN,
    INITIAL,
    MOST_OPEN,
    FlowState,
    Observed,
    next_state,
)
from tests.push.fixture import DeliveryFixture
from tests.push.server import Connection, answer, end_before_answer, hang
from tests.worker.bench import finished, until

WELL, BUSY, FAILED = Observed(well=9), Observed(busy=3), Observed(row=FAILURES, why="no")


def next_states(state: FlowState, *steps: Observed, most: int = 1000, now: int = SECOND) -> list[FlowState]:
    """The states after each of these, half a second apart."""
    found = []
    for seen in steps:
        now += CHANGE_INTERVAL
        state = next_state(state, seen, most, now)
        found.append(state)
    return found


def test_it_doubles_until_the_first_trouble_then_goes_up_by_one_and_down_by_half() -> None:
    steps = next_states(FlowState(20), WELL, WELL, BUSY, WELL, WELL, BUSY)
    assert [state.most for state in steps] == [40, 80, 40, 41, 42, 21]


def test_what_several_see_at_once_counts_once() -> None:
    first = next_state(FlowState(80), BUSY, 1000, SECOND)
    assert first.most == 40
    assert next_state(first, BUSY, 1000, SECOND + CHANGE_INTERVAL - 1).most == 40
    assert next_state(first, BUSY, 1000, SECOND + CHANGE_INTERVAL).most == 20


def test_never_more_than_there_is_room_for_anywhere() -> None:
    small = next_state(FlowState(20), WELL, 30, SECOND)
    assert small.most == 30
    grown = next_states(small, *[WELL] * 20, most=500)
    assert {state.most for state in grown} == {30}
    assert next_state(grown[-1], WELL, 500, SECOND + flow.ROOM_TTL + SECOND).most > 30, "the small worker is gone"


def test_the_circuit_opens_after_failures_in_a_row_probes_and_closes() -> None:
    now = SECOND
    opened = next_state(FlowState(20), FAILED, 1000, now)
    assert (opened.allowed, opened.until, opened.opened, opened.why) == (0, now + FIRST_OPEN, 1, "no")
    assert next_state(opened, WELL, 1000, now + 1).allowed == 0, "what comes now was begun before"
    probing = next_state(opened, Observed(), 1000, now + FIRST_OPEN)
    assert (probing.allowed, probing.probing) == (1, True)
    again = next_state(probing, Observed(row=1), 1000, now + FIRST_OPEN + SECOND)
    assert (again.allowed, again.until - again.at) == (0, 2 * FIRST_OPEN)
    closed = next_state(next_state(again, Observed(), 1000, again.until), WELL, 1000, again.until + SECOND)
    assert (closed.allowed, closed.opened, closed.probing) == (5, 0, False)


def test_the_circuit_stays_open_for_longer_each_time_up_to_a_bound() -> None:
    state, now = next_state(FlowState(20), FAILED, 1000, SECOND), SECOND
    for _ in range(30):
        now = state.until
        state = next_state(state, Observed(row=1), 1000, now)
    assert state.until - now == MOST_OPEN


def test_failures_far_apart_and_between_successes_open_nothing() -> None:
    one = Observed(row=1)
    assert all(not state.until for state in next_states(FlowState(20), *[one, WELL] * 20))
    state, now = FlowState(20), SECOND
    for _ in range(20):
        now += 2 * MINUTE
        state = next_state(state, one, 1000, now)
        assert not state.until


def test_it_waits_for_as_long_as_it_is_asked_to() -> None:
    asked = next_state(FlowState(20), Observed(busy=1, pause=9 * SECOND), 1000, SECOND)
    assert (asked.allowed, asked.most, asked.until) == (0, 10, 9 * SECOND)
    assert next_state(asked, Observed(), 1000, 9 * SECOND).allowed == 10, "no circuit was opened"


@given(
    st.lists(
        st.tuples(
            st.builds(Observed, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 10**9)),
            st.integers(1, 2000),
            st.integers(0, 10**8),
        ),
        max_size=30,
    ),
)
def test_it_is_always_within_its_bounds_and_opens_again_some_time(steps: list[tuple[Observed, int, int]]) -> None:
    state, now = FlowState(INITIAL), 0
    for seen, most, passed in steps:
        now += passed
        state = next_state(state, seen, most, now)
        assert state.most >= 1
        assert not seen or state.most <= most
        assert 0 <= state.allowed <= state.most or state.probing
    assert next_state(state, Observed(), 1000, max(now, state.until)).allowed >= 1


def limit_of(delivery: DeliveryFixture, name: str) -> int | None:
    found = delivery.app.client.store.limits().get(f"task:{name}")
    return None if found is None else found[0].most


def test_an_endpoint_that_hangs_delays_nobody_else(any_delivery: DeliveryFixture) -> None:
    any_delivery.server.says("/hang", hang)
    any_delivery.configure(slow={"url": "/hang", "timeout": 60}, quick={"url": "/"})
    for _ in range(100):
        any_delivery.app.enqueue("slow", {})
    any_delivery.deliver(slots=20)
    until(lambda: any_delivery.server.paths().count("/hang") >= 10)
    began = time.monotonic()
    jobs = [any_delivery.app.enqueue("quick", {"n": n}) for n in range(100)]
    for job in jobs:
        assert finished(job) is JobState.DONE
    assert time.monotonic() - began < 40, "a request that hangs takes 60 s"
    assert any_delivery.server.paths().count("/hang") == 10, "half of the slots, since it is not alone"
    any_delivery.server.says("/hang", answer(200))
    any_delivery.server.hang_up()


def test_however_many_hang_a_healthy_one_is_served_in_time_from_the_start(delivery: DeliveryFixture) -> None:
    hanging: dict[str, Any] = {f"slow{n}": {"url": f"/hang{n}", "timeout": 10} for n in range(5)}
    for n in range(5):
        delivery.server.says(f"/hang{n}", hang)
    delivery.configure(**hanging, quick={"url": "/"})
    for name in hanging:
        for _ in range(100):
            delivery.app.enqueue(name, {})
    delivery.deliver(slots=50)
    took = []
    for _ in range(100):
        job = delivery.app.enqueue("quick", {})
        assert finished(job) is JobState.DONE
        took.append(delivery.job(job).state_since - delivery.job(job).due)
    assert sorted(took)[98] < 5 * SECOND, (sorted(took)[-5:], "a request that hangs takes 10 s")
    until(lambda: sum(limit_of(delivery, name) or 0 for name in hanging) <= 25 + 5)
    delivery.server.hang_up()


def test_one_that_is_alone_gets_all_slots(delivery: DeliveryFixture) -> None:
    gate = threading.Event()

    async def script(line: Connection) -> None:
        while not gate.is_set():
            await asyncio.sleep(0.01)
        await answer(200)(line)

    delivery.server.says("/", script)
    delivery.configure(hook={})
    jobs = [delivery.app.enqueue("hook", {}) for _ in range(30)]
    delivery.deliver(slots=15)
    until(lambda: len(delivery.server.seen) == 15)
    gate.set()
    assert {finished(job) for job in jobs} == {JobState.DONE}


def test_never_more_at_once_than_it_says(any_delivery: DeliveryFixture) -> None:
    any_delivery.configure(hook={"concurrency": 3})
    now = most = 0

    async def script(line: Connection) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1
        await answer(200)(line)

    any_delivery.server.says("/", script)
    jobs = [any_delivery.app.enqueue("hook", {}) for _ in range(60)]
    any_delivery.deliver()
    any_delivery.deliver()
    assert {finished(job) for job in jobs} == {JobState.DONE}
    assert most == 3


def test_the_circuit_opens_holds_the_others_uncounted_and_closes(
    any_delivery: DeliveryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "FIRST_OPEN", SECOND // 2)
    any_delivery.configure(hook={"schedule": [0.001] * 30})
    any_delivery.server.says("/", end_before_answer)
    jobs = [any_delivery.app.enqueue("hook", {"n": n}) for n in range(100)]
    any_delivery.deliver()
    until(lambda: limit_of(any_delivery, "hook") == 0)
    until(lambda: any_delivery.app.client.store.limits()["task:hook"][1].running == 0)
    untouched = [job for job in jobs if any_delivery.job(job).failures == 0]
    assert untouched
    assert {job.state for job in untouched} == {JobState.READY}
    any_delivery.server.says("/", answer(200))
    assert {finished(job) for job in jobs} == {JobState.DONE}
    until(lambda: not endpoint_cells.read_flows(any_delivery.app.client.store)["hook"][0].opened)


def test_an_open_circuit_survives_a_restart_and_a_pause_is_kept(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={})
    delivery.server.says("/", answer(503, headers=[("Retry-After", "3000")]))
    first = delivery.app.enqueue("hook", {})
    worker = delivery.deliver()
    until(lambda: first.record().failures == 1)
    until(lambda: limit_of(delivery, "hook") == 0)
    worker.end()
    delivery.coordinators[0].close()
    held = delivery.app.enqueue("hook", {})
    delivery.deliver()
    other = delivery.app.task(name="other")(lambda: 1).enqueue()
    assert finished(other) is JobState.DONE
    assert held.state is JobState.READY
    assert len(delivery.server.seen) == 1
    (state, _) = endpoint_cells.read_flows(delivery.app.client.store)["hook"]
    assert state.why == "answered 503 Service Unavailable"


def test_busy_answers_halve_what_it_gets(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"schedule": ["1h"]})
    delivery.server.says("/", answer(429))
    for _ in range(20):
        delivery.app.enqueue("hook", {})
    delivery.deliver(slots=100)
    until(lambda: limit_of(delivery, "hook") == INITIAL // 2)


def test_a_rule_that_is_not_content_yet_is_no_trouble(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"retry_when": "res.status != 2", "schedule": ["1h"]})
    delivery.server.says("/", answer(200, b'{"status":1}'))
    jobs: list[Any] = [delivery.app.enqueue("hook", {}) for _ in range(3 * FAILURES)]
    delivery.deliver()
    until(lambda: all(job.record().failures for job in jobs))
    until(lambda: "hook" in endpoint_cells.read_flows(delivery.app.client.store))
    assert not endpoint_cells.read_flows(delivery.app.client.store)["hook"][0].until


def test_two_workers_agree(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"schedule": [0.001] * 3})
    delivery.server.says("/", answer(503))
    for _ in range(50):
        delivery.app.enqueue("hook", {})
    delivery.deliver()
    delivery.deliver(slots=50)
    until(lambda: "hook" in endpoint_cells.read_flows(delivery.app.client.store))
    until(lambda: endpoint_cells.read_flows(delivery.app.client.store)["hook"][0].opened)
    store = delivery.app.client.store
    until(lambda: limit_of(delivery, "hook") == endpoint_cells.read_flows(store)["hook"][0].allowed)

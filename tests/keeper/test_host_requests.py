"""Requests to a master in the store: bounded, taken once, expired, shown; whatever else stands in their cells."""

from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.client.clock import FakeClock
from tarry.errors import StoreUnavailable, TooManyRequests
from tarry.keeper.host_requests import (
    ENDED,
    ENDED_WITHIN,
    KEPT,
    MAX_TEXT,
    MOST_ENDED,
    MOST_OPEN,
    OPEN,
    TAKEN_WITHIN,
    HostAct,
    HostRequest,
    HostRequests,
    RequestState,
    sweep,
)
from tarry.model.duration import SECOND
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.hosts import Host
from tests.store.switched import Switched

HOST = Host("web-1|1.1:7:9:0", "web-1")


@pytest.fixture
def store(clock: FakeClock) -> MemoryStore:
    return MemoryStore(clock.now)


@pytest.fixture
def requests(store: MemoryStore) -> HostRequests:
    return HostRequests(store, HOST.instance)


def request(number: int, at: int) -> HostRequest:
    return HostRequest(f"r{number}", HostAct.SCALE, at, pool="mail", workers=number)


def states(requests: HostRequests, clock: FakeClock) -> dict[str, str]:
    return {one.id: one.state.value for one in requests.known(clock.now())}


def test_a_request_is_taken_once_and_its_outcome_is_kept(requests: HostRequests, clock: FakeClock) -> None:
    requests.put(request(1, clock.now()))
    assert states(requests, clock) == {"r1": "waiting"}
    (taken,) = requests.take(clock.now(), 4)
    assert (taken.state, taken.mark) == (RequestState.TAKEN, 4)
    assert requests.take(clock.now(), 5) == []
    requests.end(taken, RequestState.DONE, "mail: 1 wanted", clock.now())
    (found,) = requests.known(clock.now())
    assert (found.state, found.text, found.ended) == (RequestState.DONE, "mail: 1 wanted", clock.now())
    assert requests.under_way() == []


def test_a_master_gets_only_its_own(store: MemoryStore, requests: HostRequests, clock: FakeClock) -> None:
    other = HostRequests(store, "web-0|1.1:7:9:0")
    other.put(request(1, clock.now()))
    requests.put(request(2, clock.now()))
    assert [one.id for one in requests.take(clock.now(), 0)] == ["r2"]
    assert [one.id for one in requests.known(clock.now())] == ["r2"]
    assert states(other, clock) == {"r1": "waiting"}


def test_of_many_that_take_at_once_one_gets_it(requests: HostRequests, clock: FakeClock) -> None:
    requests.put(request(1, clock.now()))
    with ThreadPoolExecutor(8) as threads:
        taken = list(threads.map(lambda _: requests.take(clock.now(), 0), range(16)))
    assert sum(map(len, taken)) == 1


@pytest.mark.parametrize("age", [TAKEN_WITHIN, -TAKEN_WITHIN, KEPT])
def test_one_that_is_too_old_or_from_the_future_is_not_taken(
    requests: HostRequests, clock: FakeClock, age: int
) -> None:
    requests.put(request(1, clock.now() - age))
    assert requests.take(clock.now(), 0) == []
    assert states(requests, clock) == {"r1": "expired"}


def test_one_that_was_taken_and_never_answered_is_shown_as_lost(requests: HostRequests, clock: FakeClock) -> None:
    requests.put(request(1, clock.now()))
    requests.take(clock.now(), 0)
    clock.advance(ENDED_WITHIN / SECOND)
    assert states(requests, clock) == {"r1": "lost"}


def test_so_many_wait_and_no_more_and_those_that_are_over_make_room(requests: HostRequests, clock: FakeClock) -> None:
    for number in range(MOST_OPEN):
        requests.put(request(number, clock.now()))
    with pytest.raises(TooManyRequests):
        requests.put(request(99, clock.now()))
    clock.advance(TAKEN_WITHIN / SECOND)
    requests.put(request(99, clock.now()))
    assert [one.id for one in requests.take(clock.now(), 0)] == ["r99"]
    assert list(states(requests, clock).values()).count("expired") == MOST_OPEN


def test_outcomes_are_bounded_in_number_and_size(store: MemoryStore, requests: HostRequests, clock: FakeClock) -> None:
    for number in range(MOST_ENDED + 5):
        requests.put(request(number, clock.now()))
        (taken,) = requests.take(clock.now(), 0)
        requests.end(taken, RequestState.FAILED, "x" * MAX_TEXT + "the end", clock.now())
    found = requests.known(clock.now())
    assert len(found) == MOST_ENDED
    assert {(len(one.text), one.text[-7:]) for one in found} == {(MAX_TEXT, "the end")}
    assert len(store.kv_get(ENDED + HOST.instance) or b"") < MOST_ENDED * (MAX_TEXT + 500)


def test_old_ones_and_those_of_masters_that_are_gone_are_swept(
    store: MemoryStore, requests: HostRequests, clock: FakeClock
) -> None:
    requests.put(request(1, clock.now()))
    HostRequests(store, "gone").put(request(2, clock.now()))
    sweep(store, [HOST], clock.now())
    assert list(store.kv_list(OPEN)) == [OPEN + HOST.instance]
    clock.advance(KEPT / SECOND)
    sweep(store, [HOST], clock.now())
    assert store.kv_list(OPEN) == {}


GARBAGE = [
    b"", b"null", b"{}", b"[", b"[" * 10_000, b"\xff", b'[1, null, {}, {"id": 5}]', b"[]" + b" " * 2**20,
    b'[{"id": "a", "act": "dance", "at": 1}]', b'[{"id": "a", "act": "stop", "at": -1}]',
    b'[{"id": "a", "act": "kill", "at": 1, "job": "no id"}]', b'[{"id": "a", "act": "stop", "at": 1e400}]',
]  # fmt: skip


@pytest.mark.parametrize("cell", GARBAGE)
def test_garbage_is_no_request_and_is_no_hindrance(
    store: MemoryStore, requests: HostRequests, clock: FakeClock, cell: bytes
) -> None:
    for prefix in (OPEN, ENDED):
        store.kv_cas(prefix + HOST.instance, cell, None)
    assert requests.take(clock.now(), 0) == []
    requests.put(request(1, clock.now()))
    (taken,) = requests.take(clock.now(), 0)
    requests.end(taken, RequestState.DONE, "well", clock.now())
    assert states(requests, clock) == {"r1": "done"}


@pytest.mark.parametrize("job", ["", "no id"])
def test_what_kills_no_job_is_no_request(requests: HostRequests, clock: FakeClock, job: str) -> None:
    requests.put(HostRequest("a", HostAct.KILL, clock.now(), owner="me", job=job))
    assert requests.take(clock.now(), 0) == []


@given(st.binary(max_size=200))
def test_no_bytes_break_it(cell: bytes) -> None:
    store = MemoryStore(lambda: 10**15)
    store.kv_cas(OPEN + HOST.instance, cell, None)
    assert all(isinstance(one, HostRequest) for one in HostRequests(store, HOST.instance).known(10**15))
    sweep(store, [], 10**15)
    assert store.kv_list(OPEN) == {}


def test_a_taken_one_is_not_done_twice_when_the_store_goes_away_meanwhile(clock: FakeClock) -> None:
    """Its answer is lost: it is taken, and whoever asked sees that nothing followed."""
    store = Switched(MemoryStore(clock.now))
    requests = HostRequests(store, HOST.instance)
    requests.put(request(1, clock.now()))
    (taken,) = requests.take(clock.now(), 0)
    store.down()
    with pytest.raises(StoreUnavailable):
        requests.end(taken, RequestState.DONE, "well", clock.now())
    store.up()
    assert requests.take(clock.now(), 0) == []
    assert states(requests, clock) == {"r1": "taken"}


def test_a_request_is_small(clock: FakeClock) -> None:
    """A keeper reads this cell each second."""
    assert len(msgspec.json.encode(request(1, clock.now()))) < 400

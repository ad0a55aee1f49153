"""One caller does not take all that there is of operations, requests to hosts and streams of events."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from tarry.client.operations import operation_cells
from tarry.client.operations.operation import JobFilter, Operation
from tarry.errors import Busy, TooManyOperations, TooManyRequests
from tarry.keeper import host_requests
from tarry.keeper.host_requests import HostAct, HostRequests, new_request
from tarry.server.event_streams import MOST_OF_CALLER, MOST_STREAMS, EventStreams
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Store

NOW = 1_800_000_000_000_000


@pytest.fixture
def store() -> Iterator[Store]:
    store = MemoryStore()
    yield store
    store.close()


def test_operations(store: Store) -> None:
    wanted = Operation("", "delete", JobFilter(queue="mail"), caller="bob")
    for _ in range(operation_cells.MOST_OF_CALLER):
        last = operation_cells.add(store, wanted, NOW)
    with pytest.raises(TooManyOperations, match=r"^10 operations of bob are under way: wait"):
        operation_cells.add(store, wanted, NOW)
    operation_cells.add(store, replace(wanted, caller="ann"), NOW)
    operation_cells.stop(store, last.id, NOW)
    operation_cells.add(store, wanted, NOW)


def test_operations_of_callers_without_names(store: Store) -> None:
    wanted = Operation("", "delete", JobFilter(queue="mail"))
    for _ in range(operation_cells.MOST_OPEN):
        operation_cells.add(store, wanted, NOW)
    with pytest.raises(TooManyOperations, match=r"^20 operations are under way"):
        operation_cells.add(store, wanted, NOW)


def test_requests_to_a_host(store: Store) -> None:
    requests = HostRequests(store, "host")
    for _ in range(host_requests.MOST_OF_CALLER):
        requests.put(new_request(HostAct.STACK, "bob", NOW))
    with pytest.raises(
        TooManyRequests, match=r"^4 requests of bob to this host are under way: wait for their outcome$"
    ):
        requests.put(new_request(HostAct.STACK, "bob", NOW))
    with pytest.raises(TooManyRequests):
        requests.cancel_first(pytest.fail, NOW, "bob")
    requests.put(new_request(HostAct.STACK, "ann", NOW))
    for _ in range(host_requests.MOST_OPEN - host_requests.MOST_OF_CALLER - 1):
        requests.put(new_request(HostAct.STACK, "", NOW))
    with pytest.raises(TooManyRequests, match=r"^8 requests to this host"):
        requests.put(new_request(HostAct.STACK, "", NOW))


def test_streams() -> None:
    streams = EventStreams(lambda: False)
    with ExitStack() as stack:
        for _ in range(MOST_OF_CALLER):
            stack.enter_context(streams.counted("bob"))
        with pytest.raises(Busy, match=r"^bob has 50 streams of events open here already: end one$"):
            streams.check_room("bob")
        streams.check_room("ann")
        for _ in range(MOST_STREAMS - MOST_OF_CALLER):
            stack.enter_context(streams.counted(""))
        with pytest.raises(Busy, match=r"^100 streams of events are open here already"):
            streams.check_room("ann")
        assert (streams.open, streams.refused) == (MOST_STREAMS, 2)
    assert (streams.open, dict(streams.open_of)) == (0, {})

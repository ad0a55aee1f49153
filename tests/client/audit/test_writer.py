"""Acts reach the log of acts in the background: nobody waits for it, and an outage loses none that can be kept."""

import logging
import time
from collections.abc import Iterator

import msgspec
import pytest

from tarry.client.audit.log import Act, ActFilter, ActLog
from tarry.client.audit.writer import MOST_REFUSED, MOST_WAITING, ActWriter
from tarry.client.clock import Clock
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Store
from tests.store.switched import Switched, until

NOW = 1_800_000_000_000_000
LIMIT = 10.0


class StoreClient:
    """A client of a store whose clock stands still."""

    def __init__(self, store: Switched) -> None:
        self.store, self.clock = store, Clock(lambda: NOW)


def act(number: int, outcome: str = "done") -> Act:
    return Act(NOW + number, "ann", "cancel_job", outcome, subject=str(number))


def subjects(store: Store) -> list[str]:
    return [one.subject for one in ActLog(store).read(ActFilter(), 2000, "", NOW).acts]


@pytest.fixture
def store() -> Switched:
    return Switched(MemoryStore())


@pytest.fixture
def writer(store: Switched) -> Iterator[ActWriter]:
    writer = ActWriter(lambda: StoreClient(store))
    yield writer
    store.up()
    writer.close()


def test_acts_are_written_in_their_order(store: Switched, writer: ActWriter) -> None:
    for number in range(300):
        writer.record(act(number))
    assert writer.flush(LIMIT)
    assert subjects(store) == [str(number) for number in reversed(range(300))]


def test_an_outage_delays_them(store: Switched, writer: ActWriter, caplog: pytest.LogCaptureFixture) -> None:
    store.down()
    began = time.monotonic()
    with caplog.at_level(logging.WARNING, "tarry.audit"):
        for number in range(5):
            writer.record(act(number))
        assert time.monotonic() - began < 1
        assert not writer.flush(0.3)
        store.up()
        assert writer.flush(LIMIT)
    assert subjects(store) == ["4", "3", "2", "1", "0"]
    assert sum("come to the log of acts later" in line for line in caplog.messages) == 1


def test_what_waits_is_bounded_and_what_is_lost_is_told(store: Switched, caplog: pytest.LogCaptureFixture) -> None:
    writer = ActWriter(lambda: StoreClient(store))
    store.down()
    for number in range(MOST_WAITING + 10):
        writer.record(act(number))
    with caplog.at_level(logging.WARNING, "tarry.audit"):
        writer.close()
    assert any(line.startswith(f"{MOST_WAITING + 10} acts are not in the log") for line in caplog.messages)
    writer.record(act(0))
    writer.close()


def test_who_is_refused_all_the_time_drives_nothing_out(store: Switched, writer: ActWriter) -> None:
    for number in range(MOST_REFUSED * 3):
        writer.record(act(number, "NotAllowed: no"))
    writer.record(act(-1))
    assert writer.flush(LIMIT)
    # A minute may have ended meanwhile.
    assert MOST_REFUSED < len(subjects(store)) <= 2 * MOST_REFUSED + 1
    assert "-1" in subjects(store)
    assert writer.refused >= MOST_REFUSED


def test_who_is_refused_all_the_time_leaves_room_for_others(store: Switched, writer: ActWriter) -> None:
    for number in range(MOST_REFUSED * 2):
        writer.record(act(number, "NotAllowed: no"))
    writer.record(msgspec.structs.replace(act(-1, "NotAllowed: no"), who="bob"))
    assert writer.flush(LIMIT)
    assert "-1" in subjects(store)


def test_who_acts_all_the_time_leaves_room_for_others_while_the_store_is_away(
    store: Switched, writer: ActWriter
) -> None:
    store.down()
    writer.record(msgspec.structs.replace(act(-1), who="bob"))
    for number in range(MOST_WAITING + 5):
        writer.record(act(number))
    store.up()
    assert writer.flush(LIMIT)
    assert "-1" in subjects(store)


def test_a_fault_of_its_own_ends_nothing(store: Switched, caplog: pytest.LogCaptureFixture) -> None:
    broken = [True]

    def open_client() -> StoreClient:
        if broken[0]:
            raise RuntimeError("a bug")
        return StoreClient(store)

    writer = ActWriter(open_client)
    writer.record(act(0))
    assert not writer.flush(0.2)
    broken[0] = False
    assert writer.flush(LIMIT)
    writer.close()
    assert subjects(store) == ["0"]


def test_what_was_written_and_not_confirmed_is_there_once(store: Switched, writer: ActWriter) -> None:
    """More than a page, with the answer to each write lost for a while."""
    store.down(after=True, only="kv_cas")
    for number in range(250):
        writer.record(act(number))
    until(lambda: subjects(store.inner))
    store.up()
    assert writer.flush(LIMIT)
    assert subjects(store) == [str(number) for number in reversed(range(250))]

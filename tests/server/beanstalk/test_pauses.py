"""Pauses of tubes: they end by themselves, whoever asked for them."""

import pytest

from tarry.model.duration import SECOND
from tarry.server.beanstalk.pauses import CELLS, TubePauses
from tarry.store.memory.store import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_a_pause_ends_at_its_time(store: MemoryStore) -> None:
    pauses = TubePauses(store)
    pauses.pause("mail", 5, 0)
    pauses.resume_due(5 * SECOND - 1)
    assert store.queues()["mail"] is True
    pauses.resume_due(5 * SECOND)
    assert store.queues().get("mail", False) is False
    assert store.kv_list(CELLS) == {}


def test_a_pause_that_comes_while_the_last_one_ends_holds(store: MemoryStore) -> None:
    class Slow(TubePauses):
        def _resume(self, tube: str, value: bytes, now: int) -> None:
            TubePauses(store).pause("mail", 60, now)
            super()._resume(tube, value, now)

    TubePauses(store).pause("mail", 5, 0)
    Slow(store).resume_due(6 * SECOND)
    assert store.queues()["mail"] is True
    found = TubePauses(store).get("mail", 6 * SECOND)
    assert found is not None
    assert found.until == 66 * SECOND


def test_a_cell_that_nobody_can_read_keeps_no_tube_paused(store: MemoryStore) -> None:
    store.kv_cas(CELLS + "mail", b"[]", None)
    store.pause("mail", True)
    TubePauses(store).pause("other", 1, 0)
    TubePauses(store).resume_due(2 * SECOND)
    assert store.kv_list(CELLS) == {}
    assert not any(store.queues().values())

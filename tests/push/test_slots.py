"""How a worker's slots are shared out: the rule alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.push.delivery.delivery_slots import LATER, SLOW, SOON, SlotLease, Slots, SlotsFull


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def acquire_all(slots: Slots, name: str, most: int = 1000) -> list[SlotLease]:
    """Acquires slots until it is refused."""
    leases: list[SlotLease] = []
    while len(leases) < most:
        try:
            leases.append(slots.acquire(name))
        except SlotsFull:
            break
    return leases


def make_quick(slots: Slots, *names: str) -> None:
    for name in names:
        slots.release(slots.acquire(name))


def test_those_that_have_not_answered_share_half_and_have_one_each_beyond() -> None:
    slots = Slots(100)
    assert len(acquire_all(slots, "a", 30)) == 30
    assert len(acquire_all(slots, "b")) == 20
    assert [len(acquire_all(slots, name)) for name in "cdef"] == [1, 1, 1, 1]


def test_who_answers_quickly_gets_what_is_left_however_many_hang() -> None:
    clock = Clock()
    slots = Slots(100, clock)
    make_quick(slots, "quick")
    for n in range(1000):
        acquire_all(slots, f"hangs {n}")
    assert len(acquire_all(slots, "quick")) == 6, "half of the last eighth"
    assert len(acquire_all(slots, "new")) == 0


def test_those_that_were_quick_and_hang_together_leave_some() -> None:
    slots = Slots(100)
    make_quick(slots, *"abcde")
    assert sum(len(acquire_all(slots, name, 50)) for name in "abcd") < 100
    assert acquire_all(slots, "e", 1)


def test_one_that_begins_to_hang_is_slow_from_then_on() -> None:
    clock = Clock()
    slots = Slots(100, clock)
    make_quick(slots, "a", "b")
    hanging = acquire_all(slots, "a", 60)
    clock.now += 2 * SLOW
    with pytest.raises(SlotsFull) as full:
        slots.acquire("a")
    assert full.value.delay == LATER * 1_000_000
    assert slots.pop_crowded(["a", "b"]) == {"a": 60}
    assert slots.pop_crowded(["a", "b"]) == {}, "since it was asked last"
    assert len(acquire_all(slots, "b", 20)) == 20
    for lease in hanging:
        slots.release(lease)
    make_quick(slots, "a")
    assert len(acquire_all(slots, "a", 60)) == 60, "it answers again"


def test_who_is_only_new_comes_back_soon_and_is_not_said_to_be_slow() -> None:
    slots = Slots(20)
    acquire_all(slots, "hangs")
    assert len(acquire_all(slots, "new")) == 1
    with pytest.raises(SlotsFull) as full:
        slots.acquire("new")
    assert full.value.delay == SOON * 1_000_000
    assert slots.pop_crowded(["hangs", "new"]) == {}


def test_one_that_is_alone_is_bound_by_nothing() -> None:
    slots = Slots(2)
    slots.alone = True
    assert len(acquire_all(slots, "a", 10)) == 10


@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_slots_serve_as_well(count: int) -> None:
    slots = Slots(count)
    for name in "abc" * 3:
        slots.release(slots.acquire(name))


@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.floats(0, 3)), max_size=80),
)
def test_what_is_counted_is_what_is_under_way(count: int, steps: list[tuple[str, bool, float]]) -> None:
    clock = Clock()
    slots = Slots(count, clock)
    there: dict[str, list[SlotLease]] = {name: [] for name in "abcd"}
    for name, comes, passed in steps:
        clock.now += passed
        if comes:
            there[name] += acquire_all(slots, name, 1)
        elif there[name]:
            slots.release(there[name].pop())
        assert sum(map(len, there.values())) <= count
    for lease in [lease for leases in there.values() for lease in leases]:
        slots.release(lease)
    make_quick(slots, *"abcd")
    assert sum(len(acquire_all(slots, name)) for name in "abcd") == count

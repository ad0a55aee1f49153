"""The checker itself, on models whose answers are known."""

from collections.abc import Iterator

from tests.exhaustive.explorer import TRAP, Step, explore


class Counter:
    """Counts up to `most` by one or two; `bad` is wrong, and from `trap` on no step leads to an end."""

    name = "counter"

    def __init__(self, most: int, bad: int = -1, trap: int = -1, bad_step: int = -1) -> None:
        self.most, self.bad, self.trap, self.bad_step = most, bad, trap, bad_step

    def starts(self) -> Iterator[int]:
        yield 0

    def steps(self, state: int) -> Iterator[Step[int]]:
        for more in (1, 2):
            if state + more <= self.most and state != self.trap:
                yield Step(f"+{more}", state + more, "bad step" if state == self.bad_step else "")
        yield Step("back by accident", 0, helps=False)

    def fault(self, state: int) -> str:
        return "bad" if state == self.bad else ""

    def is_end(self, state: int) -> bool:
        return state == self.most


def test_all_states_are_found() -> None:
    explored = explore(Counter(10))
    assert (explored.states, explored.steps, explored.depth, explored.is_whole) == (11, 30, 5, True)
    assert explored.violation is None


def test_the_shortest_way_to_a_bad_state_is_told() -> None:
    violation = explore(Counter(10, bad=5)).violation
    assert violation is not None
    assert (violation.what, len(violation.way)) == ("bad", 3)
    assert str(violation).startswith("bad, after 3 steps:\n  1. +")


def test_a_bad_step_is_told() -> None:
    violation = explore(Counter(10, bad_step=4)).violation
    assert violation is not None
    assert (violation.what, len(violation.way)) == ("bad step", 3)


def test_a_state_without_a_way_to_an_end_is_a_trap() -> None:
    # From 7 an accident leads back to 0, and so to an end: that does not count.
    violation = explore(Counter(10, trap=7)).violation
    assert violation is not None
    assert (violation.what, len(violation.way)) == (TRAP, 4)


def test_what_is_not_explored_is_no_trap() -> None:
    explored = explore(Counter(10), depth=3)
    assert (explored.depth, explored.is_whole, explored.violation) == (3, False, None)
    assert explore(Counter(10), most=4).violation is None

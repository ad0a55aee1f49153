"""An explicit-state checker: walks breadth first through all states that a model can reach.

The steps of a model run the functions that are checked. A violation comes with the shortest way to it. A model says
which of its states are good ends; a state from which none of these can be reached any more is a violation, too.
"""

import time
from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

S = TypeVar("S", bound=Hashable)

TRAP = "no end can be reached from here"


class Step(Struct, Generic[S], frozen=True):
    """One thing that may happen in a state."""

    label: str
    after: S
    fault: str = ""
    """What the step itself violates; empty: nothing."""
    helps: bool = True
    """Whether it counts as a way to an end. What only people or accidents do does not: an end must not need them."""


class Model(Protocol[S]):
    """What is explored. Two states that are equal must have the same future."""

    name: str

    def starts(self) -> Iterable[S]:
        """The states to begin with."""

    def steps(self, state: S) -> Iterator[Step[S]]:
        """All that may happen next."""

    def fault(self, state: S) -> str:
        """What is wrong with a state; empty: nothing."""

    def is_end(self, state: S) -> bool:
        """Whether all is over."""


class Violation(Struct, frozen=True):
    """What is violated, and the shortest way there: the labels of the steps."""

    what: str
    way: tuple[str, ...]

    def __str__(self) -> str:
        steps = "".join(f"\n  {number}. {label}" for number, label in enumerate(self.way, 1))
        return f"{self.what}, after {len(self.way)} steps:{steps}"


class Explored(Struct, frozen=True):
    """How far it came. depth: of the deepest state; is_whole: no state was left out. seconds: of the processor."""

    name: str
    states: int
    steps: int
    depth: int
    is_whole: bool
    seconds: float
    violation: Violation | None = None

    def __str__(self) -> str:
        whole = "all" if self.is_whole else ""
        return f"{self.name:<38} {self.states:>9,} {self.steps:>10,} {self.depth:>5} {whole:<4} {self.seconds:>7.1f}"


def explore(model: Model[S], depth: int | None = None, most: int | None = None) -> Explored:
    """All states that are reached in up to `depth` steps, at most about `most` of them; None: all there are. Stops at
    the first violation."""
    return _Exploration(model, depth, most).run()


class _Exploration(Generic[S]):
    def __init__(self, model: Model[S], depth: int | None, most: int | None) -> None:
        self._model, self._depth, self._most = model, depth, most
        self._began = time.process_time()
        self._numbers: dict[S, int] = {}
        self._labels: list[str] = []
        self._parents, self._depths = array("q"), array("i")
        # An edge of the graph that leads towards ends, as two numbers.
        self._froms, self._tos = array("q"), array("q")
        self._ends = set[int]()
        self._steps = self._done = 0

    def run(self) -> Explored:
        violation = self._search()
        return self._explored(violation or self._trap())

    def _search(self) -> Violation | None:
        for state in self._model.starts():
            if found := self._enter(state, -1, "start"):
                return found
        # A dict keeps the order in which states came: that is breadth first. It grows while it is read.
        queue = list(self._numbers)
        for state in queue:
            if self._is_over(self._done):
                break
            if found := self._expand(state, self._done, queue):
                return found
            self._done += 1
        return None

    def _is_over(self, number: int) -> bool:
        is_deep = self._depth is not None and self._depths[number] >= self._depth
        return is_deep or (self._most is not None and len(self._numbers) >= self._most)

    def _expand(self, state: S, number: int, queue: list[S]) -> Violation | None:
        for step in self._model.steps(state):
            self._steps += 1
            if step.fault:
                return Violation(step.fault, (*self._way(number), step.label))
            known = len(self._numbers)
            if found := self._enter(step.after, number, step.label):
                return found
            if len(self._numbers) > known:
                queue.append(step.after)
            if step.helps:
                self._froms.append(number)
                self._tos.append(self._numbers[step.after])
        return None

    def _enter(self, state: S, parent: int, label: str) -> Violation | None:
        if state in self._numbers:
            return None
        number = self._numbers[state] = len(self._numbers)
        self._parents.append(parent)
        self._labels.append(label)
        self._depths.append(0 if parent < 0 else self._depths[parent] + 1)
        if self._model.is_end(state):
            self._ends.add(number)
        fault = self._model.fault(state)
        return Violation(fault, self._way(number)) if fault else None

    def _way(self, number: int) -> tuple[str, ...]:
        way = []
        while self._parents[number] >= 0:
            way.append(self._labels[number])
            number = self._parents[number]
        return tuple(reversed(way))

    def _trap(self) -> Violation | None:
        """The first state from which no end can be reached. Of a state that was not expanded nobody knows: it counts as
        an end."""
        before: dict[int, list[int]] = {}
        for source, target in zip(self._froms, self._tos, strict=True):
            before.setdefault(target, []).append(source)
        count = len(self._numbers)
        fine = bytearray(count)
        stack = [*self._ends, *range(self._done, count)]
        while stack:
            number = stack.pop()
            if not fine[number]:
                fine[number] = 1
                stack += before.get(number, ())
        trap = fine.find(0)
        return None if trap < 0 else Violation(TRAP, self._way(trap))

    def _explored(self, violation: Violation | None) -> Explored:
        seconds = time.process_time() - self._began
        is_whole = violation is None and self._done == len(self._numbers)
        depth = self._depths[-1] if self._depths else 0
        return Explored(self._model.name, len(self._numbers), self._steps, depth, is_whole, seconds, violation)


def first_fault(checks: Iterable[tuple[str, Callable[[], bool]]]) -> str:
    """The name of the first check that does not hold; empty: all do."""
    return next((name for name, holds in checks if not holds()), "")

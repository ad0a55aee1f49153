"""Stores the durable steps of running jobs. A step waits until it is stored: many that wait share one call."""

from collections import deque
from collections.abc import Callable, Iterator

from tarry.errors import PartlyUnavailable, StoreError
from tarry.model.flow.signal import Signal
from tarry.store.rules.base import Store
from tarry.tasks.progress import MAX_SAVE_BYTES, ProgressRow, make_rows
from tarry.tasks.running import Running
from tarry.tasks.shield import shielded

_WaitingStep = tuple[Running, Callable[[bool], object]]


class StepSaver:
    """Of one worker: the `StepPort` of its jobs. Jobs add in any thread, the pump saves.

    now: the store's time. wake: wakes the pump.
    """

    at_once = False
    """`add` saves by itself: nobody makes a step of the pump while a job runs."""
    just_saved = False
    """The last exchange has stored steps."""

    def __init__(self, store: Store, owner: str, now: Callable[[], int], wake: Callable[[], None]) -> None:
        self._store, self._owner, self._wake = store, owner, wake
        self.now = now
        self._waiting: deque[_WaitingStep] = deque()
        self._woken = False

    @property
    def pending(self) -> bool:
        """Whether `save` is to be called: steps wait, or one did when it woke the pump."""
        # Else the step that `save` took after it had woken the pump would leave `_woken` set, and nobody would wake the
        # pump for the next one.
        return self._woken or bool(self._waiting)

    def add(self, running: Running, done: Callable[[bool], object]) -> None:
        """See `StepPort.add`. With `at_once` it blocks, and a StoreError is raised."""
        self._waiting.append((running, done))
        if self.at_once:
            self.save()
        elif not self._woken:
            # One wake-up is enough until the pump saves. An interrupt between the two lines would lose it.
            with shielded:
                self._woken = True
                self._wake()

    def signals(self, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        """See `StepPort.signals`."""
        return self._store.flows.signals(job, name, key, after)

    def save(self) -> None:
        """Stores the steps that wait now. StoreError: those that are not stored wait on."""
        # Reset before the first is taken, so that a step from now on wakes the pump again.
        self._woken = False
        # Not those that come meanwhile: a task without pauses always has one more, and the pump has other work.
        left = len(self._waiting)
        while left > 0:
            taken: dict[Running, list[Callable[[bool], object]]] = {}
            rows = list(self._take(taken, left))
            left -= sum(map(len, taken.values()))
            self._save(rows, taken)

    def _take(self, taken: dict[Running, list[Callable[[bool], object]]], most: int) -> Iterator[ProgressRow]:
        """Takes steps for one call, at least one and at most `most`: their rows, and in `taken` whom to tell."""
        size = 0
        for _ in range(most):
            if size >= MAX_SAVE_BYTES:
                return
            # A task may have many steps side by side: one row has them all.
            running, done = self._waiting.popleft()
            if running in taken:
                taken[running].append(done)
                continue
            taken[running] = [done]
            (row,) = make_rows([running])
            size += len(row[2])
            yield row

    def _save(self, rows: list[ProgressRow], taken: dict[Running, list[Callable[[bool], object]]]) -> None:
        missing: set[int] = set()
        problem: StoreError | None = None
        try:
            answers = self._store.save_progress(self._owner, rows)
        except PartlyUnavailable as error:
            answers, missing, problem = error.answer, set(error.missing), error
        except StoreError as error:
            answers, missing, problem = [], set(range(len(rows))), error
        for at, (running, waiting) in enumerate(taken.items()):
            for done in waiting:
                if at in missing:
                    self._waiting.append((running, done))
                else:
                    done(answers[at])
        if problem is not None:
            raise problem

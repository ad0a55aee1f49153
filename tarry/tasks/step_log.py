"""What the steps of one job were, and what came of them: the part of its progress that a later attempt goes by.

How a durable task leaves its slot: an exception that the worker turns into the outcome Suspended.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct

from tarry.errors import StepLimit, StepsChanged
from tarry.model.checks.decoders import decode_json
from tarry.model.flow.signal import MOST_VALUE, Awaited
from tarry.model.outcome import Suspended
from tarry.model.quantity import quantity
from tarry.model.slept import SOON, Slept, kept_slept
from tarry.tasks.progress import kept_steps

if TYPE_CHECKING:
    from asyncio import Future
import os
import traceback


class Suspension(BaseException):
    """Raised in a task that sleeps or waits for a signal. Not an `Exception`, so that `except Exception` does not catch
    it. `finally` and `with` blocks of the task run."""

    def __init__(self, outcome: Suspended) -> None:
        super().__init__("the task sleeps or waits for a signal; it is called again then")
        self.outcome = outcome

    def caught_at(self) -> str:
        """Where the task caught it, as `file:line`; empty: not known, as where asyncio caught it."""
        # The first entry is the frame that caught it, at the line inside its `try`.
        places = traceback.extract_tb(self.__traceback__, limit=1)
        if not places or places[0].filename.startswith(os.path.dirname(__file__) + os.sep):
            return ""
        return f"{places[0].filename}:{places[0].lineno}"


def find_suspension(error: BaseException) -> Suspension | None:
    """The suspension that this error is. That of a TaskGroup counts if it holds nothing else."""
    if isinstance(error, Suspension):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    found, others = error.split(Suspension)
    return _first(found) if found is not None and others is None else None


def _first(group: BaseExceptionGroup[Suspension]) -> Suspension:
    """A suspension of the group, however deep it lies."""
    first = group.exceptions[0]
    return first if isinstance(first, Suspension) else _first(first)


MOST_STEPS = 1000
"""Steps of a job, skipped or not."""
MOST_BYTES = 256 * 1024
"""Bytes of all that is kept of a job's steps."""


class KeptStep(Struct, frozen=True, array_like=True):
    """One step in the job's progress. waits: it has begun and is not done: the job waits for a signal."""

    name: str
    value: Raw
    waits: bool = False


class StepLog:
    """The steps of one job, by position. One attempt uses it, in one thread; the pump may encode it meanwhile.

    task: its name, for errors. progress: the progress that came with the job. woken: when the job was claimed for this
    attempt, microseconds since the epoch.
    """

    def __init__(self, task: str, progress: bytes, woken: int = 0) -> None:
        self._task = task
        self._steps: list[KeptStep | None] = _decode(kept_steps(progress))
        # Encoded once: each save has them all.
        self._encoded = [b"null" if step is None else msgspec.json.encode(step) for step in self._steps]
        self._size = sum(map(len, self._encoded))
        self._next = 0
        before = kept_slept(progress)
        self._idle = before.idle + 1 if before.since and woken - before.since < SOON else 0
        """How often in a row it was called and came no further, as far as is known yet."""
        self.slept = Slept(before.total(woken))
        """How long the job has slept; it is stored with the next step."""
        self.suspension: Suspension | None = None
        """What ends this attempt without an end of the job; None: nothing did yet."""
        self.under_way: set[Future[None]] = set()
        """Of the steps that an event loop runs and that are not kept yet; each is done when its step is over."""

    def take(self, name: str) -> int:
        """The position of the step that the task calls now. StepsChanged if the kept one there has another name;
        StepLimit."""
        if self.suspension is not None:
            # The task caught it and goes on: whatever it does from here on would not be kept.
            raise self.suspension
        position = self._next
        if position >= MOST_STEPS:
            raise StepLimit(
                f"{self._task} has more than {MOST_STEPS:,} steps: make it a flow, or put many into one step"
            )
        kept = self.kept(position)
        if kept is not None and kept.name != name:
            raise StepsChanged(
                f"step {position + 1} of {self._task} was `{kept.name}` when it ran, and is `{name}` now: "
                "put new steps at the end, or give the task a new name"
            )
        self._next += 1
        return position

    def kept(self, position: int) -> KeptStep | None:
        """The step that is kept at this position; None: there is none."""
        return self._steps[position] if position < len(self._steps) else None

    def keep(self, position: int, step: KeptStep) -> None:
        """Puts a step into the log, to be saved next. StepLimit if it is too large; then the log stays as it was."""
        size = len(step.value)
        if size > MOST_VALUE:
            raise StepLimit(
                f"{self._task}: the value of step `{step.name}` has {size:,} bytes; {MOST_VALUE:,} can be kept: "
                "return a name of where it lies, or make the task a flow"
            )
        encoded = msgspec.json.encode(step)
        known, before = self.kept(position), self._encoded[position] if position < len(self._encoded) else b""
        if self._size + len(encoded) - len(before) > MOST_BYTES:
            raise StepLimit(f"{self._task}: its steps take more than {MOST_BYTES:,} bytes in all: make it a flow")
        # Steps side by side need not end in order, so there may be gaps.
        while len(self._steps) <= position:
            self._steps.append(None)
            self._encoded.append(b"null")
        self._size += len(encoded) - len(before)
        if known is None or known.waits > step.waits:
            self._idle = 0
        self._steps[position], self._encoded[position] = step, encoded

    def done(self, name: str) -> Sequence[Raw]:
        """The values of the steps of this name that are done."""
        return [step.value for step in self._steps if step is not None and step.name == name and not step.waits]

    def begin_sleep(self, now: int, until: int) -> None:
        """From now on the job sleeps, until that time at the latest; microseconds since the epoch."""
        self.slept = Slept(self.slept.before, now, until, self._idle)

    def suspend(self, until: int, awaits: Awaited | None = None) -> Suspension:
        """What the task raises to be called again at a time (microseconds since the epoch), or at a signal."""
        self.suspension = Suspension(Suspended(until, awaits, self.slept.idle))
        return self.suspension

    def left_over(self) -> str:
        """Which kept steps this attempt did not come to, in words; empty: it passed all."""
        names = [step.name for step in self._steps[self._next :] if step is not None]
        return f"{quantity(len(names), 'step')}, `{names[0]}` first" if names else ""

    def encode(self) -> bytes:
        """The steps as JSON, for the job's progress."""
        return b"[" + b",".join(self._encoded) + b"]"


def _decode(kept: bytes) -> list[Any]:
    return decode_json(kept, list[KeptStep | None]) if kept else []

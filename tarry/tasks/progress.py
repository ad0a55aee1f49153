"""What a running job reports: its progress, what it prints and logs, its steps; and how that gets to the store."""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, SupportsFloat

import msgspec
from msgspec import Raw, Struct

from tarry.model.checks.decoders import decode_json
from tarry.model.checks.texts import cut
from tarry.model.checks.unreadable import SEALED_PROGRESS, UNREADABLE, explain, token_of
from tarry.model.flow.signal import Signal
from tarry.model.job import Job
from tarry.model.slept import Slept, kept_slept
from tarry.tasks.output import Output, Tail
from tarry.tasks.shield import shielded

# A task may report thousands of times a second; the store must not notice.
SAVE_INTERVAL = 0.1
"""Seconds between two writes of progress, however often it is reported."""
MAX_SAVE_BYTES = 1_000_000
"""Bytes of output in one write; the rest waits for the next one."""
MAX_MESSAGE = 200
# Sums of floats may end a little above 1. That is no mistake of the task.
_ROUNDING = 1e-9

_NO_STEPS = Raw(b"null")

ProgressRow = tuple[bytes, int, bytes]


class Progress(Struct, frozen=True):
    """The progress of a job: a fraction from 0 to 1, and a message."""

    fraction: float
    message: str = ""


class StepRecord(Protocol):
    """The durable steps of a running job."""

    slept: Slept
    """How long the job has slept in them."""

    def encode(self) -> bytes:
        """The steps as JSON."""


class Reporter(Protocol):
    """The part of a running job that has its progress, output and steps."""

    job: Job
    progress: Progress | None
    tail: Tail | None

    @property
    def steps(self) -> StepRecord | None:
        """None: this attempt has come to no step."""


class StepPort(Protocol):
    """What durable steps need of the worker. Its methods may be called in any thread."""

    def add(self, running: Any, done: Callable[[bool], object]) -> None:
        """Has the steps of a job stored soon, together with others, also after the store was away. Calls `done`, in any
        thread: whether the job was ours still. Does not block."""

    def signals(self, job: bytes, name: str, key: str, after: int) -> list[Signal]:
        """As `StoreFlows.signals`. Blocks."""

    def now(self) -> int:
        """The store's time."""


class _Report(Struct, array_like=True):
    """Progress, output and durable steps as the store keeps them."""

    fraction: float | None
    message: str
    attempt: int = 0
    left_out: int = 0
    text: str | None = None
    steps: Raw = _NO_STEPS
    slept: Slept = Slept()


def make_progress(fraction: SupportsFloat, message: str) -> Progress:
    """A Progress from what a task reports; ValueError if the fraction is not from 0 to 1. A long message is cut."""
    # nan fails the check below, so one error serves all wrong values.
    part = float(fraction) if isinstance(fraction, SupportsFloat) else math.nan
    if not -_ROUNDING <= part <= 1 + _ROUNDING:
        raise ValueError(f"progress({fraction!r}): a fraction from 0 to 1 is needed, such as done / total")
    return Progress(min(max(part, 0.0), 1.0), cut(str(message), MAX_MESSAGE))


def encode_report(running: Reporter) -> bytes:
    """Progress, output and steps as JSON for the store. Of earlier attempts the output is not kept."""
    progress, tail, job = running.progress or decode_progress(running.job.progress), running.tail, running.job
    fraction, message = (progress.fraction, progress.message) if progress else (None, "")
    message = cut(message, MAX_MESSAGE)
    if running.steps is None:
        steps, slept = kept_steps(job.progress), kept_slept(job.progress)
    else:
        steps, slept = running.steps.encode(), running.steps.slept
    if tail is None and not steps:
        return msgspec.json.encode((fraction, message))
    output = None if tail is None else tail.snapshot(job.attempt)
    said = (0, 0, None) if output is None else (output.attempt, output.left_out, output.text)
    kept = ((Raw(steps),) if slept == Slept() else (Raw(steps), slept)) if steps else ()
    return msgspec.json.encode((fraction, message, *said, *kept))


def decode_progress(kept: bytes) -> Progress | None:
    """The progress in what the store keeps; None if there is none, or if it cannot be read."""
    if kept.startswith(SEALED_PROGRESS):
        return Progress(0.0, explain(token_of(kept)))
    found = _read(kept)
    return None if found is None or found.fraction is None else Progress(found.fraction, found.message)


def decode_output(kept: bytes) -> Output | None:
    """The output in what the store keeps; None if there is none, or if it cannot be read."""
    found = _read(kept)
    return None if found is None or found.text is None else Output(found.text, found.attempt, found.left_out)


def kept_steps(kept: bytes) -> bytes:
    """The steps in what the store keeps, as JSON; empty: there are none."""
    found = _read(kept)
    return b"" if found is None or found.steps == _NO_STEPS else bytes(found.steps)


def _read(kept: bytes) -> _Report | None:
    try:
        return decode_json(kept, _Report) if kept else None
    except UNREADABLE:
        return None


class ProgressBuffer:
    """The running jobs with progress or output that is not stored yet. Jobs report in any thread; the pump stores it.

    keep_output: bytes of output to keep for each job; 0: none.
    """

    steps: StepPort | None = None
    """Keeps the durable steps of the jobs; None: they can have none."""

    def __init__(self, wake: Callable[[], None], keep_output: int = 0) -> None:
        self.pending: dict[Reporter, None] = {}
        self.keep_output = keep_output
        self._wake = wake
        self._woken = False
        self._sent = -math.inf

    def report(self, running: Reporter, progress: Progress) -> None:
        """Sets the progress of a job."""
        running.progress = progress
        self.add(running)

    def wake(self) -> None:
        """Wakes the pump."""
        self._wake()

    def add(self, running: Reporter) -> None:
        """Notes that a job has something to store. Does not block, and usually takes no lock."""
        self.pending[running] = None
        # One wake-up is enough until the pump takes the reports; more would cost the task a system call each.
        if not self._woken:
            # An interrupt between the two lines would leave `_woken` set, and nobody would wake the pump again.
            with shielded:
                self._woken = True
                self._wake()

    def take(self, now: float, ended: Iterable[Reporter]) -> list[Reporter]:
        """The jobs whose reports must be stored now: all if the last time is long enough ago, else those that ended."""
        taken = [running for running in ended if self.pending.pop(running, self) is None]
        if now - self._sent >= SAVE_INTERVAL:
            self._sent = now
            taken += self._take_all()
        # The pump comes again by itself for what is still pending. Else the next report must wake it, also if the one
        # that woke it last is among those taken.
        self._woken = bool(self.pending)
        return taken

    def _take_all(self) -> list[Reporter]:
        others = []
        while self.pending:
            # One by one: jobs in other threads add to the dict at the same time, so it cannot be iterated.
            others.append(self.pending.popitem()[0])
        # `popitem` takes the newest first, but the oldest should be stored first.
        others.reverse()
        room = sum(1 for _ in itertools.takewhile(lambda size: size <= MAX_SAVE_BYTES, _sizes(others)))
        # At least one, or a job with more output than fits would wait for ever.
        self.put_back(others[max(room, 1) :])
        return others[: max(room, 1)]

    def put_back(self, taken: Iterable[Reporter]) -> None:
        """Puts back jobs whose reports could not be stored."""
        for running in taken:
            self.pending.setdefault(running)

    def pause(self, now: float) -> float:
        """Seconds until the next reports may be stored."""
        return max(0.0, self._sent + SAVE_INTERVAL - now)


def make_rows(taken: Iterable[Reporter]) -> list[ProgressRow]:
    """The rows for `Store.save_progress`."""
    return [(running.job.id, running.job.epoch, encode_report(running)) for running in taken]


def _sizes(jobs: Iterable[Reporter]) -> Iterator[int]:
    """For each job: the most bytes that the reports up to and with this one can have."""
    return itertools.accumulate(running.tail.most if running.tail is not None else MAX_MESSAGE for running in jobs)

"""The steps of the attempt that runs now: its log, and its way to the store."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from msgspec import Raw, Struct

from tarry.tasks.durable.modes import BLOCKING, ON_LOOP, Mode, finish, inside, is_on_loop
from tarry.tasks.progress import StepPort
from tarry.tasks.running import Batch, Running, require_current
from tarry.tasks.step_log import KeptStep, StepLog

T = TypeVar("T")

_MOST_NAME = 200


class AttemptSteps(Struct, frozen=True):
    """What one step needs of its attempt. position: which step it is, from 0."""

    running: Running
    port: StepPort
    log: StepLog
    mode: Mode
    position: int
    name: str

    @property
    def kept(self) -> KeptStep | None:
        """What an earlier attempt kept of this step."""
        return self.log.kept(self.position)

    async def keep(self, value: bytes, waits: bool = False) -> None:
        """Keeps the value, which is JSON; returns once it is stored. StepLimit, CalledBack."""
        if self.log.suspension is not None:
            # Another one of several steps side by side has ended the attempt.
            raise self.log.suspension
        self.log.keep(self.position, KeptStep(self.name, Raw(value), waits))
        await self.mode.save(self.running, self.port)


def begin_step(caller: str, name: str) -> AttemptSteps:
    """The next step of the task that runs this code. The position is taken now, so that steps side by side are in the
    order of their calls. RuntimeError if no job runs here, or if it cannot have steps; StepsChanged, StepLimit."""
    running = require_current(caller)
    if isinstance(running, Batch):
        raise RuntimeError(f"{running.task.name} is called for many jobs at once, and such a call has no steps")
    if inside.get():
        raise RuntimeError(
            f"{caller} is part of a step here, and a step cannot leave its slot: call it beside the step"
        )
    port = None if running.progress_buffer is None else running.progress_buffer.steps
    if port is None:
        raise RuntimeError(f"{caller} is for code that a worker runs; here nothing keeps its steps")
    if running.step_log is None:
        running.step_log = StepLog(running.job.task, running.job.progress, running.job.state_since)
    name = name[:_MOST_NAME]
    mode: Mode = ON_LOOP if is_on_loop() else BLOCKING
    return AttemptSteps(running, port, running.step_log, mode, running.step_log.take(name), name)


def run_step(steps: AttemptSteps, core: Callable[[AttemptSteps], Coroutine[Any, Any, T]]) -> Any:
    """Runs the step: an awaitable in an event loop, else its value."""
    coroutine = core(steps)
    return coroutine if steps.mode is ON_LOOP else finish(coroutine)

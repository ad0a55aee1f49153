"""Runs the jobs of a test: with the real pump and rules, one after the other, in the calling thread."""

import asyncio
import contextlib
import itertools
import math
import time
import weakref
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from msgspec.json import decode

from tarry.app import App
from tarry.client.clock import FakeClock
from tarry.config.config import Pool
from tarry.errors import JobFailed
from tarry.keeper.cron import ScheduleTicker
from tarry.keeper.stored_ticks import StoredTicker
from tarry.model.duration import SECOND
from tarry.model.outcome import Outcome, Raised, Released
from tarry.model.verdict import Cancel, RetryAfter, Snooze
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.own_loop import OtherThreadLoop, OwnLoop
from tarry.tasks.running import Batch, Running
from tarry.testing.recording import TEST_QUEUE
from tarry.worker.inline import InlineWorker
from tarry.worker.run import attempt, attempt_report
from tarry.worker.run.context import AttemptContext

DeathMoment = Literal["start", "end"]
_numbers = itertools.count(1)
# A schedule of every second would keep a test that moves the clock by a year.
MAX_TICKS = 10_000
"""How many times of schedules `pass_time` stops at. Later ones count as missed, as the schedule's `missed` says."""


class AttemptStep:
    """One call of a task. The caller must run it, and set the outcome and the errors."""

    def __init__(self, running: Running, terms: AttemptContext, death: DeathMoment | None) -> None:
        self.running = running
        self.terms = terms
        self.death = death
        self.outcome: Outcome = Released()
        self.errors: list[BaseException] = []
        self.count = len(running.members) if isinstance(running, Batch) else 1
        running.started = time.monotonic()


class KitRunner:
    """Runs the jobs of one test. There are no timeouts: the clock stands still while a task runs."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self._deaths: dict[str, deque[DeathMoment]] = {}
        self._tickers: weakref.WeakKeyDictionary[App, tuple[ScheduleTicker, StoredTicker]] = weakref.WeakKeyDictionary()
        self._loop: OwnLoop | None = None
        self._is_ticking = False
        """Whether a tick is under way."""

    def die_during(self, task: str, at: DeathMoment) -> None:
        """Makes the worker die during the task's next run."""
        self._deaths.setdefault(task, deque()).append(at)

    def drain(self, app: App, queues: Mapping[str, int] | None, raising: bool) -> int:
        """Runs due jobs; returns how many attempts. raising: raises the first error of a task, after it is stored."""
        count = 0
        for step in self._steps(app, queues, raising):
            self._run(step)
            count += step.count
        return count

    async def adrain(self, app: App, queues: Mapping[str, int] | None, raising: bool) -> int:
        """The same, awaited: coroutines run on the caller's loop."""
        count = 0
        for step in self._steps(app, queues, raising):
            if step.running.task.is_async and step.death != "start" and asyncio._get_running_loop() is not None:
                await _arun(step)
            else:
                self._run(step)
            count += step.count
        return count

    def tick(self, app: App) -> float:
        """Enqueues what fell due by the app's schedules; returns the seconds until the next time."""
        has_code = any(task.schedules for task in list(app.tasks.values()))
        # The jobs that a tick enqueues may run inline, and that drains and ticks again. An app that nobody has used in
        # this test, such as one of a test before, has put no schedule, and is left alone.
        if self._is_ticking or not (has_code or app._client is not None):
            return math.inf
        tickers = self._tickers.get(app)
        if tickers is None:
            # Nobody puts a schedule while the clock is moved.
            stored = StoredTicker(app.client, app.find, look_every=math.inf)
            tickers = self._tickers[app] = ScheduleTicker(app.client, app.config.named_calendars), stored
        self._is_ticking = True
        try:
            return min(tickers[0].tick() if has_code else math.inf, tickers[1].tick())
        finally:
            self._is_ticking = False

    def pass_time(self, apps: list[App], seconds: float) -> None:
        """Moves the clock, and stops at each time of the schedules, so that none is missed."""
        end = self.clock.time + round(seconds * SECOND)
        for _ in range(MAX_TICKS):
            pause = min((self.tick(app) for app in apps), default=math.inf)
            if self.clock.time + pause * SECOND >= end:
                break
            # At least one microsecond, else a pause that rounds to nothing would never end.
            self.clock.time += max(1, round(pause * SECOND))
        self.clock.time = end
        for app in apps:
            self.tick(app)

    def close(self) -> None:
        """Closes the loop, if there is one."""
        if self._loop is not None:
            self._loop.run(_cancel_the_rest())
            self._loop.close()

    def _steps(self, app: App, queues: Mapping[str, int] | None, raising: bool) -> Iterator[AttemptStep]:
        """The calls to make. The caller must run each before it asks for the next."""
        app.declare_limits(app.client.store)
        has_died = True
        while has_died:
            with contextlib.closing(self._make_worker(app, queues)) as worker:
                has_died = False
                for running in worker.steps():
                    step = AttemptStep(running, worker.context, self._next_death(running))
                    yield step
                    if step.death is not None:
                        has_died = True
                        # Closing the keeper waits for the hooks that it calls.
                        with contextlib.closing(app.keeper(app.client.store, self.clock)) as keeper:
                            keeper.rescue(worker.name, [running.job.id.hex()])
                        break
                    worker.record_end(running, step.outcome)
                    if error := _error_to_raise(step, raising):
                        # First stored, then raised: the test may catch the error and look at the job.
                        worker.settle()
                        raise error

    def _make_worker(self, app: App, queues: Mapping[str, int] | None) -> InlineWorker:
        return InlineWorker(
            app.client.store,
            app.tasks,
            name=f"test:{next(_numbers)}",
            clock=self.clock,
            rules=app.rules,
            queues=queues or {"*": 1, TEST_QUEUE: 1},
            shares=app.config.pools.get("default", Pool()).shares,
            max_result=app.config.max_body,
        )

    def _next_death(self, running: Running) -> DeathMoment | None:
        deaths = self._deaths.get(running.task.name)
        return deaths.popleft() if deaths else None

    def _run(self, step: AttemptStep) -> None:
        if step.death == "start":
            return
        token = attempt_report.error_sink.set(step.errors)
        try:
            if step.running.task.is_async:
                coroutine = attempt.run_async(step.running, step.terms)
                step.outcome = attempt.own_context().run(self._run_coroutine, coroutine)
            else:
                with _no_loop():
                    step.outcome = attempt.run_sync(step.running, step.terms)
        finally:
            attempt_report.error_sink.reset(token)

    def _run_coroutine(self, coroutine: Any) -> Any:
        if asyncio._get_running_loop() is not None:
            # A thread can run one loop at a time, and the test's own loop runs here.
            return OtherThreadLoop().run(coroutine)
        if self._loop is None:
            self._loop = OwnLoop()
        return self._loop.run(coroutine)


async def _arun(step: AttemptStep) -> None:
    """Runs the call on the caller's loop. If the caller is cancelled, the task is too, and the job is requeued."""
    caller = asyncio.current_task()
    assert caller is not None
    # Compared afterwards: a task may raise CancelledError itself, and that does not cancel the caller.
    before = caller.cancelling()
    token = attempt_report.error_sink.set(step.errors)
    try:
        step.outcome = await asyncio.create_task(
            attempt.run_async(step.running, step.terms), context=attempt.own_context()
        )
    except asyncio.CancelledError:
        step.errors = [Interruption()]  # it was cancelled before the task started
    finally:
        attempt_report.error_sink.reset(token)
    if caller.cancelling() > before:
        step.outcome = Released()
        step.errors = [Interruption()]


class Interruption(asyncio.CancelledError):
    """The caller of `adrain` was cancelled."""


def _error_to_raise(step: AttemptStep, raising: bool) -> BaseException | None:
    for error in step.errors:
        if isinstance(error, Interruption) or not isinstance(error, _TASK_ERRORS):
            return error
    if not raising:
        return None
    for error in step.errors:
        if not isinstance(error, Snooze | Cancel | RetryAfter):
            return error
    if isinstance(step.outcome, Raised) and not step.errors:
        note = decode(step.outcome.note)
        return JobFailed(f"{step.running.task.name}: {note['type']}: {note['message']}")
    return None


# Others, such as Ctrl-C and `pytest.fail`, end the test.
_TASK_ERRORS = (Exception, Interrupted, asyncio.CancelledError, SystemExit)
"""Errors that a worker counts as a failure of the task."""


@contextlib.contextmanager
def _no_loop() -> Iterator[None]:
    """Hides the running event loop from a `def`, and the task in it."""
    # In a worker there is none in its thread, and code such as `asyncio.run` refuses to start inside one.
    loop = asyncio._get_running_loop()
    task = None if loop is None else asyncio.current_task(loop)
    # Since Python 3.14 a thread has one current task, not one for each loop: another loop could not enter its own.
    if loop is not None and task is not None:
        asyncio._leave_task(loop, task)
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)
        if loop is not None and task is not None:
            asyncio._enter_task(loop, task)


async def _cancel_the_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()

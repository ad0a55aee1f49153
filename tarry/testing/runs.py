"""How jobs are run in a test: by the real pump and the real rules, one after the other, in the calling thread."""

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
from tarry.config import Pool
from tarry.errors import JobFailed
from tarry.keeper.cron import ScheduleTicker
from tarry.model.duration import SECOND
from tarry.model.outcome import Outcome, Raised, Released
from tarry.model.verdict import Cancel, RetryAfter, Snooze
from tarry.tasks.interrupts import Interrupted
from tarry.tasks.own_loop import Elsewhere, OwnLoop
from tarry.tasks.running import Batch, Running
from tarry.worker.run import attempt, report
from tarry.worker.run.inline import InlineWorker
from tarry.worker.run.terms import Terms

Moment = Literal["start", "end"]
_numbers = itertools.count(1)
TICKED_AT_ONCE = 10_000
"""So many moments of schedules are lived through when time is let pass; then come those that their `missed` leaves."""


class Turn:
    """One call of a task, to be carried out by whoever is handed it."""

    def __init__(self, running: Running, terms: Terms, death: Moment | None) -> None:
        self.running = running
        self.terms = terms
        self.death = death
        self.outcome: Outcome = Released()
        self.errors: list[BaseException] = []
        self.count = len(running.members) if isinstance(running, Batch) else 1
        running.started = time.monotonic()


class Runs:
    """Those of one test. Times out nobody: while a task runs, the clock stands still."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self._deaths: dict[str, deque[Moment]] = {}
        self._tickers: weakref.WeakKeyDictionary[App, ScheduleTicker] = weakref.WeakKeyDictionary()
        self._loop: OwnLoop | None = None
        self._ticks = False
        """Just now: what a tick enqueues may be run at once, and drains."""

    def die_during(self, task: str, at: Moment) -> None:
        """The worker of the task's next run dies."""
        self._deaths.setdefault(task, deque()).append(at)

    def drain(self, app: App, queues: Mapping[str, int] | None, raising: bool) -> int:
        """Runs what is due; how many attempts. raising: the first error of a task is raised, once it is kept."""
        count = 0
        for turn in self._turns(app, queues, raising):
            self._take(turn)
            count += turn.count
        return count

    async def adrain(self, app: App, queues: Mapping[str, int] | None, raising: bool) -> int:
        """The same, awaited: coroutines run on the loop of the caller."""
        count = 0
        for turn in self._turns(app, queues, raising):
            if turn.running.task.is_async and turn.death != "start" and asyncio._get_running_loop() is not None:
                await _awaited(turn)
            else:
                self._take(turn)
            count += turn.count
        return count

    def tick(self, app: App) -> float:
        """Has the jobs made of what fell due by the app's schedules; seconds until there is more."""
        if self._ticks or not any(task.schedules for task in app.tasks.values()):
            return math.inf
        ticker = self._tickers.get(app)
        if ticker is None:
            ticker = self._tickers[app] = ScheduleTicker(app.client)
        self._ticks = True
        try:
            return ticker.tick()
        finally:
            self._ticks = False

    def pass_time(self, apps: list[App], seconds: float) -> None:
        """Moves the clock, from tick to tick of the schedules: none is missed, since it is the worker's clock too."""
        end = self.clock.time + round(seconds * SECOND)
        for _ in range(TICKED_AT_ONCE):
            pause = min((self.tick(app) for app in apps), default=math.inf)
            if self.clock.time + pause * SECOND >= end:
                break
            self.clock.time += max(1, round(pause * SECOND))
        self.clock.time = end
        for app in apps:
            self.tick(app)

    def close(self) -> None:
        """Gives back the loop, if there was need of one."""
        if self._loop is not None:
            self._loop.run(_cancel_the_rest())
            self._loop.close()

    def _turns(self, app: App, queues: Mapping[str, int] | None, raising: bool) -> Iterator[Turn]:
        """Each is to be carried out before the next is asked for."""
        app.declare_limits(app.client.store)
        died = True
        while died:
            with contextlib.closing(self._hired(app, queues)) as worker:
                died = False
                for running in worker.steps():
                    turn = Turn(running, worker.terms, self._death(running))
                    yield turn
                    if turn.death is not None:
                        died = True
                        # Closed, so that the hooks that it calls have been called.
                        with contextlib.closing(app.keeper(app.client.store, self.clock)) as keeper:
                            keeper.rescue(worker.name, [running.job.id.hex()])
                        break
                    worker.ended(running, turn.outcome)
                    if error := _to_raise(turn, raising):
                        worker.settle()
                        raise error

    def _hired(self, app: App, queues: Mapping[str, int] | None) -> InlineWorker:
        return InlineWorker(
            app.client.store,
            app.tasks,
            name=f"test:{next(_numbers)}",
            clock=self.clock,
            rules=app.rules,
            queues=queues,
            shares=app.config.pools.get("default", Pool()).shares,
            most_result=app.config.max_body,
        )

    def _death(self, running: Running) -> Moment | None:
        deaths = self._deaths.get(running.task.name)
        return deaths.popleft() if deaths else None

    def _take(self, turn: Turn) -> None:
        if turn.death == "start":
            return
        token = report.witnessed.set(turn.errors)
        try:
            if turn.running.task.is_async:
                turn.outcome = self._alone(attempt.on_loop(turn.running, turn.terms))
            else:
                with _no_loop():
                    turn.outcome = attempt.sync(turn.running, turn.terms)
        finally:
            report.witnessed.reset(token)

    def _alone(self, coroutine: Any) -> Any:
        if asyncio._get_running_loop() is not None:
            return Elsewhere().run(coroutine)
        if self._loop is None:
            self._loop = OwnLoop()
        return self._loop.run(coroutine)


async def _awaited(turn: Turn) -> None:
    """On the caller's loop. If the caller is cancelled, so is the task, and the job goes back as it was."""
    caller = asyncio.current_task()
    assert caller is not None
    before = caller.cancelling()
    token = report.witnessed.set(turn.errors)
    try:
        turn.outcome = await asyncio.create_task(attempt.on_loop(turn.running, turn.terms))
    except asyncio.CancelledError:
        turn.errors = [Interruption()]  # before the task had begun
    finally:
        report.witnessed.reset(token)
    if caller.cancelling() > before:
        turn.outcome = Released()
        turn.errors = [Interruption()]


class Interruption(asyncio.CancelledError):
    """Whoever drained was cancelled."""


def _to_raise(turn: Turn, raising: bool) -> BaseException | None:
    for error in turn.errors:
        if isinstance(error, Interruption) or not isinstance(error, _TASKS_OWN):
            return error
    if not raising:
        return None
    for error in turn.errors:
        if not isinstance(error, Snooze | Cancel | RetryAfter):
            return error
    if isinstance(turn.outcome, Raised) and not turn.errors:
        told = decode(turn.outcome.note)
        return JobFailed(f"{turn.running.task.name}: {told['type']}: {told['message']}")
    return None


_TASKS_OWN = (Exception, Interrupted, asyncio.CancelledError, SystemExit)
"""What a worker takes for a failure of the task. Anything else, such as Ctrl-C or `pytest.fail`, is for the test."""


@contextlib.contextmanager
def _no_loop() -> Iterator[None]:
    """As in a worker, a `def` finds no event loop running in its thread."""
    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        yield
    finally:
        asyncio._set_running_loop(loop)


async def _cancel_the_rest() -> None:
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()

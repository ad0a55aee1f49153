"""What a test does with the jobs of its apps: the fixture `jobs`."""

import contextlib
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tarry.app import App
from tarry.client.task import Task
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.testing.enqueued import Enqueued, Expected, moment
from tarry.testing.runs import Moment
from tarry.testing.stage import Stage

if TYPE_CHECKING:
    from tarry.testing.answers import Answers, Sent

LISTED = 20


class Jobs:
    """For one test all apps keep their jobs in memory, under one clock that begins at the present and stands still."""

    __slots__ = ("_own", "_stage")

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._own: App | None = None

    @property
    def now(self) -> datetime:
        """What the clock of the jobs shows, in UTC."""
        return moment(self._stage.time.time)

    @property
    def app(self) -> App:
        """An app for the tasks of this test alone, which may be closures."""
        if self._own is None:
            self._own = App(closures=True)
        return self._own

    def advance(self, time: Duration, *, schedules: bool = False) -> None:
        """Lets so much time pass: seconds, timedelta or text; nothing is run before `drain()`.

        schedules: what falls due by the schedules of all apps meanwhile is enqueued at its moment. Else they rest, so
        that a test of something else does not depend on the time of day.
        """
        apps = self._stage.apps() if schedules else []
        self._stage.runs.pass_time(apps, microseconds(time) / SECOND)

    # What was enqueued

    def enqueued(self, task: Task[Any, Any] | str | None = None) -> list[Enqueued]:
        """What was enqueued in this test, of that task or of all, in that order; also what has run since."""
        name = task.name if isinstance(task, Task) else task
        found = [(job.id, record, job) for record in self._stage.records() for job in record.enqueued.values()]
        found.sort(key=lambda each: each[0])
        return [Enqueued(record, job) for _, record, job in found if name in (None, job.task)]

    def assert_enqueued(
        self,
        task: Task[Any, Any] | str,
        *args: Any,
        delay: Duration | None = None,
        at: datetime | float | None = None,
        queue: str | None = None,
        priority: int | None = None,
        key: str | None = None,
        count: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Fails unless such a job was enqueued in this test, or, with `count`, so many; and lists those that were.

        The arguments are those of the call, defaults filled in; with none at all, any will do. An argument that is
        named as one of the settings here is given by its position. TypeError if the task cannot be called so.
        """
        __tracebackhide__ = True
        expected = Expected(task, args, kwargs).at(delay, at).of(queue=queue, priority=priority, key=key)
        found = len(self._matching(expected))
        if found == count or (found and count is None):
            return
        wanted = "" if count is None else f" {_times(count)}, but {_times(found)}" if found else f" {_times(count)}"
        raise AssertionError(f"{expected} was not enqueued{wanted}.\n{self._listed('instead')}")

    def assert_not_enqueued(
        self,
        task: Task[Any, Any] | str,
        *args: Any,
        delay: Duration | None = None,
        at: datetime | float | None = None,
        queue: str | None = None,
        priority: int | None = None,
        key: str | None = None,
        **kwargs: Any,
    ) -> None:
        """Fails if such a job was enqueued in this test."""
        __tracebackhide__ = True
        expected = Expected(task, args, kwargs).at(delay, at).of(queue=queue, priority=priority, key=key)
        if self._matching(expected):
            raise AssertionError(f"{expected} was enqueued.\n{self._listed('in all')}")

    # What would have been sent, of HTTP tasks

    @property
    def answers(self) -> "Answers":
        """What endpoints answer, by task: `jobs.answers["order.timeout"] = 503`. In a test nothing is sent, and who is
        not named here gets 200.

        A status, a Reply, or None: the request went out and nothing came back. Several are given one after the other,
        the last for ever; a function is asked with each request, a Sent.
        """
        return self._stage.answers

    def sent(self, task: str | None = None) -> "list[Sent]":
        """The requests that would have gone out in this test, of that task or of all, in that order."""
        return [one for one in self._stage.answers.sent if task in (None, one.task)]

    # Running it

    def drain(self, *, raising: bool = False) -> int:
        """Runs what is due, and what that enqueues, until nothing is left; how many attempts that were.

        Jobs run one after the other in the calling thread, coroutines on a loop of their own, by the rules of a real
        worker: what fails is retried, and is due when its time has come. raising: the first error of a task is raised
        here, once it is noted.
        """
        return self._stage.drain_all(raising)

    async def adrain(self, *, raising: bool = False) -> int:
        """The same, awaited: coroutines run on the loop of the test."""
        return await self._stage.adrain_all(raising)

    def kill_worker_during(self, task: Task[Any, Any] | str, at: Moment = "end") -> None:
        """The worker of the task's next run dies: at its end, all done but nothing told yet, or at its start.

        The job comes back as after a real death, which counts as a failure: the same `drain` runs it a second time.
        """
        if at not in ("start", "end"):
            raise ValueError(f'at={at!r}: "start" or "end"')
        self._stage.runs.die_during(task if isinstance(task, str) else task.name, at)

    def inline(self, *, raising: bool = False) -> "Inline":
        """From now on, or in a `with` block, an enqueue runs what is due before it returns; what is due later stays.

        raising: the error of a task is raised by the enqueue.
        """
        return Inline(self._stage, raising)

    def _matching(self, expected: Expected) -> list[Enqueued]:
        return [found for found in self.enqueued(expected.name) if expected.matches(found, self._task(expected.name))]

    def _task(self, name: str) -> Task[Any, Any] | None:
        return next((app.tasks[name] for app in self._stage.apps() if name in app.tasks), None)

    def _listed(self, how: str) -> str:
        found = self.enqueued()
        if not found:
            return "Nothing was enqueued."
        lines = [f"  {each!r}, {_state(each)}" for each in found[:LISTED]]
        more = [f"  and {len(found) - LISTED} more"] if len(found) > LISTED else []
        return "\n".join([f"Enqueued {how}:", *lines, *more])


class Inline:
    """Runs at once what is enqueued, until the block, or the test, ends."""

    def __init__(self, stage: Stage, raising: bool) -> None:
        self._stage = stage
        self._before, stage.inline = stage.inline, raising

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stage.inline = self._before


@contextlib.contextmanager
def opened() -> Iterator[Jobs]:
    """The kit, for as long as a test lasts."""
    stage = Stage()
    with stage.set():
        yield Jobs(stage)


def _times(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _state(found: Enqueued) -> str:
    (job,) = found.job._client.look([found._kept.id])
    return "forgotten" if job is None else str(job.state)

"""The fixture `jobs`: looks at the jobs that a test enqueues, and runs them.

The backend of all apps during a test: stores in memory, and one clock that stands still.
"""

import contextlib
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, overload

from tarry.app import App
from tarry.client.flows.block import Flow
from tarry.client.flows.flow_handle import FlowHandle
from tarry.client.tasks.task import Task
from tarry.errors import JobNotFound
from tarry.model.duration import SECOND, Duration, microseconds
from tarry.model.flow.node_ids import index_of
from tarry.model.flow_row import Phase
from tarry.testing.enqueued import Enqueued, Expected, to_datetime
from tarry.testing.job_runs import DeathMoment

if TYPE_CHECKING:
    from tarry.testing.fake_endpoints import EndpointAnswers, Sent
import gc
import time
import weakref
from functools import cached_property
from typing import TYPE_CHECKING

from tarry import app as apps_module
from tarry.client.client import Client
from tarry.client.clock import FakeClock
from tarry.embedded import mixin
from tarry.embedded.mixin import Backend, EmbeddedMixin
from tarry.embedded.service import queue_weights
from tarry.store.rules.base import Store
from tarry.testing.job_runs import KitRunner
from tarry.testing.recording import DirectClient, RecordingStore
from tarry.worker.claim_plan import Queues

if TYPE_CHECKING:
    from tarry.testing.fake_endpoints import EndpointAnswers


class KitBackend(Backend):
    """Keeps the jobs of all apps in memory, and runs them in the calling thread.

    inline: what is enqueued runs at once: False: errors are handled as in a worker; True: the enqueue raises them;
    None: jobs run only when they are drained.
    """

    writes_files = False
    seals = False

    def __init__(self) -> None:
        self.time = FakeClock(time.time_ns() // 1000)
        self.clock = self.time
        self.runner = KitRunner(self.time)
        self.inline: bool | None = None
        self._stores: weakref.WeakKeyDictionary[App, RecordingStore] = weakref.WeakKeyDictionary()
        self._ports: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()

    @contextlib.contextmanager
    def install(self) -> Iterator[None]:
        """Makes this the backend of all apps for the block, also of apps that are created in it."""
        # Apps open a client once and keep it, so it is set aside for the block.
        clients = {app: client for app in self.apps() if (client := app._client) is not None}
        before, mixin.backend = mixin.backend, self
        self._set_clients({})
        try:
            yield
        finally:
            mixin.backend = before
            self._set_clients(clients)
            self.runner.close()

    def _set_clients(self, clients: dict[App, Client]) -> None:
        for app in self.apps():
            app._client = clients.get(app)
            if app._catalog is not None:
                # It may hold endpoints from the other store.
                app._catalog.expire_cache()

    def find_store(self, app: Any, given: Store | None) -> RecordingStore:
        """The store of the app during the test: the same for each call."""
        # `given` is left alone: a test must not touch the real store.
        store = self._stores.get(app)
        if store is None:
            store = self._stores[app] = RecordingStore(app, self.time)
        return store

    def make_client(self, store: Store, *args: Any, **kwargs: Any) -> Client:
        assert isinstance(store, RecordingStore)
        return DirectClient(self, store, *args, **kwargs)

    @cached_property
    def answers(self) -> "EndpointAnswers":
        """What endpoints answer."""
        from tarry.testing.fake_endpoints import EndpointAnswers  # noqa: PLC0415 - most tests have no HTTP tasks

        return EndpointAnswers()

    def find_port(self, catalog: Any) -> Any:
        """What answers the requests of these HTTP tasks."""
        from tarry.testing.fake_endpoints import FakeDelivery  # noqa: PLC0415 - as above

        if catalog not in self._ports:
            self._ports[catalog] = FakeDelivery(catalog, self.time, self.answers)
        return self._ports[catalog]

    def stores(self) -> list[RecordingStore]:
        """The stores of all apps that needed one so far."""
        return list(self._stores.values())

    def apps(self) -> list[App]:
        """All apps of the process."""
        return list(apps_module._apps)

    def apps_in_use(self) -> list[App]:
        """The same, without those of tests that are over."""
        # An app refers to its tasks and they to it, so it lives until the garbage collector comes, at whatever time.
        gc.collect()
        return self.apps()

    def has_workers(self) -> bool:
        """Whether workers run jobs beside the test."""
        return any(not worker.ended.is_set() for app in self.apps() for worker in list(app._workers))

    def drain(self, app: EmbeddedMixin, timeout: Duration | None = None, queues: Queues | None = None) -> int:
        return self._drain(app, queues, False)

    async def adrain(self, app: EmbeddedMixin, timeout: Duration | None = None, queues: Queues | None = None) -> int:
        return await self._adrain(app, queues, False)

    def drain_all(self, raising: bool) -> int:
        """Runs the due jobs of all apps until none is left; returns how many attempts. raising: as in `Jobs.drain`."""
        total = 0
        while stores := self.stores():
            attempts = sum(self._drain(store.app, None, raising) for store in stores)
            total += attempts
            # With several apps the jobs of one may enqueue jobs of another, so all are drained again.
            if not attempts or len(self.stores()) == 1:
                break
        return total

    async def adrain_all(self, raising: bool) -> int:
        """The same, awaited."""
        total = 0
        while stores := self.stores():
            attempts = sum([await self._adrain(store.app, None, raising) for store in stores])
            total += attempts
            if not attempts or len(self.stores()) == 1:
                break
        return total

    def on_enqueue(self) -> None:
        """Called after each enqueue."""
        if self.inline is not None:
            self.drain_all(self.inline)

    async def aon_enqueue(self) -> None:
        """The same, awaited."""
        if self.inline is not None:
            await self.adrain_all(self.inline)

    def _drain(self, app: Any, queues: Queues | None, raising: bool) -> int:
        return self.runner.drain(app, None if queues is None else queue_weights(queues), raising)

    async def _adrain(self, app: Any, queues: Queues | None, raising: bool) -> int:
        return await self.runner.adrain(app, None if queues is None else queue_weights(queues), raising)


R = TypeVar("R")

# A test may enqueue thousands, and the message should stay readable.
LISTED = 20


class Jobs:
    """The jobs of one test: all apps keep them in memory, under one clock that starts now and stands still."""

    __slots__ = ("_backend", "_own")

    def __init__(self, backend: KitBackend) -> None:
        self._backend = backend
        self._own: App | None = None

    @property
    def now(self) -> datetime:
        """The time of the jobs' clock, in UTC."""
        return to_datetime(self._backend.time.time)

    @property
    def app(self) -> App:
        """An app for this test alone. Its tasks may be closures."""
        if self._own is None:
            self._own = App(closures=True)
        return self._own

    def advance(self, time: Duration, *, schedules: bool = False) -> None:
        """Moves the clock forward: seconds, timedelta or text. Runs no job; `drain()` does.

        schedules: also enqueues what falls due meanwhile by the schedules of all apps.
        """
        # Off by default, so that other tests do not depend on the time of day.
        apps = self._backend.apps_in_use() if schedules else []
        self._backend.runner.pass_time(apps, microseconds(time) / SECOND)

    def signal(self, name: str, *, key: str, value: Any = None) -> int:
        """Sends a signal to the tasks of all apps, as `app.signal` does; returns how many jobs it woke. Runs no job."""
        return sum(store.app.signal(name, key=key, value=value) for store in self._backend.stores())

    def approve(self, question: str, *, key: str, by: str = "", note: str = "", ok: bool = True) -> int:
        """Decides what a task asks by `approve`, as `app.approve` does; returns how many jobs it woke. Runs no job.
        JobNotFound if no job waits for it."""
        woken = 0
        for store in self._backend.stores():
            with contextlib.suppress(JobNotFound):
                woken += store.app.approve(question, key=key, by=by, note=note, ok=ok)
        if not woken:
            raise JobNotFound(f"no job waits for an approval of {question!r} with the key {key!r}")
        return woken

    # What was enqueued

    def enqueued(self, task: Task[Any, Any] | str | None = None) -> list[Enqueued]:
        """The jobs that were enqueued in this test, of one task or of all, in order; also jobs that have run."""
        name = task.name if isinstance(task, Task) else task
        found = [(job.id, store, job) for store in self._backend.stores() for job in store.enqueued.values()]
        # By id: ids contain the time and a counter, so this is the order of the enqueues, over all apps.
        found.sort(key=lambda each: each[0])
        return [Enqueued(store, job) for _, store, job in found if name in (None, job.task)]

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
        """Fails unless such a job was enqueued in this test, or, with `count`, exactly so many. Lists the jobs then.

        The arguments are those of the call, with defaults filled in; without arguments, all calls match. An argument
        with the name of a setting here must be given by position. TypeError if they do not fit the task.
        """
        # pytest then shows the line of the test, and not this one.
        __tracebackhide__ = True
        expected = Expected(task, args, kwargs).at(delay, at).of(queue=queue, priority=priority, key=key)
        found = len(self._find(expected))
        if found == count or (found and count is None):
            return
        wanted = (
            ""
            if count is None
            else f" {_format_count(count)}, but {_format_count(found)}"
            if found
            else f" {_format_count(count)}"
        )
        raise AssertionError(f"{expected} was not enqueued{wanted}.\n{self._list_jobs('instead')}")

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
        if self._find(expected):
            raise AssertionError(f"{expected} was enqueued.\n{self._list_jobs('in all')}")

    # What would have been sent, of HTTP tasks

    @property
    def answers(self) -> "EndpointAnswers":
        """What endpoints answer, by task: `jobs.answers["order.timeout"] = 503`. Nothing is sent in a test; the
        default answer is 200.

        An answer is a status, a Reply, or None: no answer came. Several are given one after the other, and the last
        one again and again. A function is called with each request, a Sent, and returns the answer.
        """
        return self._backend.answers

    def sent(self, task: str | None = None) -> "list[Sent]":
        """The requests that this test would have sent, of one task or of all, in order."""
        return [one for one in self._backend.answers.sent if task in (None, one.task)]

    # Running it

    def drain(self, *, raising: bool = False) -> int:
        """Runs all due jobs, and those that they enqueue, until none is left; returns how many attempts.

        Jobs run one after the other in the calling thread, coroutines on a loop of their own, by the rules of a real
        worker: a failed job is retried when its time has come. raising: raises the first error of a task, after it is
        stored.
        """
        return self._backend.drain_all(raising)

    async def adrain(self, *, raising: bool = False) -> int:
        """The same, awaited: coroutines run on the loop of the test."""
        return await self._backend.adrain_all(raising)

    @overload
    def run(self, flow: FlowHandle[R], *, raising: bool = False) -> R: ...
    @overload
    def run(self, flow: Flow, *, raising: bool = False) -> Any: ...
    def run(self, flow: Flow | FlowHandle[Any], *, raising: bool = False) -> Any:
        """Runs all due jobs, as `drain`, and returns the result of this flow; the errors are those of `result`.

        Fails if the flow has not ended then, and shows its jobs: one may wait for a later time, or for a signal.
        """
        __tracebackhide__ = True
        handle = flow.handle if isinstance(flow, Flow) else flow
        self.drain(raising=raising)
        if handle.record().phase is not Phase.ENDED:
            raise AssertionError(f"flow {handle.name} has not ended, and nothing is due:\n{_list_nodes(handle)}")
        return handle.result(timeout=0)

    def flows(self, name: str | None = None) -> list[FlowHandle[Any]]:
        """The flows that were stored in this test, of one name or of all, the oldest first."""
        found = [flow for store in self._backend.stores() for flow in store.app.flows.list(name=name, limit=10_000)]
        return sorted(found, key=lambda flow: flow.id)

    def kill_worker_during(self, task: Task[Any, Any] | str, at: DeathMoment = "end") -> None:
        """Makes the worker die during the task's next run: at its start, or at its end, before the end is stored.

        The job comes back as after a real death, and a failure is counted: the same `drain` runs it a second time.
        """
        if at not in ("start", "end"):
            raise ValueError(f'at={at!r}: "start" or "end"')
        self._backend.runner.die_during(task if isinstance(task, str) else task.name, at)

    def inline(self, *, raising: bool = False) -> "InlineMode":
        """From now on, or in a `with` block, an enqueue runs all due jobs before it returns.

        raising: the enqueue raises the error of a task.
        """
        return InlineMode(self._backend, raising)

    def _find(self, expected: Expected) -> list[Enqueued]:
        return [found for found in self.enqueued(expected.name) if expected.matches(found, self._task(expected.name))]

    def _task(self, name: str) -> Task[Any, Any] | None:
        return next((app.tasks[name] for app in self._backend.apps() if name in app.tasks), None)

    def _list_jobs(self, how: str) -> str:
        found = self.enqueued()
        if not found:
            return "Nothing was enqueued."
        lines = [f"  {each!r}, {_format_state(each)}" for each in found[:LISTED]]
        more = [f"  and {len(found) - LISTED} more"] if len(found) > LISTED else []
        return "\n".join([f"Enqueued {how}:", *lines, *more])


class InlineMode:
    """Runs jobs when they are enqueued, until the end of the block or the test."""

    def __init__(self, backend: KitBackend, raising: bool) -> None:
        self._backend = backend
        self._before, backend.inline = backend.inline, raising

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._backend.inline = self._before


@contextlib.contextmanager
def open_kit() -> Iterator[Jobs]:
    """The fixture's value, for one test."""
    backend = KitBackend()
    with backend.install():
        yield Jobs(backend)


def _list_nodes(flow: FlowHandle[Any]) -> str:
    nodes = [node.record() for node in flow.nodes()]
    # Those that have not ended first: they are what is waited for.
    nodes.sort(key=lambda job: job.state.finished)
    lines = [f"  {index_of(job.id)} {job.task}: {job.state}" for job in nodes[:LISTED]]
    return "\n".join(lines + [f"  and {len(nodes) - LISTED} more"] * (len(nodes) > LISTED))


def _format_count(count: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(count, f"{count} times")


def _format_state(found: Enqueued) -> str:
    (job,) = found.job._client.fetch([found._kept.id])
    return "forgotten" if job is None else str(job.state)

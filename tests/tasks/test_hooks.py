"""What is called when an attempt has ended."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest

from tarry import App, Cancel, CurrentJob, Fail, JobFailed, Retry, Snooze, State, TimeLimit, current_job
from tarry.client.clock import FakeClock
from tarry.errors import ArgumentError
from tarry.keeper.chores import Keeper
from tarry.keeper.death_hooks import DeathHooks
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.model.killing import TIMEOUT
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.store.rules.base import BANDS, Want
from tarry.worker.run import hook_calls
from tarry.worker.run.status_reporter import NullReporter
from tests.worker.bench import LIMIT, Bench, ThreadWorker, finished, until, wait_for

kinds = pytest.mark.parametrize("kind", ["sync", "async"])
hook_kinds = pytest.mark.parametrize("hook_kind", ["sync", "async"])

Told = list[tuple[Any, ...]]


def made(app: App, kind: str, body: Callable[[], Any], **settings: Any) -> Any:
    """A task of that kind that does what `body` does."""

    def work() -> Any:
        return body()

    async def awork() -> Any:
        await asyncio.sleep(0)
        return body()

    return app.task(**settings)(work if kind == "sync" else awork)


def hook(kind: str, call: Callable[[CurrentJob, Any], Any]) -> Callable[[CurrentJob, Any], Any]:
    """A hook of that kind that does what `call` does."""

    async def ahook(job: CurrentJob, told: Any) -> None:
        await asyncio.sleep(0)
        call(job, told)

    return call if kind == "sync" else ahook


def listening(task: Any, kind: str = "sync") -> Told:
    """What the three hooks of the task, or of an app, are told."""
    told: Told = []
    task.on_success(hook(kind, lambda job, value: told.append(("success", job.attempt, value))))
    task.on_failure(hook(kind, lambda job, error: told.append(("failure", job.attempt, error))))
    task.on_dead(hook(kind, lambda job, error: told.append(("dead", job.attempt, error))))
    return told


def fail(error: BaseException) -> Callable[[], Any]:
    def body() -> None:
        raise error

    return body


@kinds
@hook_kinds
def test_a_value_is_told(any_bench: Bench, kind: str, hook_kind: str) -> None:
    task = made(any_bench.app, kind, lambda: {"a": 1})
    told = listening(task, hook_kind)
    any_bench.work()
    assert task.enqueue().result(LIMIT) == {"a": 1}
    assert told == [("success", 1, {"a": 1})]


@kinds
@hook_kinds
def test_each_failure_is_told_and_the_last_one_also_as_death(bench: Bench, kind: str, hook_kind: str) -> None:
    error = ValueError("no")
    task = made(bench.app, kind, fail(error), retry=Retry(2, base=0))
    told = listening(task, hook_kind)
    bench.work()
    assert finished(task.enqueue()) is State.DEAD
    assert told == [("failure", 1, error), ("failure", 2, error), ("failure", 3, error), ("dead", 3, error)]


@kinds
def test_the_tasks_own_come_first_then_the_apps_each_in_the_order_of_registration(bench: Bench, kind: str) -> None:
    order: list[str] = []
    bench.app.on_success(lambda job, value: order.append("app 1"))
    task = made(bench.app, kind, lambda: None)
    task.on_success(hook("async", lambda job, value: order.append("own 1")))
    task.on_success(lambda job, value: order.append("own 2"))
    bench.app.on_success(lambda job, value: order.append("app 2"))
    bench.work()
    task.enqueue().result(LIMIT)
    assert order == ["own 1", "own 2", "app 1", "app 2"]


def test_a_hook_stays_the_function_that_it_is(app: App) -> None:
    @app.task
    def work() -> int:
        return 1

    @work.on_success
    def celebrate(job: CurrentJob, value: int) -> str:
        return f"{value}!"

    @app.on_dead
    def mourn(job: CurrentJob, error: BaseException) -> None: ...

    assert celebrate.__name__ == "celebrate"
    assert mourn.__name__ == "mourn"


@kinds
def test_hooks_run_where_the_task_ran_before_the_store_is_told(bench: Bench, kind: str) -> None:
    ran: list[Any] = []
    task = made(bench.app, kind, lambda: ran.append(threading.get_ident()))

    @task.on_success
    def seen(job: CurrentJob, value: Any) -> None:
        ran.extend([threading.get_ident(), bench.app.get(job.id).state, current_job().id == job.id])

    @task.on_success
    async def seen_too(job: CurrentJob, value: Any) -> None:
        await asyncio.sleep(0.001)
        ran.extend([threading.get_ident(), current_job().id == job.id])

    bench.work(threads=2)
    task.enqueue().result(LIMIT)
    here = ran[0]
    assert ran == [here, here, State.RUNNING, True, here, True]


@kinds
@pytest.mark.parametrize("raised", [True, False])
def test_fail_is_a_failure_and_the_last(bench: Bench, kind: str, raised: bool) -> None:
    verdict = Fail("hopeless")
    task = made(bench.app, kind, fail(verdict) if raised else lambda: verdict, retry=5)
    told = listening(task)
    bench.work()
    assert finished(task.enqueue()) is State.DEAD
    assert told == [("failure", 1, verdict), ("dead", 1, verdict)]


@kinds
def test_an_attempt_that_asks_to_be_retried_has_failed(bench: Bench, kind: str) -> None:
    verdict = Retry.after(0)
    task = made(bench.app, kind, fail(verdict), retry=1)
    told = listening(task)
    bench.work()
    assert finished(task.enqueue()) is State.DEAD
    assert told == [("failure", 1, verdict), ("failure", 2, verdict), ("dead", 2, verdict)]


@kinds
def test_nothing_is_told_of_what_is_no_end_and_no_failure(bench: Bench, kind: str) -> None:
    verdicts = iter([Snooze(0), Cancel("never mind")])
    task = made(bench.app, kind, lambda: next(verdicts))
    told = listening(task)
    bench.work()
    assert finished(task.enqueue()) is State.CANCELLED
    assert told == []


@kinds
def test_nothing_is_told_of_a_job_that_was_called_back(bench: Bench, kind: str) -> None:
    on, gone = threading.Event(), threading.Event()

    def wait() -> None:
        on.set()
        try:
            until(gone.is_set)
        finally:
            gone.set()

    async def await_it() -> None:
        on.set()
        try:
            await asyncio.sleep(LIMIT)
        finally:
            gone.set()

    task: Any = bench.app.task(name="called")(wait if kind == "sync" else await_it)
    told = listening(task)
    worker = bench.work()
    job = task.enqueue()
    wait_for(on)
    job.cancel()
    wait_for(gone)
    worker.end()
    assert told == []


@kinds
def test_a_time_limit_is_told_as_one(bench: Bench, kind: str) -> None:
    async def await_it() -> None:
        await asyncio.sleep(LIMIT)

    task: Any = bench.app.task(name="slow", timeout=0.5)((lambda: until(lambda: False)) if kind == "sync" else await_it)
    told = listening(task)
    bench.work()
    assert finished(task.enqueue()) is State.DEAD
    (first, _, error), (second, _, same) = told
    assert (first, second) == ("failure", "dead")
    assert isinstance(error, TimeLimit)
    assert same is error
    assert str(error) == "stopped after its timeout of 0.5 s"
    assert error.__cause__ is not None


@kinds
def test_hooks_have_time_of_their_own(bench: Bench, kind: str) -> None:
    task = made(bench.app, kind, lambda: None, timeout=0.5)
    over: list[bool] = []

    @task.on_success
    def slow(job: CurrentJob, value: Any) -> None:
        assert job.deadline is not None
        end = job.deadline + 0.1
        until(lambda: time.monotonic() > end)
        over.append(True)

    bench.work()
    job = task.enqueue()
    job.result(LIMIT)
    assert over == [True]
    assert job.record().failures == 0


@kinds
def test_an_async_hook_that_does_not_end_is_stopped(
    bench: Bench, kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(hook_calls, "WITHIN", 0.05)
    task = made(bench.app, kind, lambda: 1)

    @task.on_success
    async def hang(job: CurrentJob, value: int) -> None:
        await asyncio.Event().wait()

    bench.work()
    assert task.enqueue().result(LIMIT) == 1
    assert "hang" in caplog.text
    assert "TimeoutError" in caplog.text


@kinds
@hook_kinds
@pytest.mark.parametrize("error", [RuntimeError("a bug"), SystemExit(1), Fail("no"), Snooze(1)])
def test_a_hook_that_raises_is_logged_and_changes_nothing(
    bench: Bench, kind: str, hook_kind: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    task = made(bench.app, kind, lambda: 1)
    task.on_success(hook(hook_kind, lambda job, value: fail(error)()))
    told = listening(task)
    bench.work()
    job = task.enqueue()
    assert job.result(LIMIT) == 1
    assert told == [("success", 1, 1)]
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert f"{task.name} {job.id} raised" in record.getMessage()
    assert record.exc_info is not None
    assert record.exc_info[1] is error


@kinds
def test_a_result_that_cannot_be_kept_is_a_failure(bench: Bench, kind: str) -> None:
    task = made(bench.app, kind, object)
    told = listening(task)
    bench.work()
    assert finished(task.enqueue()) is State.DEAD
    assert [name for name, _, _ in told] == ["failure", "dead"]
    assert isinstance(told[0][2], JobFailed)
    assert "returned object, which cannot be kept as JSON" in str(told[0][2])


@kinds
def test_arguments_that_do_not_fit_are_a_failure(bench: Bench, kind: str) -> None:
    task = made(bench.app, kind, lambda: 1)
    told = listening(task)
    store = bench.store()
    store.insert([Job(ids.uuid7(), task.name, b'["too", "many"]', due=bench.app.client.clock.now())])
    bench.work()
    until(lambda: len(told) == 2)
    assert [name for name, _, _ in told] == ["failure", "dead"]
    assert isinstance(told[0][2], ArgumentError)


def test_death_is_told_also_where_dead_jobs_are_not_kept(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_QUEUES__DEFAULT__KEEP__DEAD", "0")
    task = made(bench.app, "sync", fail(ValueError("no")))
    told = listening(task)
    bench.work()
    job = task.enqueue()
    until(lambda: bench.app.client.store.get([ids.parse(job.id)]) == [None])
    assert [name for name, _, _ in told] == ["failure", "dead"]


@kinds
def test_what_hooks_of_one_attempt_tell_each_other(bench: Bench, kind: str) -> None:
    task = made(bench.app, kind, lambda: 1)
    seen: list[Any] = []

    @task.on_success
    def first(job: CurrentJob, value: int) -> None:
        seen.append(dict(job.scratch))
        job.scratch["value"] = value

    task.on_success(lambda job, value: seen.append(dict(job.scratch)))
    bench.work()
    for _ in range(2):
        task.enqueue().result(LIMIT)
    assert seen == [{}, {"value": 1}] * 2


def test_variables_that_hooks_set_end_with_the_attempt(bench: Bench) -> None:
    var: ContextVar[str] = ContextVar("var", default="unset")
    seen: list[str] = []
    task = made(bench.app, "sync", lambda: seen.append(var.get()))

    @task.on_success
    def leave(job: CurrentJob, value: Any) -> None:
        var.set("left behind")

    bench.work()
    for _ in range(2):
        task.enqueue().result(LIMIT)
    assert seen == ["unset", "unset"]


class Shown(NullReporter):
    """Keeps until when each job may take."""

    def __init__(self) -> None:
        self.until: list[float] = []

    def on(self, cell: int, id: bytes, epoch: int, task: bytes, kill_at: float, reason: int = TIMEOUT) -> None:
        self.until.append(kill_at)


@kinds
def test_a_hook_that_blocks_is_stuck_after_a_minute(bench: Bench, kind: str) -> None:
    task = made(bench.app, kind, lambda: 1)
    task.on_success(lambda job, value: None)
    gauge = Shown()
    before = time.monotonic()
    worker = ThreadWorker(bench.store(), bench.app.tasks, reporter=gauge, main_thread=False).start()
    task.enqueue().result(LIMIT)
    worker.end()
    assert gauge.until[0] == 0.0, "the task itself has no timeout"
    assert before + hook_calls.WITHIN <= gauge.until[-1] <= time.monotonic() + hook_calls.WITHIN


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (lambda job: None, "is called with two arguments, (job, error), and does not take them"),
        (lambda job, error, more: None, "is called with two arguments"),
        ("print", "takes a function, not 'print'"),
    ],
)
def test_what_cannot_be_a_hook(app: App, bad: Any, told: str) -> None:
    task = made(app, "sync", lambda: None)
    for register in (task.on_failure, app.on_failure):
        with pytest.raises(TypeError, match=r"on_failure.*") as caught:
            register(bad)
        assert told in str(caught.value)


def test_a_generator_is_no_hook(app: App) -> None:
    def hook(job: CurrentJob, value: Any) -> Any:
        yield value

    with pytest.raises(TypeError, match="hook yields; it must be a plain `def` or `async def`"):
        app.on_success(hook)


class Rescue:
    """A keeper that finds jobs of the dead."""

    def __init__(self, app: App) -> None:
        self.clock = FakeClock()
        self.store = MemoryStore(self.clock.now)
        self.death_hooks = DeathHooks(app.tasks, app.client.store)
        self.keeper = Keeper(self.store, clock=self.clock, death_hooks=self.death_hooks, rules=app.rules)

    def lost(self, task: str, **fields: Any) -> Job:
        now = self.clock.now()
        self.store.insert([Job(ids.uuid7(), task, b"[]", due=now, state_since=now, **fields)])
        (job,) = self.store.claim([Want("default", band, 1) for band in BANDS], 1, "gone", 30 * SECOND, now)
        return job


def test_the_keeper_tells_of_a_job_that_killed_its_workers(app: App) -> None:
    var: ContextVar[str] = ContextVar("var")
    app.carry(var)
    task = made(app, "sync", lambda: None, name="poison")
    told: Told = []
    task.on_failure(lambda job, error: told.append(("failure", error, var.get(), current_job().id == job.id)))

    @app.on_dead
    async def mourn(job: CurrentJob, error: BaseException) -> None:
        told.append(("dead", job.id, error))

    rescue = Rescue(app)
    job = rescue.lost("poison", failures=2, crashes=2, headers=b'{"var":"x"}')
    rescue.keeper.rescue("gone", on=[job.id.hex()])
    rescue.keeper.close()
    (name, error, carried, here), dead = told
    assert (name, carried, here) == ("failure", "x", True)
    assert dead == ("dead", ids.text(job.id), error)
    assert isinstance(error, JobFailed)
    assert "3 workers died while this job was on" in str(error)


def test_the_keeper_tells_of_a_stuck_job(app: App) -> None:
    told = listening(made(app, "sync", lambda: None, name="stuck"))
    rescue = Rescue(app)
    job = rescue.lost("stuck")
    rescue.keeper.rescue("gone", on=[job.id.hex()], stuck=[job.id.hex()])
    rescue.keeper.close()
    assert [name for name, _, _ in told] == ["failure", "dead"]
    assert "it did not end after its timeout, so its worker was killed" in str(told[0][2])


def test_the_keeper_tells_nothing_of_jobs_that_only_come_back(app: App) -> None:
    told = listening(made(app, "sync", lambda: None, name="back"))
    rescue = Rescue(app)
    rescue.lost("back", failures=1, note=b'{"type":"ValueError","message":"before","traceback":""}')
    rescue.keeper.rescue("gone")
    rescue.keeper.close()
    assert told == []


def test_a_hook_that_hangs_does_not_keep_the_keeper(app: App, bench: Bench) -> None:
    task = made(app, "sync", lambda: None, name="stuck")
    gate, on = bench.gate(), threading.Event()

    @task.on_dead
    def hang(job: CurrentJob, error: BaseException) -> None:
        on.set()
        gate.wait()

    rescue = Rescue(app)
    for _ in range(2):
        job = rescue.lost("stuck")
        rescue.keeper.rescue("gone", stuck=[job.id.hex()])
        wait_for(on)
        assert rescue.store.get([job.id])[0].state is State.DEAD  # type: ignore[union-attr]
    gate.set()
    rescue.keeper.close()

"""Workers in this process: in the foreground, beside a block, or until nothing is left."""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tarry import App, CalledBack, ConfigError, Retry, Snooze, State, StoreUnavailable, current_job
from tarry.config.config import load
from tarry.keeper import chores
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.store.rules import ids
from tarry.worker.pump import Pump
from tests.worker.bench import LIMIT, until, wait_for


@pytest.fixture(params=["sqlite", "memory"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """On a file, or in the process itself."""
    app = App(f"sqlite:///{tmp_path}/tarry.db" if request.param == "sqlite" else "memory://", closures=True)
    yield app
    app.stop()
    app.close()


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    gate = threading.Event()
    yield gate
    gate.set()


def threads() -> set[str]:
    """Those of ours that live."""
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("tarry-")}


def told(path: Path, text: str) -> Any:
    path.joinpath("tarry.toml").write_text(text)
    return load(path / "tarry.toml", {})


@contextmanager
def in_a_thread(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Runs it beside the block, and checks that it ends soon after; what it returned."""
    returned: list[Any] = []
    thread = threading.Thread(target=lambda: returned.append(work()), daemon=True)
    thread.start()
    yield returned
    thread.join(LIMIT)
    assert not thread.is_alive()


# In the foreground


def test_run_works_until_stop_also_in_another_thread_than_the_main_one(app: App) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    @app.task
    async def shout(text: str) -> str:
        await asyncio.sleep(0)
        return text.upper()

    with in_a_thread(app.run):
        assert add.enqueue(1, 2).result(LIMIT) == 3
        assert shout.enqueue("hi").result(LIMIT) == "HI"
        app.stop()
    left = add.enqueue(3, 4)
    assert left.state == "ready"
    until(lambda: threads() <= {"tarry-waiting"})


def test_run_takes_the_calling_thread_as_a_slot(app: App) -> None:
    @app.task
    def where() -> str:
        name = threading.current_thread().name
        app.stop()
        return name

    job = where.enqueue()
    app.run(threads=1)
    assert job.result(LIMIT) == "MainThread"


def test_two_at_once_share_the_work_and_stop_together(app: App) -> None:
    both = threading.Barrier(2)

    @app.task
    def meet() -> int:
        both.wait(LIMIT)
        return threading.get_ident()

    with in_a_thread(lambda: app.run(threads=1)), in_a_thread(lambda: app.run(threads=1)):
        jobs = meet.enqueue_many([(), ()])
        assert len({job.result(LIMIT) for job in jobs}) == 2
        app.stop()


def test_only_the_queues_that_are_named_are_served(app: App) -> None:
    @app.task(queue="mail")
    def mail() -> None: ...

    @app.task
    def other() -> None: ...

    jobs = [mail.enqueue(), other.enqueue()]
    for queues in ("mail", ["mail"], {"mail": 2}):
        jobs.append(mail.enqueue())
        with app.running(queues=queues):
            jobs[-1].result(LIMIT)
            jobs[0].result(LIMIT)
    assert jobs[1].state == "ready"


def test_what_is_not_said_is_as_in_the_default_pool(app: App, tmp_path: Path) -> None:
    app.configure(told(tmp_path, "[pools.default]\nqueues = ['mail']\nthreads = 2\nasync = 0\n"))
    both = threading.Barrier(2)

    @app.task(queue="mail")
    def meet() -> None:
        both.wait(LIMIT)

    @app.task(queue="mail")
    async def loop() -> None: ...

    @app.task
    def other() -> None: ...

    jobs = [meet.enqueue(), meet.enqueue(), loop.enqueue(), other.enqueue()]
    with app.running():
        for job in jobs[:2]:
            job.result(LIMIT)
        until(lambda: jobs[2].record().epoch > 0)
    assert [job.state for job in jobs] == ["done", "done", "scheduled", "ready"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"threads": 0, "coroutines": 0}, "threads=0, coroutines=0: 0 or more of each, and 1 or more of one of them"),
        ({"threads": -1}, "threads=-1, coroutines=100: 0 or more of each"),
        ({"queues": []}, r"queues=\[\]: a name, several, or weights"),
        ({"queues": {"mail": 0}}, "queues={'mail': 0}: a name, several, or weights"),
    ],
)
def test_settings_that_cannot_be_are_refused(app: App, wrong: Any, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        app.run(**wrong)
    with pytest.raises(ConfigError, match=told):
        app.running(**wrong)


def test_run_would_block_an_event_loop(app: App) -> None:
    async def lifespan() -> None:
        app.run()

    with pytest.raises(RuntimeError, match=r"would block this event loop: use `async with app.running\(\):`"):
        asyncio.run(lifespan())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_lets_it_finish_what_runs_and_the_handlers_are_as_before(app: App, number: int) -> None:
    begun: list[str] = []

    @app.task
    def kill_us(id: str) -> bool:
        begun.append(id)
        os.kill(os.getpid(), number)
        until(lambda: current_job().stopping)
        return True

    before = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    jobs = [kill_us.enqueue("a"), kill_us.enqueue("b")]
    app.run(threads=1)
    assert [job.state for job in jobs] == ["done", "ready"]
    assert begun == ["a"]
    assert [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)] == before


def spin() -> None:
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        pass


def test_term_breaks_in_after_its_grace_and_nothing_counts(app: App, tmp_path: Path) -> None:
    app.configure(told(tmp_path, "[master]\nterm_grace = 0.1\n"))
    cleaned: list[str] = []
    begun = threading.Event()

    @app.task
    def busy() -> None:
        wait_for(begun)
        os.kill(os.getpid(), signal.SIGTERM)
        try:
            # A function of its own: docs/versions.md says why.
            spin()
        except CalledBack:
            cleaned.append("sync")
            raise

    @app.task
    async def asleep() -> None:
        begun.set()
        try:
            await asyncio.sleep(LIMIT)
        finally:
            cleaned.append("async")

    jobs = [asleep.enqueue(), busy.enqueue()]
    app.run(threads=1)
    assert sorted(cleaned) == ["async", "sync"]
    assert [(job.state, job.record().attempt, job.record().crashes) for job in jobs] == [("ready", 1, 0)] * 2


def test_the_same_signal_twice_is_now(app: App) -> None:
    @app.task
    def busy() -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            pass

    job = busy.enqueue()
    began = time.monotonic()
    app.run(threads=1)
    assert time.monotonic() - began < LIMIT
    assert (job.state, job.record().attempt) == ("ready", 1)


# Beside a block


def test_running_works_beside_the_block_and_leaves_no_thread(app: App, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    with app.running():
        assert add.enqueue(1, 2).result(LIMIT) == 3
        assert {"tarry-worker", "tarry-keeper", "tarry-pump"} <= threads()
    until(lambda: threads() <= {"tarry-waiting"})
    assert add.enqueue(1, 2).state == "ready"
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


def test_running_in_a_lifespan(app: App) -> None:
    @app.task
    async def shout(text: str) -> str:
        return text.upper()

    async def serve() -> str:
        async with app.running(coroutines=3):
            job = await shout.aenqueue("hi")
            return await job.aresult(LIMIT)

    assert asyncio.run(serve()) == "HI"
    until(lambda: threads() <= {"tarry-waiting", "tarry-flusher"})


def test_the_end_of_the_block_waits_for_what_runs(app: App) -> None:
    begun = threading.Event()

    @app.task
    def finish() -> bool:
        begun.set()
        until(lambda: current_job().stopping)
        return True

    with app.running():
        job = finish.enqueue()
        wait_for(begun)
    assert job.state == "done"


def test_the_end_of_the_block_has_a_limit(app: App) -> None:
    begun, let_go = threading.Event(), threading.Event()

    @app.task
    def busy() -> None:
        begun.set()
        try:
            while True:
                pass
        finally:
            let_go.set()

    with app.running(limit=0.05):
        job = busy.enqueue()
        wait_for(begun)
    wait_for(let_go)
    assert (job.state, job.record().attempt) == ("ready", 1)


def test_a_job_that_heeds_nothing_is_given_back_and_told_of(
    app: App, gate: threading.Event, caplog: pytest.LogCaptureFixture
) -> None:
    begun = threading.Event()

    @app.task
    def deaf() -> None:
        begun.set()
        gate.wait(60)

    with app.running(limit=0.05):
        job = deaf.enqueue()
        wait_for(begun)
    assert (job.state, job.record().attempt) == ("ready", 1)
    assert "gives back what does not end (1 job): it may be run twice now" in caplog.text
    gate.set()
    with app.running():
        assert job.result(LIMIT) is None


def test_a_block_is_entered_once(app: App) -> None:
    block = app.running()
    with block:
        pass
    with pytest.raises(RuntimeError, match=r"call app.running\(\) for each"):
        block.__enter__()


def test_a_store_that_is_away_is_told_where_the_block_begins(tmp_path: Path) -> None:
    app = App(f"sqlite:///{tmp_path}/missing/tarry.db")
    with pytest.raises(StoreUnavailable), app.running():
        raise AssertionError("not reached")


def test_the_keeper_brings_back_the_jobs_of_the_dead_and_forgets(
    app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "PRUNE_EVERY", 0.5)
    app.configure(told(tmp_path, '[queues.default]\nkeep = { done = "0.1s" }\n'))

    @app.task(name="count")
    def count() -> int:
        return current_job().attempt

    job, now = count.enqueue(), app.client.clock.now()
    (claimed,) = app.client.store.claim([_want()], 1, "gone", SECOND // 10, now)
    assert claimed.owner == "gone"
    with app.running():
        until(lambda: job.record().attempt == 2 or job.state.finished)
        until(lambda: app.client.store.get([claimed.id]) == [None])


def _want() -> Any:
    from tarry.store.rules.base import NORMAL, Want  # noqa: PLC0415

    return Want("default", NORMAL, 1)


def test_a_worker_that_breaks_is_told_where_it_was_begun(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("the worker is not as it should be")

    # Not a call of the store: over an error of that a worker goes on.
    monkeypatch.setattr(Pump, "step", broken)
    with pytest.raises(RuntimeError, match="not as it should be"):
        app.run()
    with pytest.raises(RuntimeError, match="not as it should be"), app.running():
        until(lambda: "tarry-pump" not in threads())
    with pytest.raises(RuntimeError, match="not as it should be"):
        app.drain()
    with pytest.raises(ValueError, match="what the block raises comes first"), app.running():
        raise ValueError("what the block raises comes first")


def test_the_limits_of_the_code_are_in_force(app: App, gate: threading.Event) -> None:
    begun: list[int] = []

    @app.task(limit=1)
    def one_at_a_time(n: int) -> None:
        begun.append(n)
        assert gate.wait(LIMIT)

    jobs = one_at_a_time.enqueue_many([(0,), (1,)])
    with app.running(threads=2):
        until(lambda: len(begun) == 1)
        assert sorted(job.state for job in jobs) == ["ready", "running"]
        gate.set()
        for job in jobs:
            job.result(LIMIT)


# Until nothing is left


def test_drain_runs_what_is_due_and_says_how_many_attempts_that_were(app: App) -> None:
    ran: list[str] = []

    @app.task
    def sync(name: str) -> None:
        ran.append(name)
        assert threading.current_thread() is threading.main_thread()
        if name == "first":
            sync.enqueue("child")

    @app.task(queue="other")
    async def loop(name: str) -> None:
        ran.append(name)

    @app.task(retry=Retry(3, backoff="fixed", base=0))
    def flaky() -> None:
        ran.append(f"flaky {current_job().attempt}")
        if current_job().attempt < 3:
            raise ValueError

    @app.task(retry=3)
    def fails_for_now() -> None:
        ran.append("later")
        raise ValueError

    later = [sync.using(delay=60).enqueue("delayed"), fails_for_now.enqueue()]
    done = [sync.enqueue("first"), loop.enqueue("loop"), flaky.enqueue()]
    assert app.drain() == len(ran) == 7
    assert sorted(ran) == ["child", "first", "flaky 1", "flaky 2", "flaky 3", "later", "loop"]
    assert {job.state for job in done} == {State.DONE}
    assert [job.state for job in later] == ["scheduled", "scheduled"]
    assert app.drain() == 0


def test_drain_runs_coroutines_at_the_same_time(app: App) -> None:
    @app.task
    async def meet() -> None:
        here.append(1)
        while len(here) < 5:
            await asyncio.sleep(0)

    here: list[int] = []
    meet.enqueue_many([()] * 5)
    assert app.drain() == 5


def test_drain_of_some_queues(app: App) -> None:
    @app.task
    def sync(name: str) -> None: ...

    jobs = [sync.using(queue=queue).enqueue(queue) for queue in ("a", "b", "c")]
    assert app.drain(queues="b") == 1
    assert [job.state for job in jobs] == ["ready", "done", "ready"]
    app.client.store.pause("c", True)
    assert app.drain() == 1
    assert [job.state for job in jobs] == ["done", "done", "ready"]


def test_drain_finds_the_queue_in_which_its_last_job_enqueued(app: App) -> None:
    @app.task(queue="another")
    def second() -> None: ...

    @app.task
    def first() -> None:
        second.enqueue()

    first.enqueue()
    assert app.drain() == 2


def test_drain_finds_its_own_behind_thousands_that_fall_due(app: App) -> None:
    @app.task(name="sync")
    def sync() -> None: ...

    due = app.client.clock.now() - SECOND
    others = [Job(ids.uuid7(), "sync", b"[]", "other", due=due, state=State.SCHEDULED) for _ in range(2500)]
    mine = Job(ids.uuid7(), "sync", b"[]", "mine", due=due + 1, state=State.SCHEDULED)
    app.client.store.insert([*others, mine])
    assert app.drain(queues="mine") == 1
    app.client.store.pause("other", True)
    assert app.drain() == 0


def test_drain_with_a_timeout_begins_no_more_when_it_is_over(app: App) -> None:
    @app.task
    def slow() -> None:
        time.sleep(0.02)
        slow.enqueue()

    slow.enqueue()
    assert app.drain(timeout=0.5) > 0
    (left,) = app.client.store.find(_waiting())
    assert left.state == "ready"


def _waiting() -> Any:
    from tarry.store.rules.base import Query  # noqa: PLC0415

    return Query(states=(State.READY, State.RUNNING, State.SCHEDULED))


def test_drain_keeps_to_timeouts_and_outcomes(app: App) -> None:
    @app.task(timeout=0.05, retry=None)
    def spin() -> None:
        while True:
            pass

    @app.task
    def snooze() -> None:
        raise Snooze(60)

    jobs = [spin.enqueue(), snooze.enqueue()]
    assert app.drain() == 2
    assert [job.state for job in jobs] == ["dead", "scheduled"]


def test_drain_first_brings_back_what_the_dead_left(app: App) -> None:
    @app.task
    def one() -> int:
        return 1

    job, now = one.enqueue(), app.client.clock.now()
    app.client.store.claim([_want()], 1, "gone", 1, now - SECOND)
    assert job.state == "running"
    assert app.drain() == 1
    assert job.state == "done"


def test_ctrl_c_ends_a_drain_when_the_job_at_hand_is_done(app: App) -> None:
    @app.task
    def kill_us() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        until(lambda: current_job().stopping)

    before = signal.getsignal(signal.SIGINT)
    jobs = kill_us.enqueue_many([(), ()])
    with pytest.raises(KeyboardInterrupt):
        app.drain()
    assert sorted(job.state for job in jobs) == ["done", "ready"]
    assert signal.getsignal(signal.SIGINT) is before


def test_adrain(app: App) -> None:
    @app.task
    async def shout(text: str) -> str:
        return text.upper()

    @app.task
    def add(a: int) -> int:
        return a + 1

    async def script() -> int:
        await shout.aenqueue("hi")
        await add.aenqueue(1)
        return await app.adrain(timeout="10s")

    assert asyncio.run(script()) == 2


def test_adrain_that_is_cancelled_takes_nothing_more(app: App, gate: threading.Event) -> None:
    begun = threading.Event()

    @app.task
    def wait() -> None:
        begun.set()
        assert gate.wait(LIMIT)

    async def script() -> None:
        await wait.aenqueue()
        await wait.aenqueue()
        draining = asyncio.create_task(app.adrain())
        await asyncio.to_thread(begun.wait, LIMIT)
        draining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await draining
        gate.set()

    asyncio.run(script())
    until(lambda: threads() <= {"tarry-waiting", "tarry-flusher"})
    assert sorted(job.state for job in app.client.store.find(_every())) == ["done", "ready"]


def _every() -> Any:
    from tarry.store.rules.base import Query  # noqa: PLC0415

    return Query()


def test_drain_of_a_store_that_is_given(tmp_path: Path) -> None:
    store = MemoryStore()
    app = App(store, closures=True)

    @app.task
    def one() -> int:
        return 1

    job = one.enqueue()
    assert app.drain() == 1
    assert job.result(0) == 1

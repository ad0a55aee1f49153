"""A timeout and a retry rule for one job: `using(timeout=..., retry=...)`."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from tarry import App, Retry, State, TimeLimit, current_job
from tarry.model import overrides
from tarry.model.duration import MINUTE, SECOND
from tarry.model.retry import DEFAULT, NEVER
from tarry.store.memory.store import MemoryStore
from tarry.tasks.new_job import NewJob
from tarry.testing import Jobs
from tests.worker.bench import Bench, finished, note

RULES = [
    Retry(5, "exponential", base=2, cap="1h", jitter=0.3),
    Retry(backoff=["1m", 90, timedelta(hours=2)]),
    Retry(None, "2n+1 minutes", within="1d"),
    Retry(3, only=(ConnectionError,), never=(KeyError,), per={TimeoutError: Retry(10, base=30, per={OSError: NEVER})}),
]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_travels_as_it_is(rule: Retry) -> None:
    headers = job_headers(retry=rule)
    read = overrides.retry_of(headers, NEVER)
    for kinds in ((), ("ConnectionError",), ("KeyError",), ("TimeoutError", "OSError"), ("OSError",)):
        for failures in (1, 2, 3, 4, 11, 12):
            for age in (0, 10**11):
                given = failures, kinds, b"seed", age
                assert read.delay(*given) == rule.delay(*given)


def job_headers(**options: Any) -> bytes:
    app = App(MemoryStore(), closures=True)
    return app.task(lambda: None).using(**options).enqueue().record().headers


def test_a_job_without_them_has_no_headers() -> None:
    assert job_headers() == job_headers(delay=5) == job_headers(timeout=None, retry="default") == b""


@pytest.mark.parametrize(
    "headers", [b"{", b'{"tarry-retry": "{"}', b'{"tarry-retry": "[]"}', b'{"tarry-retry": "{}", "tarry-timeout": "x"}']
)
def test_what_cannot_be_read_leaves_it_to_the_task(headers: bytes) -> None:
    assert overrides.retry_of(headers, DEFAULT) is DEFAULT
    assert overrides.timeout_of(headers, 5.0) == 5.0


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_shorter_than_the_tasks(bench: Bench, kind: str) -> None:
    def work() -> float | None:
        while True:
            time.sleep(0.01)

    async def awork() -> None:
        await asyncio.sleep(60)

    task: Any = bench.app.task(name="work", timeout=60)(work if kind == "sync" else awork)
    bench.work()
    job = task.using(timeout=0.1).enqueue()
    assert finished(job) == "dead"
    assert note(job)["message"] == "stopped after its timeout of 0.1 s"


def test_longer_than_the_tasks_and_where_the_task_has_none(bench: Bench) -> None:
    @bench.app.task(timeout=0.1)
    def work() -> float:
        time.sleep(0.5)
        deadline = current_job().deadline
        assert deadline is not None
        return deadline - time.monotonic()

    @bench.app.task
    def endless() -> None:
        while True:
            time.sleep(0.01)  # a sleep cannot be broken in on

    bench.work(threads=2)
    long, short, cut = work.using(timeout="1m").enqueue(), work.enqueue(), endless.using(timeout=0.1).enqueue()
    assert 50 < long.result(timeout=10) < 60
    assert (finished(short), finished(cut)) == ("dead", "dead")
    assert note(cut)["type"] == TimeLimit.__name__


def test_a_rule_of_ones_own(jobs: Jobs) -> None:
    @jobs.app.task(retry=1)
    def work() -> None:
        raise ValueError

    @work.on_dead
    def dead(job: Any, error: Any) -> None:
        ends.append(job.id)

    ends: list[str] = []
    never, often, plain = (
        work.using(retry=None).enqueue(),
        work.using(retry=Retry(2, base="1m")).enqueue(),
        work.using(retry="default").enqueue(),
    )
    jobs.drain()
    assert (never.state, often.state, plain.state) == (State.DEAD, State.SCHEDULED, State.SCHEDULED)
    assert often.record().due - plain.record().due == MINUTE - SECOND
    jobs.advance("1m")
    jobs.drain()
    assert (often.state, plain.state) == (State.SCHEDULED, State.DEAD)
    jobs.advance("1m")
    jobs.drain()
    assert often.state is State.DEAD
    assert ends == [never.id, plain.id, often.id]


def test_by_name_in_bulk_and_from_middleware_beside_other_headers(jobs: Jobs) -> None:
    app = jobs.app

    @app.task
    def work(number: int) -> None:
        raise ValueError

    @app.middleware("enqueue")
    def marked(job: NewJob, call_next: Any) -> Any:
        job.headers["trace"] = "abc"
        if job.args[0] == 3:
            job.using(retry=None)
        return call_next(job)

    many = work.using(retry=None).enqueue_many([(0,), (1,)])
    named = app.named(work.name).using(retry=None).enqueue(2)
    changed, plain = work.enqueue(3), work.enqueue(4)
    jobs.drain()
    assert [job.state for job in (*many, named, changed)] == [State.DEAD] * 4
    assert plain.state is State.SCHEDULED
    assert b'"trace":"abc"' in named.record().headers


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 0}, "timeout=0: a duration longer than 0"),
        ({"timeout": -1}, "timeout=-1 is negative"),
        ({"timeout": "soon"}, "timeout='soon' is no duration"),
        ({"retry": "often"}, "retry='often': how many times"),
        ({"retry": -1}, "limit=-1"),
    ],
)
def test_what_cannot_be_is_told_at_once(jobs: Jobs, options: dict[str, Any], said: str) -> None:
    task = jobs.app.task(lambda: None)
    with pytest.raises((TypeError, ValueError), match=said):
        task.using(**options)


def test_a_batch_has_one_timeout_for_all_and_each_job_its_rule(jobs: Jobs) -> None:
    @jobs.app.task(batch=10, retry=1)
    def work(numbers: list[int]) -> None:
        raise ValueError

    with pytest.raises(ValueError, match="runs many jobs in one call, which has one timeout: that of the task"):
        work.using(timeout=5).enqueue(1)
    never, once = work.using(retry=None).enqueue(1), work.enqueue(2)
    jobs.drain()
    assert (never.state, once.state) == (State.DEAD, State.SCHEDULED)

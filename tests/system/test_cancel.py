"""A job that runs is cancelled from another process, on every kind of store: it is ended, whatever it is at."""

import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from tarry.client.client import Client
from tarry.model.job import Job
from tarry.process.parent_board import UNRESPONSIVE_AFTER
from tarry.store.opening import open_store
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.tasks.arguments.options import Options
from tests.cli.project import alive, until
from tests.system.scene import APP, Scene

DEAF = """

import collections
import itertools


@app.task
def clings() -> None:
    tell("began")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(3600)


@app.task
async def blocks() -> None:
    tell("began")
    time.sleep(3600)


@app.task
async def swallows() -> None:
    tell("began")
    while True:
        with contextlib.suppress(BaseException):
            await asyncio.sleep(3600)


@app.task
def holds() -> None:
    tell("began")
    collections.deque(itertools.count(), maxlen=0)


@app.task
async def aholds() -> None:
    tell("began")
    collections.deque(itertools.count(), maxlen=0)


@app.task(batch=3, wait=1)
def many(numbers: list[int]) -> None:
    tell("began")
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(3600)
"""

WITHIN = 1.0 + 2.0
"""Seconds from the cancel in the store until it has reached the task, on a machine that is busy with other tests."""


class Far:
    """Jobs in a store of any kind."""

    def __init__(self, scene: Scene, store: Store) -> None:
        self.scene, self._store = scene, store
        self.slowness = 0.0
        """Seconds that the last command took: what a busy machine adds."""

    def put(self, task: str, *args: object, times: int = 1) -> list[str]:
        client, body = Client(self._store, {}), msgspec.json.encode(args)
        return [
            handle.id for handle in client.insert_jobs([client.make_job(task, body, Options()) for _ in range(times)])
        ]

    def job(self, id: str) -> Job:
        (job,) = self._store.get([ids.parse(id)])
        assert job is not None
        return job

    def cancel(self, *jobs: str) -> float:
        """By a command; when it was done, in seconds since the epoch."""
        began = time.monotonic()
        self.scene.said("jobs", "cancel", *jobs)
        self.slowness = time.monotonic() - began
        assert {self.job(id).state for id in jobs} == {"cancelled"}
        return min(self.job(id).state_since for id in jobs) / 1e6

    def begun(self, jobs: list[str]) -> None:
        until(lambda: {line.job for line in self.scene.ledger("began")} >= set(jobs))

    def all_done_uncounted(self, jobs: list[str]) -> None:
        self.scene.open("go")
        until(lambda: all(self.job(id).state == "done" for id in jobs))
        assert {(self.job(id).attempt, self.job(id).failures, self.job(id).crashes) for id in jobs} == {(1, 0, 0)}


@pytest.fixture(params=["sqlite", "redis_server", "postgres_server"])
def far(request: pytest.FixtureRequest, scene: Scene) -> Iterator[Far]:
    if request.param == "sqlite":
        url = f"sqlite:///{scene.database}"
    elif request.param == "redis_server":
        url = request.getfixturevalue("redis_server").url.rpartition("/")[0] + "/9"
    else:
        url = request.getfixturevalue("postgres_url")
    scene.write("app.py", APP + DEAF)
    scene.settings(f'store = "{url}"\n[pools.default]\nthreads = 3\n')
    scene.serve()
    store = open_store(url)
    yield Far(scene, store)
    scene.close()
    store.close()


@pytest.mark.parametrize(("task", "told"), [("app.wait", "CalledBack"), ("app.await_gate", "cancelled")])
def test_a_cancel_reaches_what_runs_within_a_second(far: Far, task: str, told: str) -> None:
    (worker,) = far.scene.pids()
    jobs = far.put(task, "go", times=2)
    far.begun(jobs)
    at = far.cancel(jobs[0])
    until(lambda: far.scene.ledger(told))
    took = far.scene.ledger(told)[0].at - at
    print(f"cancel reached {task} in {took:.3f} s")
    assert took < WITHIN + far.slowness
    far.all_done_uncounted(jobs[1:])
    assert far.scene.pids() == [worker]


def ends_with_its_process(far: Far, task: str, when: Callable[[], bool] = lambda: True) -> None:
    """Cancelled, once it is at work and that holds; its neighbours are done all the same."""
    (worker,) = far.scene.pids()
    others = [*far.put("app.wait", "go"), *far.put("app.await_gate", "go", times=3)]
    far.begun(others)
    (job,) = far.put(f"app.{task}")
    far.begun([job])
    until(when)
    at = far.cancel(job)
    until(lambda: not alive(worker))
    took = time.time() - at
    print(f"{task}: its process was gone {took:.3f} s after the cancel")
    assert took < WITHIN + 1 + far.slowness
    assert far.scene.replaced(worker)
    far.all_done_uncounted(others)
    assert (far.job(job).state, far.job(job).failures) == ("cancelled", 0)


@pytest.mark.parametrize("task", ["clings", "blocks"])
def test_what_does_not_heed_its_cancel_ends_with_its_process_and_nobody_else_pays(far: Far, task: str) -> None:
    ends_with_its_process(far, task)


@pytest.mark.parametrize("task", ["holds", "aholds"])
def test_a_cancel_is_heard_where_no_thread_of_the_worker_runs(far: Far, task: str) -> None:
    ends_with_its_process(far, task, lambda: far.scene.children()[0].heartbeat > UNRESPONSIVE_AFTER)


def test_a_coroutine_that_swallows_its_cancel_runs_no_further_and_leaves_the_others_alone(far: Far) -> None:
    (worker,) = far.scene.pids()
    others = far.put("app.await_gate", "go", times=3)
    (job,) = far.put("app.swallows")
    far.begun([*others, job])
    far.cancel(job)
    until(lambda: "was cancelled and went on: it is given up" in far.scene.log())
    far.all_done_uncounted(others)
    assert far.scene.pids() == [worker]
    assert far.scene.times("began") == dict.fromkeys([*others, job], 1)


def test_a_call_for_many_goes_on_until_all_of_them_are_cancelled(far: Far) -> None:
    (worker,) = far.scene.pids()
    others = far.put("app.await_gate", "go", times=3)
    jobs = far.put("app.many", 1, times=3)
    far.begun([*others, *jobs])
    far.cancel(jobs[0])
    assert far.scene.pids() == [worker]
    far.cancel(*jobs[1:])
    assert far.scene.replaced(worker)
    far.all_done_uncounted(others)
    assert {far.job(id).state for id in jobs} == {"cancelled"}

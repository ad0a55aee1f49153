"""Reloads while jobs are put and run all the time: none is lost, none runs twice."""

import itertools
import threading
from collections import Counter

import pytest

from tarry.client.client import Client
from tarry.testing.history_check import Put
from tests.cli.project import until
from tests.system.scene import Scene

pytestmark = pytest.mark.usefixtures("checked_history")


class Load(threading.Thread):
    """Puts some 500 jobs a second, until it is told to end."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(daemon=True)
        self.put: list[str] = []
        self._scene, self._over = scene, threading.Event()

    def run(self) -> None:
        with self._scene.store() as store:
            client = Client(store, {})
            for number in itertools.count():
                if self._over.wait(0.02):
                    return
                task = ("app.add", "app.aadd")[number % 2]
                jobs = [client.make_job(task, b"[%d,1]" % n) for n in range(10)]
                handles = client.insert_jobs(jobs)
                self.put += [handle.id for handle in handles]
                at, due = store.time(), min(job.due for job in jobs)
                self._scene.told += [Put(handle.id, at, due=due, task=task) for handle in handles]

    def end(self) -> None:
        self._over.set()
        self.join(30)


@pytest.mark.parametrize("times", [8, pytest.param(100, marks=[pytest.mark.soak, pytest.mark.timeout(600)])])
def test_reloads_under_load_lose_nothing_and_run_nothing_twice(scene: Scene, times: int) -> None:
    scene.settings("[pools.default]\nworkers = 2\nmax_jobs = 300\n")
    scene.serve()
    load = Load(scene)
    load.start()
    for number in range(times):
        ran = scene.tarry("reload")
        assert (ran.status, ran.out) == (0, f"reloaded: generation {number + 2} serves\n"), ran.err
    load.end()
    until(scene.all_finished, 60)
    assert scene.states() == dict.fromkeys(load.put, "done")
    assert scene.times("ended") == Counter(load.put)
    assert {job.attempt for job in scene.jobs()} == {1}
    print(f"{len(load.put)} jobs over {times} reloads")
    scene.stopped()

"""Interrupts at random moments: into the threads of a runner, as the pump throws them; and a look at what is left."""

import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from tarry import App, ResultTimeout, TimeLimit, current_job
from tarry.client.tasks.task import Task
from tarry.model.job import Job
from tarry.model.outcome import Outcome, TimedOut
from tarry.store.rules import ids
from tarry.tasks.running import Running
from tarry.worker.run.context import AttemptContext
from tarry.worker.run.runner import OutcomeQueue
from tarry.worker.run.threads import ThreadRunner
from tests.seeds import seeded_random
from tests.worker.bench import LIMIT

LONGEST = 0.003
"""Seconds between the beginning of a task and its interrupt, at most."""
CALLERS = 12
"""More than there are connections in any pool."""


class Thrower:
    """A runner whose tasks are interrupted, each after a random time."""

    def __init__(self, threads: int, main: bool = False) -> None:
        self.outcomes = OutcomeQueue(lambda: None)
        self.runner = ThreadRunner(threads, self.outcomes, lambda cell: AttemptContext(cell=cell), use_main_thread=main)
        self._random = random.Random(12)

    def throw(self, task: Task[Any, Any], times: int) -> list[Outcome]:
        """Runs the task so many times; the outcomes."""
        found: list[Outcome] = []
        on: list[Running] = []
        for _ in range(times):
            on.append(self._begun(task))
            if len(on) == self.runner.slots:
                found += self._interrupted(on)
        found += self._interrupted(on)
        return found

    def _begun(self, task: Task[Any, Any]) -> Running:
        running = Running(Job(ids.uuid7(), task.name, b"[]", "default"), task)
        self.runner.put([running])
        return running

    def _interrupted(self, on: list[Running]) -> list[Outcome]:
        count = len(on)
        for running in on:
            while not running.started:
                time.sleep(0.0001)
        while on:
            time.sleep(self._random.uniform(0, LONGEST / count))
            self.runner.interrupt(on.pop(), TimeLimit)
        end = time.monotonic() + LIMIT
        while len(self.outcomes.ended) < count:
            assert time.monotonic() < end, "a task was interrupted and did not end"
            time.sleep(0.0001)
        return [self.outcomes.ended.popleft()[1] for _ in range(count)]


def busy_task(app: App) -> Task[Any, Any]:
    """A task that does all that a task does with tarry, again and again, until it is interrupted."""

    @app.task(name="target")
    def target(number: int) -> None: ...

    def enqueue_many() -> None:
        jobs = target.enqueue_many([(n,) for n in range(20)])
        jobs[0].record()

    def follow() -> None:
        for _ in target.enqueue(4).follow(timeout=0.01):
            current_job().progress(0.5)

    chance = seeded_random()
    doings: list[Callable[[], object]] = [
        lambda: target.enqueue(1).cancel(),
        lambda: target.using(key=str(chance.randrange(9)), on_duplicate="replace").enqueue(2),
        enqueue_many,
        lambda: target.enqueue(3).result(timeout=0.01),
        follow,
    ]

    @app.task(name="busy")
    def busy() -> None:
        while True:
            with suppress(ResultTimeout):
                chance.choice(doings)()

    return busy


def assert_all_interrupted(outcomes: list[Outcome], times: int) -> None:
    """Each was stopped, and none failed in another way."""
    others = [outcome for outcome in outcomes if not isinstance(outcome, TimedOut)]
    assert others == []
    assert len(outcomes) == times


def assert_nothing_is_held(app: App) -> None:
    """Many threads at once use the store as ever, and so does another process."""
    at_once(lambda: app.tasks["target"].enqueue(5).record())
    url = app.store_url
    if "memory:" in str(url):
        return
    code = "import sys\nfrom tarry import App\nApp(sys.argv[1:]).client.store.kv_cas('seen', b'1', None)"
    urls = [url] if isinstance(url, str) else list(url)
    ran = subprocess.run([sys.executable, "-c", code, *urls], capture_output=True, text=True, timeout=250, check=False)
    assert ran.returncode == 0, ran.stderr


def at_once(call: Callable[[], object]) -> None:
    """The call by many threads, all inside at once as far as they can be; none fails or hangs."""
    errors: list[BaseException] = []
    start = threading.Barrier(CALLERS)

    def make() -> None:
        try:
            start.wait(LIMIT)
            for _ in range(5):
                call()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=make, daemon=True) for _ in range(CALLERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive(), "a caller hangs"
    assert errors == []

"""A place with a real master, producers and a store, in which everything is killed, halted and reloaded by a seed."""

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from tarry.errors import StoreError
from tarry.model.job import Job, State
from tarry.store.rules import ids
from tarry.store.rules.base import Query
from tarry.testing.history_check import LimitSet, Put, StoreDied
from tarry.testing.leftovers import leftovers
from tests.cli.project import alive, until
from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.server import Server
from tests.system.scene import Scene

ENDS_WITHIN = 180.0
HALT = 4.0
"""Seconds that a store stands still at most: less than a lease."""
KEYS = 10
"""As in storm_producer.py."""
HERE = Path(__file__).parent
SETTINGS = """
store = "{store}"
[pools.default]
workers = {workers}
threads = 3
queues = {{ default = {weight}, other = 2, bounded = 1 }}
shares = [5, 3, 2]
[queues.default]
keep = {{ done = "2h", dead = "30d", bytes = "1GB" }}
[queues.other]
keep = {{ done = "2h", dead = "30d", bytes = "1GB" }}
[queues.bounded]
keep = {{ done = "2h", dead = "30d", bytes = "1GB" }}
max_waiting = 40
"""
LIMITS = [LimitSet("each:app.keyed", 0, most=1), LimitSet("task:app.keyed", 0, most=6)]
SERVERS: dict[str, tuple[Callable[[Path], Server], str]] = {
    "redis": (
        lambda directory: RedisServer(directory, "--appendonly", "yes", "--appendfsync", "always"),
        "redis://127.0.0.1:{}/0?timeout=5s",
    ),
    "postgres": (PostgresServer, "postgresql://postgres@127.0.0.1:{}/postgres?timeout=5s"),
    "mariadb": (MariadbServer, "mysql://root@127.0.0.1:{}/tarry?timeout=5"),
}


FORGETS: dict[type[Server], int] = {PostgresServer: 1_000_000}
"""Microseconds before its death of which a server may forget claims and ends, as docs/stores.md says. The others forget
nothing, as they are started here."""


class Storm(Scene):
    """A place with masters, producers, and a store that may be a server of its own."""

    copied: ClassVar[dict[str, Path]] = {
        "app.py": HERE / "storm_app.py", "producer.py": HERE / "storm_producer.py", "pace.py": HERE / "pace.py",
    }  # fmt: skip
    """The files beside the settings, and of what they are copies."""
    producer, producers = "producer.py", 2
    ends_within: ClassVar[float] = ENDS_WITHIN
    """Seconds that jobs and producers have to end."""

    def __init__(self, directory: Path, url: str, server: Server | None, seed: int) -> None:
        super().__init__(directory)
        self.url, self.server, self.chance = url, server, random.Random(seed)
        for name, copied in self.copied.items():
            self.write(name, copied.read_text())
        self.configure()
        self.struck = Counter[str]()
        self.master = self.serve()
        self._producers = [self._produce(seed + number) for number in range(self.producers)]

    def jobs(self, *, task: str | None = None) -> list[Job]:
        with self.store() as store:
            return store.find(Query(task=task, limit=1_000_000))

    def configure(self) -> None:
        """Other workers and other weights."""
        workers, weight = self.chance.randint(2, 3), self.chance.randint(1, 5)
        self.settings(SETTINGS.format(store=self.url, workers=workers, weight=weight))

    def _produce(self, seed: int) -> "subprocess.Popen[bytes]":
        with (self.directory / "producer.log").open("ab") as log:
            command = [sys.executable, self.producer, str(seed)]
            return subprocess.Popen(command, cwd=self.directory, env=self.environ, stdout=log, stderr=log)

    # What happens to it

    def act(self) -> None:
        acts = {self.kill_worker: 8, self.kill_keeper: 3, self.kill_master: 1, self.kill_all: 1, self.reload: 2}
        if self.server is not None:
            acts |= {self.kill_store: 2, self.halt_store: 2}
        (act,) = self.chance.choices(list(acts), list(acts.values()))
        act()
        self.struck[act.__name__] += 1

    def kill_worker(self) -> None:
        self._kill(self.pids()[:1])

    def kill_keeper(self) -> None:
        self._kill(self.pids("keeper"))

    def kill_master(self) -> None:
        self._kill([self.master.pid])
        self.master.wait()
        self.master = self.serve()

    def kill_all(self) -> None:
        self._kill([pid for pid in self.processes() if pid not in {one.pid for one in self._producers}])
        self.master.wait()
        self.master = self.serve()

    def reload(self) -> None:
        self.configure()
        self.tarry("reload")

    def kill_store(self) -> None:
        assert self.server is not None
        began = self.now()
        self.server.kill()
        # From before the kill on, which takes its time.
        forgets = FORGETS.get(type(self.server))
        self.told.append(StoreDied(now := self.now(), forgets + now - began if forgets else 0))
        time.sleep(self.chance.uniform(0, 1))
        self.server.start()

    def halt_store(self) -> None:
        assert self.server is not None
        self.server.halt()
        time.sleep(self.chance.uniform(0.1, HALT))
        self.server.resume()

    def _kill(self, pids: list[int]) -> None:
        for pid in pids:
            self.strike(pid)
        for pid in pids:
            until(lambda: not alive(pid))  # noqa: B023

    # What must hold

    def finish(self) -> None:
        """The producers end, and then all jobs."""
        self.write("over", "")
        for producer in self._producers:
            assert producer.wait(self.ends_within) == 0, (self.directory / "producer.log").read_text()
        end = time.monotonic() + self.ends_within
        while left := self._unfinished():
            assert time.monotonic() < end, f"still there after {self.ends_within:g} s: {left}"
            time.sleep(0.5)

    def _unfinished(self) -> list[object]:
        try:
            with self.store() as store:
                return [tally for tally in store.counts() if not tally.state.finished]
        except StoreError as error:
            return [error]

    def check(self) -> None:
        history = self.history()
        puts = {event.job: event.task for event in history if isinstance(event, Put)}
        jobs = {ids.text(job.id): job for job in self.jobs()}
        print(dict(self.struck), dict(Counter((task, jobs[id].state) for id, task in puts.items() if id in jobs)))
        self.told += LIMITS
        self.check_history()
        self._check_ends(puts, jobs)
        with self.store() as store:
            assert leftovers(store) == []
        assert "limits did not count" not in self.log()
        for word in ("Traceback", "CRITICAL", "the pump broke"):
            assert word not in self.log(), word

    def check_keys(self) -> None:
        """Each key is free again: a new job gets it."""
        before = set(self.states())
        after = [id for number in range(KEYS) for id in self.put("app.work", 1, queue="other", key=f"key{number}")]
        assert before.isdisjoint(after)
        until(lambda: {self.states()[id] for id in after} == {State.DONE})

    def _check_ends(self, puts: dict[str, str], jobs: dict[str, Job]) -> None:
        """Each is done, or has a reason why not."""
        for id, task in puts.items():
            job = jobs[id]
            if job.state is State.DEAD:
                assert job.note, f"{task} {id} is dead without a reason"
                assert task == "app.fails" or job.crashes, f"{task} {id} is dead: {job.note!r}"
            elif job.state is not State.DONE:
                assert (task, job.state) == ("app.slow", State.CANCELLED), f"{task} {id}: {job.state}"
        assert [id for id, task in puts.items() if task == "app.fails" and jobs[id].state is not State.DEAD] == []

    def close(self) -> None:
        super().close()
        if self.server is not None:
            self.server.kill()

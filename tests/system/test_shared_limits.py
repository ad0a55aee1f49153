"""Limits that several stores share, while stores, workers, keepers and masters are killed: at no moment more jobs run
than the limits say, and all jobs run."""

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tarry.model.job import State
from tarry.store.opening import open_store
from tarry.store.rules.base import Query, Store
from tarry.testing.history_check import Ended, HistoryEvent, LimitSet, Put, Started, StoreDied, check, read_ledgers
from tarry.testing.ledger import read_end
from tarry.testing.leftovers import leftovers
from tests import seeds
from tests.cli.project import until
from tests.servers.redis import RedisServer
from tests.system.scene import CLOCKS_DIFFER, Scene
from tests.system.test_hosts import ELSEWHERE

SECONDS = float(os.environ.get("SOAK_SECONDS", "60"))
APP = Path(__file__).with_name("shared_limits_app.py").read_text()
MOST = {"app.plain": 4, "app.keyed": 3}
"""What all stores together let run of each task, as in the app."""
LASTING = {"app.lasting": 2}
"""The same of one whose attempts are longer than a lease."""
SETTINGS = """
store = {urls}
[pools.default]
workers = 2
threads = 4
lease = "3s"
"""
FENCED = SETTINGS.replace('"3s"', '"9s"') + 'fence = "stop"\n'
"""As long leases as that needs."""


class Host(Scene):
    """A master on the same stores as the other one's."""

    def __init__(self, directory: Path, app: str, settings: str) -> None:
        directory.mkdir()
        super().__init__(directory)
        self.write("app.py", app)
        self.settings(settings)

    def kill_one(self, role: str) -> None:
        for pid in self.pids(role)[:1]:
            self.kill(pid)

    def kill_host(self) -> None:
        for pid in self.processes():
            self.strike(pid)
        until(lambda: not self.processes())


class Place:
    """Two hosts that share several servers, and who puts jobs."""

    def __init__(self, directory: Path, servers: Sequence[RedisServer], *, is_fenced: bool = False) -> None:
        self.directory, self.servers = directory, servers
        self.most = MOST | (LASTING if is_fenced else {})
        self.told: list[HistoryEvent] = [LimitSet(f"task:{task}", 0, most=most) for task, most in self.most.items()]
        self.told.append(LimitSet("each:app.keyed", 0, most=1))
        self.urls = [f"{server.url}?timeout=2s" for server in servers]
        (directory / "history").touch()
        settings = (FENCED if is_fenced else SETTINGS).format(urls=self.urls)
        self.near = Host(directory / "near", APP, settings)
        # As on another machine: it learns only from leases who is gone.
        self.far = Host(directory / "far", APP + ELSEWHERE, settings)
        self._processes = contextlib.ExitStack()

    def serve(self) -> None:
        """Both hosts run, and jobs are put."""
        for host in (self.near, self.far):
            self._processes.callback(host.close)
            host.serve()
        self._producer = self._produce()
        self._processes.callback(self._producer.wait)
        self._processes.callback(self._producer.kill)

    def _produce(self) -> "subprocess.Popen[bytes]":
        ours = {name: text for name, text in os.environ.items() if not name.startswith("TARRY_")}
        with (self.directory / "producer.log").open("ab") as log:
            command = [sys.executable, "-c", "import sys, app; app.produce(sys.argv[1:])", *self.most]
            return subprocess.Popen(command, cwd=self.near.directory, env=ours, stdout=log, stderr=log)

    def close(self) -> None:
        self._processes.close()

    @contextlib.contextmanager
    def store(self) -> Iterator[Store]:
        with contextlib.closing(open_store(self.urls)) as store:
            yield store

    def history(self) -> list[HistoryEvent]:
        return list(read_ledgers([self.directory / "history"], []))

    def share(self, number: int, task: str) -> int:
        """What a store lets run of it now."""
        with contextlib.closing(open_store(self.urls[number])) as store:
            limit, _ = store.limits()[f"task:{task}"]
            return 0 if limit.is_over(store.time()) else limit.most or 0

    def goes_on(self) -> None:
        """Waits until so many more jobs of each task have ended."""
        for task in MOST:
            enough = self._ended(task) + 10
            until(lambda: self._ended(task) >= enough)  # noqa: B023

    def _ended(self, task: str) -> int:
        history = self.history()
        jobs = {event.job for event in history if isinstance(event, Put) and event.task == task}
        return sum(isinstance(event, Ended) and event.job in jobs and event.outcome == "done" for event in history)

    def kill_server(self, number: int) -> None:
        self.servers[number].kill()
        self.told.append(StoreDied(self.near.now()))

    def finish(self) -> None:
        """All jobs end."""
        (self.directory / "over").touch()
        assert self._producer.wait(60) == 0, (self.directory / "producer.log").read_text()
        with self.store() as store:
            until(lambda: all(tally.state.finished for tally in store.counts()), 120)

    def check(self) -> None:
        with self.store() as store:
            end = list(read_end(store))
            assert {job.state for job in store.find(Query(limit=1_000_000))} == {State.DONE}
            assert leftovers(store) == []
        history = [*self.history(), *self.told, *self.near.told, *self.far.told, *end]
        found = check(history, tolerance=CLOCKS_DIFFER)
        assert not found, "\n".join(map(str, found))
        assert {task: most_at_once(history, task) for task in self.most} == self.most, "the limits are used, too"


def most_at_once(history: Sequence[HistoryEvent], task: str) -> int:
    """How many of those attempts ran at the same moment that have told of their end."""
    jobs = {event.job for event in history if isinstance(event, Put) and event.task == task}
    ends = {(event.job, event.epoch): event.at for event in history if isinstance(event, Ended) and event.job in jobs}
    begins = {(event.job, event.epoch): event.at for event in history if isinstance(event, Started)}
    # At the same moment an end comes first.
    steps = sorted([*((begins[one], 1) for one in ends), *((end, -1) for end in ends.values())])
    running = most = 0
    for _, step in steps:
        running += step
        most = max(most, running)
    return most


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, servers_directory: Path) -> Iterator[Place]:
    keeps_all = "--appendonly", "yes", "--appendfsync", "always"
    count, is_fenced = request.param
    names = [f"{tmp_path.name}-{number}" for number in range(count)]
    servers = [RedisServer(servers_directory / name, *keeps_all) for name in names]
    with contextlib.ExitStack() as stack:
        for server in servers:
            stack.callback(server.kill)
            server.start()
        place = Place(tmp_path, servers, is_fenced=is_fenced)
        stack.callback(place.close)
        place.serve()
        yield place


@pytest.mark.parametrize("place", [(2, False)], indirect=True, ids=["2"])
def test_never_above_a_limit_while_stores_and_keepers_are_killed(place: Place) -> None:
    place.goes_on()
    place.near.kill_one("keeper")
    place.kill_server(0)
    place.servers[0].start()
    place.goes_on()
    place.kill_server(1)
    place.near.kill_host()
    # Nothing that ran there runs any more by then.
    until(lambda: place.share(0, "app.plain") == MOST["app.plain"])
    place.goes_on()
    place.servers[1].start()
    until(lambda: place.share(1, "app.plain"))
    # Only it can have moved shares.
    place.far.kill_one("keeper")
    place.near.serve()
    place.goes_on()
    place.finish()
    place.check()


@pytest.mark.soak
@pytest.mark.timeout(SECONDS * 2 + 300)
@pytest.mark.parametrize("place", [(2, True), (4, True), (8, True)], indirect=True, ids=["2", "4", "8"])
def test_never_above_a_limit_whatever_is_killed(place: Place) -> None:
    chance, end = random.Random(seeds.seed()), time.monotonic() + SECONDS
    while time.monotonic() < end:
        time.sleep(chance.uniform(0, 5))
        host, number = chance.choice([place.near, place.far]), chance.randrange(len(place.servers))
        match chance.choice(["worker", "keeper", "keeper", "host", "server", "server"]):
            case "server":
                place.kill_server(number)
                # So long that others get its shares, or not.
                time.sleep(chance.choice([0, 1, 24]))
                place.servers[number].start()
            case "host":
                host.kill_host()
                time.sleep(chance.choice([0, 5]))
                host.serve()
            case role:
                host.kill_one(role)
    place.finish()
    place.check()

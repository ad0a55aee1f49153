"""Deliveries while what delivers them is killed, reloaded and ended: every job arrives, none is dead, and only those
that were in flight at that moment arrive twice."""

import asyncio
import contextlib
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.model.job import Job, State
from tarry.store.opening import open_store
from tarry.store.rules import ids
from tarry.store.rules.base import Query, Store
from tests.cli.project import until
from tests.push.server import Connection, Server, ok
from tests.servers.redis import RedisServer
from tests.system.scene import Scene

APP = "from tarry import App\n\napp = App()\n"
SETTINGS = """
store = "{store}"
[push]
allow = ["127.0.0.1"]
[tasks.hook]
url = "{url}"
schedule = {{ exponential = "100ms", max = "1s" }}
[pools.default]
workers = {workers}
async = 100
"""
JOBS, FREE, HELD = 400, 150, 20
MANY = 2000
KEPT = ("--appendonly", "yes", "--appendfsync", "always")


class Endpoint:
    """Answers so many requests at once, and holds the others until it is opened."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self.free, self._held = FREE, list[str]()
        self._opened = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        server.says("/hook", self._answer)

    async def _answer(self, line: Connection) -> None:
        self._loop = asyncio.get_running_loop()
        id = self._server.seen[-1].header("webhook-id")
        assert id is not None
        if self.free:
            self.free -= 1
        elif not self._opened.is_set():
            self._held.append(id)
            await self._opened.wait()
        await ok(line)

    def arrived(self) -> Counter[str]:
        """How often each job came."""
        return Counter(seen.header("webhook-id") or "" for seen in list(self._server.seen))

    def held(self) -> list[str]:
        """Jobs that have come and were not answered, once that many have."""
        return until(lambda: list(self._held) if len(self._held) >= HELD else [])

    def open(self) -> None:
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._opened.set)


class Town(Scene):
    """Masters whose workers deliver to an endpoint of ours."""

    def __init__(self, directory: Path, store: str, server: Server) -> None:
        super().__init__(directory)
        self.write("app.py", APP)
        self._url, self._server = store, server
        self.endpoint = Endpoint(server)
        self.workers(2)

    def workers(self, count: int) -> None:
        self.settings(SETTINGS.format(store=self._url, url=self._server.url("/hook"), workers=count))

    @contextlib.contextmanager
    def store(self) -> Iterator[Store]:
        store = open_store(self._url)
        try:
            yield store
        finally:
            store.close()

    def deliver(self) -> list[str]:
        """Begins with many; the ids of those that have arrived and are held, when there are some."""
        self.begin(JOBS)
        return self.endpoint.held()

    def begin(self, count: int) -> None:
        self.put_all = self.put("hook", {"order": 7}, times=count)
        self.serve()

    def in_flight(self, pid: int | None = None) -> set[str]:
        """What the store holds to be on, of all workers or of one."""
        with self.store() as store:
            found = running(store)
        return {ids.text(job.id) for job in found if pid is None or f":{pid}:" in job.owner}

    def all_arrive(self, twice: set[str]) -> None:
        """Each at least once, and no other than these again; each is done."""
        self.endpoint.open()
        try:
            until(self.all_finished)
        except AssertionError:
            # Who holds which, and since when: without that the log alone does not tell what was waited for.
            print(*(job for job in self.jobs() if not job.state.finished), sep="\n")
            raise
        arrived = self.endpoint.arrived()
        assert arrived.keys() == set(self.put_all)
        assert {id for id, times in arrived.items() if times > 1} <= twice
        assert max(arrived.values()) <= 2
        assert self.states() == dict.fromkeys(self.put_all, "done")


def running(store: Store) -> list[Job]:
    return store.find(Query(states=(State.RUNNING,), limit=MANY))


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[RedisServer]:
    """One that has on disk what it has answered."""
    server = RedisServer(tmp_path / "redis", *KEPT)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def town(tmp_path: Path, server: Server) -> Iterator[Town]:
    town = Town(tmp_path, f"sqlite:///{tmp_path}/tarry.db", server)
    yield town
    town.close()


@pytest.fixture
def redis_town(tmp_path: Path, server: Server, lasting: RedisServer) -> Iterator[Town]:
    town = Town(tmp_path, f"{lasting.url}?timeout=15s", server)
    yield town
    town.close()


def one_is_killed(town: Town) -> None:
    """Stopped before, so that what it has in flight is what it had when it died."""
    held = set(town.deliver())
    pid = next(pid for pid in town.pids() if town.in_flight(pid) & held)
    town.kill(pid, signal.SIGSTOP)
    lost = town.in_flight(pid)
    assert lost & held
    town.kill(pid)
    town.all_arrive(twice=lost)
    town.stopped()


def test_a_worker_is_killed(town: Town) -> None:
    one_is_killed(town)


def test_a_worker_is_killed_on_redis(redis_town: Town) -> None:
    one_is_killed(redis_town)


def test_redis_is_killed(redis_town: Town, lasting: RedisServer) -> None:
    """Nobody who delivers has died, so nothing comes twice: not what is answered while the store is away either."""
    redis_town.deliver()
    lasting.kill()
    redis_town.endpoint.open()
    lasting.start()
    redis_town.all_arrive(twice=set())
    redis_town.stopped()


def test_redis_is_killed_while_it_writes(redis_town: Town, lasting: RedisServer, tmp_path: Path) -> None:
    """Again and again: what it held to be on in that moment may come twice."""
    redis_town.endpoint.free = MANY
    redis_town.begin(MANY)
    twice: set[str] = set()
    for number in (1, 2, 3):
        until(lambda: len(redis_town.endpoint.arrived()) >= number * MANY / 4)  # noqa: B023
        lasting.kill()
        twice |= on_in(lasting.directory, tmp_path / f"copy{number}")
        lasting.start()
    redis_town.all_arrive(twice)
    redis_town.stopped()


def on_in(directory: Path, copy: Path) -> set[str]:
    """What was on when that server died."""
    server = RedisServer(copy, *KEPT)
    shutil.copytree(directory / "appendonlydir", copy / "appendonlydir")
    server.start()
    with contextlib.closing(open_store(server.url)) as store:
        found = running(store)
    server.kill()
    return {ids.text(job.id) for job in found}


def test_the_master_is_killed(town: Town) -> None:
    """Its workers end what they are at, and then themselves."""
    town.deliver()
    town.kill(town.board().pid)
    town.endpoint.open()
    until(lambda: not town.processes())
    assert not town.in_flight()
    town.serve()
    town.all_arrive(twice=set())
    town.stopped()


def test_everybody_is_killed(town: Town) -> None:
    """As when the power fails."""
    held = town.deliver()
    for pid in town.pids():
        town.kill(pid, signal.SIGSTOP)
    lost = town.in_flight()
    assert lost >= set(held)
    town.close()
    town.serve()
    town.all_arrive(twice=lost)
    town.stopped()


def test_a_reload_takes_nothing_back(town: Town) -> None:
    town.deliver()
    town.workers(1)
    assert town.said("reload") == "reloaded: generation 2 serves"
    town.all_arrive(twice=set())
    town.stopped()


def test_stop_lets_those_in_flight_arrive(town: Town) -> None:
    held = town.deliver()
    town.kill(town.board().pid, signal.SIGTERM)
    until(lambda: town.board().state == "stopping")
    town.endpoint.open()
    until(lambda: not town.processes())
    assert not town.in_flight()
    assert {town.states()[id] for id in held} == {"done"}
    town.serve()
    town.all_arrive(twice=set())
    town.stopped()


def test_quit_gives_those_in_flight_back(town: Town) -> None:
    town.deliver()
    assert town.said("quit") == "ended"
    until(lambda: not town.processes())
    assert not town.in_flight()
    cut_off = town.endpoint.held()
    town.serve()
    town.all_arrive(twice=set(cut_off))
    town.stopped()

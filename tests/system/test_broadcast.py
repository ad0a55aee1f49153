"""Broadcasts to two masters, one of which believes to be on another host, on stores that are files and servers."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry import App
from tarry.client.tasks.task import Task
from tarry.store.opening import open_store
from tarry.store.queries.hosts import list_hosts
from tarry.store.rules.base import Store
from tests.cli.project import until
from tests.system.scene import APP, Scene

WHERE = """

@app.task
def where(add: int) -> int:
    tell("ended")
    return os.getpid() + add
"""
ELSEWHERE = """
from tarry.store.rules import owner

owner.host_scope = lambda: "web-2|00000000.1"
"""


def where(add: int) -> int:
    raise AssertionError("it runs in the workers only")


def wait(gate: str) -> str:
    raise AssertionError("it runs in the workers only")


class Hosts:
    """near: a master with two workers. far: another with one, on another host. store: the one that they share."""

    def __init__(self, near: Scene, far: Scene, store: Store) -> None:
        self.near, self.far, self.store = near, far, store
        self.app = App(store, closures=True)
        self.task: Task[..., int] = self.app.task(name="app.where")(where)

    def pids(self) -> dict[str, list[int]]:
        """The workers by their master's name in the store, once both are seen there with all of theirs."""
        until(lambda: sorted(len(pids) for pids in self._told().values()) == [1, 2])
        return self._told()

    def _told(self) -> dict[str, list[int]]:
        return {host.instance: [w.pid for w in host.workers if w.state == "ready"] for host in list_hosts(self.store)}


@pytest.fixture(params=["sqlite", "redis"])
def hosts(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Hosts]:
    scenes: list[Scene] = []
    url = f"sqlite:///{tmp_path}/near/tarry.db"
    if request.param == "redis":
        server = request.getfixturevalue("redis_server")
        server.empty()
        url = server.url
    for name, app, workers in (("near", WHERE, 2), ("far", WHERE + ELSEWHERE, 1)):
        (tmp_path / name).mkdir()
        scene = Scene(tmp_path / name)
        scene.write("app.py", APP + app)
        scene.settings(f'store = "{url}"\n[pools.default]\nworkers = {workers}\nlease = "4s"\n')
        scenes.append(scene)
        scene.serve()
    store = open_store(url)
    yield Hosts(scenes[0], scenes[1], store)
    for scene in scenes:
        scene.close()
    store.close()


def test_each_host_runs_it_once_and_so_does_each_worker(hosts: Hosts) -> None:
    pids = hosts.pids()
    found = hosts.task.broadcast(1).result(20)
    assert {name: pid in [one + 1 for one in pids[name]] for name, pid in found.items()} == dict.fromkeys(pids, True)
    assert (len(hosts.near.ledger("ended")), len(hosts.far.ledger("ended"))) == (1, 1)
    each = hosts.task.using(per="worker").broadcast(0).result(20)
    assert sorted(pid or 0 for pid in each.values()) == sorted(pid for each in pids.values() for pid in each)
    assert (len(hosts.near.ledger("ended")), len(hosts.far.ledger("ended"))) == (3, 2)
    assert '"@' not in hosts.near.said("--json", "queues")


def test_a_host_that_is_killed_gives_none(hosts: Hosts) -> None:
    pids = hosts.pids()
    hosts.far.kill_all()
    # Nobody has found out yet, so it counts as live.
    found = hosts.task.using(expires=2).broadcast(0).result(40)
    assert {name: pid in pids[name] for name, pid in found.items()} == {name: "web-2" not in name for name in pids}
    assert [pid for name, pid in found.items() if "web-2" in name] == [None]


def test_a_worker_that_is_killed_while_it_runs_its_job_gives_none(hosts: Hosts) -> None:
    hosts.pids()
    hang = hosts.app.task(name="app.wait")(wait)
    flow = hang.using(per="worker", expires=3).broadcast("go")
    until(lambda: len(hosts.near.ledger("began")) == 2 and len(hosts.far.ledger("began")) == 1)
    gone = hosts.near.running()
    victim = next(child.pid for child in hosts.near.children() if child.running)
    hosts.near.kill(victim)
    hosts.near.open("go")
    hosts.far.open("go")
    found = flow.result(40)
    assert sorted(map(str, found.values())) == ["None", "attempt 1", "attempt 1"]
    assert len(gone) == 2

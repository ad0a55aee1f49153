"""Two masters on one store, one of which believes to be on another host: it is seen, it vanishes, it comes back.

And the leases of a host whose tasks let no other thread of their process run.
"""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from tarry.store.queries.hosts import LOST_AFTER, list_hosts
from tarry.store.rules.base import Store
from tests.cli.project import until
from tests.system.scene import APP, Scene

ELSEWHERE = """
from tarry.store.rules import owner

owner.host_scope = lambda: "web-2|00000000.1"
"""

HOGS = """
import ctypes

libc = ctypes.PyDLL(None)
"Its functions are called without giving the interpreter away."


@app.task
def hog(seconds: int) -> None:
    tell("began")
    libc.sleep(seconds)
    tell("ended")


@app.task
async def ahog(seconds: int) -> None:
    tell("began")
    libc.sleep(seconds)
    tell("ended")


@app.task
async def hog_in_a_thread(seconds: int) -> None:
    tell("began")
    await asyncio.to_thread(libc.sleep, seconds)
    tell("ended")
"""


def scene_in(directory: Path, app: str = "", settings: str = "") -> Scene:
    directory.mkdir()
    scene = Scene(directory)
    scene.write("app.py", APP + app)
    scene.settings(settings)
    return scene


@pytest.fixture
def near(tmp_path: Path) -> Iterator[Scene]:
    """A host with the store."""
    scene = scene_in(tmp_path / "near")
    yield scene
    scene.close()


@pytest.fixture
def far(near: Scene) -> Iterator[Scene]:
    """Another, with the same store."""
    settings = f'store = "sqlite:///{near.database}"\n[pools.default]\nlease = "4s"\n'
    scene = scene_in(near.directory.parent / "far", ELSEWHERE, settings)
    yield scene
    scene.close()


def seen(scene: Scene) -> dict[str, dict[str, Any]]:
    """The hosts, by what tells them apart here."""
    ran = scene.tarry("--json", "status", "--all")
    assert ran.status in (0, 3), ran
    return {Path(host["pid_file"]).parts[-3]: host for host in json.decode(ran.out)["hosts"]}


def state(scene: Scene, name: str) -> str:
    return str(seen(scene).get(name, {}).get("state"))


def lease_end(store: Store, count: int) -> float:
    """When so many jobs may be brought back, in seconds since the epoch."""
    early, late = store.time(), store.time() + 60_000_000
    while late - early > 1000:
        middle = (early + late) // 2
        early, late = (early, middle) if len(store.reclaim(middle)) == count else (middle, late)
    return late / 1_000_000


def will_be_lost(store: Store, since: int) -> bool:
    """One gave no sign of life since that moment and the other did; by what is known now, one will be lost and one not
    when the time of the silent one is over."""
    silent, other = sorted(list_hosts(store), key=lambda host: host.seen)
    told = {host.instance: host.state for host in list_hosts(store, silent.seen + LOST_AFTER)}
    return silent.seen < since < other.seen and (told[silent.instance], told[other.instance]) == ("lost", "serving")


@pytest.mark.parametrize("comes_back", [pytest.param(False, marks=pytest.mark.soak), True])
def test_when_a_host_vanishes_its_jobs_run_elsewhere_once_its_lease_ends(
    near: Scene, far: Scene, comes_back: bool
) -> None:
    far.serve()
    jobs = [*near.put("app.await_gate", "go", times=20), *near.put("app.wait", "go")]
    far.begun(21, asleep=20)
    near.serve()
    for pid in far.processes():
        os.kill(pid, signal.SIGSTOP)
    with near.store() as store:
        stopped, end = store.time(), lease_end(store, 21)
    near.begun(21)
    began = [line.at for line in near.ledger("began")]
    print(f"21 jobs ran elsewhere {max(began) - end:.3f} s after the lease of their host had ended")
    assert min(began) >= end, "not before"
    assert max(began) < end + 5
    if not comes_back:
        far.close()
    near.open("go")
    until(near.all_finished)
    with near.store() as store:
        until(lambda: will_be_lost(store, stopped))
    if not comes_back:
        until(lambda: state(near, "far") == "lost")
    else:
        for pid in far.processes():
            os.kill(pid, signal.SIGCONT)
        until(lambda: state(near, "far") == "serving")
        until(lambda: far.times("CalledBack") + far.times("cancelled") == dict.fromkeys(jobs, 1))
        far.stopped()
        assert "far" not in seen(near)
    assert near.times("ended") == dict.fromkeys(jobs, 1)
    assert near.states() == dict.fromkeys(jobs, "done")
    assert far.ledger("ended") == []
    near.stopped()


def test_all_hosts_are_seen_from_each(near: Scene, far: Scene) -> None:
    ran = near.tarry("status", "--all")
    assert (ran.status, ran.out, ran.complaints) == (3, "no master is known to the store\n", [])
    master, other = near.serve(), far.serve()
    until(lambda: len(seen(near)) == 2)
    near.put("app.add", 1, 1, times=5)
    until(lambda: sum(host["pools"][0]["processed"] for host in seen(near).values()) == 5)
    both = seen(near)
    assert {name: host["pid"] for name, host in both.items()} == {"near": master.pid, "far": other.pid}
    assert {name: host["local"] for name, host in both.items()} == {"near": True, "far": False}
    assert {name: host["local"] for name, host in seen(far).items()} == {"near": False, "far": True}
    until(lambda: {host["state"] for host in seen(near).values()} == {"serving"})
    until(lambda: [host["pools"][0]["workers"] for host in seen(near).values()] == [1, 1])
    until(lambda: all(host["pools"][0]["memory"] > 2**20 for host in seen(near).values()))
    head, *lines = near.said("status", "--all").splitlines()
    assert head.split()[:3] == ["host", "state", "pool"]
    assert [line.startswith("*") for line in lines] == [str(near.pid_file) in line for line in lines]
    assert near.tarry("status", "--all").status == 0
    near.stopped()
    assert list(seen(near)) == ["far"]
    far.kill_all()
    other.wait()
    ran = far.tarry("status", "--all")
    assert ran.status == 3, "its own host knows at once"
    assert "lost since" in ran.out
    far.serve()
    until(lambda: [host["state"] for host in seen(far).values()] == ["serving"])
    assert len(seen(far)) == 1, "the new master stands in the place of the old"
    far.said("quit")
    assert seen(far) == {}


def test_status_of_all_needs_the_store_and_status_of_one_does_not(near: Scene) -> None:
    near.serve()
    until(lambda: state(near, "near") == "serving")
    near.settings('store = "redis://127.0.0.1:1/0"\n')
    assert near.tarry("status").status == 0
    assert "127.0.0.1" in near.refused("status", "--all")


def test_a_store_of_several_that_is_away_is_told(near: Scene) -> None:
    (near.directory / "a").mkdir()
    near.settings('store = ["sqlite:///a/tarry.db", "sqlite:///b/tarry.db"]\n')
    near.serve()
    until(lambda: state(near, "near") == "serving")
    ran = near.tarry("status", "--all")
    assert "b/tarry.db is away" in ran.err
    assert ran.status == 0
    near.stopped()
    assert seen(near) == {}


@pytest.mark.soak
def test_a_lease_lasts_whatever_a_task_does_to_the_interpreter(near: Scene) -> None:
    near.write("app.py", APP + HOGS)
    near.settings("[pools.default]\nworkers = 4\n")
    near.serve()
    beside = near.put("app.await_gate", "go", times=20)
    near.begun(20)
    hogs = []
    for task in ("app.hog", "app.ahog", "app.hog_in_a_thread"):
        hogs += near.put(task, 25)
        near.begun(20 + len(hogs))  # who is at it takes no other: each has a worker of its own
    until(lambda: len(near.ledger("ended")) == 3, 60)
    near.open("go")
    until(near.all_finished)
    assert near.times("began") == dict.fromkeys([*beside, *hogs], 1), "once each"
    assert near.times("ended") == dict.fromkeys([*beside, *hogs], 1)
    assert {(job.state, job.attempt, job.crashes) for job in near.jobs()} == {("done", 1, 0)}
    assert "gives no sign of life" in near.log()
    assert "brought back" not in near.log()
    near.stopped()

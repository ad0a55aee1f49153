"""A disk that is full, a database that vanishes, and one that is damaged, all under a worker that has work to do."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.disk import MB, Disk
from tests.cli.project import alive, until
from tests.system.scene import Scene

BIG = "x" * 100_000


def test_a_full_disk_refuses_jobs_and_ends_those_it_has(scene: Scene, disk: Disk) -> None:
    scene.settings(f'store = "sqlite:///{disk.path}/tarry.db"\n')
    scene.database = disk.path / "tarry.db"
    scene.serve()
    until((disk.path / "tarry.db-reserve").exists)
    (first,) = scene.put("app.wait", "go")
    scene.begun(1)
    scene.put("app.add", 1, 1, times=3000)
    put = 1 + 3000
    filler = disk.fill(but=4 * MB)
    scene.write("big", f'["{BIG}", 1]\n' * 25)
    while (ran := scene.tarry("enqueue", "other.task", "--batch", "big", "--force")).status == 0:
        put += 25
        assert put < 4000, "the disk is never full"
    (line,) = [line for line in ran.err.splitlines() if "this app has no task" not in line]
    # A worker may have found it full first.
    assert line.startswith(f"tarry: {scene.database}: the disk is full; free some space")
    assert len(scene.jobs()) == put
    scene.open("go")
    ours = until(lambda: _ended(scene, 3001), 60)
    assert ours == {"done": 3001}
    assert scene.times("ended").keys() >= {first}
    said = scene.refused("enqueue", "app.add", "[1, 1]")
    assert said.startswith(f"{scene.database}: the disk is full; free some space")
    filler.unlink()
    (late,) = until(lambda: _put(scene), 30)
    until(lambda: scene.job(late).state == "done")
    assert disk.free > 0
    scene.stopped()


def test_a_full_disk_is_freed_by_deleting_jobs_also_with_nobody_at_work(scene: Scene, disk: Disk) -> None:
    scene.settings(f'store = "sqlite:///{disk.path}/tarry.db"\n')
    scene.database = disk.path / "tarry.db"
    scene.serve()
    until((disk.path / "tarry.db-reserve").exists)
    scene.stopped()
    scene.write("big", f'["{BIG}", 1]\n' * 50)
    stored = 0
    while (ran := scene.tarry("enqueue", "other.task", "--batch", "big", "--force")).status == 0:
        stored += 50
        assert stored < 1000, "the disk is never full"
    assert ran.err.splitlines()[-1].startswith(f"tarry: {scene.database}: the disk is full; free some space")
    assert len(scene.jobs()) == stored
    deleted = scene.tarry("jobs", "delete", "--task", "other.task", "--yes")
    assert (deleted.status, deleted.out) == (0, f"{stored} of {stored} jobs deleted\n"), deleted
    scene.serve()
    until(lambda: scene.tarry("enqueue", "other.task", "--batch", "big", "--force").out == "50 jobs stored\n")


def _ended(scene: Scene, count: int) -> dict[str, int]:
    """How many jobs of ours are in which state, once so many are done."""
    states = [str(job.state) for job in scene.jobs() if job.task != "other.task"]
    return {state: states.count(state) for state in set(states)} if states.count("done") == count else {}


def _put(scene: Scene) -> list[str]:
    ran = scene.tarry("enqueue", "app.add", "[1, 1]")
    return ran.out.split()


def vanish(database: Path) -> None:
    for path in database.parent.glob("tarry.db*"):
        if path.is_file():
            path.unlink()


def garble(database: Path) -> None:
    for path in (database, Path(f"{database}-wal")):
        if path.exists():
            size = path.stat().st_size
            with path.open("r+b") as file:
                file.write(b"\x5a" * size)


@pytest.mark.parametrize(
    ("harm", "told"),
    [(vanish, "tarry.db was moved or deleted while in use"), (garble, "`tarry store repair` saves")],
)
def test_a_database_that_breaks_under_a_worker(scene: Scene, harm: Callable[[Path], None], told: str) -> None:
    scene.serve()
    (job,) = scene.put("app.wait", "go")
    scene.begun(1)
    processes = scene.processes()
    harm(scene.database)
    scene.open("go")
    until(lambda: scene.ledger("ended"))
    until(lambda: [line for line in scene.log().splitlines() if "tarry.worker" in line and told in line])
    before = _cpu(processes), scene.log().count("\n")
    beats = _beats(scene)
    until(lambda: _beats(scene) >= beats + 3)
    assert scene.processes() == processes, "no crash, and so no loop of them"
    assert _cpu(processes) - before[0] < 1.0, "seconds of processor time within some three"
    assert scene.log().count("\n") - before[1] < 30, "no flood of lines"
    assert scene.tarry("status").status == 0
    ran = scene.tarry("quit")
    assert (ran.status, ran.out) == (0, "ended\n")
    until(lambda: not scene.processes())
    assert [line.job for line in scene.ledger("ended")] == [job]


def test_after_the_database_was_deleted_a_restart_begins_anew(scene: Scene) -> None:
    scene.serve()
    (id,) = scene.put("app.add", 1, 1)
    until(lambda: scene.job(id).state == "done")
    vanish(scene.database)
    until(lambda: "was moved or deleted" in scene.log())
    scene.said("restart", "-d")
    (id,) = scene.put("app.add", 1, 1)
    until(lambda: scene.job(id).state == "done")
    scene.stopped()


def test_a_database_that_comes_back_is_worked_on_again(scene: Scene) -> None:
    master = scene.serve()
    # A process that opens its first connection only then, as the keeper for alerts, would make a new file.
    (keeper,) = scene.pids("keeper")
    until(lambda: _connections(keeper, scene.directory / "tarry.db") >= 2)
    away = scene.directory / "away"
    away.mkdir()
    for path in scene.directory.glob("tarry.db*"):
        path.rename(away / path.name)
    until(lambda: "was moved or deleted" in scene.log())
    assert all(alive(pid) for pid in (master.pid, *scene.pids()))
    for path in away.iterdir():
        path.rename(scene.directory / path.name)
    (id,) = scene.put("app.add", 1, 1)
    until(lambda: scene.job(id).state == "done")
    scene.stopped()


def _connections(pid: int, path: Path) -> int:
    """How many descriptors of the file a process has."""
    opened = [Path(f"/proc/{pid}/fd", name) for name in os.listdir(f"/proc/{pid}/fd")]
    # One may have been closed meanwhile.
    return sum(os.path.realpath(each) == str(path) for each in opened)


def _cpu(pids: list[int]) -> float:
    """Seconds of processor time that these have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def _beats(scene: Scene) -> int:
    """Seconds since the master started, by its own board: a condition that needs no clock of ours."""
    return int(time.time() - scene.board().started)

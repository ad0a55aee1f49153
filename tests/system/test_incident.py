"""What docs/howto/incident.md says to do with a damaged, replaced, emptied or moved file: no acknowledged job is lost
by it."""

import shutil
import subprocess
from collections.abc import Callable

import apsw
import pytest

from tarry.store.rules.ids import text
from tests.cli.project import until
from tests.system.scene import Scene


def shell(scene: Scene, command: str) -> None:
    subprocess.run(command, shell=True, cwd=scene.directory, check=True, stderr=subprocess.DEVNULL)


def damage(scene: Scene, tree: str) -> None:
    # Without the log, or the page would be read from there.
    database = apsw.Connection(str(scene.database))
    database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    ((at,),) = database.execute("SELECT rootpage - 1 FROM sqlite_schema WHERE name = ?", (tree,)).fetchall()
    database.close()
    shell(scene, f"dd if=/dev/urandom of=tarry.db bs=4096 seek={at} count=1 conv=notrunc")


HARMS: dict[str, Callable[[Scene], None]] = {
    "index": lambda scene: damage(scene, "tarry_ready"),
    "table of jobs": lambda scene: damage(scene, "tarry_job"),
    "copied over": lambda scene: shell(scene, "cp backup.db tarry.db"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_all_that_was_acknowledged_runs_after_a_repair(scene: Scene, harm: str) -> None:
    scene.serve()
    until(scene.database.exists)
    shutil.copy(scene.database, scene.directory / "backup.db")
    scene.tarry("queues", "pause", "default")
    ids = scene.put("app.add", 1, 1, times=300)
    HARMS[harm](scene)
    # A damaged tree the next insert meets itself.
    if harm == "copied over":
        until(lambda: "tarry store repair" in scene.log())
    refused = scene.refused("enqueue", "app.add", "[1, 1]")
    assert "`tarry" in refused, "it says what to do"
    assert scene.tarry("quit").status == 0
    until(lambda: not scene.processes())
    repaired = scene.tarry("store", "repair")
    # The log may have had all that was copied over.
    assert "is a new file" in repaired.out or harm == "copied over", repaired
    assert {text(job.id) for job in scene.jobs()} >= set(ids)
    scene.serve()
    scene.tarry("queues", "resume", "default")
    until(lambda: {text(job.id) for job in scene.jobs() if job.state == "done"} >= set(ids), 60)
    scene.stopped()


def test_an_emptied_file_is_not_used_until_its_log_is_moved_away(scene: Scene) -> None:
    (id,) = scene.put("app.add", 1, 1)
    shell(scene, "cp tarry.db backup.db")
    master = scene.serve()
    until(lambda: scene.job(id).state == "done")
    scene.kill_all()
    master.wait()
    shell(scene, "truncate -s 0 tarry.db")
    assert "Move both away, together; then restore a backup" in scene.refused("enqueue", "app.add", "[1, 1]")
    shell(scene, "mkdir away; mv tarry.db* away; cp backup.db tarry.db")
    assert [text(job.id) for job in scene.jobs()] == [id]
    assert scene.tarry("check").out.count("whole") == 1
    assert (scene.directory / "away" / "tarry.db-wal").stat().st_size > 0, "kept"

"""Pools that follow their backlog, with real workers and a real store."""

import re

from tests.cli.project import until
from tests.system.scene import Scene


def wanted(scene: Scene, pool: str = "default") -> int:
    (found,) = (each.workers for each in scene.board().notice.pools if each.name == pool)
    return found


def test_it_grows_with_its_backlog_and_shrinks_after_it(scene: Scene) -> None:
    scene.settings("[pools.default]\nworkers = { min = 1, max = 3, calm = 0.5 }\nasync = 1\n")
    scene.serve()
    assert len(scene.pids()) == 1
    scene.put("app.wait", "gate", times=5)
    until(lambda: len(scene.running()) == 3)
    assert (len(scene.pids()), wanted(scene)) == (3, 3)
    assert "\npool default: 3 of 1..3 workers, by its backlog\n" in scene.said("status")
    # On a busy machine the first look may come amid the puts.
    assert re.search(r"pool default: 2 workers wanted instead of 1: [1-4] jobs? waits?, the first for ", scene.log())
    bounds = "pool default follows its backlog, from 1 to 3 workers: for another number change workers in the settings"
    assert scene.refused("scale", "default", 4) == f"{bounds}, then `tarry reload`"
    scene.open("gate")
    until(lambda: len(scene.pids()) == 1 and wanted(scene) == 1)
    assert scene.all_finished()
    assert {job.attempt for job in scene.jobs()} == {1}
    assert "fewer will do" in scene.log()


DEFAULT = "[queues.default]\nlimit = 1\n[pools.default]\nqueues = ['default']\nasync = 1\nworkers = "
OTHER = "[pools.other]\nqueues = ['other']\nasync = 1\nworkers = "


def test_by_hand_and_by_reloads_and_not_for_what_a_limit_holds_back(scene: Scene) -> None:
    scene.settings(f"{DEFAULT} {{ min = 1, max = 3 }}\n{OTHER} 1\n")
    scene.serve()
    assert scene.said("scale", "default", 2) == "default: 2 wanted"
    scene.put("app.wait", "gate", times=3)
    scene.put("app.wait", "gate", times=3, queue="other")
    scene.settings(f"{DEFAULT} {{ min = 2, max = 3 }}\n{OTHER} {{ min = 1, max = 2 }}\n")
    assert scene.tarry("reload").status == 0
    until(lambda: wanted(scene, "other") == 2)
    assert wanted(scene) == 2
    scene.settings(f"{DEFAULT} {{ min = 3, max = 3 }}\n{OTHER} 1\n")
    assert scene.tarry("reload").status == 0
    assert (wanted(scene), wanted(scene, "other")) == (3, 1)
    scene.open("gate")
    until(scene.all_finished)
    assert {job.attempt for job in scene.jobs()} == {1}

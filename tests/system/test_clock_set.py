"""The clock of the store is set while real workers are at jobs: each of them runs once."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.store.rules.base import NORMAL, Want
from tests.cli.project import until
from tests.system.scene import APP, Scene
from tests.system.test_hosts import ELSEWHERE

SET = """
from tarry.store.sqlite.store import SqliteStore

SqliteStore.time = lambda self: time.time_ns() // 1000 + int(Path({!r}).read_text())
"""


def scene_in(directory: Path, more: str, settings: str) -> Scene:
    directory.mkdir()
    scene = Scene(directory)
    scene.write("app.py", APP + SET.format(str(directory.parent / "ahead")) + more)
    scene.settings(settings)
    return scene


@pytest.fixture
def near(tmp_path: Path) -> Iterator[Scene]:
    """A host with the store, whose clock is ahead by what the file says, in microseconds."""
    (tmp_path / "ahead").write_text("0")
    scene = scene_in(tmp_path / "near", "", '[pools.default]\nqueues = ["near"]\n')
    yield scene
    scene.close()


@pytest.fixture
def far(near: Scene) -> Iterator[Scene]:
    """Another, with the same store."""
    settings = f'store = "sqlite:///{near.database}"\n[pools.default]\nqueues = ["far"]\n'
    scene = scene_in(near.directory.parent / "far", ELSEWHERE, settings)
    yield scene
    scene.close()


@pytest.mark.parametrize("seconds", [pytest.param(60, marks=pytest.mark.soak), 3600, -60])
def test_a_step_of_the_stores_clock_takes_no_job_from_who_lives(near: Scene, far: Scene, seconds: int) -> None:
    near.serve()
    far.serve()
    jobs = [near.put("app.wait", "go", queue=queue)[0] for queue in ("near", "far")]
    (witness,) = near.put("app.wait", "go", queue="witness")
    near.begun(1)
    far.begun(1)
    ahead = near.directory.parent / "ahead"
    (ahead.with_name("draft")).write_text(str(seconds * SECOND))
    ahead.with_name("draft").rename(ahead)
    with near.store() as store:
        now = time.time_ns() // 1000 + seconds * SECOND
        assert len(store.claim([Want("witness", NORMAL, 1)], 1, "gone|0.0:1:1:1", SECOND, now)) == 1
    # Its owner is dead: it comes back once both keepers believe in leases again.
    until(lambda: near.job(witness).state is State.READY)
    assert "the store's clock was set" in near.log() + far.log()
    assert [(near.job(id).state, near.job(id).epoch) for id in jobs] == [(State.RUNNING, 1)] * 2
    for scene in (near, far):
        scene.open("go")
    until(lambda: all(near.job(id).state.finished for id in jobs))
    assert [near.job(id).note for id in jobs] == [b'"attempt 1"'] * 2
    assert near.times("began") | far.times("began") == dict.fromkeys(jobs, 1)

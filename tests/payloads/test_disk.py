"""The directory of large payloads is on a disk of its own: one that gets full, and one that can only be read."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tarry import App, State
from tarry.errors import PayloadUnavailable
from tests.cli.disk import MB, Disk
from tests.payloads.conftest import LARGE, Give, run
from tests.payloads.test_sweep import make_old, no_pause, objects, sweep

__all__ = ["no_pause"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with closing(Disk(tmp_path / "disk", MB)) as disk:
        yield disk


@pytest.fixture
def app(tmp_path: Path, disk: Disk, keep_apart: Give) -> Iterator[App]:
    folder = disk.path / "payloads"
    folder.mkdir(mode=0o700)
    with closing(App(f"sqlite:///{tmp_path}/jobs.db", closures=True)) as app:
        yield keep_apart(app, to=f"file://{folder}")


@pytest.fixture
def echo(app: App) -> Any:
    return app.task(name="echo", retry=None)(lambda text: text)


@pytest.mark.usefixtures("no_pause")
def test_a_sweep_makes_room_on_a_full_one(app: App, echo: Any, disk: Disk) -> None:
    kept, gone = echo.enqueue(LARGE), echo.enqueue(LARGE)
    sweep(app)
    app.client.forget(gone.raw_id)
    disk.fill()
    before = objects(disk.path / "payloads")
    with pytest.raises(PayloadUnavailable, match="No space left on device"):
        echo.enqueue(LARGE)
    assert objects(disk.path / "payloads") == before
    make_old(disk.path / "payloads")
    sweep(app)
    assert len(objects(disk.path / "payloads")) == 1
    # And the round counts: the next one finds its own.
    sweep(app)
    assert disk.free >= len(LARGE)
    assert app.client.load_arguments(kept.record()).body == f'["{LARGE}"]'.encode()


def test_what_can_only_be_read_is_read(app: App, echo: Any, disk: Disk, keep_apart: Give) -> None:
    job = echo.enqueue(LARGE)
    small = app.task(name="size", retry=None)(len)
    other = small.enqueue(LARGE)
    disk.read_only()
    with pytest.raises(PayloadUnavailable, match="Read-only file system"):
        echo.enqueue(LARGE)
    assert run(app, other).result() == len(LARGE)
    run(app, job)
    assert job.state is State.DEAD
    assert b"its result cannot be kept" in job.record().note
    assert sweep(app) == 0

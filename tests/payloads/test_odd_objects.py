"""What stands in place of an object is no file: nothing hangs or waits for ever, and the sweep goes on."""

import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarry import App, State
from tarry.errors import JobFailed, PayloadLost
from tests.payloads.conftest import LARGE, run
from tests.payloads.test_sweep import make_old, objects, sweep

Put = Callable[[Path], object]


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(f"sqlite:///{tmp_path}/jobs.db", closures=True)


def put_socket(path: Path) -> None:
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as made:
        made.bind(f"{short}/s")
        shutil.move(f"{short}/s", path)


def put_file_for_folder(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.touch()


def link_to(target: str) -> Put:
    return lambda path: path.symlink_to(target)


ODD: list[Put] = [os.mkfifo, Path.mkdir, put_socket, put_file_for_folder, link_to("/etc/passwd"), link_to("/dev/zero")]


@pytest.mark.parametrize("put", [*ODD, lambda path: path.symlink_to(path)])
def test_it_is_no_arguments(echo: Any, app: App, folder: Path, put: Put) -> None:
    job = echo.enqueue(LARGE)
    (path,) = objects(folder)
    path.unlink()
    put(path)
    with pytest.raises(JobFailed, match=f"the arguments of echo {job.id} .*: file://{folder} has"):
        run(app, job).result()
    assert (job.state, job.record().failures) == (State.DEAD, 1)
    opened = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(PayloadLost):
            app.client.load_arguments(job.record())
    assert len(os.listdir("/proc/self/fd")) == len(opened)


@pytest.mark.parametrize("put", ODD)
def test_a_sweep_goes_on_beside_it(
    echo: Any, app: App, folder: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.store.payloads.sweep.PAGE", 1)
    for _ in range(6):
        app.client.forget(echo.enqueue(LARGE).raw_id)
    path, *others = sorted(objects(folder))
    path.unlink()
    put(path)
    make_old(folder)
    odd = path if path.is_symlink() or path.exists() else path.parent
    os.utime(odd, (0, 0), follow_symlinks=False)
    sweep(app)
    assert not any(one.exists() for one in others)

"""Objects that another store refers to are not deleted: of a copy, and of stores that this process does not use."""

import logging
import shutil
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tarry import App
from tarry.store.payloads.file_place import FilePlace
from tarry.store.shards.topology import ListedShard
from tests.payloads.conftest import LARGE, Give
from tests.payloads.test_sweep import make_old, no_pause, objects, sweep

__all__ = ["no_pause"]


def opened(store: Any) -> AbstractContextManager[App]:
    return closing(App(store, closures=True))


def enqueue_echo(app: App, keep_apart: Give) -> None:
    keep_apart(app)
    if "echo" not in app.tasks:
        app.task(name="echo")(lambda text: text)
    app.tasks["echo"].enqueue(LARGE)


@pytest.mark.usefixtures("no_pause")
def test_a_copy_under_the_same_url_deletes_nothing(
    tmp_path: Path, keep_apart: Give, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    here, copied = tmp_path / "jobs.db", tmp_path / "copied.db"
    with opened(f"sqlite:///{here}") as app:
        enqueue_echo(app, keep_apart)
        sweep(app)
    shutil.copy(here, copied)
    with opened(f"sqlite:///{here}") as app:
        enqueue_echo(app, keep_apart)
        sweep(app)
    make_old(folder)
    # Two hosts with a database of the same name each look the same from here.
    copied.replace(here)
    with opened(f"sqlite:///{here}") as app:
        keep_apart(app)
        with caplog.at_level(logging.WARNING):
            assert sweep(app) == 0
    assert "so nothing is deleted there" in caplog.text
    assert len(objects(folder)) == 2


@pytest.mark.usefixtures("no_pause")
def test_some_of_the_stores_delete_nothing(tmp_path: Path, keep_apart: Give, folder: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{n}.db" for n in range(3)]
    with opened(urls) as app:
        for _ in range(20):
            enqueue_echo(app, keep_apart)
        sweep(app)
    make_old(folder)
    for url in urls:
        with opened([one for one in urls if one != url]) as app:
            keep_apart(app)
            assert sweep(app) == 0
    with opened(urls[::-1]) as app:
        keep_apart(app)
        assert sweep(app) > 0
    assert len(objects(folder)) == 20


@pytest.mark.usefixtures("no_pause")
def test_a_store_that_is_taken_out_keeps_its_objects(
    tmp_path: Path, keep_apart: Give, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened([f"sqlite:///{tmp_path}/{n}.db" for n in range(2)]) as app:
        for _ in range(20):
            enqueue_echo(app, keep_apart)
        make_old(folder)
        page, store = FilePlace.page, app.client.store
        first, *others = [ListedShard(one.url, one.name) for one in store.shards]  # type: ignore[attr-defined]

        def take_out(*args: Any) -> Any:
            store.use([replace(first, state="removed"), *others])  # type: ignore[attr-defined]
            return page(*args)

        monkeypatch.setattr(FilePlace, "page", take_out)
        sweep(app)
    assert len(objects(folder)) == 20


@pytest.mark.usefixtures("no_pause")
def test_each_of_two_places_of_a_store_is_looked_through(tmp_path: Path, keep_apart: Give, folder: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    # As while hosts get another `to` one by one, and where one gets its former again.
    for at in (folder, other, folder, other, other, other, folder):
        with opened(f"sqlite:///{tmp_path}/jobs.db") as app:
            keep_apart(app, to=f"file://{at}")
            app.client.forget(app.task(name="echo")(lambda text: text).enqueue(LARGE).raw_id)
            assert len(objects(at)) == 1
            make_old(at)
            sweep(app)
            assert not objects(at)


@pytest.mark.usefixtures("no_pause")
def test_a_place_may_get_another_name(tmp_path: Path, keep_apart: Give, folder: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(folder)
    for at in (folder, link, link, folder):
        with opened(f"sqlite:///{tmp_path}/jobs.db") as app:
            keep_apart(app, to=f"file://{at}")
            app.client.forget(app.task(name="echo")(lambda text: text).enqueue(LARGE).raw_id)
            make_old(folder)
            sweep(app)
            assert not objects(folder)

"""What no job refers to is deleted once it is a day old, and nothing else."""

import logging
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.client.operations.job_editing import edit_job, encode_arguments
from tarry.errors import StoreAway, StoreError
from tarry.keeper.expired_leases import ExpiredLeases
from tarry.model.moving import park, restore
from tarry.store.payloads.file_place import FilePlace
from tarry.store.payloads.sweep import OLD, PayloadSweep
from tarry.store.rules.base import Want
from tests.cli.project import until
from tests.payloads.conftest import LARGE, Give, run


def objects(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and path.name != "store"}


def make_old(folder: Path) -> None:
    for path in objects(folder):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - OLD - 1))


def sweep(app: App, owner: str = "ann") -> int:
    """A whole round; how many turns it took."""
    sweep = PayloadSweep(app.client.store.payloads, owner, app.client.store.time)  # type: ignore[attr-defined]
    turns = 0
    while sweep.step():
        turns += 1
    return turns


def end_pause(app: App) -> None:
    """After a round."""
    app.client.store.hold("payloads:sweep", "ann", 0, app.client.store.time())


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain has a keeper, too, after whose round the next one would come in an hour."""
    monkeypatch.setattr("tarry.store.payloads.sweep.EVERY", 0)
    monkeypatch.setattr("tarry.store.payloads.sweep._HOLD_FOR", 0)


@pytest.mark.usefixtures("no_pause")
def test_of_a_job_that_is_gone(app: App, echo: Any, folder: Path) -> None:
    kept, gone = run(app, echo.enqueue(LARGE)), run(app, echo.enqueue(LARGE))
    app.client.forget(gone.raw_id)
    make_old(folder)
    sweep(app)
    assert len(objects(folder)) == 2
    assert kept.result() == LARGE


@pytest.mark.usefixtures("no_pause")
def test_of_a_flow_only_what_is_gone(app: App, echo: Any, folder: Path) -> None:
    @app.task(name="join")
    def join(parts: list[str], more: str) -> int:
        return len("".join(parts) + more)

    with app.flow("all") as flow:
        parts = flow.map(echo, [LARGE, LARGE + "y"], shards=2)
        flow.add(join.call(parts.result, LARGE))
    make_old(folder)
    sweep(app)
    assert len(objects(folder)) == 3
    until(lambda: app.drain() >= 0 and flow.handle.state.finished)
    make_old(folder)
    sweep(app)
    assert len(objects(folder)) == 5
    assert flow.handle.result() == 3 * len(LARGE) + 1


def test_none_younger_than_a_day(app: App, echo: Any, folder: Path) -> None:
    job = echo.enqueue(LARGE)
    app.client.forget(job.raw_id)
    sweep(app)
    assert len(objects(folder)) == 1


@pytest.mark.usefixtures("no_pause")
def test_arguments_that_were_edited(app: App, echo: Any, folder: Path) -> None:
    job = echo.using(delay="1h").enqueue(LARGE)
    record = job.record()
    assert edit_job(app.client, record, encode_arguments(app.client, record, [LARGE + "y"]), run=False) is not None
    assert len(objects(folder)) == 2
    make_old(folder)
    sweep(app)
    assert len(objects(folder)) == 1
    job.retry()
    assert run(app, job).result() == LARGE + "y"


def test_what_a_killed_writer_left(app: App, echo: Any, folder: Path) -> None:
    echo.enqueue(LARGE)
    (one,) = objects(folder)
    one.with_name(f".{one.name}.0011223344556677").write_bytes(b"half")
    make_old(folder)
    sweep(app)
    assert objects(folder) == {one}


def test_results_of_a_job_that_runs_stay(app: App, echo: Any, folder: Path) -> None:
    job, store = echo.enqueue(LARGE), app.client.store
    now = store.time()
    (running,) = store.claim([Want("default", 0, 1)], 1, "ann", 60_000_000, now)
    assert store.keep_result(running, LARGE.encode()) != LARGE.encode()
    make_old(folder)
    sweep(app)
    assert len(objects(folder)) == 2
    assert job.record().id == running.id


@pytest.mark.usefixtures("no_pause")
def test_the_result_of_a_job_that_moves_stays(app: App, echo: Any, folder: Path) -> None:
    job, store = run(app, echo.enqueue(LARGE)), app.client.store
    assert store.apply([park(job.record())], store.time()) == [True]
    make_old(folder)
    sweep(app)
    assert store.apply([restore(job.record())], store.time()) == [True]
    assert job.result() == LARGE


def test_a_store_that_is_away_deletes_nothing(
    app: App, echo: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app.client.forget(echo.enqueue(LARGE).raw_id)
    make_old(folder)

    def away(*_: object) -> None:
        raise StoreAway("away")

    monkeypatch.setattr(app.client.store, "get", away)
    with pytest.raises(StoreError):
        sweep(app)
    assert len(objects(folder)) == 1


def test_a_turn_is_bounded(app: App, echo: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = echo.enqueue(LARGE)
    (path,) = objects(folder)
    for number in range(1100):
        # In one folder.
        path.with_name(f"{number:030x}{path.parent.name}-result-{number:032x}").touch()
    asked: list[int] = []
    get = app.client.store.get
    make_old(folder)

    def note(ids: list[bytes]) -> Any:
        asked.append(len(ids))
        return get(ids)

    monkeypatch.setattr(app.client.store.payloads, "get", note, raising=False)  # type: ignore[attr-defined]
    assert sweep(app) == 3
    assert max(asked) <= 50
    assert objects(folder) == {path}
    assert first.record() is not None


def test_what_cannot_be_deleted_is_told_and_keeps_no_other(
    app: App, echo: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4):
        app.client.forget(echo.enqueue(LARGE).raw_id)
    make_old(folder)
    first, delete = min(objects(folder)), FilePlace.delete

    def refuse(place: FilePlace, names: list[str]) -> None:
        if any(name.endswith(first.name) for name in names):
            raise place.unavailable("cannot be changed", "Operation not permitted")
        delete(place, names)

    monkeypatch.setattr(FilePlace, "delete", refuse)
    monkeypatch.setattr("tarry.store.payloads.sweep.PAGE", 1)
    chore = PayloadSweep(app.client.store.payloads, "ann", app.client.store.time)  # type: ignore[attr-defined]
    until(lambda: not chore.step() and objects(folder) == {first})
    assert caplog.text.count("cannot be changed: Operation not permitted; so what no job refers to is not deleted") == 1


def test_one_host_at_a_time_and_a_pause_after_a_round(app: App, echo: Any, folder: Path) -> None:
    app.client.forget(echo.enqueue(LARGE).raw_id)
    chore = PayloadSweep(app.client.store.payloads, "ann", app.client.store.time)  # type: ignore[attr-defined]
    assert (chore.step(), chore.step()) == (True, False)
    make_old(folder)
    assert sweep(app, "bob") == 0
    assert not chore.step()
    assert len(objects(folder)) == 1
    end_pause(app)
    assert chore.step()
    assert not objects(folder)


def test_a_copy_of_the_store_deletes_nothing(
    app: App, echo: Any, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    echo.enqueue(LARGE)
    sweep(app)
    (mark,) = folder.glob("*/store")
    mark.write_text(mark.read_text().split("\n")[0] + "\npostgresql://db.production/tarry")
    make_old(folder)
    app.client.forget(next(iter(app.jobs(task="echo"))).raw_id)
    end_pause(app)
    with caplog.at_level(logging.WARNING):
        assert sweep(app) == 0
    assert "belongs to the store postgresql://db.production/tarry" in caplog.text
    assert len(objects(folder)) == 1


def test_a_keeper_does_it(app: App, echo: Any, folder: Path) -> None:
    app.client.forget(echo.enqueue(LARGE).raw_id)
    make_old(folder)
    keeper = app.keeper(app.client.store)
    until(lambda: keeper.tick() >= 0 and not objects(folder), limit=10)
    keeper.close()


def test_a_place_that_hangs_holds_up_no_other_chore(app: App, echo: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    echo.enqueue(LARGE)
    is_asked, may_go, others, late = threading.Event(), threading.Event(), list[None](), list[None]()

    def hang(*args: Any) -> Any:
        is_asked.set()
        if not may_go.wait(10):
            late.append(None)
        return []

    monkeypatch.setattr(FilePlace, "page", hang)
    keeper = app.keeper(app.client.store)
    keeper.register_chore(0.01, lambda: others.append(None))
    until(lambda: keeper.tick() >= 0 and is_asked.is_set())
    before = len(others)
    until(lambda: keeper.tick() >= 0 and len(others) > before + 2)
    may_go.set()
    keeper.close()
    assert late == []


def test_a_place_that_is_away_is_no_store_that_is_away(
    tmp_path: Path, keep_apart: Give, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = keep_apart(App(f"sqlite:///{tmp_path}/jobs.db", outbox=tmp_path / "outbox.db", closures=True))
    echo = app.task(name="echo")(lambda text: text)
    folder.rename(folder.with_name("away"))
    assert echo.enqueue(LARGE).is_new is None
    patient: list[None] = []
    monkeypatch.setattr(ExpiredLeases, "be_patient", lambda _: patient.append(None))
    keeper = app.keeper(app.client.store)
    until(lambda: keeper.tick() >= 0 and keeper.chores_failed > 0)
    # Whose lease runs out is dead: a place that is away keeps nobody from prolonging his.
    assert (patient, keeper.away) == ([], "")
    keeper.close()
    app.close()

"""Large arguments and results are at a place of their own, and all else is as with small ones."""

import asyncio
import base64
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tarry import App, State
from tarry.client.bounds import set_bound_by_hand
from tarry.errors import (
    BodyTooLarge,
    ConfigError,
    JobFailed,
    PayloadLost,
    PayloadUnavailable,
    QueueFull,
    StoreError,
)
from tarry.model.bound import Bound
from tarry.model.checks.unreadable import is_apart
from tarry.store.payloads.file_place import FilePlace
from tarry.store.payloads.payload_store import PayloadStore, try_place
from tests.cli.project import until
from tests.payloads.conftest import LARGE, Give, run


def objects(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "store")


def test_arguments_and_result(app: App, keep_apart: Give, folder: Path) -> None:
    @keep_apart(app).task(name="echo")
    def echo(text: str, times: int = 1) -> str:
        return text * times

    job = echo.enqueue(LARGE, times=2)
    (first,) = objects(folder)
    assert first.read_bytes().count(b"xx") == len(LARGE) / 2
    assert len(job.record().body) < 300
    assert run(app, job).result() == LARGE * 2
    assert len(objects(folder)) == 2
    assert len(job.record().note) < 300
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_dir()} == {0o700}
    assert asyncio.run(app.get(job.id).aresult()) == LARGE * 2


def test_small_ones_stay_in_the_store(app: App, keep_apart: Give, folder: Path) -> None:
    @keep_apart(app).task(name="echo")
    def echo(text: str) -> str:
        return text

    assert run(app, echo.enqueue("small")).result() == "small"
    assert objects(folder) == []


def test_tasks_of_all_kinds_read_them(app: App, keep_apart: Give) -> None:
    keep_apart(app)

    @app.task(name="awaited")
    async def awaited(text: str) -> str:
        return text

    @app.task(name="batched", batch=3)
    def batched(texts: list[str]) -> list[str]:
        return texts

    jobs = [awaited.enqueue(LARGE), *batched.enqueue_many([("small",), (LARGE,), (LARGE,)])]
    assert [run(app, job).result() for job in jobs] == [LARGE, "small", LARGE, LARGE]


def test_a_claim_reads_none(app: App, keep_apart: Give, folder: Path) -> None:
    @keep_apart(app).task(name="echo")
    def echo(text: str) -> str:
        return text

    jobs = echo.enqueue_many([(LARGE,)] * 3)
    assert len(objects(folder)) == 3
    claimed = app.client.store.get([job.raw_id for job in jobs])
    assert all(job is not None and is_apart(job.body) for job in claimed)


def test_flows_hand_them_on(app: App, keep_apart: Give) -> None:
    keep_apart(app)

    @app.task(name="make")
    def make(letter: str) -> str:
        return letter * 50_000

    @app.task(name="join")
    def join(parts: list[str]) -> int:
        return sum(map(len, parts))

    with app.flow("large") as flow:
        parts = flow.add_all([make.call("a"), make.call("b")])
        flow.add(join.call(parts.result))
    until(lambda: app.drain() >= 0 and flow.handle.state.finished)
    assert flow.handle.result() == 100_000


def test_sealed_ones_are_sealed_at_the_place(
    app: App, keep_apart: Give, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAYLOAD_KEY", base64.b64encode(b"k" * 32).decode())

    @keep_apart(app, keys=["env:PAYLOAD_KEY"]).task(name="echo")
    def echo(text: str) -> str:
        return text

    @app.task(name="open", encrypt=False)
    def unsealed(text: str) -> str:
        return text

    job = run(app, echo.enqueue(LARGE))
    assert job.result() == LARGE
    assert len(objects(folder)) == 2
    assert not any(b"x" * 20 in path.read_bytes() for path in objects(folder))
    assert run(app, unsealed.enqueue(LARGE)).result() == LARGE
    assert sum(b"x" * 20 in path.read_bytes() for path in objects(folder)) == 2


def test_more_than_most_is_refused(app: App, keep_apart: Give, folder: Path) -> None:
    @keep_apart(app, most=60_000).task(name="echo", retry=None)
    def echo(text: str, times: int = 1) -> str:
        return text * times

    with pytest.raises(BodyTooLarge, match=r"echo: the arguments take 100004 bytes; \[payloads\] most is 60000"):
        echo.enqueue(LARGE * 2)
    with pytest.raises(JobFailed, match=r"returned a result of 100002 bytes; \[payloads\] most is 60000"):
        run(app, echo.enqueue(LARGE, 2)).result()
    assert len(objects(folder)) == 1


def test_where_no_place_is_named_max_body_is_the_bound(app: App) -> None:
    @app.task(name="echo")
    def echo(text: str) -> str:
        return text

    with pytest.raises(BodyTooLarge, match="max_body is 1048576"):
        echo.enqueue("x" * 2**20)


class TestAPlaceThatIsAway:
    def test_nothing_is_enqueued(self, app: App, keep_apart: Give, folder: Path) -> None:
        @keep_apart(app).task(name="echo")
        def echo(text: str) -> str:
            return text

        folder.rmdir()
        with pytest.raises(PayloadUnavailable, match=f"file://{folder} cannot be written") as caught:
            echo.enqueue(LARGE)
        assert caught.value.stored is False
        assert list(app.jobs(task="echo")) == []
        folder.mkdir()
        assert run(app, caught.value.send_again()).result() == LARGE

    def test_a_job_waits_for_it_and_no_attempt_is_counted(self, app: App, keep_apart: Give, folder: Path) -> None:
        @keep_apart(app).task(name="echo", retry=None)
        def echo(text: str) -> str:
            return text

        job = echo.enqueue(LARGE)
        away = folder.rename(folder.with_name("away"))
        app.drain(timeout=1)
        record = job.record()
        assert record.state is State.SCHEDULED
        assert record.failures == 0
        assert b"PayloadUnavailable" in record.note
        assert str(folder).encode() in record.note
        away.rename(folder)
        job.retry()
        assert run(app, job).result() == LARGE

    def test_a_result_that_cannot_be_kept_is_a_failure(self, app: App, keep_apart: Give, folder: Path) -> None:
        away: list[Path] = []

        @keep_apart(app).task(name="make", retry=3)
        def make() -> str:
            if not away:
                away.append(folder.rename(folder.with_name("away")))
            return LARGE

        job = make.enqueue()
        until(lambda: app.drain(timeout=1) >= 0 and job.record().failures == 1)
        assert b"its result cannot be kept" in job.record().note
        away[0].rename(folder)
        job.retry()
        assert run(app, job).result() == LARGE

    def test_a_result_that_cannot_be_read_says_where_it_is(self, app: App, keep_apart: Give, folder: Path) -> None:
        @keep_apart(app).task(name="make")
        def make() -> str:
            return LARGE

        job = run(app, make.enqueue())
        folder.rename(folder.with_name("away"))
        with pytest.raises(PayloadUnavailable, match=f"file://{folder} cannot be read"):
            job.result()

    def test_a_full_disk_leaves_nothing_behind(
        self, app: App, keep_apart: Give, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        @keep_apart(app).task(name="echo")
        def echo(text: str) -> str:
            return text

        def full(_: int) -> None:
            raise OSError(28, os.strerror(28))

        with monkeypatch.context() as patched:
            patched.setattr("tarry.files.os.fsync", full)
            with pytest.raises(PayloadUnavailable, match="No space left on device"):
                echo.enqueue(LARGE)
        assert objects(folder) == []


def test_a_job_of_the_former_place_waits(app: App, echo: Any, keep_apart: Give, folder: Path) -> None:
    job, there = echo.enqueue(LARGE), folder.with_name("other")
    there.mkdir()
    store = app.client.store
    # Also where that has payloads of this store.
    (there / store.payloads.namespace.name()).mkdir()  # type: ignore[attr-defined]
    moved = PayloadStore(store._inner, FilePlace(f"file://{there}"), 100, 10**6)  # type: ignore[attr-defined]
    with pytest.raises(PayloadUnavailable, match=f"50.0 kB at file://{folder}.*: file://{there}, .* of this process"):
        moved.load_arguments(job.record())


class TestAPlaceThatLies:
    @pytest.fixture
    def job(self, app: App, keep_apart: Give) -> Any:
        @keep_apart(app).task(name="echo", retry=3)
        def echo(text: str) -> str:
            return text

        return echo.enqueue(LARGE)

    @pytest.mark.parametrize("other", [b"", b"x", LARGE.encode() * 2, b'["' + b"y" * 50_000 + b'"]'])
    def test_other_bytes_are_no_arguments(self, app: App, job: Any, folder: Path, other: bytes) -> None:
        objects(folder)[0].write_bytes(other)
        with pytest.raises(JobFailed, match=f"the arguments of echo {job.id} .*: file://{folder} has other bytes"):
            run(app, job).result()

    def test_what_is_gone_is_not_tried_again(self, app: App, job: Any, folder: Path) -> None:
        objects(folder)[0].unlink()
        with pytest.raises(JobFailed, match=f"the arguments of echo {job.id} .*: file://{folder} has no .* any more"):
            run(app, job).result()
        assert job.record().failures == 1

    def test_a_lost_result(self, app: App, job: Any, folder: Path) -> None:
        run(app, job)
        for path in objects(folder):
            path.write_bytes(b"[]")
        with pytest.raises(PayloadLost, match=f"the result of echo {job.id} .* has other bytes"):
            job.result()


def test_nobody_reads_the_object_of_another_job(app: App, keep_apart: Give) -> None:
    @keep_apart(app).task(name="echo", retry=None)
    def echo(text: str) -> str:
        return text

    body = echo.enqueue(LARGE).record().body
    client = app.client
    (thief,) = client.insert_jobs([client.make_job("unknown", body)])
    with pytest.raises(PayloadLost, match="does not say where"):
        client.store.load_arguments(thief.record())


def test_of_a_job_that_is_not_stored_nothing_is_left(app: App, keep_apart: Give, folder: Path) -> None:
    @keep_apart(app).task(name="echo")
    def echo(text: str) -> str:
        return text

    first = echo.using(key="one").enqueue(LARGE)
    assert echo.using(key="one").enqueue(LARGE + "y") == first
    assert len(objects(folder)) == 1
    set_bound_by_hand(app.client.store, "default", Bound(3))
    app.client.queues._read_at = 0.0
    # Of several stores each has a part of the bound.
    with pytest.raises(QueueFull):
        echo.enqueue_many([(LARGE,)] * 10)
    assert len(objects(folder)) == len(list(app.jobs(task="echo")))


def test_a_newer_call_takes_the_place_of_one_that_waits(app: App, keep_apart: Give) -> None:
    @keep_apart(app).task(name="echo")
    def echo(text: str) -> str:
        return text

    first = echo.using(key="one", delay=60).enqueue(LARGE)
    assert echo.using(key="one", on_duplicate="replace").enqueue(LARGE + "y") == first
    assert run(app, first).result() == LARGE + "y"


def test_a_process_without_the_setting_says_so(app: App, keep_apart: Give) -> None:
    @keep_apart(app).task(name="echo")
    def echo(text: str) -> str:
        return text

    job = echo.enqueue(LARGE)
    plain = app.client.store._inner  # type: ignore[attr-defined]
    with pytest.raises(PayloadUnavailable, match=r"this process has no \[payloads\] to"):
        plain.load_arguments(job.record())


def test_what_a_directory_refuses_is_named(folder: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a" / "b").touch()
    with pytest.raises(PayloadUnavailable, match=f"cannot be written: .*: {folder}/a/b"):
        FilePlace(f"file://{folder}").write("a/b/c", b"data")


@pytest.mark.parametrize("name", ["read", "page"])
def test_a_check_tries_all_and_leaves_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    def refuse(place: FilePlace, *_: object) -> None:
        raise place.unavailable("cannot be read", "Permission denied")

    try_place(f"file://{folder}")
    monkeypatch.setattr(FilePlace, name, refuse)
    with pytest.raises(PayloadUnavailable, match="Permission denied"):
        try_place(f"file://{folder}")
    assert objects(folder) == []


@pytest.mark.parametrize("url", ["file:///", "file:///srv/../etc", "ftp://host/x"])
def test_what_is_no_place_is_refused(keep_apart: Give, url: str) -> None:
    app = keep_apart(App("memory://"), to=url)
    with pytest.raises(ConfigError, match=r"\[payloads\] to"):
        app.open_store()


def test_the_name_of_a_store_is_broken(app: App, keep_apart: Give) -> None:
    @keep_apart(app).task(name="echo")
    def echo(text: str) -> str:
        return text

    assert app.client.store.kv_cas("payloads:namespace", b"../..", None)
    with pytest.raises(StoreError, match="payloads:namespace"):
        echo.enqueue(LARGE)

"""Large payloads beside the other features: whatever passes a job on passes on all of it."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry import App
from tarry.client.job_records import job_detail
from tarry.client.operations.job_cloning import clone_job
from tarry.client.operations.job_editing import edit_job, encode_arguments
from tarry.errors import ArgumentError, BodyTooLarge, IdempotencyError, StoreUnavailable
from tarry.store.queries.job_search import has_text
from tarry.store.sqlite.store import SqliteStore
from tarry.tasks.arguments.masking import HIDDEN
from tests.cli.project import until
from tests.payloads.conftest import LARGE, Give, run
from tests.server.http.calling import api
from tests.server.http.calling import run as run_story
from tests.server.taking import put


def test_a_clone_has_a_copy(app: App, echo: Any, folder: Path) -> None:
    first = run(app, echo.enqueue(LARGE))
    clone = clone_job(app.client, first.record(), None, with_key=False)
    for path in folder.rglob(f"{first.raw_id.hex()}-*"):
        path.unlink()
    assert run(app, clone).result() == LARGE


def test_an_edit_writes_new_arguments_and_tells_of_the_old(app: App, echo: Any, folder: Path) -> None:
    job = echo.using(delay="1h").enqueue(LARGE)
    record = job.record()
    edited = edit_job(app.client, record, encode_arguments(app.client, record, [LARGE + "y"]), run=True)
    assert edited is not None
    assert job_detail(job.record()).acts[0].before == f"50.0 kB at file://{folder}"
    assert run(app, job).result() == LARGE + "y"


def test_where_arguments_are_is_no_argument(app: App, echo: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As a page shows it that reads none.
    record = echo.using(delay="1h").enqueue(LARGE).record()
    # As an HTTP task, which takes any JSON.
    monkeypatch.setattr(app.tasks["echo"], "runner", object())
    with pytest.raises(ArgumentError, match=f"write the arguments themselves: 50.0 kB at file://{folder}"):
        encode_arguments(app.client, record, f"50.0 kB at file://{folder}")


def test_an_edit_keeps_the_secrets_of_large_arguments(app: App, keep_apart: Give) -> None:
    @keep_apart(app).task(name="login")
    def login(user: str, password: str) -> None: ...

    record = login.using(delay="1h").enqueue("ann", password=LARGE).record()
    edited = encode_arguments(app.client, record, {"user": "bob", "password": HIDDEN})
    assert msgspec.json.decode(edited) == {"user": "bob", "password": LARGE}


def test_lists_and_searches_say_how_large_it_is_and_where(
    app: App, echo: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = run(app, echo.enqueue(LARGE))
    monkeypatch.setattr("tarry.store.payloads.file_place.FilePlace.read", None)
    detail = job_detail(job.record())
    assert [detail.args, detail.note] == [f"50.0 kB at file://{folder}"] * 2
    assert not has_text(job.record(), "file")


def test_a_failed_job_is_tried_again_with_them(app: App, keep_apart: Give) -> None:
    seen: list[int] = []

    @keep_apart(app).task(name="once", retry=None)
    def once(text: str) -> int:
        seen.append(len(text))
        if len(seen) == 1:
            raise ValueError("not yet")
        return len(text)

    job = run(app, once.enqueue(LARGE))
    job.retry()
    assert run(app, job).result() == len(LARGE)


def test_a_request_is_known_again_by_its_arguments(app: App, echo: Any) -> None:
    first = echo.using(idempotency="one").enqueue(LARGE)
    assert echo.using(idempotency="one").enqueue(LARGE) == first
    with pytest.raises(IdempotencyError):
        echo.using(idempotency="one").enqueue(LARGE + "y")


def test_the_newest_cancels_the_one_before(app: App, echo: Any, folder: Path) -> None:
    first = echo.using(key="one").enqueue(LARGE)
    newest = echo.using(key="one", running="cancel").enqueue(LARGE + "y")
    assert run(app, newest).result() in (LARGE, LARGE + "y")
    assert first.state.finished


def test_parts_of_a_map(app: App, keep_apart: Give) -> None:
    keep_apart(app)

    @app.task(name="double")
    def double(text: str) -> str:
        return text * 2

    @app.task(name="count")
    def count(texts: list[str]) -> int:
        return sum(map(len, texts))

    with app.flow("map") as flow:
        mapped = flow.map(double, [LARGE, LARGE, LARGE], shards=2)
        flow.add(count.call(mapped.result))
    until(lambda: app.drain() >= 0 and flow.handle.state.finished)
    assert flow.handle.result() == 6 * len(LARGE)


@pytest.mark.parametrize("size", [6_990, 7_200, 7_500])
def test_a_node_takes_a_result_that_sealing_makes_almost_large(
    keep_apart: Give, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setenv("PAYLOAD_KEY", base64.b64encode(b"k" * 32).decode())
    app = keep_apart(App("memory://", closures=True), over=10_000, keys=["env:PAYLOAD_KEY"])

    @app.task(name="take")
    def take(value: Any) -> str:
        return str(value)

    with app.flow("two") as flow:
        flow.add(take.call(flow.add(take.call("x" * size)).result))
    until(lambda: app.drain() >= 0 and flow.handle.state.finished)
    assert flow.handle.result() == "x" * size
    app.close()


def test_the_result_of_a_flow(app: App, echo: Any) -> None:
    with app.flow("all") as flow:
        flow.add_all([echo.call(LARGE), echo.call(LARGE)])
    until(lambda: app.drain() >= 0 and flow.handle.state.finished)
    assert flow.handle.result() == [LARGE, LARGE]


def test_jobs_of_an_outbox(tmp_path: Path, keep_apart: Give, monkeypatch: pytest.MonkeyPatch) -> None:
    app = keep_apart(App(f"sqlite:///{tmp_path}/jobs.db", outbox=tmp_path / "outbox.db", closures=True))

    @app.task(name="echo")
    def echo(text: str) -> str:
        return text

    away = tmp_path / "payloads"
    away.rename(tmp_path / "gone")
    job = echo.enqueue(LARGE)
    assert job.is_new is None
    (tmp_path / "gone").rename(away)
    assert run(app, job).result() == LARGE
    app.close()


def test_small_jobs_leave_an_outbox_before_large_ones_whose_place_is_away(
    tmp_path: Path, keep_apart: Give, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = keep_apart(App(f"sqlite:///{tmp_path}/jobs.db", outbox=tmp_path / "outbox.db", closures=True))
    echo = app.task(name="echo", order_by=lambda text: text[:1])(lambda text: text)
    app.client.store.time()
    away, is_away, insert = folder.rename(folder.with_name("away")), [True], SqliteStore.insert

    def refuse(*args: Any) -> Any:
        if is_away:
            raise StoreUnavailable("away")
        return insert(*args)

    monkeypatch.setattr(SqliteStore, "insert", refuse)
    jobs = [echo.enqueue(text) for text in (LARGE, "x behind it", "other", "y" * 1000, "more")]
    is_away.clear()
    # What has the key of one that waits is to come after it.
    until(lambda: stored_bodies(app) == [b'["more"]', b'["other"]'])
    away.rename(folder)
    assert [run(app, job).result() for job in jobs][:2] == [LARGE, "x behind it"]
    app.close()


def stored_bodies(app: App) -> list[bytes]:
    try:
        return sorted(job.record().body for job in app.jobs(task="echo"))
    except StoreUnavailable:
        return []


def test_by_http(app: App, echo: Any, folder: Path) -> None:
    async def story() -> None:
        async with api(app) as client:
            answer = await client.post("/v1/jobs", json={"task": "echo", "args": [LARGE]})
            assert answer.status_code == 201, answer.text
            job = app.get(answer.json()["id"])
            assert len(list(folder.rglob("*-arguments-*"))) == 1
            (shown,) = (await client.get("/v1/jobs?task=echo")).json()["jobs"]
            assert shown["args"] == f"50.0 kB at file://{folder}"
            await asyncio.to_thread(run, app, job)
            assert (await client.get(f"/v1/jobs/{job.id}/result")).json()["result"] == LARGE
            for path in folder.rglob("*-result-*"):
                path.unlink()
            lost = await client.get(f"/v1/jobs/{job.id}/result")
            assert lost.status_code == 410
            assert "any more" in lost.json()["detail"]

    run_story(story)


def test_programs_that_take_jobs(app: App, keep_apart: Give) -> None:
    keep_apart(app, most=120_000)
    put(app, 4, body=f'["{LARGE}"]'.encode())

    async def story() -> None:
        async with api(app) as client:
            first = (await client.post("/v1/queues/php/claim", json={"limit": 4})).json()["jobs"]
            # Not all in one answer: the others go back at once, and no attempt is counted.
            assert [one["args"] for one in first] == [[LARGE]] * 3
            (last,) = (await client.post("/v1/queues/php/claim", json={"limit": 4, "wait": 5})).json()["jobs"]
            assert (last["args"], last["attempt"]) == ([LARGE], 1)
            end = {"epoch": first[0]["epoch"], "result": LARGE}
            assert (await client.post(f"/v1/jobs/{first[0]['id']}/finish", json=end)).status_code == 200
            assert app.get(first[0]["id"]).result(timeout=10) == LARGE
            assert len(app.get(first[0]["id"]).record().note) < 300

    run_story(story)


def test_the_arguments_of_undo_stay_in_the_store_and_are_bounded(app: App, echo: Any) -> None:
    with pytest.raises(BodyTooLarge, match="echo: the arguments of undo= take 1048580 bytes; max_body is 1048576"):
        add_undo(app, echo, "x" * 2**20)
    add_undo(app, echo, LARGE)


def add_undo(app: App, echo: Any, text: str) -> None:
    with app.flow("undone") as flow:
        flow.add(echo.call(LARGE), undo=echo.call(text))

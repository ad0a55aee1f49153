"""Ways in for other programs, on a store whose jobs are sealed."""

import base64
import re
from pathlib import Path

import pytest

from tarry import App, State
from tarry.config.config import Config, EncryptionConfig
from tarry.errors import ValueSealed
from tarry.remote.problems import ServerAnswer, error_of_answer
from tests.every_store.raw_bytes import raw_bytes
from tests.server.beanstalk.serving import serving
from tests.server.http.calling import api, page, request, run

MARKER = "pelican"
WHY = re.compile(r"sealed with key [0-9a-f]{8}, which this process does not have")


def make_app(path: Path, *keys: str, shards: int = 1) -> App:
    app = App([f"sqlite:///{path}/{number}.db" for number in range(shards)], closures=True)
    app.configure(Config(encryption=EncryptionConfig(keys=list(keys)), directory=path))

    @app.task(name="echo", retry=None)
    def echo(text: str) -> str:
        if text.startswith("bad"):
            raise ValueError(text)
        return text

    return app


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEAL", base64.b64encode(b"k" * 32).decode())


def test_who_takes_jobs_by_http_gets_them_opened(tmp_path: Path) -> None:
    app = make_app(tmp_path, "env:SEAL")
    job = app.named("echo").using(queue="php").enqueue(MARKER)

    async def story() -> None:
        async with api(app) as client:
            (got,) = (await client.post("/v1/queues/php/claim", json={})).json()["jobs"]
            assert got["args"] == [MARKER]
            at = f"/v1/jobs/{got['id']}"
            await client.post(f"{at}/progress", json={"epoch": 1, "value": 0.5, "text": MARKER})
            done = await client.post(f"{at}/finish", json={"epoch": 1, "result": {"said": MARKER}})
            assert done.status_code == 200, done.text

    run(story)
    assert job.result() == {"said": MARKER}
    assert MARKER.encode() not in raw_bytes(app, tmp_path)
    app.close()


def test_without_the_key_a_server_gives_no_job_to_others_and_puts_it_off(tmp_path: Path) -> None:
    app, keyless = make_app(tmp_path, "env:SEAL"), make_app(tmp_path)
    job = app.named("echo").using(queue="php").enqueue(MARKER)

    async def story() -> None:
        async with api(keyless) as client:
            got = await client.post("/v1/queues/php/claim", json={})
            assert got.json()["jobs"] == []

    run(story)
    assert (job.state, job.record().failures) == (State.SCHEDULED, 0)
    for one in (app, keyless):
        one.close()


def test_http_and_console_say_that_it_is_sealed(tmp_path: Path) -> None:
    app, keyless = make_app(tmp_path, "env:SEAL"), make_app(tmp_path)
    done, dead, waits = (app.named("echo").enqueue(text) for text in (MARKER, f"bad {MARKER}", MARKER))
    app.drain(queues="default")
    later = app.named("echo").using(delay=60).enqueue(MARKER)
    for job in (done, dead, waits, later):
        shown = page(keyless, f"/jobs/{job.id}")
        assert WHY.search(shown)
        assert MARKER not in shown
        assert MARKER in page(app, f"/jobs/{job.id}")
        told = request(keyless, "GET", f"/v1/jobs/{job.id}")
        assert (told.status_code, bool(WHY.fullmatch(told.json()["args"]))) == (200, True)
    answer = request(keyless, "GET", f"/v1/jobs/{done.id}/result")
    # No program is to take that for the result.
    assert (answer.status_code, bool(WHY.search(answer.json()["detail"]))) == (409, True)
    assert isinstance(error_of_answer(ServerAnswer(409, answer.content), "http://tarry"), ValueSealed)
    assert MARKER not in answer.text
    answer = request(keyless, "GET", f"/v1/jobs/{dead.id}/result")
    assert WHY.search(answer.text)
    for path in ("/", "/jobs", "/jobs?state=dead", "/errors"):
        assert MARKER not in page(keyless, path)
    assert "No job matches." in page(keyless, "/jobs?text=pelican")
    assert "No job matches." not in page(app, "/jobs?text=pelican")
    for one in (app, keyless):
        one.close()


@pytest.mark.parametrize("shards", [1, 2])
def test_beanstalk_bodies_are_sealed_and_opened(tmp_path: Path, shards: int) -> None:
    app = make_app(tmp_path, "env:SEAL", shards=shards)
    with serving(app) as door:
        client = door.client()

        number = int(client.ask(f"put 1 0 60 {len(MARKER)}\r\n{MARKER}\r\n").split()[1])
        assert MARKER.encode() in client.ask(f"peek {number}\r\n")
        assert MARKER.encode() in client.ask(f"reserve-job {number}\r\n")
        assert client.ask(f"release {number} 1 0\r\n") == b"RELEASED\r\n"
        assert MARKER.encode() in client.ask("reserve\r\n")
        assert client.ask(f"bury {number} 1\r\n") == b"BURIED\r\n"
        assert b"buries: 1" in client.ask(f"stats-job {number}\r\n")
        assert client.ask("kick 1\r\n") == b"KICKED 1\r\n"
        assert b"releases: 1" in client.ask(f"stats-job {number}\r\n")
        assert MARKER.encode() not in raw_bytes(app, tmp_path)
    app.close()

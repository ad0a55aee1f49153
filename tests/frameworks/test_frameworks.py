"""What each framework has: an enqueue answers at once, and a browser hears how far the job is."""

from pathlib import Path

import pytest

from tests.frameworks.conftest import FRAMEWORKS
from tests.frameworks.serving import Server, Stream, serving, until


def test_progress_as_it_happens(server: Server) -> None:
    walk = server.walk(2)
    stream = walk.follow()
    assert stream.status == 200
    assert stream.answer.headers["content-type"] == "text/event-stream"
    assert stream.answer.headers["cache-control"] == "no-store"
    walk.allow(1)
    *_, first = stream.until_step(1)
    assert first.data == {
        "state": "running", "attempt": 1, "progress": {"fraction": 0.5, "message": "step 1"},
    }  # fmt: skip
    walk.allow(2)
    rest = list(stream.events())
    assert (rest[-2].data["state"], rest[-2].data["progress"]["fraction"]) == ("done", 1.0)
    assert (rest[-1].name, rest[-1].data) == ("end", {})
    stream.close()


def test_a_browser_that_comes_again_hears_only_what_is_new(server: Server) -> None:
    walk = server.walk(2)
    stream = walk.follow()
    walk.allow(1)
    last = stream.until_step(1)[-1]
    stream.close()
    again = walk.follow(last.id)
    walk.allow(2)
    events = list(again.events())
    assert "step 1" not in [(event.data.get("progress") or {}).get("message") for event in events]
    assert [event.name for event in events][-2:] == ["job", "end"]
    again.close()
    # It has seen the end: 204 keeps it from coming once more.
    over = walk.follow(events[-2].id)
    assert (over.status, over.answer.read()) == (204, b"")
    late = walk.follow()
    assert [event.name for event in late.events()] == ["job", "end"]


@pytest.mark.parametrize("id", ["nonsense", "0193a2b4-0000-7000-8000-000000000000"])
def test_a_job_that_is_not_there(server: Server, id: str) -> None:
    assert Stream(server.port, id).status == 404


def test_clients_that_are_gone_make_room(server: Server) -> None:
    walk = server.walk(1)
    streams = [walk.follow() for _ in range(3)]
    for stream in streams:
        assert next(stream.events()).name == "job"
    # One more than may follow: it is told how the job is now, and that it is to come again in a while.
    refused = list(walk.follow().blocks())
    assert (refused[0].retry, [block.name for block in refused]) == ("5000", ["", "job"])
    for stream in streams:
        stream.close()
    until(lambda: next(walk.follow().blocks()).retry == "1000")
    walk.allow(1)


def test_it_ends_with_the_server(tmp_path: Path, framework: str) -> None:
    with serving(FRAMEWORKS[framework].command, tmp_path, FRAMEWORKS[framework].worker) as server:
        walk = server.walk(2)
        stream = walk.follow()
        walk.allow(1)
        stream.until_step(1)
        # A stream that is open does not keep the server from its end. A lifespan closes the app.
        server.stop()
        assert (tmp_path / "closed").exists() or framework == "flask"


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)

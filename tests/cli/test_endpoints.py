"""`tarry endpoints`, with a real master whose endpoint fails, and comes back."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.project import Project, until
from tests.push.server import Server, answer

ALLOW = '[push]\nallow = ["127.0.0.1"]\n'


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def shown(project: Project) -> Any:
    (found,) = project.facts("endpoints", "show", "hook")
    return found


# Some twenty commands, each of which takes seconds to start on a busy machine.
@pytest.mark.timeout(400)
def test_one_that_fails_is_seen_tried_and_its_jobs_are_sent_again(project: Project, server: Server) -> None:
    server.says("/", answer(500, b"no"))
    project.settings(f'[tasks.hook]\nurl = "{server.url()}"\nmax_attempts = 1\n{ALLOW}')
    project.serve()
    jobs = [project.enqueue("hook", "{}") for _ in range(6)]
    until(lambda: shown(project)["endpoint"]["circuit"] in ("open", "half open"))
    found = shown(project)
    assert found["endpoint"]["since"] is not None
    assert "500" in found["endpoint"]["trouble"]
    assert found["exchanges"][0]["status"] == 500
    until(lambda: shown(project)["hour"].get("500", 0) >= 5)
    told = project.said("endpoints", "show", "hook")
    assert "500 5 times" in told or "500 6 times" in told
    assert "hook" in project.said("endpoints")
    server.says("/", answer(200))
    assert project.said("endpoints", "close", "hook") == "the circuit of hook is closed"
    until(lambda: all(project.job(job).state in ("dead", "done") for job in jobs))
    until(lambda: shown(project)["endpoint"]["circuit"] == "closed")
    dead = sum(project.job(job).state == "dead" for job in jobs)
    assert dead >= 5
    replay = ("endpoints", "replay", "hook", "--since", "1h")
    assert project.said(*replay, "--dry-run") == f"{dead} jobs would be sent again"
    assert project.said(*replay, "--yes") == f"{dead} jobs sent again"
    until(lambda: all(project.job(job).state == "done" for job in jobs))
    assert project.said(*replay, "--dry-run") == "0 jobs would be sent again"


def test_one_is_paused_and_resumed(project: Project, server: Server) -> None:
    project.settings(f'[tasks.hook]\nurl = "{server.url()}"\n{ALLOW}')
    assert project.said("endpoints", "pause", "hook") == "deliveries of hook are paused"
    assert project.facts("endpoints")["endpoints"][0]["enabled"] is False
    assert "paused" in project.said("endpoints")
    project.serve()
    job = project.enqueue("hook", "{}")
    assert project.said("endpoints", "resume", "hook") == "deliveries of hook are resumed"
    until(lambda: project.job(job).state == "done")
    assert project.said("endpoints", "probe", "hook") == "hook is tried with its next job"


def test_what_is_wrong_is_told(project: Project) -> None:
    project.settings('[tasks.hook]\nurl = "https://shop.example/hook"\n')
    assert "no HTTP task hok; did you mean hook?" in project.refused("endpoints", "show", "hok")
    assert "pause which endpoint? tarry endpoints pause TASK" in project.misused("endpoints", "pause")
    assert "list takes no names" in project.misused("endpoints", "list", "hook")
    assert "replay needs --since" in project.misused("endpoints", "replay", "hook")
    assert "'soon' is no time" in project.misused("endpoints", "replay", "hook", "--since", "soon")
    assert project.said("endpoints", "replay", "hook", "--since", "1h") == "0 jobs sent again"
    assert "pause takes no --since" in project.misused("endpoints", "pause", "hook", "--since", "1h")

"""The extension for Flask: its context, its settings, and an app that several factories make."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask import Flask, current_app

from tarry.web.flask import Tarry
from tests.frameworks.serving import serving, until


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Tarry]:
    jobs = Tarry(f"sqlite:///{tmp_path}/first.db", closures=True)
    yield jobs
    jobs.close()


def make_flask(jobs: Tarry, **settings: str) -> Flask:
    flask = Flask("shop")
    flask.config.update(settings)
    jobs.init_app(flask)
    return flask


def test_a_job_has_the_context_of_the_application(jobs: Tarry) -> None:
    seen = []

    @jobs.middleware("run")
    def watch(job, call_next):  # type: ignore[no-untyped-def]
        seen.append(current_app.config["NAME"])
        return call_next(job)

    @jobs.task
    def sync() -> str:
        return str(current_app.config["NAME"])

    @jobs.task
    async def awaited() -> str:
        return str(current_app.config["NAME"])

    flask = make_flask(jobs, NAME="shop")
    handles = [sync.enqueue(), awaited.enqueue()]
    assert jobs.drain() == 2
    assert [job.result(0) for job in handles] == ["shop", "shop"]
    assert seen == ["shop", "shop"]
    assert flask.extensions["tarry"] is jobs
    with pytest.raises(RuntimeError, match="outside of application context"):
        current_app.config["NAME"]


def test_without_an_application_a_job_runs_all_the_same(jobs: Tarry) -> None:
    @jobs.task
    def plain() -> bool:
        return bool(current_app)

    job = plain.enqueue()
    jobs.drain()
    assert job.result(0) is False


def test_the_store_is_that_of_the_last_application(jobs: Tarry, tmp_path: Path) -> None:
    @jobs.task(name="t")
    def task() -> str:
        return str(current_app.config["NAME"])

    task.enqueue()
    make_flask(jobs, NAME="a", TARRY_STORE=f"sqlite:///{tmp_path}/a.db")
    assert jobs.drain() == 0, "what was enqueued before is in another store"
    make_flask(jobs, NAME="b", TARRY_STORE=f"sqlite:///{tmp_path}/b.db")
    job = task.enqueue()
    assert jobs.drain() == 1
    assert job.result(0) == "b"
    assert (tmp_path / "b.db").exists()


def test_processes_that_a_server_forks(tmp_path: Path) -> None:
    """The application was loaded before the fork, and has enqueued: each process opens the store anew."""
    (tmp_path / "shop.py").write_text(
        "import os\n"
        "from tests.frameworks.apps.flask_app import create_app, jobs, walk\n"
        "web = create_app()\n"
        "walk.enqueue('before', 0)\n"
        "@web.get('/count')\n"
        "def count():\n"
        "    walk.enqueue('after', 0)\n"
        "    return f'{os.getpid()} {sum(one.count for one in jobs.client.store.counts())}'\n"
    )
    command = ["gunicorn", "-b", "127.0.0.1:{port}", "--workers", "2", "--preload", "shop:web"]
    with serving(command, tmp_path) as server:
        pids: dict[str, int] = {}

        def both_have_answered() -> bool:
            _, body = server.ask("/count") or (0, b"")
            pid, count = body.decode().split()
            pids[pid] = int(count)
            return len(pids) == 2

        until(both_have_answered)
        assert str(os.getpid()) not in pids
        assert max(pids.values()) >= 3

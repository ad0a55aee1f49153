"""A tube belongs to the door's clients from its first put on, beside workers that serve "*"."""

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry import App
from tarry.worker.external_queues import find_external
from tarry.worker.worker import WorkerSettings
from tests.server.beanstalk.serving import ServedDoor, serving
from tests.server.beanstalk.talking import Client
from tests.worker.bench import ThreadWorker


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
    yield app
    app.close()


@pytest.fixture
def door(app: App) -> Iterator[ServedDoor]:
    with serving(app) as door:
        yield door


@contextlib.contextmanager
def working(app: App) -> Iterator[None]:
    """A worker of the default pool."""
    store, _ = app.connection()
    worker = ThreadWorker(store, app.tasks, WorkerSettings({"*": 1}), rules=app.rules, main_thread=False).start()
    try:
        yield
    finally:
        worker.end()
        store.close()


def size(client: Client, tube: str) -> int:
    """As Laravel's driver has it."""
    found = re.search(rb"current-jobs-ready: (\d+)", client.ask(f"stats-tube {tube}\r\n"))
    assert found is not None
    return int(found[1])


def test_a_tube_is_marked_before_its_first_job_is_there(
    app: App, door: ServedDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[frozenset[str]] = []
    put = door.listener.door.ring.put  # type: ignore[union-attr]

    def looked(*jobs: object) -> None:
        marked.append(find_external(app.client.store))
        put(*jobs)  # type: ignore[arg-type]

    monkeypatch.setattr(door.listener.door.ring, "put", looked)  # type: ignore[union-attr]
    client = door.client()
    for tube in ("laravel", "laravel", "other"):
        client.ask(f"use {tube}\r\n")
        assert client.ask("put 0 0 60 1\r\nx\r\n").startswith(b"INSERTED")
    assert marked == [{"laravel"}, {"laravel"}, {"laravel", "other"}]


def test_laravels_driver_finds_its_jobs_beside_a_worker_of_all_queues(app: App, door: ServedDoor) -> None:
    with working(app):
        client = door.client()
        for n in range(20):
            # What its driver sends: push, size, pop and delete.
            tube = f"t{n}"
            assert client.ask(f"use {tube}\r\n") == f"USING {tube}\r\n".encode()
            inserted = client.ask("put 1024 0 60 3\r\njob\r\n").split()
            assert size(client, tube) == 1
            client.ask(f"watch {tube}\r\n")
            client.ask("ignore default\r\n")
            reserved = client.ask("reserve-with-timeout 0\r\n")
            assert reserved == b"RESERVED %b 3\r\njob\r\n" % inserted[1]
            assert b"\nreserves: 1\n" in client.ask(f"stats-job {inserted[1].decode()}\r\n")
            assert client.ask(f"delete {inserted[1].decode()}\r\n") == b"DELETED\r\n"
            assert size(client, tube) == 0

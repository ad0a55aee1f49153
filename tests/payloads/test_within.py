"""Large arguments in the caller's own transaction."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.errors import OtherDatabase
from tests.payloads.conftest import LARGE, run
from tests.payloads.test_payloads import objects
from tests.payloads.test_sweep import make_old, sweep


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    app = App(f"sqlite:///{tmp_path}/jobs.db?shared=yes", closures=True)
    yield app
    app.close()


@pytest.fixture
def connection(app: App, tmp_path: Path) -> Iterator[Any]:
    app.client.store.time()
    made = sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)
    yield made
    made.close()


def test_the_first_of_a_store(app: App, echo: Any, connection: Any) -> None:
    # Nothing else is written before the caller commits.
    connection.execute("BEGIN IMMEDIATE")
    jobs = [echo.using(connection=connection).enqueue(LARGE) for _ in range(2)]
    with app.flow("one", connection=connection) as flow:
        flow.add(echo.call(LARGE))
    connection.execute("COMMIT")
    assert [run(app, job).result() for job in (*jobs, flow.handle)] == [LARGE] * 3


def test_what_was_written_for_one_that_was_rolled_back_is_swept(
    app: App, echo: Any, connection: Any, folder: Path
) -> None:
    connection.execute("BEGIN IMMEDIATE")
    echo.using(connection=connection).enqueue(LARGE)
    connection.execute("ROLLBACK")
    kept = echo.enqueue(LARGE)
    assert len(objects(folder)) == 2
    make_old(folder)
    sweep(app)
    assert len(objects(folder)) == 1
    assert run(app, kept).result() == LARGE


def test_nothing_is_written_for_a_connection_that_the_store_refuses(
    app: App, echo: Any, folder: Path, tmp_path: Path
) -> None:
    elsewhere = sqlite3.connect(tmp_path / "other.db")
    with pytest.raises((OtherDatabase, TypeError)):
        echo.using(connection=elsewhere).enqueue(LARGE)
    elsewhere.close()
    assert objects(folder) == []

"""An app on each kind of store."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry import App
from tarry.client.clock import FakeClock
from tarry.client.tasks.task import Task
from tarry.model.duration import SECOND
from tarry.store.memory.store import MemoryStore
from tests.keeper.ticking import NOON

CLOCK = NOON + 30 * SECOND
STORES = ["memory", "sqlite", "sqlite-shared", "sqlite-shards", "redis", "postgres", "mariadb"]


def app_on(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """An app on the kind of store that is the parameter."""
    kind = request.param
    if kind == "memory":
        app = App(MemoryStore(), closures=True)
    elif kind == "sqlite-shards":
        app = App([f"sqlite:///{tmp_path}/{n}.db" for n in range(2)], closures=True)
    elif kind.startswith("sqlite"):
        app = App(f"sqlite:///{tmp_path}/jobs.db" + ("?shared=yes" if "shared" in kind else ""), closures=True)
    elif kind == "redis":
        server = request.getfixturevalue("redis_server")
        server.empty()
        app = App(server.url, closures=True)
    else:
        app = App(request.getfixturevalue(f"{kind}_url"), closures=True)
    yield app
    app.close()


app = pytest.fixture(params=STORES)(app_on)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(CLOCK)


@pytest.fixture
def report(app: App) -> Task[[int], None]:
    @app.task(name="report")
    def report(customer: int) -> None: ...

    return report

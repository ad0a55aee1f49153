"""Flows whose jobs kill their workers, come too late, or are deleted by hand: each ends, and says why."""

import logging
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from msgspec import json

from tarry import App, Flow
from tarry.model.flow_row import FlowRow, Phase
from tarry.model.job import State
from tarry.store.opening import open_store
from tarry.store.rules.base import Store
from tests.cli.project import until
from tests.servers.redis import RedisServer
from tests.store.test_conformance import lose
from tests.system.flow_process import FlowProcess
from tests.system.scene import APP, Scene

MOST_ROUNDS = 20
"""Many more than the audit takes."""
KILLER = """

@app.task
def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
"""


def note_of(flow: Flow[Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.decode(flow.record().note)
    return found


def states(flow: Flow[Any]) -> list[str]:
    return [str(node.state) for node in flow.nodes()]


class Orders:
    """Makes flows for the app of a scene, in another process than its workers."""

    def __init__(self, scene: Scene) -> None:
        self.app = App(f"sqlite:///{scene.database}", closures=True)
        scene.write("app.py", APP + KILLER)
        self.kill = self.app.task(name="app.kill")(lambda: None)
        self.add = self.app.task(name="app.add")(lambda a, b: None)


@pytest.fixture
def orders(scene: Scene) -> Iterator[Orders]:
    orders = Orders(scene)
    yield orders
    orders.app.close()


def test_a_node_that_kills_three_workers_ends_its_flow(scene: Scene, orders: Orders) -> None:
    scene.serve()
    with orders.app.flow("order") as f:
        killer = f.add(orders.kill.call())
        f.add(orders.add.call(1, 1), after=[killer])
    node = next(f.handle.nodes())
    scene.ended(node.id)
    until(lambda: f.handle.state is State.DEAD)
    assert states(f.handle) == ["dead", "blocked"]
    assert (note_of(f.handle)["type"], note_of(f.handle)["node"]) == ("Poison", 1)


@pytest.mark.parametrize(("on_failure", "end", "then"), [("stop", "dead", "blocked"), ("go_on", "done", "done")])
def test_a_node_that_expires_ends_its_flow_or_lets_it_go_on(
    scene: Scene, orders: Orders, on_failure: Any, end: str, then: str
) -> None:
    with orders.app.flow("order") as f:
        late = f.add(orders.add.using(expires=0.001).call(1, 1), on_failure=on_failure)
        f.add(orders.add.call(1, 1), after=[late])
    scene.serve()
    until(lambda: f.handle.state is not State.RUNNING)
    assert (str(f.handle.state), states(f.handle)) == (end, ["cancelled", then])


# By hand


app = App(closures=True)


@app.task(name="work")
def work(number: int) -> int:
    return number


@pytest.fixture(params=["sqlite", "redis", "postgres", "mariadb"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/flows.db"
    elif request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.empty()
        url = server.url
    else:
        url = request.getfixturevalue(f"{request.param}_url")
    with closing(open_store(url)) as store:
        yield store


@pytest.fixture
def process(store: Store, tmp_path: Path) -> Iterator[FlowProcess]:
    (tmp_path / "time").write_text(str(time.time_ns() // 1000))
    yield FlowProcess(app, store, store, tmp_path)
    app.close()


def end(process: FlowProcess, flow: Flow[Any]) -> FlowRow:
    """Lets the time pass until the flow has ended."""
    for _ in range(MOST_ROUNDS):
        process.work()
        if (row := flow.record()).phase is Phase.ENDED:
            return row
        process.keep()
    raise AssertionError(f"nothing ends the flow: {states(flow)}, {flow.record()}")


@pytest.mark.parametrize("index", [1, 2])
def test_a_flow_whose_node_is_deleted_by_hand_ends_and_the_keeper_says_so(
    process: FlowProcess, store: Store, index: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    with app.flow("order") as f:
        later = f.add(work.using(delay="1h").call(1))
        f.add(work.call(later.result))
        f.add(work.call(3))
    process.work()
    assert states(f.handle) == ["scheduled", "blocked", "done"]
    (job,) = store.flows.nodes(f.handle.record().id, index - 1, 1)
    assert lose(store, job)
    assert end(process, f.handle).ends is State.DEAD
    assert note_of(f.handle)["type"] == "Lost"
    # Nobody would have come to the first one; the second is missed by the end of the first.
    assert ("nothing would have woken it" in caplog.text) == (index == 1)
    assert not f.handle.cancel()

"""Durable tasks whose worker is killed: what a step did is not done again, on stores that are files and servers."""

from collections.abc import Iterator

import pytest

from tarry import App
from tarry.client.client import Client
from tarry.model.duration import HOUR
from tarry.model.flow.signal import Signal
from tarry.model.job import State
from tarry.store.opening import open_store
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.testing.history_check import Put
from tests.cli.project import until
from tests.servers.fixtures import empty_server
from tests.system.scene import APP, Scene

pytestmark = pytest.mark.usefixtures("checked_history")

ORDERS = """

from tarry import astep, sleep, step, wait_for
from tarry.testing.history_check import StepRan, StepRecorded
from tarry.testing.ledger import Ledger

history = Ledger(HERE / "history")
app.middleware("run")(history.run)


def charge(order: int) -> int:
    tell("charged")
    history.write(StepRan(current_job().id, "charge", history.now()))
    return order * 10


def charged() -> None:
    history.write(StepRecorded(current_job().id, "charge", history.now()))


def pack(order: int) -> str:
    tell("packed")
    history.write(StepRan(current_job().id, "pack", history.now()))
    return f"parcel {order}"


def packed() -> None:
    history.write(StepRecorded(current_job().id, "pack", history.now()))


def hang(name: str) -> None:
    # Once only: the attempt after the kill goes on.
    tell("began")
    while not (HERE / name).exists():
        time.sleep(0.01)


@app.task
def order(number: int) -> str:
    paid = step(charge, number)
    charged()
    hang("go")
    parcel = step(pack, number)
    packed()
    sleep(1.5)
    return f"{parcel} {paid} {wait_for('review', key=str(number))}"


@app.task
async def aorder(number: int) -> str:
    paid = await astep(charge, number)
    charged()
    tell("began")
    while not (HERE / "go").exists():
        await asyncio.sleep(0.01)
    parcel = await astep(pack, number)
    packed()
    await sleep(1.5)
    return f"{parcel} {paid} {await wait_for('review', key=str(number))}"


@app.task
def square(x: int) -> int:
    tell("item")
    if x == 250:
        hang("go")
    return x * x
"""


class Shop:
    """A master with its workers, and the store that they use."""

    def __init__(self, scene: Scene, store: Store, url: str) -> None:
        self.scene, self.store, self.url = scene, store, url
        self.client = Client(store, {})

    def put(self, task: str, number: int) -> str:
        (handle,) = self.client.insert_jobs([self.client.make_job(task, b"[%d]" % number)])
        self.scene.told.append(Put(handle.id, self.store.time(), task=task))
        return str(handle.id)

    def state(self, id: str) -> State:
        return self.client.get(id).state


@pytest.fixture(params=["sqlite", "redis", "postgres", "mariadb"])
def shop(request: pytest.FixtureRequest, scene: Scene) -> Iterator[Shop]:
    kind = request.param
    url = f"sqlite:///{scene.database}" if kind == "sqlite" else empty_server(request, kind)
    scene.write("app.py", APP + ORDERS)
    scene.settings(f'store = "{url}"\n')
    scene.url = url
    scene.serve()
    store = open_store(url)
    yield Shop(scene, store, url)
    scene.close()
    store.close()


@pytest.mark.parametrize("task", ["app.order", "app.aorder"])
def test_a_worker_killed_after_a_step_does_it_once(shop: Shop, task: str) -> None:
    scene = shop.scene
    job = shop.put(task, 7)
    # Told after the step, so the step is stored.
    scene.begun(1)
    scene.kill(scene.pids()[0])
    until(lambda: len(scene.ledger("began")) == 2)
    assert scene.times("charged") == {job: 1}
    scene.open("go")
    until(lambda: _waits(shop, job))
    # Asleep or awaiting: the next worker finds all of it in the store.
    (worker,) = scene.pids()
    scene.kill(worker)
    scene.replaced(worker)
    signal = Signal("review", "7", b"0123456789abcdef", b'"good"', shop.store.time() + HOUR)
    assert shop.store.flows.signal(signal, shop.store.time()) == 1
    until(lambda: shop.state(job).finished)
    assert shop.client.get(job).result(1) == "parcel 7 70 good"
    assert (scene.times("charged"), scene.times("packed")) == ({job: 1}, {job: 1})


def test_a_worker_killed_in_a_map_repeats_a_hundred_items_at_most(shop: Shop) -> None:
    def square(x: int) -> int:
        return x * x

    scene = shop.scene
    app = App(shop.url, closures=True)
    try:
        flow = app.map(app.task(name="app.square")(square), range(300), shards=1)
        scene.begun(1)
        scene.kill(scene.pids()[0])
        until(lambda: len(scene.ledger("began")) == 2)
        scene.open("go")
        until(lambda: flow.state.finished)
        assert flow.result(1) == [x * x for x in range(300)]
        (part,) = flow.nodes()
        # 0 to 250, and once more from 200.
        assert scene.times("item") == {part.id: 251 + 100}
    finally:
        app.close()


def _waits(shop: Shop, id: str) -> bool:
    """Whether the job has passed its sleep and waits for the signal."""
    return [one.job for one in shop.store.flows.awaiting("review", 10)] == [ids.parse(id)]

"""Jobs of HTTP tasks whose bodies are outside of the store."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tarry import App, State
from tarry.config.config import PayloadsConfig
from tests.push.fixture import DeliveryFixture
from tests.push.server import Server
from tests.push.test_replay import LossyDelivery
from tests.worker.bench import finished


@pytest.fixture
def delivery(server: Server, tmp_path: Path) -> Iterator[DeliveryFixture]:
    app = App(f"sqlite:///{tmp_path}/tarry.db", closures=True)
    delivery = DeliveryFixture(app, lambda: app.open_store(durable=False), server, tmp_path)
    yield delivery
    delivery.close()


def test_all_of_it_is_sent(delivery: DeliveryFixture, tmp_path: Path) -> None:
    app, folder = delivery.app, tmp_path / "payloads"
    folder.mkdir()
    delivery.configure(hook={})
    app.configure(replace(app.config, payloads=PayloadsConfig(to=f"file://{folder}", over=100)))
    job = app.enqueue("hook", {"order": "x" * 50_000})
    assert len(list(folder.rglob("*-arguments-*"))) == 1
    delivery.deliver()
    assert finished(job) is State.DONE
    assert delivery.server.seen[0].body == b'{"order":"%s"}' % (b"x" * 50_000)


def test_a_replay_restores_all_of_it(delivery: DeliveryFixture, tmp_path: Path) -> None:
    lossy, folder = LossyDelivery(delivery), tmp_path / "payloads"
    folder.mkdir()
    lossy.configure(hook={})
    payloads = PayloadsConfig(to=f"file://{folder}", over=100, most=10_000_000)
    delivery.app.configure(replace(delivery.app.config, payloads=payloads))
    hook = delivery.app.http.find("hook")
    assert hook is not None
    using = hook.using(key="k", delay="1h", unique_for="waiting", on_duplicate="replace")
    # The lines of a log are longer than `max_body`; the second job has the place of the first.
    job, _ = using.enqueue({"order": "x" * 5_000_000}), using.enqueue({"order": "y" * 5_000_000})
    lossy.lose(job)
    shutil.rmtree(folder)
    folder.mkdir()
    assert lossy.tally() == {"put_back": 1}
    assert delivery.app.client.load_arguments(job.record()).body == b'{"order":"%s"}' % (b"y" * 5_000_000)

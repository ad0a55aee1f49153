"""Jobs of HTTP tasks whose bodies are outside of the store."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tarry import App, State
from tarry.config.config import PayloadsConfig
from tests.push.fixture import DeliveryFixture
from tests.push.server import Server
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

"""Jobs of HTTP tasks where what jobs say is sealed."""

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from tarry import App, State
from tarry.config.config import EncryptionConfig
from tests.every_store.raw_bytes import raw_bytes
from tests.push.fixture import DeliveryFixture
from tests.push.server import Server, answer
from tests.server.http.calling import page
from tests.worker.bench import finished

MARKER = "pelican"
WHY = re.compile(r"sealed with key [0-9a-f]{8}, which this process does not have")


@pytest.fixture
def delivery(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeliveryFixture]:
    monkeypatch.setenv("SEAL", base64.b64encode(b"k" * 32).decode())
    app = App(f"sqlite:///{tmp_path}/tarry.db", closures=True)
    delivery = DeliveryFixture(app, lambda: app.open_store(durable=False), server, tmp_path)
    yield delivery
    delivery.close()


def seal(delivery: DeliveryFixture) -> None:
    app = delivery.app
    app.configure(replace(app.config, encryption=EncryptionConfig(["env:SEAL"])))


def test_what_is_sent_and_answered_is_not_in_the_store(delivery: DeliveryFixture, tmp_path: Path) -> None:
    delivery.configure(hook={"schedule": ["1ms"], "max_attempts": 2})
    seal(delivery)
    delivery.server.says("/", answer(200, f"got {MARKER}".encode()))
    done = delivery.app.enqueue("hook", {"order": MARKER})
    delivery.deliver()
    assert (finished(done), done.result()["answer"]) == (State.DONE, f"got {MARKER}")
    delivery.server.says("/", answer(500, f"no {MARKER}".encode()))
    dead = delivery.app.enqueue("hook", {"order": MARKER})
    assert finished(dead) is State.DEAD
    assert [record.answer for record in delivery.records(dead)] == [f"no {MARKER}"] * 2
    assert MARKER.encode() in delivery.server.seen[0].body
    assert MARKER.encode() not in raw_bytes(delivery.app, tmp_path)
    keyless = App(f"sqlite:///{tmp_path}/tarry.db", closures=True)
    delivery.configure(keyless, hook={})
    for job in (done, dead):
        assert WHY.search(page(keyless, f"/jobs/{job.id}"))
        assert MARKER in page(delivery.app, f"/jobs/{job.id}")
    keyless.close()


def test_a_task_may_do_without(delivery: DeliveryFixture, tmp_path: Path) -> None:
    delivery.configure(hook={"encrypt": False})
    seal(delivery)
    done = delivery.app.enqueue("hook", {"order": MARKER})
    delivery.deliver()
    assert finished(done) is State.DONE
    assert MARKER.encode() in raw_bytes(delivery.app, tmp_path)
    assert b"tarry-sealed" not in raw_bytes(delivery.app, tmp_path)

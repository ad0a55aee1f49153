"""Calls that meet a job which holds their key, and whose contents are sealed for a key that is not here."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry import App, Snooze, State, step
from tarry.config.config import Config, EncryptionConfig
from tests.cli.project import until

Open = Callable[[str], App]


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """The app with this key."""
    apps: list[App] = []
    for number, name in enumerate(("K1", "K2")):
        monkeypatch.setenv(name, base64.b64encode(bytes([number]) * 32).decode())

    def make(name: str) -> App:
        apps.append(app := App(f"sqlite:///{tmp_path}/jobs.db", closures=True))
        app.configure(Config(encryption=EncryptionConfig(keys=[f"env:{name}"])))
        app.task(name="bill")(bill)
        return app

    yield make
    for app in apps:
        app.close()


def bill(customer: str, *, waits: bool = False) -> Any:
    found = step(str.upper, customer)
    if waits:
        raise Snooze(3600)
    return found


def test_a_request_that_cannot_be_compared_is_the_same(opened: Open) -> None:
    first = opened("K1").tasks["bill"].using(idempotency="one").enqueue("ann")
    assert opened("K2").tasks["bill"].using(idempotency="one").enqueue("ann") == first


def test_steps_of_another_call_are_not_taken(opened: Open) -> None:
    one, other = opened("K1"), opened("K2")
    first = one.tasks["bill"].using(key="k").enqueue("ann", waits=True)
    until(lambda: one.drain(timeout=1) >= 0 and first.state is State.SCHEDULED)
    replacing = other.tasks["bill"].using(key="k", on_duplicate="replace")
    second = replacing.enqueue("bob")
    until(lambda: other.drain() >= 0 and second.state.finished)
    assert second.result() == "BOB"
    assert first.state is State.CANCELLED

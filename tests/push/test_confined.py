"""Write access to the store gives no read access to the workers' environment and files."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import json
from msgspec.structs import replace

from tarry.config.config import Config, load
from tarry.errors import ConfigError
from tarry.push.endpoint import endpoint_cells
from tarry.push.endpoint.endpoint_settings import EndpointError
from tarry.push.http.address_guard import AddressGuard
from tests.push.fixture import HERE, DeliveryFixture
from tests.worker.bench import finished, until

GUARD = AddressGuard(HERE.allow)
SECRET = "kept-by-the-worker-alone"
TOKEN: dict[str, Any] = {"headers": {"x-token": "env:TARRY_TEST_TOKEN"}}


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_TEST_TOKEN", SECRET)


def write_cell(delivery: DeliveryFixture, **settings: Any) -> None:
    """Writes a cell directly, without the checks of tarry."""
    assert delivery.store().kv_cas(f"{endpoint_cells.TASK_CELL}hook", json.encode(delivery.settings(**settings)), None)


@pytest.mark.parametrize(
    "settings",
    [
        TOKEN,
        {"secret": "file:/etc/passwd"},
        {"secrets": ["whsec_c2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1l", "env:HOME"]},
    ],
    ids=["header", "file", "second secret"],
)
def test_a_task_that_is_registered_at_run_time_may_not_name_a_place(
    delivery: DeliveryFixture, settings: dict[str, Any]
) -> None:
    store = delivery.store()
    with pytest.raises(
        EndpointError, match=r"tasks.hook: (env|file):.*only a task in tarry.toml may read that.*\[push\]"
    ):
        endpoint_cells.add(store, "hook", delivery.settings(**settings), GUARD)
    endpoint_cells.add(store, "hook", delivery.settings(), GUARD)
    with pytest.raises(EndpointError, match=r"only a task in tarry.toml may read that"):
        endpoint_cells.edit(store, "hook", settings, GUARD)


def test_one_that_was_written_into_the_store_is_not_sent_with_it(
    any_delivery: DeliveryFixture, caplog: pytest.LogCaptureFixture
) -> None:
    any_delivery.configure()
    write_cell(any_delivery, **TOKEN)
    any_delivery.deliver()
    any_delivery.app.enqueue("hook", {})
    until(lambda: "nothing was sent: env:TARRY_TEST_TOKEN: only a task in tarry.toml may read" in caplog.text)
    assert any_delivery.server.seen == []


def test_places_that_are_listed_may_be_read(delivery: DeliveryFixture) -> None:
    listed = replace(HERE, secrets=["env:TARRY_TEST_TOKEN"])
    delivery.app.configure(Config(push=listed, directory=delivery.directory))
    endpoint_cells.add(delivery.store(), "hook", delivery.settings(**TOKEN), GUARD, listed.secrets)
    delivery.deliver()
    finished(delivery.app.enqueue("hook", {}))
    assert delivery.server.seen[0].header("x-token") == SECRET


def test_those_of_the_configuration_are_free(delivery: DeliveryFixture) -> None:
    delivery.configure(hook=TOKEN)
    delivery.deliver()
    finished(delivery.app.enqueue("hook", {}))
    assert delivery.server.seen[0].header("x-token") == SECRET


@pytest.mark.parametrize("place", ["TOKEN", "env:", "file:run/secrets/order", "env:A B"])
def test_what_is_no_place(tmp_path: Path, place: str) -> None:
    (tmp_path / "tarry.toml").write_text(f"[push]\nsecrets = ['{place}']\n")
    with pytest.raises(ConfigError, match=r"tarry.toml:2: push.secrets: expected a list of places such as"):
        load(directory=tmp_path)


def test_a_place_may_be_given_by_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARRY_PUSH__SECRETS", "env:A, file:/run/b")
    assert load(directory=tmp_path).push.secrets == ["env:A", "file:/run/b"]

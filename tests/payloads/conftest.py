"""Apps on each kind of store whose large arguments and results are in a directory."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.config.config import Config, EncryptionConfig, PayloadsConfig
from tests.cli.project import until
from tests.every_store.conftest import STORES, app_on

LARGE = "x" * 50_000
Give = Callable[..., App]
"""`keep_apart`."""
_FEW = ("memory", "sqlite", "sqlite-shards", "redis")
# It all stands before the store, and asks it as others do.
app = pytest.fixture(params=[one if one in _FEW else pytest.param(one, marks=pytest.mark.deep) for one in STORES])(
    app_on
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "payloads"
    made.mkdir(mode=0o700)
    return made


@pytest.fixture
def keep_apart(folder: Path) -> Callable[..., App]:
    """Gives an app a place for all of more than a few bytes."""

    def give(app: App, over: int = 100, most: int = 2_000_000, to: str | None = None, keys: Sequence[str] = ()) -> App:
        payloads = PayloadsConfig(to=to or f"file://{folder}", over=over, most=most)
        app.configure(Config(payloads=payloads, encryption=EncryptionConfig(keys=[*keys])))
        return app

    return give


@pytest.fixture
def echo(app: App, keep_apart: Give) -> Any:
    @keep_apart(app).task(name="echo")
    def echo(text: str) -> str:
        return text

    return echo


def run(app: App, job: Any) -> Any:
    until(lambda: app.drain() >= 0 and job.state.finished)
    return job

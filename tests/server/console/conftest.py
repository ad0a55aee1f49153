from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry import App
from tests.server.console.visiting import Tokens


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """With a task whose three jobs wait in the queue mail."""
    app = App(f"sqlite:///{tmp_path}/tarry.db", closures=True, retry=None)

    @app.task(name="mail.send", queue="mail", cron="0 3 * * *")
    def send(address: str = "") -> None:
        """Sends a mail."""

    send.enqueue_many([("ann@example.org",), ("bob@example.org",), ("cy@example.org",)])
    yield app
    app.close()


@pytest.fixture
def tokens(tmp_path: Path) -> Tokens:
    """Of three people with different rights."""
    tokens = Tokens(tmp_path / "tokens.toml")
    return tokens.add("reader", "read").add("operator", "read", "operate").add("chief", "admin")

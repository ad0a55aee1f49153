"""One of several stores is away, and the process has just been started: it does not know yet where the payloads of the
store are."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.errors import StoreUnavailable
from tarry.store.payloads.payload_store import NAMESPACE
from tests.cli.project import until
from tests.payloads.conftest import LARGE, Give, run

PARTS = "abc"


@pytest.fixture
def opened(tmp_path: Path, keep_apart: Give) -> Iterator[Callable[[], Any]]:
    with ExitStack() as stack:

        def make() -> Any:
            app = App([f"sqlite:///{tmp_path}/{part}/jobs.db" for part in PARTS], closures=True)
            stack.enter_context(closing(keep_apart(app)))
            app.task(name="echo")(lambda text: text)
            return app

        yield make


def test_large_jobs_go_to_the_others(tmp_path: Path, opened: Callable[[], Any]) -> None:
    for part in PARTS:
        (tmp_path / part).mkdir()
    first = opened()
    first.tasks["echo"].enqueue(LARGE)
    home = PARTS[first.client.store.shard(NAMESPACE.encode())]
    first.close()
    for part in PARTS:
        away = (tmp_path / part).rename(tmp_path / "away")
        app = opened()
        if part == home:
            # Another name would not be swept.
            with pytest.raises(StoreUnavailable, match="is away") as caught:
                app.tasks["echo"].enqueue(LARGE)
            assert caught.value.stored is False
            enqueue: Callable[[], Any] = caught.value.send_again
        else:
            job = app.tasks["echo"].enqueue(LARGE)
            enqueue = lambda: job  # noqa: B023, E731
        away.rename(tmp_path / part)
        until(lambda: not any(shard.away for shard in app.client.store.shards))  # noqa: B023
        assert run(app, enqueue()).result() == LARGE
        app.close()

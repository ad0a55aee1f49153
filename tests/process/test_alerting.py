"""The watch of the keeper's process: which store it asks."""

from contextlib import closing
from pathlib import Path

import pytest

from tarry import App
from tarry.process.alerting import create_watch
from tarry.store.opening import open_store
from tarry.store.redis.store import RedisStore
from tarry.store.rules.base import Store
from tests.servers.redis import RedisServer


@pytest.fixture(autouse=True)
def _at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The watch keeps files beside the pid file.
    monkeypatch.chdir(tmp_path)


def watch_once(url: str, store: Store) -> None:
    watch = create_watch(App(url), store)
    watch.check()
    watch.close()


def test_a_store_with_several_connections_is_the_keepers(redis_store: RedisStore, redis_server: RedisServer) -> None:
    def opened() -> int:
        """How many connections the server has ever accepted, but for this question."""
        stats = redis_server.call("INFO", "stats").splitlines()
        return int(next(line for line in stats if line.startswith("total_connections_received:")).partition(":")[2])

    redis_store.time()
    before = opened()
    watch_once(redis_server.url, redis_store)
    assert opened() == before + 1, "the one of the question"
    assert redis_store.time(), "it stays open"


def test_a_file_is_opened_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    asked: list[str] = []
    with closing(open_store(url)) as store:
        monkeypatch.setattr(store, "next_due", lambda: asked.append("by the watch"))
        watch_once(url, store)
    assert asked == [], "the keeper would wait for it"

"""Keepers that are killed at each of their calls to the store: each tick of a stored schedule makes one job all the
same."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tarry import App
from tarry.client.client import Client
from tarry.client.clock import FakeClock
from tarry.client.schedules.app_schedules import AppSchedules
from tarry.keeper.stored_ticks import StoredTicker
from tarry.model.duration import MINUTE, SECOND
from tarry.store.opening import open_store
from tarry.store.queries import stored_schedules
from tarry.store.rules.base import Query, Store
from tests.keeper.ticking import NOON
from tests.servers.redis import RedisServer

MOST_CALLS = 40


class KillingStore:
    """Passes all calls to a store; call number `kill_at` kills the process, before or after it."""

    def __init__(self, store: Store, kill_at: int, after: bool) -> None:
        self._store, self._kill_at, self._after, self.calls = store, kill_at, after, 0

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not callable(verb) or name in ("new_id", "reroute", "belongs", "seal_value", "open_value"):
            return verb

        def call(*args: Any, **options: Any) -> Any:
            self.calls += 1
            if self.calls == self._kill_at and not self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = verb(*args, **options)
            if self.calls == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        return call


def tick_in_a_child(app: App, url: str, now: int, kill_at: int, after: bool) -> bool:
    """Whether it was killed."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    status = 1
    try:
        store: Any = KillingStore(open_store(url), kill_at, after)
        StoredTicker(Client(store, app.tasks, clock=FakeClock(now)), app.tasks.get).tick()
        status = 0
    finally:
        os._exit(status)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_killed_at_each_call(kind: str, after: bool, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    app = App("memory://", closures=True)

    @app.task(name="report")
    def report(number: int) -> None: ...

    if kind == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.empty()
    url = server.url if kind == "redis" else f"sqlite:///{tmp_path}/jobs.db"
    clock = FakeClock(NOON)
    store = open_store(url)
    client = Client(store, app.tasks, clock=clock)
    schedules = AppSchedules(lambda: client)
    for number in range(3):
        schedules.put(f"a{number}", report.call(number), cron="* * * * *", catch_up="all")
    for kill_at in range(1, MOST_CALLS):
        clock.advance(60)
        was_killed = tick_in_a_child(app, url, clock.now(), kill_at, after)
        # Longer than the dead one holds the chore.
        StoredTicker(Client(store, app.tasks, clock=FakeClock(clock.now() + 11 * SECOND)), app.tasks.get).tick()
        jobs = store.find(Query(limit=10_000))
        assert sorted((job.due - NOON) // MINUTE for job in jobs) == sorted([*range(1, kill_at + 1)] * 3), kill_at
        if not was_killed:
            break
    assert 8 < kill_at < MOST_CALLS - 1
    for number in range(3):
        found = stored_schedules.get(store, f"a{number}")
        assert found is not None
        assert len({run.tick for run in found.runs}) == len(found.runs)
    store.close()

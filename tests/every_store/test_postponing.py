"""Enqueues with `on_duplicate="postpone"` at once: the latest time of all counts, in whatever order they come."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tarry import App
from tarry.errors import StoreUnavailable
from tarry.model.change import Change
from tarry.model.duration import HOUR
from tarry.model.job import Job
from tarry.store.conformance.cases.jobs import side_by_side
from tarry.store.rules.base import Query, Store
from tests.seeds import seeded_random
from tests.server.http.calling import api

SLACK = HOUR // 2
"""How much time may pass between two calls."""
Act = Callable[[App, int], Any]


def put_by_http(app: App, hours: int) -> None:
    async def put() -> int:
        async with api(app) as client:
            body = {"task": "add", "args": [1], "key": "k", "on_duplicate": "postpone", "delay": f"{hours}h"}
            return (await client.post("/v1/jobs", json=body)).status_code

    assert asyncio.run(put()) == 200


def postponing(app: App, hours: int) -> Any:
    return app.tasks["add"].using(key="k", on_duplicate="postpone", delay=hours * 3600)


ACTS: dict[str, Act] = {
    "enqueue": lambda app, hours: postponing(app, hours).enqueue(1),
    "many": lambda app, hours: postponing(app, hours).enqueue_many([(1,), (2,)]),
    "http": put_by_http,
}
OTHERS: dict[str, Act] = {
    "postponed": lambda app, hours: postponing(app, hours).enqueue(1),
    "replaced": lambda app, hours: (
        app.tasks["add"].using(key="k", on_duplicate="replace", delay=hours * 3600).enqueue(2)
    ),
    "moved": lambda app, hours: app.client.move(held(app).id, due=app.client.clock.now() + hours * HOUR),
}


def held(app: App) -> Job:
    (job,) = app.client.store.find(Query(task="add", key="k"))
    return job


def due_in(app: App) -> int:
    """In how many hours the job is due."""
    return (held(app).due - app.client.clock.now() + SLACK) // HOUR


class Amid:
    """Does something right before the first change that the store is to make."""

    def __init__(self, store: Store, act: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
        self._apply, self._act, self._is_done = store.apply, act, False
        monkeypatch.setattr(store, "apply", self.apply)

    def apply(self, changes: Sequence[Change], now: int) -> list[bool]:
        if not self._is_done:
            self._is_done = True
            self._act()
        return self._apply(changes, now)


@pytest.fixture(autouse=True)
def _task(app: App) -> None:
    app.task(name="add")(lambda number: None)
    postponing(app, 1).enqueue(0)


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("hours", [2, 7])
def test_whoever_comes_between_look_and_change(
    app: App, other: str, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for act in ACTS.values():
        with monkeypatch.context() as patch:
            app.client.move(held(app).id, due=app.client.clock.now() + HOUR)
            Amid(app.client.store, lambda: OTHERS[other](app, 9 - hours), patch)
            act(app, hours)
        assert due_in(app) == 7


def test_a_lost_answer_and_the_call_again(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    store, made = app.client.store, app.client.store.apply

    def lose(changes: Sequence[Change], now: int) -> list[bool]:
        made(changes, now)
        monkeypatch.setattr(store, "apply", made)
        raise StoreUnavailable("the answer was lost")

    monkeypatch.setattr(store, "apply", lose)
    with pytest.raises(StoreUnavailable):
        postponing(app, 2).enqueue(1)
    assert due_in(app) == 2
    postponing(app, 7).enqueue(1)
    postponing(app, 2).enqueue(1)
    assert due_in(app) == 7


def test_many_at_once(app: App) -> None:
    hours = [*range(2, 26)]
    seeded_random().shuffle(hours)

    def work(number: int) -> None:
        for each in hours[number::4]:
            assert not postponing(app, each).enqueue(1).is_new

    side_by_side(4, work)
    assert due_in(app) == 25

"""The history through the HTTP API."""

from typing import Any

import httpx
import pytest

from tarry import App
from tarry.door.identity.access import Scope
from tarry.model.duration import SECOND
from tests.door.http.calling import api, run


class MailOnly:
    """A caller that may do everything with the queue mail, and nothing else."""

    name = "mail-team"

    def check(self, scope: Scope, queue: str | None = None) -> None: ...

    def allows(self, scope: Scope, queue: str) -> bool:
        return queue == "mail"

    def caller(self, headers: object, address: str) -> "MailOnly":
        return self


@pytest.fixture
def shop(app: App) -> App:
    """Three jobs of mail and one of default were put."""

    @app.task(name="send", queue="mail")
    def send(number: int = 0) -> None: ...

    @app.task(name="tidy")
    def tidy() -> None: ...

    send.enqueue_many([(number,) for number in range(3)])
    tidy.enqueue()
    store = app.client.store
    store.history.sum_up(store.time())
    return app


def asked(app: App, query: str = "", access: Any = None) -> httpx.Response:
    async def ask() -> httpx.Response:
        async with api(app, access=access) as client:
            return await client.get(f"/v1/history{query}")

    return run(ask)


@pytest.mark.parametrize(("resolution", "step", "points"), [("minute", 60, 60), ("hour", 3600, 24), ("day", 86400, 30)])
def test_the_history_ends_now(shop: App, resolution: str, step: int, points: int) -> None:
    told = asked(shop, f"?resolution={resolution}").json()
    assert (told["step"], len(told["points"])) == (step, points)
    assert told["total"]["put"] == sum(point["put"] for point in told["points"]) == 4
    assert [(one["queue"], one["task"], one["put"]) for one in told["tasks"]] == [
        ("default", "tidy", 1),
        ("mail", "send", 3),
    ]
    assert told["total"]["waited"] is None


def test_the_history_of_a_time(shop: App) -> None:
    now = shop.client.store.time() // SECOND
    told = asked(shop, f"?resolution=minute&from={now - 7200}&to={now - 3600}").json()
    assert len(told["points"]) in (60, 61)
    assert told["total"]["put"] == 0


def test_the_history_of_a_queue_or_task(shop: App) -> None:
    assert asked(shop, "?queue=mail").json()["total"]["put"] == 3
    assert asked(shop, "?task=tidy").json()["total"]["put"] == 1
    assert asked(shop, "?queue=mail&task=tidy").json()["tasks"] == []


def test_a_caller_sees_only_its_queues(shop: App) -> None:
    told = asked(shop, access=MailOnly()).json()
    assert (told["total"]["put"], [one["queue"] for one in told["tasks"]]) == (3, ["mail"])


def test_too_many_points_are_refused(shop: App) -> None:
    got = asked(shop, "?resolution=minute&from=0&to=90060")
    assert (got.status_code, got.json()["detail"]) == (
        422,
        "query: from: 1,501 points; at most 1,500 at once: ask for less time",
    )
    assert len(asked(shop, "?resolution=minute&from=0&to=90000").json()["points"]) == 1500


@pytest.mark.parametrize("query", ["?resolution=second", "?from=-1", "?to=never", "?since=1"])
def test_what_makes_no_sense_is_refused(shop: App, query: str) -> None:
    assert asked(shop, query).status_code == 422


def test_a_time_that_ends_before_it_begins_is_empty(shop: App) -> None:
    told = asked(shop, "?from=2000&to=1000").json()
    assert (told["points"], told["tasks"], told["total"]["put"]) == ([], [], 0)

"""The history through the HTTP API."""

import time
from typing import Any
from unittest.mock import Mock

import httpx
import msgspec
import pytest

from tarry import App
from tarry.errors import NotAllowed
from tarry.keeper.backlog import sample_backlogs
from tarry.model.duration import DAY, SECOND
from tarry.operate.access import Scope
from tarry.store.queries.deploys import PREFIX, Deploy
from tarry.store.rules.base import Want
from tarry.store.rules.history.gauges import QueueSample
from tests.server.http.calling import api, run
from tests.server.http.test_operating import MailOnly


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


def asked(app: App, query: str = "", access: Any = None, method: str = "history") -> httpx.Response:
    async def ask() -> httpx.Response:
        async with api(app, access=access) as client:
            return await client.get(f"/v1/{method}{query}")

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


@pytest.mark.parametrize("query", ["?resolution=second", "?from=-1", "?to=never", "?since=never", "?from=1&since=2h"])
def test_what_makes_no_sense_is_refused(shop: App, query: str) -> None:
    assert asked(shop, query).status_code == 422


def mark_deploy(app: App, ago: int, version: str, generation: int = 1) -> None:
    store = app.client.store
    mark = Deploy("ahost|1.2:7:1:0", generation, store.time() - ago * SECOND, version, "0.1", 1)
    assert store.kv_cas(f"{PREFIX}{generation}", msgspec.json.encode(mark), None)


def test_the_history_since_the_last_deploy(shop: App) -> None:
    got = asked(shop, "?since=deploy")
    assert (got.status_code, "no deploy is known" in got.json()["detail"]) == (422, True)
    mark_deploy(shop, 90_000, "1.0")
    mark_deploy(shop, 600, "1.1", 2)
    told = asked(shop, "?since=deploy").json()
    assert told["step"] == 60
    assert len(told["points"]) in (11, 12)
    assert [one["version"] for one in told["deploys"]] == ["1.1"]
    assert told["from"] == int(told["deploys"][0]["at"])
    assert [one["version"] for one in asked(shop, "?since=26h").json()["deploys"]] == ["1.0", "1.1"]
    assert asked(shop, "?since=26h").json()["step"] == 3600
    assert asked(shop, "?since=40d").json()["step"] == 86400
    assert asked(shop, "?resolution=minute&since=26h").status_code == 422


def test_who_may_see_some_queues_sees_no_deploy_in_the_history(shop: App) -> None:
    mark_deploy(shop, 60, "1.0")
    assert asked(shop, access=MailOnly()).json()["deploys"] == []
    assert asked(shop, "?since=deploy", access=MailOnly()).status_code == 422


def test_a_time_that_ends_before_it_begins_is_empty(shop: App) -> None:
    told = asked(shop, "?from=2000&to=1000").json()
    assert (told["points"], told["tasks"], told["total"]["put"]) == ([], [], 0)


def test_totals_are_of_today_and_of_all_time(shop: App) -> None:
    store = shop.client.store
    told = asked(shop, method="totals").json()
    assert 0 <= store.time() // SECOND - told["day"] < 86_500
    for part in ("today", "ever"):
        assert told[part]["total"]["put"] == 4
        assert [(one["queue"], one["put"]) for one in told[part]["tasks"]] == [("default", 1), ("mail", 3)]
    # Two years and some days later nothing is left of this day, but for what there was in all.
    store.history.prune(store.time() + 740 * DAY)
    told = asked(shop, "?task=send", method="totals").json()
    assert (told["today"]["total"]["put"], told["ever"]["total"]["put"]) == (0, 3)
    assert asked(shop, method="totals", access=MailOnly()).json()["ever"]["total"]["put"] == 3


def horizon(app: App, query: str = "", access: Any = None) -> tuple[int, list[int], int]:
    told = asked(app, query, access, "horizon").json()
    assert not any(one["at_least"] for one in (told["overdue"], *told["hours"], told["later"]))
    return told["overdue"]["count"], [one["count"] for one in told["hours"]], told["later"]["count"]


def test_what_comes_due_is_counted_by_hour(shop: App) -> None:
    send, tidy = shop.named("send"), shop.named("tidy")
    for delay in ("30m", "90m", "23h30m", "25h", "30d"):
        send.using(delay=delay, queue="mail").enqueue(1)
    tidy.using(delay="90m").enqueue()
    assert horizon(shop) == (0, [1, 2, *[0] * 21, 1], 2)
    mail = (0, [1, 1, *[0] * 21, 1], 2)
    assert horizon(shop, "?queue=mail") == mail
    assert horizon(shop, access=MailOnly()) == mail
    assert horizon(shop, "?queue=none") == (0, [0] * 24, 0)


def test_the_horizon_says_where_it_stopped(shop: App) -> None:
    send = shop.named("send").using(delay="30m", queue="mail")
    send.enqueue_many([(number,) for number in range(1200)])
    assert asked(shop, "?queue=mail", method="horizon").json()["hours"][0] == {"count": 1000, "at_least": True}
    assert asked(shop, "?queue=other", method="horizon").json()["hours"][0] == {"count": 0, "at_least": True}
    assert asked(shop, method="horizon").json()["hours"][0] == {"count": 1200, "at_least": False}


def test_the_horizon_of_another_queue_is_not_told(shop: App) -> None:
    class OnlyMail(MailOnly):
        def check(self, scope: Scope, queue: str | None = None) -> None:
            if queue not in (None, "mail"):
                raise NotAllowed(f"not for queue {queue}")

        def caller(self, headers: object, address: str) -> "OnlyMail":
            return self

    assert asked(shop, "?queue=default", OnlyMail(), "horizon").status_code == 403


def test_what_is_overdue_is_counted_apart(shop: App) -> None:
    store = shop.client.store
    shop.named("send").using(delay=0.05, queue="mail").enqueue(1)
    limit = time.monotonic() + 20
    while horizon(shop)[0] == 0 and time.monotonic() < limit:
        pass
    assert horizon(shop) == (1, [0] * 24, 0)
    store.claim([Want("none", 0, 1)], 1, "ann", SECOND, store.time())
    assert horizon(shop) == (0, [0] * 24, 0)


def test_samples_of_what_is_ready_are_in_its_points(shop: App) -> None:
    assert asked(shop).json()["points"][-1]["ready"] is None
    store = shop.client.store
    now = store.time()
    store.history.sample(now, store, lambda store: sample_backlogs(store, now))

    def ready(query: str = "", access: Any = None) -> list[Any]:
        last = asked(shop, f"?resolution=minute&to={now // SECOND + 1}{query}", access).json()["points"][-1]
        return [last["ready"], last["ready_most"]]

    assert (ready(), ready("&queue=mail"), ready("&queue=none")) == ([4, 4], [3, 3], [0, 0])
    assert ready(access=MailOnly()) == [3, 3]
    assert ready("&task=send") == [None, None]
    oldest = asked(shop).json()["points"][-1]["oldest"]
    assert 0 <= oldest < 60
    assert [one["task"] for one in asked(shop).json()["tasks"]] == ["tidy", "send"]


def test_points_are_as_long_as_asked(shop: App) -> None:
    now = shop.client.store.time() // SECOND
    told = asked(shop, f"?resolution=minute&step=300&from={now - 3600}&to={now + 1}").json()
    assert told["step"] == 300
    starts = [point["start"] for point in told["points"]]
    assert starts == list(range(starts[0], starts[0] + 300 * len(starts), 300))
    assert starts[0] % 300 == 0
    assert len(starts) in (13, 14)
    assert sum(point["put"] for point in told["points"]) == told["total"]["put"] == 4


def test_a_step_is_of_whole_points(shop: App) -> None:
    got = asked(shop, "?resolution=hour&step=5400")
    assert (got.status_code, got.json()["detail"]) == (422, "query: step: not a multiple of 3600 s, one hour")
    assert asked(shop, "?resolution=minute&step=0").status_code == 422
    # So more time fits in.
    assert len(asked(shop, "?resolution=minute&step=3600&from=0&to=360000").json()["points"]) == 100


def test_durations_are_told_as_histograms(shop: App) -> None:
    assert asked(shop).json()["durations"] is None
    shop.drain()
    store = shop.client.store
    store.history.sum_up(store.time())
    told = asked(shop, "?queue=mail&durations=true").json()["durations"]
    for name in ("waited", "ran"):
        assert sum(bucket["count"] for bucket in told[name]) == 3
        assert all(bucket["least"] < bucket["below"] for bucket in told[name])


def test_samples_of_a_point_are_the_highest_and_the_last(shop: App) -> None:
    store = shop.client.store
    start = store.time() // SECOND // 300 * 300 - 600
    for at, (mail, other) in enumerate(((3, 9), (7, 0), (0, 5))):
        both = {"mail": QueueSample(mail, mail * SECOND), "other": QueueSample(other, SECOND)}
        ready = {queue: sample for queue, sample in both.items() if sample.ready}
        store.history.sample((start + 60 * at) * SECOND, store, Mock(return_value=ready))

    def sampled(query: str, access: Any = None) -> list[Any]:
        asking = f"?resolution=minute&step=300&from={start}&to={start + 300}{query}"
        (point,) = asked(shop, asking, access).json()["points"]
        return [point[name] for name in ("ready", "ready_most", "oldest", "oldest_most")]

    assert sampled("") == [5, 12, 1, 7]
    assert sampled("&queue=mail") == sampled("", MailOnly()) == [0, 7, 0, 7]

"""The methods for operators: queues, tasks, schedules, limits, hosts, operations, health, and the audit log."""

import logging
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tarry import App
from tarry.errors import NotAllowed, StoreAway
from tarry.keeper import schedule_state
from tarry.keeper.hosts import HostEntry
from tarry.keeper.schedule_state import ScheduleState
from tarry.model.duration import SECOND
from tarry.model.limit import KeyLimit
from tarry.model.schedules.schedule import ScheduledRun
from tarry.operate.access import Scope
from tarry.server import claim_loop, history_snapshot
from tarry.server.identity.access import OpenAccess
from tarry.store.queries.hosts import Host, PoolFigures
from tarry.store.rules.base import Store, Want
from tarry.tasks.lazy_asyncio import asyncio
from tests.server.http.calling import api, run

HOOK = "https://shop.example/hook?token=sesame"

Story = Callable[[httpx.AsyncClient], Awaitable[Any]]


class MailOnly(OpenAccess):
    """A caller that may do everything with the queue mail, and nothing else."""

    name = entry = "mail-team"
    queues: tuple[str, ...] = ("mail",)
    namespace = ""

    def check_task(self, task: str, queue: str | None) -> None: ...

    def check(self, scope: Scope, queue: str | None = None) -> None:
        if queue not in (None, "mail"):
            raise NotAllowed(f"not for queue {queue}")

    def allows(self, scope: Scope, queue: str) -> bool:
        return queue == "mail"

    def caller(self, headers: object, address: str) -> "MailOnly":
        return self


@pytest.fixture
def shop(app: App) -> App:
    """Jobs that wait in mail and in default, and a schedule."""

    @app.task(name="send", queue="mail")
    def send(number: int = 0) -> None:
        """Sends one mail.

        By any means."""

    @app.task(name="tidy", cron="0 3 * * *", limit=2)
    async def tidy() -> None: ...

    send.enqueue_many([(number,) for number in range(3)])
    send.using(delay="1h").enqueue(9)
    tidy.enqueue()
    app.declare_limits(app.client.store)
    return app


@pytest.fixture
def tenants(shop: App) -> App:
    """Tasks with keys, and no limits."""

    @shop.task(name="bill", limit_by=lambda account: account)
    def bill(account: str) -> None: ...

    @shop.task(name="bill=late", limit_by=lambda account: account)
    def late(account: str) -> None: ...

    return shop


def told(app: App, story: Story, access: Any = None) -> Any:
    """What the story makes of the API."""

    async def tell() -> Any:
        async with api(app, access=access) as client:
            return await story(client)

    return run(tell)


def asked(app: App, verb: str, path: str, body: Any = None, access: Any = None) -> Any:
    """The JSON of one answer; of a problem, its status and detail."""
    got = told(app, lambda client: client.request(verb, path, json=body), access)
    if got.status_code >= 400:
        return got.status_code, got.json()["detail"]
    return got.json() if got.content else got.status_code


async def ended(client: httpx.AsyncClient, operation: dict[str, Any]) -> dict[str, Any]:
    while operation["state"] not in ("done", "stopped", "failed"):
        await asyncio.sleep(0.01)
        operation = (await client.get(f"/v1/operations/{operation['id']}")).json()
    return operation


class TestQueues:
    def test_they_are_listed_with_what_waits_in_them(self, shop: App) -> None:
        default, mail = asked(shop, "GET", "/v1/queues")["queues"]
        assert (default["queue"], default["ready"], mail["ready"], mail["scheduled"]) == ("default", 1, 3, 1)
        assert (mail["paused"], mail["served"], mail["at_once"]) == (False, True, None)
        assert mail.items() <= asked(shop, "GET", "/v1/queues/mail").items()
        assert asked(shop, "GET", "/v1/queues/mial") == (404, "no queue mial; did you mean mail?")

    def test_one_is_shown_with_its_bands_and_when_it_is_empty(self, shop: App) -> None:
        shop.named("send").using(priority=7, queue="mail").enqueue(1)
        shop.named("send").using(priority=-7, queue="mail").enqueue(1)
        mail = asked(shop, "GET", "/v1/queues/mail")
        assert {band: count["count"] for band, count in mail["bands"].items()} == {"high": 1, "normal": 3, "low": 1}
        # What came in this minute is not counted yet.
        assert (mail["came"], mail["left"], mail["drains_in"]) == (0, 0, None)

    def test_one_is_paused_and_resumed(self, shop: App) -> None:
        assert asked(shop, "POST", "/v1/queues/mail/pause")["paused"] is True
        assert shop.client.store.queues()["mail"] is True
        assert asked(shop, "POST", "/v1/queues/mail/resume")["paused"] is False
        assert asked(shop, "POST", "/v1/queues/new/pause")[0] == 404
        assert asked(shop, "POST", "/v1/queues/new/pause", {"force": True})["paused"] is True

    @pytest.mark.parametrize("name", ["images/resize", "/", "a b?c#d%/é", "images/pause"])
    def test_a_name_may_hold_any_character(self, shop: App, name: str) -> None:
        assert asked(shop, "POST", "/v1/jobs", {"task": "t", "queue": name})["state"] == "ready"
        path = f"/v1/queues/{quote(name, safe='')}"
        assert asked(shop, "POST", f"{path}/pause")["queue"] == name
        assert asked(shop, "POST", f"{path}/resume")["paused"] is False
        assert len(asked(shop, "POST", f"{path}/claim", {})["jobs"]) == 1
        assert (
            asked(shop, "PUT", f"/v1/limits/queue:{quote(name, safe='')}", {"at_once": 1})["limit"] == f"queue:{name}"
        )
        assert asked(shop, "DELETE", f"/v1/limits/queue:{quote(name, safe='')}") == 204

    def test_one_is_bounded_by_hand_and_reset(self, shop: App) -> None:
        bounded = asked(shop, "PUT", "/v1/queues/mail/bound", {"max_waiting": 4, "when_full": "refuse"})
        assert (bounded["max_waiting"], bounded["when_full"]) == (4, "refuse")
        status, why = asked(shop, "POST", "/v1/jobs", {"task": "send", "args": [1]})
        assert (status, "queue mail is full" in why) == (503, True)
        assert asked(shop, "DELETE", "/v1/queues/mail/bound")["max_waiting"] is None
        assert asked(shop, "PUT", "/v1/queues/mail/bound", {"max_waiting": -1})[0] == 422
        assert asked(shop, "PUT", "/v1/queues/default/bound", {"max_waiting": 4}, MailOnly())[0] == 403

    def test_one_is_purged_after_a_dry_run(self, shop: App) -> None:
        async def story(client: httpx.AsyncClient) -> list[dict[str, Any]]:
            dry = await client.post("/v1/queues/mail/purge", json={"dry_run": True})
            wet = await client.post("/v1/queues/mail/purge")
            assert (dry.status_code, wet.status_code) == (202, 202)
            return [await ended(client, each.json()) for each in (dry, wet)]

        dry, wet = told(shop, story)
        assert [(each["matched"], each["changed"]) for each in (dry, wet)] == [(4, 0), (4, 4)]
        assert {tally.queue for tally in shop.client.store.counts()} == {"default"}

    def test_jobs_are_counted(self, shop: App) -> None:
        counts = asked(shop, "GET", "/v1/stats")["counts"]
        assert [(one["queue"], one["task"], one["state"], one["count"]) for one in counts] == [
            ("default", "tidy", "ready", 1),
            ("mail", "send", "ready", 3),
            ("mail", "send", "scheduled", 1),
        ]

    def test_a_caller_sees_and_touches_only_its_queues(self, shop: App) -> None:
        mine = MailOnly()
        assert [one["queue"] for one in asked(shop, "GET", "/v1/queues", access=mine)["queues"]] == ["mail"]
        assert {one["queue"] for one in asked(shop, "GET", "/v1/stats", access=mine)["counts"]} == {"mail"}
        assert asked(shop, "POST", "/v1/queues/default/pause", access=mine) == (403, "not for queue default")
        assert asked(shop, "GET", "/v1/queues/mail", access=mine)["ready"] == 3
        everything = {"act": "delete", "filter": {"states": ["ready"]}}
        assert asked(shop, "POST", "/v1/operations", everything, mine) == (403, "not for queue *")
        away = {"act": "move", "filter": {"queue": "mail"}, "target": {"queue": "default"}}
        assert asked(shop, "POST", "/v1/operations", away, mine) == (403, "not for queue default")
        assert [one["task"] for one in asked(shop, "GET", "/v1/tasks", access=mine)["tasks"]] == ["send"]
        assert asked(shop, "POST", "/v1/schedules/tidy/run", access=mine)[0] == 404
        assert asked(shop, "PUT", "/v1/limits/task:tidy", {"at_once": 0}, mine) == (403, "not for queue *")
        assert asked(shop, "GET", "/v1/limits", access=mine) == {"limits": []}


class TestTasks:
    def test_they_are_listed_and_searched(self, shop: App) -> None:
        send, tidy = asked(shop, "GET", "/v1/tasks")["tasks"]
        assert (send["task"], send["kind"], send["description"]) == ("send", "sync", "Sends one mail.")
        assert (tidy["task"], tidy["kind"], "url" in tidy) == ("tidy", "async", False)
        assert [one["task"] for one in asked(shop, "GET", "/v1/tasks?search=ONE+MAIL")["tasks"]] == ["send"]
        assert asked(shop, "GET", "/v1/tasks?kind=http") == {"tasks": []}
        assert asked(shop, "GET", "/v1/tasks/sned") == (404, "no task sned; did you mean send?")

    def test_an_http_task_is_added_edited_replaced_and_removed(self, shop: App) -> None:
        settings = {"url": HOOK, "delay": "10m", "owner": "shop team", "secret": "x-" * 16}
        added = asked(shop, "POST", "/v1/tasks", {"task": "order.paid", "settings": settings})
        assert added["warnings"] == []
        assert (added["task"]["owner"], added["task"]["settings"]["secret"]) == ("shop team", "***")
        assert added["task"]["url"] == "https://shop.example/hook?..."
        assert asked(shop, "POST", "/v1/tasks", {"task": "order.paid", "settings": settings})[0] == 422
        edited = asked(shop, "PATCH", "/v1/tasks/order.paid", {"delay": None, "enabled": False})["task"]
        assert (edited["enabled"], "delay" in edited["settings"], edited["owner"]) == (False, False, "shop team")
        replaced = asked(shop, "PUT", "/v1/tasks/order.paid", {"url": HOOK, "queue": "hooks"})["task"]
        assert (replaced["queue"], replaced["enabled"], replaced["owner"]) == ("hooks", True, "")
        assert asked(shop, "GET", "/v1/tasks?search=hooks")["tasks"] == [replaced]
        assert asked(shop, "DELETE", "/v1/tasks/order.paid") == {"task": "order.paid", "waiting": 0}
        for verb, body in (("GET", None), ("DELETE", None), ("PATCH", {"delay": 1})):
            assert asked(shop, verb, "/v1/tasks/order.paid", body)[0] == 404
        assert asked(shop, "PUT", "/v1/tasks/order.paid", {"url": HOOK})["task"]["kind"] == "http"

    def test_an_edit_of_a_task_that_has_changed_meanwhile_is_refused(self, shop: App) -> None:
        asked(shop, "PUT", "/v1/tasks/hook", {"url": HOOK, "secret": "x-" * 16})
        seen = asked(shop, "GET", "/v1/tasks/hook")["version"]
        path = f"/v1/tasks/hook?if_version={seen}"
        edited = asked(shop, "PATCH", path, {"delay": "1m"})["task"]
        assert edited["version"] != seen
        for verb, body in (("PATCH", {"delay": "2m"}), ("PUT", {"url": HOOK})):
            status, told = asked(shop, verb, path, body)
            assert (status, "changed delay" in told) == (412, True), told
        assert asked(shop, "GET", "/v1/tasks/hook") == edited
        # All of it sent back as it was shown, but for one value.
        path = f"/v1/tasks/hook?if_version={edited['version']}"
        replaced = asked(shop, "PUT", path, {**edited["settings"], "delay": "3m"})["task"]
        assert replaced["settings"] == {**edited["settings"], "delay": "3m"}
        assert shop.http.endpoints["hook"].settings == {"url": HOOK, "secret": "x-" * 16, "delay": "3m"}
        assert asked(shop, "PUT", "/v1/tasks/none?if_version=1", {"url": HOOK})[0] == 412
        assert asked(shop, "PATCH", "/v1/tasks/hook?version=1", {"delay": "1m"})[0] == 422

    @pytest.mark.parametrize(
        ("verb", "path", "body", "detail"),
        [
            ("POST", "/v1/tasks", {"task": "x", "settings": {}}, "tasks.x.url: it is missing"),
            ("POST", "/v1/tasks", {"task": "send", "settings": {"url": HOOK}}, "send is a function of the app"),
            ("PUT", "/v1/tasks/x", {"url": HOOK, "dealy": 1}, "unknown setting tasks.x.dealy; did you mean delay?"),
            ("PATCH", "/v1/tasks/x", {}, "edit what?"),
            ("PATCH", "/v1/tasks/send", {"delay": 1}, "no HTTP task send is registered"),
            ("DELETE", "/v1/tasks/send", None, "no HTTP task send is registered"),
        ],
    )
    def test_what_is_wrong_is_named(self, shop: App, verb: str, path: str, body: Any, detail: str) -> None:
        status, told = asked(shop, verb, path, body)
        assert (status, told.startswith(detail)) == (422, True), told

    def test_a_rule_is_tried_on_an_answer(self, shop: App) -> None:
        rule = {"url": HOOK, "retry_when": "res.code != 200", "schedule": ["1m", "3m"]}
        asked(shop, "PUT", "/v1/tasks/hook", rule)
        again = asked(shop, "POST", "/v1/tasks/hook/try", {"body": '{"code": 500}'})
        assert (again["outcome"], 50 <= again["delay"] <= 70) == ("again", True)
        whole = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + '{"code": 200}'
        assert asked(shop, "POST", "/v1/tasks/hook/try", {"body": whole})["outcome"] == "delivered"
        assert asked(shop, "POST", "/v1/tasks/send/try", {"body": whole})[0] == 404


class TestSchedulesAndLimits:
    def test_a_schedule_is_listed_paused_resumed_and_run(self, shop: App) -> None:
        (tidy,) = asked(shop, "GET", "/v1/schedules")["schedules"]
        assert (tidy["name"], tidy["cron"], tidy["paused"]) == ("tidy", "0 3 * * *", False)
        paused = asked(shop, "POST", "/v1/schedules/tidy/pause")
        assert (paused["paused"], paused["next"]) == (True, None)
        assert asked(shop, "POST", "/v1/schedules/tidy/resume")["paused"] is False
        assert shop.get(asked(shop, "POST", "/v1/schedules/tidy/run")["id"]).state == "ready"
        assert asked(shop, "POST", "/v1/schedules/tydi/run")[0] == 404

    def test_what_became_of_the_ticks_of_a_schedule(self, shop: App) -> None:
        shown = asked(shop, "GET", "/v1/schedules/tidy")
        assert (shown["name"], shown["calendar"], shown["runs"]) == ("tidy", "", [])
        job = shop.tasks["tidy"].enqueue()
        tick = shop.client.clock.now() // SECOND * SECOND
        state = ScheduleState("0 3 * * * UTC", tick, tick, tick, runs=[ScheduledRun(tick, job.id)])
        assert schedule_state.write(shop.client.store, "tidy", state, None)
        (run,) = asked(shop, "GET", "/v1/schedules/tidy")["runs"]
        assert run == {
            "tick": tick / SECOND, "state": "ready", "job": job.id, "kept": True, "started": None, "ended": None,
            "delay": None, "duration": None, "ticks": 1,
        }  # fmt: skip
        assert asked(shop, "GET", "/v1/schedules/tydi")[0] == 404
        assert asked(shop, "GET", "/v1/schedules/tidy", access=MailOnly())[0] == 404

    def test_a_limit_is_set_by_hand_and_reset(self, shop: App) -> None:
        (limit,) = asked(shop, "GET", "/v1/limits")["limits"]
        assert limit == {"limit": "task:tidy", "at_once": 2, "rate": None, "running": 0, "set_by": "code"} | {
            "has_keys": False, "paused": False, "waiting": None, "oldest": None, "weight": None, "max_waiting": None,
        }  # fmt: skip
        set_ = asked(shop, "PUT", "/v1/limits/task:tidy", {"at_once": 5, "rate": "10/m"})
        assert (set_["at_once"], set_["rate"], set_["set_by"]) == (5, "10 in 60 s", "hand")
        assert asked(shop, "DELETE", "/v1/limits/task:tidy") == 204
        assert asked(shop, "GET", "/v1/limits/task:tidy") == limit
        assert asked(shop, "GET", "/v1/limits/queue:mail")[0] == 404
        assert asked(shop, "PUT", "/v1/limits/mail", {"at_once": 1})[0] == 422
        assert (
            asked(shop, "PUT", "/v1/limits/queue:mail", {})[1]
            == "set to what? Give at_once, rate, weight or max_waiting"
        )
        assert asked(shop, "PUT", "/v1/limits/queue:mail", {"weight": 2})[1].startswith("queue:mail has no keys that")
        assert asked(shop, "PUT", "/v1/limits/queue:mail", {"rate": "fast"})[1].startswith("rate: ")
        assert asked(shop, "PUT", "/v1/limits/queue:mail", {"at_once": -1})[0] == 422
        for name in ("queue:mail", "each:bill"):
            assert asked(shop, "PUT", f"/v1/limits/{name}", {"max_waiting": 2, "at_once": 1})[1].startswith(
                f"{name} is no key: max_waiting is for"
            )
        for most in (-1, 2**31 + 1, "2", 1.5):
            assert asked(shop, "PUT", "/v1/limits/each:bill=ann", {"max_waiting": most})[0] == 422

    @pytest.mark.parametrize("key", ["ann", "", "a/b", "a=b", "käse", "%2F", "..", "/pause", "x" * 150])
    def test_one_key_of_a_task_has_its_own_numbers(self, tenants: App, key: str) -> None:
        limit = f"each:bill={key}"
        way, keys = f"/v1/limits/{quote(limit, safe='')}", "/v1/limits?of=each:bill"
        shown = asked(tenants, "PUT", way, {"at_once": 5})["limit"]
        assert shown == limit or len(key) > 100
        paused = asked(tenants, "POST", f"{way}/pause")
        assert (paused["limit"], paused["at_once"], paused["paused"], paused["set_by"]) == (shown, 5, True, "hand")
        assert asked(tenants, "GET", keys)["limits"] == [paused]
        last = quote(shown.partition("=")[2], safe="")
        assert asked(tenants, "GET", f"{keys}&after={last}") == {"limits": []}
        assert asked(tenants, "POST", f"{way}/resume") == {**paused, "paused": False}
        weighted = asked(tenants, "PUT", way, {"weight": 7})
        assert (weighted["weight"], weighted["at_once"], weighted["set_by"]) == (7, None, "hand")
        bounded = asked(tenants, "PUT", way, {"max_waiting": 3})
        assert (bounded["max_waiting"], bounded["weight"], bounded["set_by"]) == (3, 1, "hand")
        assert asked(tenants, "GET", keys)["limits"] == [bounded]
        assert asked(tenants, "DELETE", way) == 204
        assert asked(tenants, "GET", keys) == {"limits": []}
        assert (asked(tenants, "GET", way)["set_by"], asked(tenants, "GET", way)["weight"]) == ("code", 1)

    def test_the_longest_name_of_a_task_counts(self, tenants: App) -> None:
        """Also where it has no limit yet."""
        assert asked(tenants, "PUT", "/v1/limits/each:bill=late=ann", {"at_once": 5})["limit"] == "each:bill=late=ann"
        assert tenants.client.store.limits().keys() == {"each:bill=late", "task:tidy"}
        assert asked(tenants, "GET", "/v1/limits?of=each:bill=late")["limits"][0]["limit"] == "each:bill=late=ann"

    def test_a_key_of_a_task_without_keys_holds_nothing_and_is_refused(self, shop: App) -> None:
        before = shop.client.store.limits()
        for verb, end, body in (("PUT", "", {"at_once": 1}), ("POST", "/pause", None)):
            status, told = asked(shop, verb, f"/v1/limits/each:tidy=ann{end}", body)
            assert (status, told.partition(":")[0]) == (422, "limit")
            assert "tidy has no tenants" in told
        assert shop.client.store.limits() == before
        # What it had when it had keys is removed all the same.
        shop.client.store.limit_key("tidy", "ann", KeyLimit(1, is_paused=True))
        assert asked(shop, "POST", "/v1/limits/each:tidy=ann/resume")["paused"] is False
        assert asked(shop, "DELETE", "/v1/limits/each:tidy=ann") == 204
        assert shop.client.store.limits() == before

    def test_a_key_of_a_task_in_order_has_one_job_at_a_time(self, shop: App) -> None:
        settings = {"url": "https://shop.example/{shop}", "order": "{shop}"}
        assert asked(shop, "PUT", "/v1/tasks/line", settings)["task"]["task"] == "line"
        status, told = asked(shop, "PUT", "/v1/limits/each:line=s-1", {"at_once": 2})
        assert (status, told) == (
            422,
            "limit: line does the jobs of a key one after another, in their order: one at once, or 0",
        )
        with pytest.raises(ValueError, match="line does the jobs of a key one after another"):
            shop.named("line").tenant("s-1").set(limit=2)
        shop.named("line").tenant("s-1").set(limit=1, rate="1/m")
        paused = asked(shop, "POST", "/v1/limits/each:line=s-1/pause")
        assert (paused["at_once"], paused["rate"], paused["paused"]) == (1, "1 in 60 s", True)

    def test_what_is_no_key_is_refused(self, shop: App) -> None:
        assert asked(shop, "POST", "/v1/limits/each:tidy/pause")[0] == 422
        assert asked(shop, "POST", "/v1/limits/queue:mail/pause")[0] == 422
        assert asked(shop, "PUT", "/v1/limits/task:tidy=ann", {"at_once": 1})[0] == 422
        assert asked(shop, "PUT", "/v1/limits/each:=ann", {"at_once": 1})[0] == 422
        assert asked(shop, "GET", "/v1/limits?of=task:tidy")[0] == 422
        assert asked(shop, "GET", "/v1/limits?of=each:tidy&limit=0")[0] == 422
        mine = MailOnly()
        assert asked(shop, "PUT", "/v1/limits/each:tidy=ann", {"at_once": 1}, mine) == (403, "not for queue *")
        assert asked(shop, "GET", "/v1/limits?of=each:tidy", access=mine) == (403, "not for queue *")
        assert asked(shop, "PUT", "/v1/limits/queue:a=b", {"at_once": 1})["limit"] == "queue:a=b"


def test_hosts_and_workers_that_run_jobs_are_listed(shop: App) -> None:
    store = shop.client.store
    store.claim([Want("mail", 0, 2)], 2, "one|x.1:2:3:1", 10**9, store.time())
    assert asked(shop, "GET", "/v1/hosts") == {"hosts": []}
    found = asked(shop, "GET", "/v1/workers")
    assert (found["total"], found["workers"][0]["worker"], found["workers"][0]["running"]) == (1, "one|x.1:2:3:1", 2)
    assert {job["task"] for job in found["workers"][0]["jobs"]} == {"send"}


class TestOperations:
    def test_one_is_started_seen_and_stays_in_the_list(self, shop: App) -> None:
        async def story(client: httpx.AsyncClient) -> Any:
            body = {"act": "cancel", "filter": {"task": "send", "states": ["ready"]}, "reason": "not today"}
            started = await client.post("/v1/operations", json=body)
            assert started.status_code == 202
            done = await ended(client, started.json())
            listed = (await client.get("/v1/operations")).json()["operations"]
            stopped = (await client.delete(f"/v1/operations/{done['id']}")).json()
            return done, listed, stopped

        done, listed, stopped = told(shop, story)
        assert (done["state"], done["total"], done["changed"], done["target"]) == ("done", 3, 3, None)
        assert (listed, stopped) == ([done], done)

    def test_what_is_refused(self, shop: App) -> None:
        assert asked(shop, "POST", "/v1/operations", {"act": "delete", "filter": {}})[0] == 422
        assert asked(shop, "POST", "/v1/operations", {"act": "explode", "filter": {"queue": "mail"}})[0] == 422
        long_ago = {"act": "retry", "filter": {"older": 1e300}}
        assert asked(shop, "POST", "/v1/operations", long_ago)[0] == 422
        for label in ("customer", "", "a b=7"):
            wrong = {"act": "delete", "filter": {"labels": [label]}}
            assert asked(shop, "POST", "/v1/operations", wrong)[0] == 422
        assert asked(shop, "GET", "/v1/operations/nine")[0] == 404
        assert asked(shop, "DELETE", "/v1/operations/nine")[0] == 404


class TestHealth:
    def test_a_process_that_serves_is_alive_and_ready(self, shop: App) -> None:
        async def story(client: httpx.AsyncClient) -> list[tuple[int, str]]:
            got = [await client.get("/healthz"), await client.get("/readyz")]
            return [(each.status_code, each.text) for each in got]

        assert told(shop, story) == [(200, "ok\n"), (200, "ok\n")]

    def test_it_is_not_ready_while_the_store_is_away_or_hangs(self, shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
        def away(name: str) -> None:
            raise StoreAway("db.internal:5432 is away")

        monkeypatch.setattr(shop.client.store, "kv_get", away)

        async def story(client: httpx.AsyncClient) -> Any:
            alive, ready = await client.get("/healthz"), await client.get("/readyz")
            return alive.status_code, ready.status_code, ready.text

        assert told(shop, story) == (200, 503, "the store cannot be asked now: StoreAway\n")

    def test_it_is_not_ready_once_a_thread_that_it_needs_has_ended(
        self, shop: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(claim_loop.ClaimLoop, "_run", lambda loop: loop._wakeup.close())

        async def story(client: httpx.AsyncClient) -> Any:
            before = (await client.get("/readyz")).status_code
            taking = asyncio.create_task(client.post("/v1/claim", json={"queues": ["mail"], "wait": 5}))
            async with asyncio.timeout(20):
                while (ready := await client.get("/readyz")).status_code == 200:
                    await asyncio.sleep(0.001)
            taking.cancel()
            return before, ready.status_code, ready.text

        assert told(shop, story) == (200, 503, "jobs cannot be taken any more: restart this server\n")

    def test_a_store_that_hangs_takes_one_thread_only(self, shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
        release, calls = threading.Event(), list[str]()

        def hang(name: str) -> None:
            calls.append(name)
            release.wait(20)

        monkeypatch.setattr(history_snapshot, "PROBE_TIMEOUT", 0.05)
        monkeypatch.setattr(shop.client.store, "kv_get", hang)

        async def story(client: httpx.AsyncClient) -> Any:
            got = await asyncio.gather(*(client.get("/readyz") for _ in range(5)))
            release.set()
            return {(each.status_code, each.text) for each in got}

        assert told(shop, story) == {(503, "the store has not answered within 0.05 s\n")}
        assert len(calls) == 1


class TestAudit:
    def test_each_act_of_an_operator_is_a_line(self, shop: App, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "tarry.audit")
        asked(shop, "GET", "/v1/queues")
        asked(shop, "POST", "/v1/queues/mail/pause", access=MailOnly())
        asked(shop, "POST", "/v1/queues/default/pause", access=MailOnly())
        asked(shop, "PUT", "/v1/limits/queue:mail", {"at_once": 7})
        asked(shop, "POST", "/v1/queues/x%0Ay/pause")
        assert [record.getMessage() for record in caplog.records if record.name == "tarry.audit"] == [
            "mail-team from 127.0.0.1: pause_queue /v1/queues/mail/pause: done",
            "mail-team from 127.0.0.1: pause_queue /v1/queues/default/pause: NotAllowed: not for queue default",
            "anybody from 127.0.0.1: set_limit queue:mail = 7 at once: done",
            caplog.messages[-1],
        ]
        assert "\n" not in caplog.messages[-1]


class TestMetrics:
    def scrape(self, app: App, accept: str = "", access: Any = None) -> dict[str, dict[tuple[str, ...], float]]:
        """The samples by name and values of their labels, but for the process."""
        got = told(app, lambda client: client.get("/metrics", headers={"Accept": accept}), access)
        assert got.status_code == 200
        parse = parse_openmetrics if accept else text_string_to_metric_families
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for family in parse(got.text):
            for sample in family.samples:
                labels = tuple(value for name, value in sample.labels.items() if name != "process")
                found.setdefault(sample.name, {})[labels] = sample.value
        return found

    @pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
    def test_what_prometheus_reads(self, shop: App, accept: str) -> None:
        asked(shop, "POST", "/v1/queues/mail/pause")
        pool = PoolFigures("mail", 4, 1, queues=["mail"])
        register = HostEntry(shop.client.store, lambda: Host("h|1.1:1:1", "web-1", 7, pools=[pool]))
        register.register_host()
        found = self.scrape(shop, accept)
        depth = found["tarry_queue_depth"]
        assert (depth["mail", "ready"], depth["mail", "dead"]) == (3, 0)
        assert found["tarry_oldest_seconds"]["mail",] >= 0
        assert (found["tarry_queue_paused"]["mail",], found["tarry_queue_paused"]["default",]) == (1, 0)
        assert (found["tarry_queue_workers"]["mail",], found["tarry_queue_workers"]["default",]) == (4, 0)
        assert found["tarry_hosts"] == {("alive",): 1, ("lost",): 0}
        assert (list(found["tarry_store_up"].values()), found["tarry_ring_waiting"][()]) == ([1], 0)
        assert found["tarry_puts_refused_total"][()] == 0
        assert "process_resident_memory_bytes" in found

    def test_requests_are_counted(self, shop: App) -> None:
        async def story(client: httpx.AsyncClient) -> str:
            for path in ("/v1/queues", "/v1/queues", "/v1/queues/none"):
                await client.get(path)
            return (await client.get("/metrics")).text

        lines = told(shop, story).splitlines()
        counted = {line for line in lines if line.startswith("tarry_http_requests_total{")}
        assert {line.partition('method="')[2] for line in counted} == {
            'list_queues",process="' + f'{os.getpid()}",status="200"}} 2.0',
            'get_queue",process="' + f'{os.getpid()}",status="404"}} 1.0',
        }

    def test_without_the_store_the_figures_of_the_server_are_there(
        self, shop: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def away(store: Store) -> None:
            raise StoreAway("away")

        # The server looks at it over a connection of its own.
        monkeypatch.setattr(type(shop.client.store), "counts", away)
        found = self.scrape(shop)
        assert (list(found["tarry_store_up"].values()), "tarry_ring_waiting" in found) == ([0], True)
        assert "tarry_queue_depth" not in found

    def test_a_reader_sees_only_its_queues(self, shop: App) -> None:
        assert {queue for queue, _ in self.scrape(shop, access=MailOnly())["tarry_queue_depth"]} == {"mail"}

    def test_the_store_is_read_once_however_many_ask(self, shop: App, monkeypatch: pytest.MonkeyPatch) -> None:
        kind = type(shop.client.store)
        counts, calls = kind.counts, list[int]()

        def count(store: Store) -> Any:
            calls.append(1)
            return counts(store)

        monkeypatch.setattr(kind, "counts", count)

        async def story(client: httpx.AsyncClient) -> None:
            await asyncio.gather(*(client.get("/metrics") for _ in range(10)))

        told(shop, story)
        assert len(calls) == 1

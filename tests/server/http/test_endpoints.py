"""The methods about endpoints of HTTP tasks."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tarry import App
from tarry.config.config import Config, Push
from tarry.model import lifecycle
from tarry.model.duration import SECOND
from tarry.model.job import State
from tarry.model.lifecycle import Rules
from tarry.model.outcome import Returned
from tarry.push.delivery.delivery_record import parse_records
from tarry.push.endpoint.endpoint_cells import FLOW_CELL, TASK_CELL, disable, read_flows
from tarry.push.endpoint.flow import FIRST_OPEN, FlowState
from tarry.push.endpoint_records import exchanges_of
from tarry.store.queries.history_reading import bring_up_to_date
from tarry.store.rules.base import Query, Want
from tests.push.server import Server, answer
from tests.server.http.test_operating import MailOnly, asked, ended, told

HERE = Push(["127.0.0.1"])
LIMIT = 20.0


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture
def shop(app: App, server: Server, tmp_path: Path) -> App:
    """With the HTTP task hook in the queue mail, and other beside it, at the same host."""
    tasks = {
        "hook": {"url": server.url("/hook/{n}?key=sesame"), "queue": "mail", "max_attempts": 1, "concurrency": 7},
        "other": {"url": server.url() + "other"},
    }
    app.configure(Config(tasks=tasks, push=HERE, directory=tmp_path))
    return app


def set_flow(app: App, state: FlowState) -> None:
    store = app.client.store
    was = store.kv_get(FLOW_CELL + "hook")
    assert store.kv_cas(FLOW_CELL + "hook", msgspec.json.encode(state), was)


def flow(app: App) -> FlowState | None:
    found = read_flows(app.client.store).get("hook")
    return found[0] if found else None


def deliver(app: App, count: int) -> None:
    """Puts jobs of hook, and lets a worker of this process bring them to an end."""
    handles = [app.named("hook").enqueue({"n": number}) for number in range(count)]
    with app.running():
        end = time.monotonic() + LIMIT
        for handle in handles:
            while not handle.state.finished:
                assert time.monotonic() < end
                time.sleep(0.01)


class TestEndpoints:
    def test_they_are_listed_without_secrets(self, shop: App) -> None:
        shop.named("hook").enqueue({"n": 0})
        hook, other = asked(shop, "GET", "/v1/endpoints")["endpoints"]
        assert (hook["task"], hook["queue"], hook["waiting"], hook["bound"]) == ("hook", "mail", 1, 7)
        assert (hook["circuit"], hook["since"], hook["opens"], hook["trouble"]) == ("closed", None, None, "")
        assert (hook["shared_with"], other["shared_with"]) == (["other"], ["hook"])
        assert "sesame" not in str(hook)
        assert asked(shop, "GET", "/v1/endpoints/hok") == (404, "no HTTP task hok; did you mean hook?")

    def test_a_caller_for_a_queue_sees_and_changes_only_its_endpoints(self, shop: App) -> None:
        seen = asked(shop, "GET", "/v1/endpoints", access=MailOnly())["endpoints"]
        assert [one["task"] for one in seen] == ["hook"]
        assert seen[0]["shared_with"] == []
        for verb, path in (
            ("GET", ""),
            ("POST", "/pause"),
            ("POST", "/resume"),
            ("POST", "/close"),
            ("POST", "/probe"),
        ):
            assert asked(shop, verb, f"/v1/endpoints/other{path}", access=MailOnly())[0] == 404
        assert asked(shop, "POST", "/v1/endpoints/other/replay", {"since": 60}, MailOnly())[0] == 404
        asked(shop, "POST", "/v1/endpoints/hook/pause", access=MailOnly())
        started = asked(shop, "POST", "/v1/endpoints/hook/replay", {"since": 60}, MailOnly())
        assert started["filter"]["queue"] == "mail"

    def test_a_caller_for_a_queue_learns_nothing_of_jobs_in_others(self, shop: App) -> None:
        deliver(shop, 1)
        elsewhere = shop.named("hook").using(queue="other")
        ended = [elsewhere.enqueue({"n": number}) for number in range(2)]
        with shop.running():
            for handle in ended:
                handle.result(timeout=LIMIT)
        shop.named("hook").using(queue="other", delay=3600).enqueue({"n": 9})
        bring_up_to_date(shop.client.store.history, shop.client.clock.now())
        hook = asked(shop, "GET", "/v1/endpoints/hook", access=MailOnly())
        assert (hook["endpoint"]["waiting"], hook["endpoint"]["shared_with"]) == (0, [])
        assert (hook["hour"], len(hook["exchanges"])) == ({"200": 1}, 1)
        every = asked(shop, "GET", "/v1/endpoints/hook")
        assert (every["endpoint"]["waiting"], every["hour"]) == (1, {"200": 3})

    def test_an_open_circuit_tells_since_when_until_when_and_why(self, shop: App) -> None:
        now = shop.client.clock.now()
        opened = FlowState(3, until=now + 90 * SECOND, opened=2, why="HTTP 503", since=now - 60 * SECOND)
        set_flow(shop, opened)
        hook = asked(shop, "GET", "/v1/endpoints/hook")["endpoint"]
        assert (hook["circuit"], hook["at_once"], hook["trouble"]) == ("open", 0, "HTTP 503")
        assert hook["since"] == pytest.approx(now / SECOND - 60)
        assert hook["opens"] == pytest.approx(now / SECOND + 90, abs=1)

    def test_one_is_tried_at_once_or_closed_by_hand(self, shop: App) -> None:
        later = shop.client.clock.now() + 90 * SECOND
        set_flow(shop, FlowState(3, until=later, opened=2, why="HTTP 503"))
        assert asked(shop, "POST", "/v1/endpoints/hook/probe")["circuit"] == "half open"
        assert flow(shop) == FlowState(3, opened=2, probing=True, why="HTTP 503")
        set_flow(shop, FlowState(3, until=later, why="HTTP 429"))
        assert asked(shop, "POST", "/v1/endpoints/hook/probe")["circuit"] == "closed"
        set_flow(shop, FlowState(3, until=later, opened=2))
        assert asked(shop, "POST", "/v1/endpoints/hook/close")["circuit"] == "closed"
        assert flow(shop) is None
        assert asked(shop, "POST", "/v1/endpoints/hook/probe")["circuit"] == "closed"
        assert flow(shop) is None

    def test_deliveries_are_paused_and_resumed(self, shop: App) -> None:
        assert asked(shop, "POST", "/v1/endpoints/hook/pause")["enabled"] is False
        assert shop.client.store.kv_get(TASK_CELL + "hook") == b'{"enabled":false}'
        assert asked(shop, "POST", "/v1/endpoints/hook/resume")["enabled"] is True

    def test_one_that_the_file_disables_is_not_resumed(self, app: App, tmp_path: Path) -> None:
        tasks = {"hook": {"url": "http://127.0.0.1:9/", "enabled": False}}
        app.configure(Config(tasks=tasks, push=HERE, directory=tmp_path))
        assert asked(app, "POST", "/v1/endpoints/hook/resume")[0] == 422

    def test_one_that_said_that_it_is_gone_tells_so(self, shop: App) -> None:
        disable(shop.client.store, "hook", True, "HTTP 410: gone for good")
        hook = asked(shop, "GET", "/v1/endpoints/hook")["endpoint"]
        assert (hook["enabled"], hook["trouble"]) == (False, "HTTP 410: gone for good")

    def test_answers_and_exchanges_are_shown_and_failures_sent_again(self, shop: App, server: Server) -> None:
        for number in (0, 2):
            server.says(f"/hook/{number}?key=sesame", answer(500, b"no"))
        server.says("/hook/1?key=sesame", answer(200, b"yes"))
        deliver(shop, 3)
        found = asked(shop, "GET", "/v1/endpoints/hook")
        states = [one["outcome"] for one in found["exchanges"]]
        assert sorted(states) == ["again", "again", "delivered"]
        assert sorted(one["status"] for one in found["exchanges"]) == [200, 500, 500]
        assert found["hour"] == found["day"] == {"200": 1, "500": 2}
        assert {one["size"] for one in found["exchanges"]} == {2, 3}
        assert found["exchanges"] == sorted(found["exchanges"], key=lambda one: one["at"], reverse=True)

        async def story(client: Any) -> tuple[Any, Any, Any]:
            path = "/v1/endpoints/hook/replay"
            counted = (await client.post(path, json={"since": "1h", "dry_run": True})).json()
            counted = await ended(client, counted)
            later = await ended(client, (await client.post(path, json={"since": 0.0})).json())
            done = await ended(client, (await client.post(path, json={"since": "1h"})).json())
            return counted, later, done

        counted, later, done = told(shop, story)
        assert (counted["matched"], counted["changed"]) == (2, 0)
        assert later["matched"] == 0
        assert (done["act"], done["matched"], done["changed"]) == ("retry", 2, 2)
        assert len(shop.client.store.find(Query((State.READY,), task="hook"))) == 2
        assert len(shop.client.store.find(Query((State.DONE,), task="hook"))) == 1

        async def all_of_it(client: Any) -> Any:
            sent = await client.post("/v1/endpoints/hook/replay", json={"since": "1h", "which": "all"})
            return await ended(client, sent.json())

        assert told(shop, all_of_it)["changed"] == 1

    @pytest.mark.parametrize("elapsed", [1e308, -1e308])
    def test_a_result_that_cannot_be_shown_is_no_exchange(self, shop: App, elapsed: float) -> None:
        """A program that took the job has ended it."""
        note = {"attempt": 1, "at": "x", "outcome": "delivered", "reason": "", "elapsed": elapsed}
        shop.named("hook").enqueue({"n": 0})
        store = shop.client.store
        (job,) = store.claim([Want("mail", 0, 1)], 1, "me", 10**12, store.time())
        now = store.time()
        assert store.apply([lifecycle.after(job, Returned(msgspec.json.encode(note)), Rules(), now)], now) == [True]
        assert asked(shop, "GET", "/v1/endpoints/hook")["exchanges"] == []
        (job,) = store.find(Query(task="hook"))
        assert not list(exchanges_of(job))
        assert not parse_records(msgspec.json.encode(note).decode())

    def test_a_time_that_is_none_is_told(self, shop: App) -> None:
        status, detail = asked(shop, "POST", "/v1/endpoints/hook/replay", {"since": "soon"})
        assert status in (400, 422)
        assert "soon" in detail


def test_a_circuit_remembers_since_when_it_is_not_closed() -> None:
    from tarry.push.endpoint.flow import FAILURES, Observed, next_state  # noqa: PLC0415 - only this test

    start = 1_000 * SECOND
    opened = next_state(FlowState(20), Observed(row=FAILURES, why="HTTP 500"), 20, start)
    assert (opened.opened, opened.since) == (1, start)
    probing = next_state(opened, Observed(), 20, start + FIRST_OPEN)
    again = next_state(probing, Observed(row=1), 20, start + FIRST_OPEN + SECOND)
    assert (probing.since, again.opened, again.since) == (start, 2, start)
    half_open = next_state(again, Observed(), 20, again.until)
    assert next_state(half_open, Observed(well=1), 20, again.until + SECOND).since == 0
    waits = next_state(FlowState(20), Observed(pause=start + SECOND, well=1), 20, start)
    assert waits.since == start
    assert next_state(waits, Observed(), 20, start + SECOND).since == 0

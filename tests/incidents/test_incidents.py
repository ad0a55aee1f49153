"""Ten things that go wrong at three in the morning: what the overview says first, and how many clicks lead from the
alert, or from the overview, to the cause. docs/howto/incident.md has the table."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace
from playwright.sync_api import Browser

from tarry.keeper import schedule_state
from tarry.model.duration import HOUR, MINUTE
from tarry.model.job import LABEL_PREFIX, Job
from tarry.store.rules import ids
from tests.away.proxy import Proxy
from tests.cli.disk import Disk
from tests.cli.project import until
from tests.incidents.scenes import APP, Trouble, Woken, woken
from tests.servers.redis import RedisServer
from tests.servers.server import free_port

AtWork = Callable[[Trouble], AbstractContextManager[Woken]]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Trouble]]:
    with ExitStack() as made:

        def new(settings: str = "", app: str = APP, name: str = "near", **more: str) -> Trouble:
            (tmp_path / name).mkdir()
            trouble = Trouble(tmp_path / name, settings, app, **more)
            made.callback(trouble.close)
            return trouble

        yield new


@pytest.fixture
def at(browser: Browser) -> AtWork:
    return lambda trouble: woken(browser, trouble)


@pytest.fixture
def safe_redis(redis_server: RedisServer) -> Iterator[RedisServer]:
    """Without persistence there would be advice about that."""
    redis_server.empty()
    redis_server.call("CONFIG", "SET", "appendonly", "yes")
    yield redis_server
    redis_server.call("CONFIG", "SET", "appendonly", "no")


def test_the_store_is_slow(make: Callable[..., Trouble], at: AtWork, safe_redis: RedisServer) -> None:
    proxy = Proxy(safe_redis.port)
    trouble = make(f'store = "redis://127.0.0.1:{proxy.port}/0"\n', latency="30ms")
    trouble.serve()
    proxy.is_slow(0.05)
    with at(trouble) as who:
        who.looks()
        who.finds_first("is slow: it took")
        who.clicks_on("See the stores")
        who.knows("answers in")
    proxy.is_slow(0)
    trouble.kill_all()
    proxy.close()


def test_one_customer_floods_a_queue(make: Callable[..., Trouble], at: AtWork) -> None:
    trouble = make('[pools.slow]\nqueues = ["slow"]\nthreads = 1\n')
    trouble.serve()
    since = time.time_ns() // 1000 - 2 * MINUTE
    owners = ["whale"] * 300 + ["minnow", "shrimp"] * 5
    with trouble.store() as store:
        store.insert(
            [
                Job(ids.uuid7(), "app.export", b'["x"]', "slow", due=since, state_since=since, headers=label(owner))
                for owner in owners
            ]
        )
    with at(trouble) as who:
        who.looks()
        who.finds_first("slow: a job has been ready for 2m")
        who.clicks_on("See what holds it back")
        who.knows("Who fills it", "customer:whale", "97 %")


def label(customer: str) -> bytes:
    return msgspec.json.encode({f"{LABEL_PREFIX}customer": customer})


FAILS = """
@app.task(queue="orders")
def pay(order: int) -> int:
    return {0: order}[order % 2]
"""


def test_a_deploy_fails_half_of_a_task(make: Callable[..., Trouble], at: AtWork) -> None:
    trouble = make('[master]\napp_version = "1.0"\n[pools.default]\nqueues = ["orders"]\n')
    trouble.serve()
    trouble.becomes(trouble.add("pay", 1), "done")
    settings = trouble.directory / "tarry.toml"
    settings.write_text(settings.read_text().replace('"1.0"', '"1.1"'))
    trouble.write("app.py", APP + FAILS)
    assert trouble.tarry("reload").status == 0
    jobs = [trouble.add("pay", number) for number in range(6)]
    for job in jobs[1::2]:
        trouble.becomes(job, "dead")
    alert = trouble.inbox.gets("error ")
    with at(trouble) as who:
        who.looks()
        who.finds_first("New since the last deploy")
        who.opens(alert)
        who.knows("KeyError", "app.py:pay", "1.1", "app.pay")
        who.clicks_on(jobs[1][-8:])
        who.knows("KeyError: 1", "return {0: order}[order % 2]")


def test_an_endpoint_is_down(make: Callable[..., Trouble], at: AtWork) -> None:
    url = f"http://127.0.0.1:{free_port()}/hook"
    trouble = make(f'[tasks."order.paid"]\nurl = "{url}"\nqueue = "hooks"\nschedule = ["1h"]\n')
    trouble.serve()
    for number in range(20):
        answer = trouble.api.post("/v1/jobs", json={"task": "order.paid", "args": [number]})
        assert answer.status_code == 201, answer.text
    with at(trouble) as who:
        until(lambda: trouble.api.get("/v1/endpoints").json()["endpoints"][0]["circuit"] != "closed")
        who.looks()
        who.finds_first("order.paid: its endpoint gets no requests now")
        who.clicks_on("See its last error")
        who.knows("refuses the connection")


def test_a_job_kills_its_workers(make: Callable[..., Trouble], at: AtWork) -> None:
    trouble = make('[pools.default]\nqueues = ["pictures"]\n')
    trouble.serve()
    job = trouble.add("shrink", "cat.tiff")
    until(lambda: trouble.job(job).crashes == 2 and trouble.job(job).state == "scheduled")
    # It rests before its third attempt.
    trouble.tarry("jobs", "move", job, "--delay", "0")
    trouble.becomes(job, "dead")
    alert = trouble.inbox.gets("dead app.shrink")
    with at(trouble) as who:
        who.opens(alert)
        who.clicks_on(job[-8:])
        who.knows("Poison", "SIGKILL", "app.shrink")


def test_a_schedule_was_missed(make: Callable[..., Trouble], at: AtWork) -> None:
    ago = (time.gmtime().tm_min + 30) % 60
    trouble = make(app=APP.replace('"30 3 * * *"', f'"{ago} * * * *"'))
    trouble.serve()
    with trouble.store() as store:
        states = until(lambda: schedule_state.read(store))
        assert trouble.tarry("stop").status == 0
        # As if nothing had run for three hours.
        ((name, (state, written)),) = states.items()
        assert schedule_state.write(store, name, replace(state, after=state.after - 3 * HOUR), written)
    trouble.serve()
    alert = trouble.inbox.gets("schedule ")
    with at(trouble) as who:
        who.looks()
        who.finds_first("night_report: the tick of")
        who.opens(alert)
        who.knows("left out", "Run now")


def test_the_disk_is_nearly_full(make: Callable[..., Trouble], at: AtWork, disk: Disk) -> None:
    trouble = make(f'store = "sqlite:///{disk.path}/tarry.db"\n')
    trouble.serve()
    alert = trouble.inbox.gets("free disk ")
    with at(trouble) as who:
        who.looks()
        who.finds_first("free disk")
        who.opens(alert)
        who.knows("free disk", "under 256 MB: free some space before enqueues are refused")


def test_a_host_is_lost(make: Callable[..., Trouble], at: AtWork) -> None:
    near = make()
    near.serve()
    far = make(f'store = "sqlite:///{near.database}"\n', name="far")
    far.serve()
    until(lambda: len(near.api.get("/v1/hosts").json()["hosts"]) == 2)
    far.kill_all()
    with at(near) as who:
        until(lambda: "lost" in [host["state"] for host in near.api.get("/v1/hosts").json()["hosts"]])
        who.looks()
        who.finds_first("has not been heard of since")
        who.clicks_on("See which hosts run")
        who.knows("lost", "all queues")


def test_a_limit_was_set_to_0(make: Callable[..., Trouble], at: AtWork) -> None:
    trouble = make('[pools.default]\nqueues = ["mail"]\n')
    trouble.serve()
    assert trouble.api.put("/v1/limits/task:app.send", json={"at_once": 0}).status_code == 200
    job = trouble.add("send", "ann@example.org")
    with at(trouble) as who:
        who.looks()
        who.finds_first("task:app.send is 0: nothing of it starts")
        who.clicks_on("See the limits")
        who.knows("task:app.send stopped", "hand")
    assert trouble.api.get(f"/v1/jobs/{job}").json()["state"] == "ready"


SET = """
from tarry.store.redis import diagnostics

_time = diagnostics._server_time
diagnostics._server_time = lambda link: _time(link) + 3_600_000_000
"""


def test_a_clock_is_off(make: Callable[..., Trouble], at: AtWork, safe_redis: RedisServer) -> None:
    trouble = make(f'store = "{safe_redis.url}"\n', app=APP + SET)
    trouble.serve()
    alert = trouble.inbox.gets("clock offset ")
    with at(trouble) as who:
        who.looks()
        who.finds_first("clock offset")
        who.opens(alert)
        who.knows("clock offset", "run NTP on this host and the server")

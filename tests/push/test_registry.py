"""HTTP tasks from the configuration and the store: which processes know them, and how soon."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tarry import App, State
from tarry.config.config import load
from tarry.errors import ConfigError, UnknownTask
from tarry.keeper.limits import set_by_hand
from tarry.model import lifecycle
from tarry.model.limit import Limit
from tarry.push.endpoint import endpoint_cells
from tarry.push.endpoint.endpoint_settings import EndpointError
from tarry.push.http.address_guard import AddressGuard
from tarry.store.rules.base import Store
from tests.push.fixture import HERE, DeliveryFixture
from tests.push.server import answer
from tests.worker.bench import finished, until

GUARD, CELL = AddressGuard(HERE.allow), endpoint_cells.TASK_CELL + "hook"


def from_file(directory: Path, text: str) -> App:
    (directory / "tarry.toml").write_text(text, encoding="utf-8")
    app = App(closures=True)
    app.configure(load(directory=directory))
    return app


def test_a_task_of_the_configuration_is_enqueued_by_name(tmp_path: Path) -> None:
    app = from_file(tmp_path, '[tasks."order.timeout"]\nurl = "https://shop.example/hook"\ndelay = "10m"\n')
    job = app.enqueue("order.timeout", {"order": 7})
    assert job.state is State.SCHEDULED
    with pytest.raises(UnknownTask, match=r"no task 'order.timout' in this app; did you mean order.timeout\?"):
        app.enqueue("order.timout", {"order": 7})
    app.close()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[tasks.hook]\nurl = "https://a.example/"\nretry_wen = "res.code"',
            r"tarry.toml:3: unknown setting tasks.hook.retry_wen; did you mean retry_when\?",
        ),
        ('[tasks.hook]\nmethod = "GET"', r"tarry.toml:1: tasks.hook.url: it is missing; write url = "),
        ('[tasks.hook]\nurl = "https://{host}/"', r"tarry.toml:2: tasks.hook.url, at 9: a placeholder in scheme"),
        ("tasks = 3", r"tarry.toml:1: tasks: expected a table for each HTTP task, as in .*, got 3"),
        ("[tasks]\nhook = 3", r"tarry.toml:2: tasks.hook: no table of settings; write url = "),
        ('[push]\nallow = "10.0.0.0/8"', r"tarry.toml:2: push.allow: expected a list of networks such as"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        from_file(tmp_path, text).http.load()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '[tasks.hook]\nurl = "https://a.example/"\nretry_when = "res.code !="',
            r"tarry.toml:3: tasks.hook.retry_when, at 12: .*",
        ),
        (
            '[tasks.hook]\nurl = "http://127.0.0.1:8000/"',
            r"tarry.toml:2: tasks.hook.url: 127.0.0.1, loopback: not reached",
        ),
        ('[push]\nallow = ["ten"]\n[tasks.hook]\nurl = "https://a.example/"', r"\[push\] allow: 'ten' is no network"),
    ],
)
def test_who_delivers_checks_all_of_it(tmp_path: Path, text: str, told: str) -> None:
    app = from_file(tmp_path, text)
    with pytest.raises(ConfigError, match=told):
        app.http.load(thoroughly=True)


def test_no_secret_is_shown(tmp_path: Path) -> None:
    app = from_file(tmp_path, '[tasks.hook]\nurl = "https://a.example/?k=sesame"\nsecret = "sesame-sesame-sesame"')
    app.http.load()
    shown = f"{app.config!r} {app.tasks!r} {app.http.endpoints!r}"
    assert "hook" in shown
    assert "sesame" not in shown


def test_a_function_and_a_url_of_one_name_are_refused(tmp_path: Path) -> None:
    app = from_file(tmp_path, '[tasks.hook]\nurl = "https://a.example/"')
    app.task(name="hook")(lambda: None)
    with pytest.raises(ConfigError, match=r"tarry.toml:1: a function is the task hook already; rename one"):
        app.http.load()


def test_a_new_task_reaches_a_worker_that_knew_of_none(any_delivery: DeliveryFixture) -> None:
    any_delivery.configure()
    any_delivery.deliver()
    endpoint_cells.add(any_delivery.store(), "hook", any_delivery.settings(), GUARD)
    began = time.monotonic()
    job = any_delivery.app.enqueue("hook", {"a": 1})
    assert finished(job) is State.DONE
    assert time.monotonic() - began < 5, "a look at an unknown task finds it"


def test_a_change_reaches_who_delivers_and_who_enqueues(any_delivery: DeliveryFixture) -> None:
    store = any_delivery.store()
    any_delivery.configure()
    endpoint_cells.add(store, "hook", any_delivery.settings(), GUARD)
    any_delivery.deliver()
    assert any_delivery.app.enqueue("hook", {}).result(15)["status"] == 200
    any_delivery.server.says("/new", answer(202))
    endpoint_cells.edit(store, "hook", any_delivery.settings("/new") | {"delay": "1h", "queue": None}, GUARD)
    until(lambda: any_delivery.app.enqueue("hook", {}).state is State.SCHEDULED)
    job = any_delivery.app.tasks["hook"].using(delay=0).enqueue({})
    assert job.result(15)["status"] == 202


def test_the_jobs_of_a_removed_task_wait_and_go_out_when_it_is_back(any_delivery: DeliveryFixture) -> None:
    store = any_delivery.store()
    any_delivery.configure()
    endpoint_cells.add(store, "hook", any_delivery.settings(), GUARD)
    any_delivery.deliver()
    assert any_delivery.app.enqueue("hook", {}).result(15)
    later = any_delivery.app.tasks["hook"].using(delay="1h").enqueue({"n": 2})
    assert endpoint_cells.remove(store, "hook") == 1
    until(lambda: "hook" not in any_delivery.app.tasks)
    with pytest.raises(UnknownTask):
        any_delivery.app.enqueue("hook", {})
    now = store.time()
    assert store.apply([lifecycle.run_now(later.record(), now)], now) == [True]
    assert later.state is State.READY
    assert len(any_delivery.server.seen) == 1
    endpoint_cells.add(store, "hook", any_delivery.settings(), GUARD)
    assert later.result(15)["status"] == 200


def other_app(delivery: DeliveryFixture) -> App:
    """Another process on the same store, as after a change of the code or of the configuration."""
    app = App(delivery.app.store_url, closures=True)
    delivery.at_last.append(app.close)
    delivery.configure(app)
    return app


def test_one_that_is_back_is_found_by_a_worker_that_knew_of_none(delivery: DeliveryFixture) -> None:
    store, app = delivery.store(), other_app(delivery)
    delivery.configure()
    endpoint_cells.add(store, "hook", delivery.settings(), GUARD)
    job = delivery.app.enqueue("hook", {})
    assert endpoint_cells.remove(store, "hook") == 1
    delivery.deliver(app)
    assert finished(app.task(name="other")(lambda: 1).enqueue()) is State.DONE
    assert job.state is State.READY
    endpoint_cells.add(store, "hook", delivery.settings(concurrency=3), GUARD)
    assert job.result(15)["status"] == 200
    until(lambda: limit_of(store) == 3)


def test_the_jobs_of_one_that_is_added_disabled_wait(delivery: DeliveryFixture) -> None:
    store = delivery.store()
    delivery.configure()
    delivery.deliver()
    endpoint_cells.add(store, "hook", delivery.settings(enabled=False), GUARD)
    assert limit_of(store) == 0
    job = delivery.app.enqueue("hook", {})
    assert finished(delivery.app.task(name="other")(lambda: 1).enqueue()) is State.DONE
    assert (job.state, delivery.server.seen) == (State.READY, [])


def test_a_function_of_that_name_gets_the_jobs_of_one_that_was_removed(delivery: DeliveryFixture) -> None:
    store, app = delivery.store(), other_app(delivery)
    delivery.configure()
    endpoint_cells.add(store, "hook", delivery.settings(), GUARD)
    job = delivery.app.enqueue("hook", {"n": 7})
    endpoint_cells.remove(store, "hook")
    assert limit_of(store) == 0
    app.task(name="hook")(lambda n: n)
    delivery.deliver(app)
    assert job.result(15) == 7


def test_one_that_is_taken_out_of_the_file_leaves_nothing_that_holds_its_jobs(delivery: DeliveryFixture) -> None:
    store, without, function = delivery.store(), other_app(delivery), other_app(delivery)
    delivery.configure(hook={"order": "{n}"})
    delivery.server.says("/", answer(410))
    first = delivery.deliver()
    job = delivery.app.enqueue("hook", {"n": 7})
    until(lambda: limit_of(store) == 0)
    first.end()
    delivery.coordinators[0].close()
    idle = delivery.deliver(without)
    until(lambda: job.state is State.READY)
    idle.end()
    function.task(name="hook")(lambda n: n)
    delivery.deliver(function)
    assert job.result(15) == 7


def test_one_that_was_disabled_and_taken_out_of_the_file_may_be_added(
    delivery: DeliveryFixture, caplog: pytest.LogCaptureFixture
) -> None:
    store, without = delivery.store(), other_app(delivery)
    delivery.configure(hook={})
    endpoint_cells.set_enabled(store, "hook", False, configured=True)
    delivery.deliver(without)
    without.http.sync(store)
    assert not caplog.records
    endpoint_cells.add(store, "hook", delivery.settings(), GUARD)
    assert without.enqueue("hook", {}).result(15)["status"] == 200


def test_one_that_is_removed_while_a_worker_looks_leaves_nothing(
    delivery: DeliveryFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, cells = delivery.store(), endpoint_cells.read_cells
    delivery.configure()
    endpoint_cells.add(store, "hook", delivery.settings(order="{n}"), GUARD)

    def removed_meanwhile(store: Store, prefix: str) -> Any:
        found = cells(store, prefix)
        if CELL in store.kv_list(CELL):
            endpoint_cells.remove(store, "hook")
        return found

    monkeypatch.setattr(endpoint_cells, "read_cells", removed_meanwhile)
    delivery.deliver()
    assert (limit_of(store), limit_of(store, "hook", "each"), store.kv_list("flow:")) == (None, None, {})


def test_a_disabled_one_holds_its_jobs_ready(any_delivery: DeliveryFixture) -> None:
    store = any_delivery.store()
    any_delivery.configure()
    endpoint_cells.add(store, "hook", any_delivery.settings(enabled=False), GUARD)
    any_delivery.deliver()
    until(lambda: limit_of(store) == 0)
    job = any_delivery.app.enqueue("hook", {})
    other = any_delivery.app.task(name="other")(lambda: 1).enqueue()
    assert finished(other) is State.DONE
    assert job.state is State.READY
    endpoint_cells.edit(store, "hook", {"enabled": True}, GUARD)
    assert job.result(15)["status"] == 200


def test_410_disables_it_until_somebody_enables_it(any_delivery: DeliveryFixture) -> None:
    store = any_delivery.store()
    any_delivery.configure()
    endpoint_cells.add(store, "hook", any_delivery.settings(), GUARD)
    any_delivery.server.says("/", answer(410))
    any_delivery.deliver()
    job = any_delivery.app.enqueue("hook", {})
    until(lambda: limit_of(store) == 0)
    until(lambda: job.state is State.READY)
    record = any_delivery.job(job)
    assert (record.failures, [one.outcome for one in any_delivery.records(job)]) == (0, ["disabled"])
    assert (
        endpoint_cells.decode_settings(endpoint_cells.read_cells(store, endpoint_cells.TASK_CELL)["hook"])["enabled"]
        is False
    )
    any_delivery.server.says("/", answer(200))
    endpoint_cells.edit(store, "hook", {"enabled": None}, GUARD)
    assert job.result(15)["status"] == 200


def test_410_disables_also_what_stands_in_the_configuration(delivery: DeliveryFixture) -> None:
    store = delivery.store()
    delivery.configure(hook={})
    delivery.server.says("/", answer(410))
    delivery.deliver()
    job = delivery.app.enqueue("hook", {})
    until(lambda: endpoint_cells.read_cells(store, endpoint_cells.TASK_CELL))
    until(lambda: not delivery.app.http.endpoints["hook"].enabled)
    delivery.server.says("/", answer(200))
    endpoint_cells.set_enabled(store, "hook", True, configured=True)
    assert job.result(15)["status"] == 200


def test_what_is_registered_is_checked_first(delivery: DeliveryFixture) -> None:
    store = delivery.store()
    for settings, told in [
        ({"url": "http://10.0.0.7/"}, r"tasks.hook.url: 10.0.0.7, private: not reached, unless \[push\] allow"),
        ({"url": "https://a.example/", "retry_when": "res."}, "tasks.hook.retry_when, at"),
        ({}, "tasks.hook.url: it is missing"),
    ]:
        with pytest.raises(EndpointError, match=told):
            endpoint_cells.add(store, "hook", settings, GUARD)
    assert not endpoint_cells.read_cells(store, endpoint_cells.TASK_CELL)
    endpoint_cells.add(store, "hook", delivery.settings(), GUARD)
    with pytest.raises(ConfigError, match="there is a task hook already"):
        endpoint_cells.add(store, "hook", delivery.settings(), GUARD)
    with pytest.raises(ConfigError, match="no HTTP task hok is registered"):
        endpoint_cells.edit(store, "hok", {"delay": "1m"}, GUARD)
    with pytest.raises(ConfigError, match="no HTTP task hok is registered"):
        endpoint_cells.remove(store, "hok")


@pytest.mark.parametrize(
    ("host", "told"),
    [
        ("127.1", "127.0.0.1, loopback"),
        ("2130706433", "127.0.0.1, loopback"),
        ("0x7f.1", "127.0.0.1, loopback"),
        ("0177.0.0.01", "127.0.0.1, loopback"),
        ("127.0.0.1.", "127.0.0.1, loopback"),
        ("0", "0.0.0.0, unspecified"),
        ("[::1]", "::1, loopback"),
        ("[::ffff:10.0.0.7]", "::ffff:a00:7, which stands for 10.0.0.7, private"),
        ("[64:ff9b::169.254.169.254]", "64:ff9b::a9fe:a9fe, which stands for 169.254.169.254, where a cloud"),
        ("localhost", "localhost is at 127.0.0.1, loopback"),
        ("LocalHost.", "localhost is at 127.0.0.1, loopback"),
        ("shop.localhost", "shop.localhost is at 127.0.0.1, loopback"),
    ],
)
def test_what_is_known_to_be_refused_is_refused_at_once_however_it_is_written(host: str, told: str) -> None:
    with pytest.raises(EndpointError) as refused:
        endpoint_cells.check_endpoint("hook", {"url": f"http://{host}/x"}, AddressGuard())
    assert str(refused.value).startswith(f"tasks.hook.url: {told}")
    assert 'unless [push] allow = ["' in str(refused.value)


@pytest.mark.parametrize("allow", ["127.0.0.1", "::1", "127.0.0.0/8"])
def test_localhost_may_be_allowed(allow: str) -> None:
    endpoint_cells.check_endpoint("hook", {"url": "http://localhost:8000/"}, AddressGuard([allow]))


def test_a_limit_that_was_set_by_hand_stays(delivery: DeliveryFixture) -> None:
    store = delivery.store()
    delivery.configure(hook={"concurrency": 7})
    set_by_hand(store, "task:hook", Limit(3))
    delivery.deliver()
    assert delivery.app.enqueue("hook", {}).result(15)
    assert limit_of(store) == 3


def test_a_cell_that_nobody_can_read_is_told_and_changes_nothing(
    delivery: DeliveryFixture, caplog: pytest.LogCaptureFixture
) -> None:
    store = delivery.store()
    delivery.configure(hook={})
    store.kv_cas("task:strange", b"no json", None)
    store.kv_cas("task:newer", b'{"url":"https://a.example/","shape":"round"}', None)
    delivery.deliver()
    assert delivery.app.enqueue("hook", {}).result(15)
    assert set(delivery.app.http.endpoints) == {"hook"}
    assert "the HTTP task strange of the store: the store has no settings there" in caplog.text
    assert "unknown setting tasks.newer.shape" in caplog.text


def test_the_next_of_a_key_waits_while_one_is_under_way(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"order": "{customer}"})
    jobs = [delivery.app.enqueue("hook", {"customer": n % 2, "n": n}) for n in range(20)]
    delivery.deliver()
    for job in jobs:
        assert finished(job) is State.DONE
    for customer in (0, 1):
        bodies = [seen.body for seen in delivery.server.seen if b'"customer":%d' % customer in seen.body]
        assert bodies == [b'{"customer":%d,"n":%d}' % (customer, n) for n in range(customer, 20, 2)]
    with pytest.raises(TypeError, match=r"hook: order: \{customer\}: the body has no customer there"):
        delivery.app.enqueue("hook", {})


def test_the_next_of_a_key_waits_until_the_one_before_is_settled(any_delivery: DeliveryFixture) -> None:
    any_delivery.configure(hook={"order": "{customer}", "schedule": [0.3] * 5})
    told: list[int] = []

    async def script(line: Any) -> None:
        n = json.loads(any_delivery.server.seen[-1].body)["n"]
        told.append(n)
        await answer(404 if n == 6 else 429 if told.count(n) < 3 and n in (0, 3) else 200)(line)

    any_delivery.server.says("/", script)
    first = [any_delivery.app.enqueue("hook", {"customer": 1, "n": n}) for n in range(5)]
    any_delivery.deliver()
    until(lambda: first[0].record().failures)
    other = any_delivery.app.enqueue("hook", {"customer": 2, "n": 100})
    assert finished(other) is State.DONE
    assert not first[0].state.finished
    later = [any_delivery.app.enqueue("hook", {"customer": 1, "n": n}) for n in range(5, 9)]
    for job in first + later:
        assert finished(job)
    told.remove(100)
    assert list(dict.fromkeys(told)) == list(range(9)), told
    assert told == sorted(told), told


def test_a_job_that_is_cancelled_holds_nobody_up(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"order": "{customer}", "schedule": ["1h"]})
    delivery.server.says("/", answer(429))
    first = delivery.app.enqueue("hook", {"customer": 1})
    delivery.deliver()
    until(lambda: first.record().failures)
    delivery.server.says("/", answer(200))
    assert first.cancel()
    assert delivery.app.enqueue("hook", {"customer": 1}).result(15)["status"] == 200


def test_a_dead_one_may_hold_its_key(delivery: DeliveryFixture) -> None:
    delivery.configure(hook={"order": "{customer}", "on_dead": "hold"})
    delivery.server.says("/", answer(404))
    first = delivery.app.enqueue("hook", {"customer": 1})
    delivery.deliver()
    assert finished(first) is State.DEAD
    delivery.server.says("/", answer(200))
    second = delivery.app.enqueue("hook", {"customer": 1})
    until(lambda: second.record().epoch)
    assert not second.state.finished
    assert first.retry()
    assert second.result(15)["status"] == 200
    assert finished(first) is State.DONE


def limit_of(store: Store, name: str = "hook", kind: str = "task") -> int | None:
    found = store.limits().get(f"{kind}:{name}")
    return None if found is None else found[0].most

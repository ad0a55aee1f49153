"""What the watch sees: stores that are away, full, slow, not durable; jobs that died, queues that are stuck, endpoints
that fail. And one whole story, with a master."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
from msgspec.structs import replace

from tarry.alert import deaths as deaths_module
from tarry.alert import stores as stores_module
from tarry.alert import work as work_module
from tarry.alert.alert_message import Message
from tarry.alert.alert_settings import AlertSettings
from tarry.alert.condition import Condition
from tarry.alert.deaths import MOST_COUNTED, Deaths
from tarry.alert.monitor import LEASE_FOR, Monitor, MonitoredApp
from tarry.alert.storage import FileStorage
from tarry.alert.stores import StoreChecks, shards_of
from tarry.alert.work import WorkChecks
from tarry.client.clock import FakeClock
from tarry.config.config import Alerts
from tarry.errors import StoreUnavailable
from tarry.keeper import schedule_state
from tarry.keeper.schedule_state import ScheduleState
from tarry.model.duration import DAY, HOUR, MINUTE, SECOND
from tarry.model.lifecycle import Rules
from tarry.model.limit import Limit
from tarry.model.outcome import Raised, outcome_note
from tarry.model.schedules.schedule import LEFT_OUT, REFUSED, ScheduledRun
from tarry.push.endpoint import endpoint_cells
from tarry.push.endpoint.endpoint_settings import Endpoint
from tarry.push.endpoint.flow import FlowState as Flow
from tarry.push.endpoint.recipient import Recipient
from tarry.store.conformance.cases.jobs import FAILED, NOW, put, running, settle
from tarry.store.opening import open_store
from tarry.store.queries.hosts import Host
from tarry.store.rules import ids
from tarry.store.rules.base import Store
from tarry.store.shards.sharded import ShardedStore
from tarry.store.sqlite.store import SqliteStore
from tests.cli.project import Project
from tests.push.mailbox import Mailbox
from tests.push.server import Server, answer
from tests.servers.redis import RedisServer
from tests.servers.server import Missing
from tests.worker.bench import until

OPS = Recipient.parse("ops@example.org")
DEAD = Rules().keep_dead
QUIET = Alerts(group=0, every=MINUTE)


class MonitorRig:
    """A watch that is told when to look, at a time of the test's choice; closed after the test."""

    made: ClassVar[list["MonitorRig"]] = []

    def __init__(
        self,
        connect: Callable[[], Store],
        directory: Path,
        clock: FakeClock | None = None,
        alerts: Alerts = QUIET,
        **endpoints: dict[str, Any],
    ) -> None:
        self.clock = clock or FakeClock()
        self.endpoints = {name: Endpoint.parse(name, table) for name, table in endpoints.items()}
        self.told: list[tuple[Recipient, Message]] = []
        app = MonitoredApp("store://here", lambda: (connect(), True), lambda: self.endpoints, lambda: [DEAD])
        storage = FileStorage(directory / "alerts")
        self.monitor = Monitor(app, AlertSettings(alerts, (OPS,)), self._send, storage, self.clock)
        self.made.append(self)

    def check(self, after: float = 0) -> None:
        self.clock.advance(after)
        self.monitor.check()

    def until(self, *subjects: str) -> None:
        """Looks, a second apart by its own clock, until just that has been told."""

        def told() -> bool:
            self.check(1)
            assert len(self.subjects()) <= len(subjects), self.subjects()
            return self.subjects() == list(subjects)

        until(told)

    def calm(self, seconds: int = 120) -> None:
        """Nothing more is told for so long."""
        before = self.subjects()
        for _ in range(seconds // 5):
            self.check(5)
        assert self.subjects() == before

    def subjects(self, to: Recipient = OPS) -> list[str]:
        return [message.subject.partition(": ")[2] for one, message in list(self.told) if one == to]

    def text(self) -> str:
        return "".join(message.text for _, message in list(self.told))

    def _send(self, to: Recipient, message: Message) -> None:
        self.told.append((to, message))


def keys(conditions: Sequence[Condition]) -> list[str]:
    return [condition.key for condition in conditions]


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that may be killed, and loses nothing."""
    yield from started(RedisServer(tmp_path / "redis", "--appendonly", "yes", "--appendfsync", "always"))


def started(server: RedisServer) -> Iterator[RedisServer]:
    try:
        server.start()
    except Missing as missing:
        pytest.skip(str(missing))
    yield server
    server.kill()


@pytest.fixture(autouse=True)
def _closing() -> Iterator[None]:
    yield
    while MonitorRig.made:
        MonitorRig.made.pop().monitor.close()


# Stores


def test_a_redis_that_is_killed_and_comes_back(redis: RedisServer, tmp_path: Path) -> None:
    url = f"{redis.url}?timeout=300ms"
    host = MonitorRig(lambda: open_store(url), tmp_path)
    host.calm()
    redis.kill()
    host.until(f"{redis.url} is away")
    told = host.told[0][1].text
    assert "refused" in told
    assert "what to do: tarry check" in told
    host.calm(20)
    redis.start()
    host.until(f"{redis.url} is away", f"over: {redis.url} is there again")
    host.monitor.close()


def test_a_redis_that_hangs(redis: RedisServer, tmp_path: Path) -> None:
    host = MonitorRig(lambda: open_store(f"{redis.url}?timeout=300ms"), tmp_path)
    host.check()
    redis.halt()
    host.until(f"{redis.url} is away")
    redis.resume()
    host.until(f"{redis.url} is away", f"over: {redis.url} is there again")
    host.monitor.close()


def test_a_restart_while_the_store_is_away_neither_repeats_nor_forgets(redis: RedisServer, tmp_path: Path) -> None:
    clock = FakeClock()
    connect = lambda: open_store(f"{redis.url}?timeout=300ms")  # noqa: E731
    first = MonitorRig(connect, tmp_path, clock)
    first.check()
    redis.kill()
    first.until(f"{redis.url} is away")
    first.check()
    first.monitor.close()
    second = MonitorRig(connect, tmp_path, clock)
    second.check()
    second.check(1)
    redis.start()
    second.until(f"over: {redis.url} is there again")
    second.monitor.close()


def test_memory_eviction_and_durability(redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_module, "FACTS_EVERY", 0.0)
    seen = StoreChecks(shards_of(open_store(redis.url)), Alerts())
    seen.check()
    assert (seen.local_conditions, seen.shared_conditions()) == ([], [])
    used = int(next(line for line in redis.call("INFO", "memory").splitlines() if line.startswith("used_memory:"))[12:])
    redis.call("CONFIG", "SET", "maxmemory", str(used + used // 50))
    seen.check()
    (storage,) = seen.shared_conditions()
    assert storage.key == f"memory {redis.url}"
    assert "MB of" in storage.what
    redis.call("CONFIG", "SET", "maxmemory", "0")
    redis.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    redis.call("CONFIG", "SET", "appendonly", "no")
    seen.check()
    assert keys(seen.shared_conditions()) == [f"durability {redis.url}", f"eviction {redis.url}"]
    assert all(condition.todo.startswith("CONFIG SET") for condition in seen.shared_conditions())
    seen.close(own=True)


def test_a_replica_that_is_lost(redis: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores_module, "FACTS_EVERY", 0.0)
    seen = StoreChecks(shards_of(open_store(redis.url)), Alerts())
    replica = RedisServer(tmp_path / "replica", "--replicaof", f"127.0.0.1 {redis.port}")
    replica.start()
    until(lambda: "state=online" in redis.call("INFO", "replication"))
    seen.check()
    assert seen.shared_conditions() == []
    replica.kill()
    until(lambda: "connected_slaves:0" in redis.call("INFO", "replication"))
    seen.check()
    (lost,) = seen.shared_conditions()
    assert lost.what == f"{redis.url} has 0 replicas, and had 1"
    seen.close(own=True)


def test_a_store_that_is_slow_for_a_while(tmp_path: Path) -> None:
    host = MonitorRig(lambda: SqliteStore(tmp_path / "t.db"), tmp_path, alerts=replace(QUIET, latency=1))
    for _ in range(4):
        host.check(4)
    assert host.told == []
    host.check(8)
    url = f"sqlite:///{tmp_path}/t.db"
    until(lambda: host.subjects() == [f"{url} is slow: it took {host.subjects()[0].partition('took ')[2]}"])
    host.monitor.close()


def test_each_of_several_stores_by_itself(tmp_path: Path) -> None:
    store = ShardedStore([SqliteStore(tmp_path / f"{name}.db", durable=False) for name in "ab"])
    url = store.shards[0].url
    (job,) = running(store)
    settle(store, job, FAILED)
    host = MonitorRig(lambda: store, tmp_path)
    host.until("mail: 1 job is dead")
    store.shards[0]._away_reason = "gone"
    host.until("mail: 1 job is dead", f"{url} is away")
    # What cannot be seen is not over.
    host.calm(600)
    store.shards[0]._away_reason = ""
    while "there again" not in host.text():
        host.check(1)
        assert host.clock.now() < NOW + DAY
    assert "no job has died" in host.text()
    host.monitor.close()


def test_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    stores: list[Store] = []

    def connect() -> Store:
        if not stores:
            raise StoreUnavailable("nobody there")
        return stores[0]

    host = MonitorRig(connect, tmp_path)
    host.until("store://here is away")
    stores.append(SqliteStore(tmp_path / "t.db"))
    host.until("store://here is away", "over: store://here is there again")


# Jobs, queues, endpoints


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    url = f"{request.param}:///{tmp_path}/t.db" if request.param == "sqlite" else "memory://"
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        server.empty()
        url = server.url
    store = open_store(url, durable=False)
    yield store
    store.close()


@pytest.fixture(autouse=True)
def _at_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("QUEUES_EVERY", "HOSTS_EVERY", "SCHEDULES_EVERY"):
        monkeypatch.setattr(work_module, name, 0.0)
    monkeypatch.setattr(work_module, "REMOVED_EVERY", 0.0)


def seen(store: Store, now: int = NOW, alerts: Alerts = QUIET, **endpoints: dict[str, Any]) -> list[Condition]:
    known = {name: Endpoint.parse(name, table) for name, table in endpoints.items()}
    deaths = Deaths(store, lambda: [DEAD], alerts.every or MINUTE)
    return WorkChecks(store, alerts, lambda: known, deaths).check(now, True)


FIVE = Alerts()


def test_jobs_that_died(store: Store) -> None:
    (job,) = running(store, task="order.timeout")
    settle(store, job, Raised(outcome_note("Fail", "answered 500\nthe\x1b[31mrest"), final=True))
    (dead,) = seen(store, NOW + SECOND, FIVE)
    assert dead.what == "order.timeout: 1 job is dead"
    assert dead.details == (f"{ids.text(job.id)}: Fail: answered 500 the [31mrest",)
    assert dead.todo.endswith("tarry jobs retry --task order.timeout --state dead")
    assert (dead.task, dead.since) == ("order.timeout", NOW)
    assert seen(store, NOW + 5 * MINUTE + SECOND, FIVE) == []


def test_how_many_have_to_die(store: Store) -> None:
    for job in running(store, 3):
        settle(store, job, FAILED)
    assert [one.what for one in seen(store, NOW, replace(FIVE, dead=3))] == ["mail: 3 jobs are dead"]
    assert seen(store, NOW, replace(FIVE, dead=4)) == seen(store, NOW, replace(FIVE, dead=0)) == []


def test_jobs_that_died_are_seen_however_often_there_may_be_messages(store: Store) -> None:
    (job,) = running(store)
    settle(store, job, FAILED)
    often = WorkChecks(store, replace(FIVE, every=SECOND), dict, Deaths(store, lambda: [DEAD], MINUTE))
    for after in (5 * SECOND, 10 * SECOND):
        assert [one.what for one in often.check(NOW + after, True)] == ["mail: 1 job is dead"]
    assert often.check(NOW + MINUTE, True) == []


def test_more_than_anybody_counts(store: Store) -> None:
    jobs = [job for _ in range(3) for job in running(store, MOST_COUNTED // 2)]
    for number, job in enumerate(jobs):
        settle(store, job, FAILED, now=NOW + number // 100)
    (other,) = running(store, task="other")
    settle(store, other, FAILED, now=NOW + SECOND)
    told = [one.what for one in seen(store, NOW + SECOND, FIVE)]
    assert told == ["mail: 1,000 or more jobs are dead", "other: 1 job is dead"]


def test_what_died_while_the_store_was_away_is_seen(store: Store) -> None:
    deaths = Deaths(store, lambda: [DEAD], MINUTE)
    deaths.refresh(NOW, True)
    early, late = running(store, 2)
    settle(store, early, FAILED, now=NOW + SECOND)
    deaths.refresh(NOW + 10 * MINUTE, False)
    settle(store, late, FAILED, now=NOW + 2 * SECOND)
    deaths.refresh(NOW + 11 * MINUTE, True)
    assert [one.at for one in deaths.since(NOW)["mail"]] == [NOW + SECOND, NOW + 2 * SECOND]
    assert deaths.since(NOW + HOUR) == {}


def test_more_than_one_look_takes_in(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deaths_module, "MOST_PAGES", 2)
    monkeypatch.setattr(deaths_module, "PAGE", 5)
    for number, job in enumerate(running(store, 33)):
        settle(store, job, FAILED, now=NOW + number)
    deaths = Deaths(store, lambda: [DEAD], MINUTE)
    for _ in range(5):
        deaths.refresh(NOW + SECOND, True)
    assert len(deaths.since(NOW)["mail"]) == 33


def test_queues_that_keep_their_dead_for_another_time(store: Store) -> None:
    (short,) = running(store, queue="default")
    settle(store, short, FAILED, Rules(keep_dead=DAY))
    deaths = Deaths(store, lambda: [DEAD, DAY], MINUTE)
    deaths.refresh(NOW + SECOND, True)
    assert len(deaths.since(NOW)["mail"]) == 1


def test_a_queue_that_is_stuck(store: Store) -> None:
    (job,) = put(store, due=NOW - 4 * MINUTE, state_since=NOW - 4 * MINUTE)
    put(store, 2, queue="paused", due=NOW - HOUR, state_since=NOW - HOUR)
    store.pause("paused", True)
    assert seen(store, NOW, FIVE) == []
    (stuck,) = seen(store, NOW + 2 * MINUTE, FIVE)
    assert (stuck.key, stuck.since) == ("queue default", NOW - 4 * MINUTE)
    assert stuck.what == "queue default: the oldest job has been due for 6m; jobs that wait: 1"
    assert stuck.details == (f"{ids.text(job.id)} mail",)
    assert seen(store, NOW + HOUR, replace(FIVE, oldest=0)) == []
    store.pause("default", True)
    assert seen(store, NOW + HOUR, FIVE) == []


def test_due_jobs_that_nobody_takes(store: Store) -> None:
    put(store, due=NOW + SECOND)
    put(store, queue="ready")
    assert "queue ready" in keys(seen(store, NOW + HOUR, FIVE))


def test_jobs_that_wait_for_a_task_that_is_held_back_are_no_stuck_queue(store: Store) -> None:
    put(store, 3, task="held", lane="", due=NOW - HOUR, state_since=NOW - HOUR)
    store.limit("task:held", Limit(0))
    store.kv_cas("limit:task:held", b"{}", None)
    assert "queue default" not in keys(seen(store, NOW, FIVE))
    put(store, due=NOW - HOUR, state_since=NOW - HOUR)
    (stuck,) = [one for one in seen(store, NOW, FIVE) if one.key == "queue default"]
    assert [line.split()[1] for line in stuck.details] == ["mail"]


URL = {"url": "https://hooks.example/hush?hush"}


def test_an_endpoint_that_fails(store: Store) -> None:
    flow = Flow(20, opened=2, until=NOW + SECOND, why="answered 503 Service Unavailable")
    store.kv_cas("flow:order", msgspec.json.encode(flow), None)
    (failing,) = seen(store, NOW, FIVE, order=URL)
    assert (failing.key, failing.task, failing.holds) == ("endpoint order", "order", MINUTE)
    assert failing.what == "order: https://hooks.example fails, and is called only now and then"
    assert failing.details == ("answered 503 Service Unavailable",)
    assert seen(store, NOW, FIVE) == seen(store, NOW, FIVE, order={**URL, "enabled": False}) == []


def test_an_endpoint_that_is_gone(store: Store) -> None:
    store.kv_cas("task:order", msgspec.json.encode(URL), None)
    endpoint_cells.disable(store, "order", False, "answered 410 Gone")
    off = {**URL, "enabled": False}
    (disabled,) = seen(store, NOW, FIVE, order=off)
    assert (disabled.key, disabled.details) == ("disabled order", ("answered 410 Gone",))
    assert disabled.todo == "once it is back: tarry tasks edit order enabled=true"
    endpoint_cells.set_enabled(store, "order", True, False)
    endpoint_cells.set_enabled(store, "order", False, False)
    assert seen(store, NOW, FIVE, order=off) == []


def test_a_host_that_vanished(store: Store) -> None:
    host = Host("web-2|00000000.1:7:99:0", "web-2", 7, seen=NOW)
    store.kv_cas(f"host:{host.instance}", msgspec.json.encode(host), None)
    assert seen(store, NOW, FIVE) == []
    (lost,) = seen(store, NOW + MINUTE, FIVE)
    assert (lost.what, lost.since) == ("host web-2 is lost: its master 7 has given no sign of life", NOW)
    assert seen(store, NOW + MINUTE, replace(FIVE, lost_hosts=False)) == []
    assert seen(store, NOW + DAY, FIVE) == [], "it is forgotten"


@pytest.mark.parametrize(("end", "is_told"), [(LEFT_OUT, True), (REFUSED, True), ("done", False), ("", False)])
def test_a_schedule_whose_last_tick_made_no_job(store: Store, end: str, is_told: bool) -> None:
    runs = [ScheduledRun(NOW - HOUR, end=LEFT_OUT), ScheduledRun(NOW, end=end)]
    state = ScheduleState("rule", NOW, NOW, runs=runs)
    schedule_state.write(store, "night report", state, None)
    found = seen(store, NOW, FIVE)
    assert [(one.key, one.since) for one in found] == ([("schedule night report", NOW)] if is_told else [])
    assert all("tarry schedules run 'night report'" in one.todo for one in found)
    (_, written) = schedule_state.read(store)["night report"]
    schedule_state.write(store, "night report", replace(state, paused=True), written)
    assert seen(store, NOW, FIVE) == []


def test_each_condition_has_a_page_of_the_console(store: Store) -> None:
    put(store, queue="a/b ü", due=NOW - HOUR, state_since=NOW - HOUR)
    for job in running(store, task="order.timeout"):
        settle(store, job, FAILED)
    flow = Flow(20, opened=2, until=NOW + SECOND, why="answered 503 Service Unavailable")
    store.kv_cas("flow:order", msgspec.json.encode(flow), None)
    store.kv_cas("host:web-2", msgspec.json.encode(Host("web-2|00000000.1:7:99:0", "web-2", 7, seen=NOW)), None)
    pages = {one.key.partition(" ")[0]: one.where for one in seen(store, NOW + MINUTE, FIVE, order=URL)}
    assert pages == {
        "queue": "/queues/a/b%20%C3%BC",
        "dead": "/jobs?task=order.timeout&state=dead",
        "endpoint": "/endpoints/order",
        "host": "/hosts",
    }


def test_jobs_of_a_task_that_was_removed(store: Store) -> None:
    store.kv_cas("task:order", msgspec.json.encode(URL), None)
    (job,) = put(store, task="order", due=NOW + DAY)
    endpoint_cells.remove(store, "order")
    (removed,) = seen(store, NOW, FIVE)
    assert removed.what == "order was removed, and jobs wait for it: 1"
    assert removed.details == (ids.text(job.id),)
    assert seen(store, NOW, FIVE, order=URL) == []


def test_a_task_s_own_recipients_hear_of_that_task(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "t.db", durable=False)
    ann = Recipient.parse("ann@example.org")
    for task in ("order", "other"):
        (job,) = running(store, task=task)
        settle(store, job, FAILED)
    host = MonitorRig(lambda: store, tmp_path, order={**URL, "alert": ["ann@example.org"]})
    host.until("2 things are wrong: order: 1 job is dead")
    until(lambda: host.subjects(ann) == ["order: 1 job is dead"])


def test_of_several_hosts_one_tells(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "t.db", durable=False)
    clock, homes = FakeClock(), [tmp_path / "one", tmp_path / "two"]
    for home in homes:
        home.mkdir()
    one, two = (MonitorRig(lambda: store, home, clock) for home in homes)
    (job,) = running(store)
    settle(store, job, FAILED)
    one.until("mail: 1 job is dead")
    two.check()
    one.check()
    # The first one is gone without a word: after a while the other goes on where it was.
    two.check(LEASE_FOR / SECOND + 1)
    clock.advance(60)
    two.until("over: mail: no job has died for 1m")
    assert len(one.told) == 1


# All of it


APP = "from tarry import App\n\napp = App()\n"


def test_a_job_that_dies_is_told_to_the_recipients_of_its_task(server: Server, tmp_path: Path) -> None:
    server.says("/order", answer(500, b"broken"))
    with Mailbox() as box:
        place = Project(
            tmp_path,
            APP,
            f"""
            push.allow = ["127.0.0.1"]
            alerts = {{ to = "{server.url("/alerts")}", smtp = "{box.url}", group = 0 }}
            [tasks.order]
            url = "{server.url("/order")}"
            max_attempts = 1
            alert = ["ann@example.org"]
            """,
        )
        try:
            place.serve()
            job = place.enqueue("order", "{}")
            until(lambda: box.mails() and "/alerts" in server.paths())
            (mail,) = box.mails()
            assert mail["To"] == "ann@example.org"
            assert mail["Subject"].endswith("order: 1 job is dead")
            assert job in mail.get_content()
            assert "500" in mail.get_content()
            (hook,) = [seen for seen in server.seen if seen.path == "/alerts"]
            assert msgspec.json.decode(hook.body)["alerts"][0]["key"] == "dead order"
            assert "order: 1 job is dead" in place.log()
            said = {fact["name"]: fact["value"] for fact in place.facts("check")["facts"]}
            assert said["alerts to ann@example.org"] == "can be sent"
        finally:
            place.close()


def test_a_master_does_not_start_with_recipients_that_are_none(tmp_path: Path) -> None:
    place = Project(tmp_path, APP, 'alerts.to = "hush"\n')
    try:
        ran = place.tarry("start")
        assert ran.status == 1
        assert "tarry.toml:2: alerts.to: number 1 is nobody" in ran.err.splitlines()[-1]
        assert "hush" not in ran.err
    finally:
        place.close()

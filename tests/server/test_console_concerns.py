"""What the console says needs attention."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tarry.client.queue_records import QueueRecord, queue_records
from tarry.keeper.keeper_records import HostRecord, LimitRecord
from tarry.keeper.waiting_facts import StoreReader
from tarry.model.duration import SECOND
from tarry.model.job import LABEL_PREFIX, Job, State
from tarry.operate.stores import FactRecord, StoreRecord
from tarry.push.task_records import TaskRecord
from tarry.server.console.concerns.concerns import LATE, ORDER, Concern, find_concerns
from tarry.server.console.concerns.setting_concerns import stopped_limits
from tarry.server.console.views.queue_shares import shares_of
from tarry.store.memory.store import MemoryStore
from tarry.store.queries.hosts import PoolFigures
from tarry.store.rules import ids
from tarry.store.rules.base import Tally
from tarry.worker.external_queues import mark_external

NOW = 1_700_000_000 * SECOND
SLOW = 1.0
SERVING = HostRecord("h", "web-1", 7, "", "0.1", "serving", 1, 2, [PoolFigures("p", 1, queues=["mail"])], True, True)
LOST = replace(SERVING, name="web-2", state="lost", alive=False, pools=[])
UP = StoreRecord("memory://", "", 0.001, False, [FactRecord("version", "1", "")])
HOOK = TaskRecord("hook", "http", "mail", 0, None, 9, "", "", enabled=True, circuit="open", trouble="503", waiting=2)


def queue(name: str = "mail", served: bool = False, **more: Any) -> QueueRecord:
    tallies = [Tally(name, "t", State.READY, 1, NOW, 1)]
    (record,) = queue_records(tallies, {}, {}, lambda _: served)
    return replace(record, **more)


def concerns(*queues: QueueRecord, **more: Any) -> list[Concern]:
    known: dict[str, Any] = {"hosts": [SERVING], "tasks": [], "stores": [UP], **more}
    reader = more.pop("reader", StoreReader(MemoryStore()))
    return find_concerns(
        queues, known["hosts"], known["tasks"], known["stores"], NOW, reader, slow_after=known.get("slow_after", SLOW)
    )


@pytest.mark.parametrize(
    ("given", "kinds"),
    [
        ({"queues": [queue()]}, []),
        ({"queues": [queue("other")]}, ["unserved"]),
        # A master that does not tell: the settings of this server do.
        (
            {
                "queues": [queue("other", True), queue("third")],
                "hosts": [replace(SERVING, pools=[PoolFigures("p")])],
            },
            ["unserved"],
        ),
        ({"queues": [queue("other", ready=0, oldest_ready=None)]}, []),
        ({"queues": [queue(paused=True)]}, ["paused"]),
        ({"queues": [queue(dead=3)]}, ["dead"]),
        ({"queues": [queue(oldest_ready=NOW / SECOND - LATE - 1)]}, ["late"]),
        ({"queues": [queue(oldest_ready=NOW / SECOND - LATE)]}, []),
        ({"queues": [queue(max_waiting=1)]}, ["full"]),
        ({"queues": [queue(max_waiting=2)]}, []),
        ({"hosts": [SERVING, LOST]}, ["lost"]),
        ({"queues": [queue("other")], "hosts": []}, ["no_host", "unserved"]),
        ({"queues": [queue("other", ready=0)], "hosts": []}, []),
        # Something runs them, though no master does.
        ({"queues": [queue("other", running=1)], "hosts": []}, ["unserved"]),
        ({"tasks": [HOOK]}, ["endpoint"]),
        ({"tasks": [replace(HOOK, circuit="closed")]}, []),
        ({"tasks": [replace(HOOK, enabled=False)]}, []),
        ({"stores": [replace(UP, trouble="no answer", facts=[])]}, ["away"]),
        ({"stores": [replace(UP, facts=[FactRecord("fsync", "off", "turn it on")])]}, ["advice"]),
        ({"stores": [replace(UP, latency=SLOW + 0.1)]}, ["slow"]),
        ({"stores": [replace(UP, latency=SLOW)]}, []),
    ],
)
def test_what_needs_attention(given: dict[str, Any], kinds: list[str]) -> None:
    queues = given.pop("queues", [])
    assert [one.kind for one in concerns(*queues, **given)] == kinds


def test_a_queue_of_other_programs_is_served_by_them() -> None:
    store = MemoryStore()
    mark_external(store, "other", NOW)
    assert concerns(queue("other"), reader=StoreReader(store)) == []


def test_the_worst_comes_first_and_of_a_kind_the_most() -> None:
    found = concerns(
        queue(dead=1), queue("a", dead=5, paused=True), hosts=[LOST, SERVING], stores=[replace(UP, trouble="x")]
    )
    assert [(one.kind, one.name) for one in found] == [
        ("away", "memory://"),
        ("lost", "web-2"),
        ("dead", "a"),
        ("dead", "mail"),
        ("paused", "a"),
    ]
    assert [one.kind for one in found] == sorted((one.kind for one in found), key=ORDER.index)


def test_the_way_out_is_a_page_of_that_queue() -> None:
    (dead, paused) = concerns(queue("a b&c/d", dead=1, paused=True))
    assert dead.where == "/jobs?queue=a+b%26c%2Fd&state=dead"
    assert paused.where == "/queues/a%20b%26c/d"


def test_no_store_is_slow_where_the_settings_say_that_none_is() -> None:
    assert concerns(stores=[replace(UP, latency=100.0)], slow_after=0) == []


@pytest.mark.parametrize(
    ("limit", "at_once", "is_told"),
    [
        ("queue:mail", 0, True),
        ("task:send", 0, True),
        ("task:send", 1, False),
        ("task:send", None, False),
        # That of an endpoint that rests.
        ("task:hook", 0, False),
        # One customer is paused on purpose.
        ("each:send=7", 0, False),
    ],
)
def test_a_limit_of_0_is_told(limit: str, at_once: int | None, is_told: bool) -> None:
    record = LimitRecord(limit, at_once, None, 0, "hand")
    assert [one.name for one in stopped_limits([record], {"task:hook"})] == [limit] * is_told


def test_whoever_fills_a_queue_is_named() -> None:
    def jobs(count: int, customer: str = "", lane: str | None = None) -> list[Job]:
        headers = msgspec.json.encode({f"{LABEL_PREFIX}customer": customer}) if customer else b""
        return [Job(ids.uuid7(), "send", b"[]", headers=headers, lane=lane) for _ in range(count)]

    shares = shares_of([*jobs(70, "whale & co", "7"), *jobs(20, "minnow"), *jobs(10, lane="")], "mail")
    assert [(one.name, one.count) for one in shares] == [
        ("customer:whale & co", 70),
        ("send 7", 70),
        ("customer:minnow", 20),
    ]
    assert shares[0].where == "/jobs?queue=mail&state=ready&label=customer%3Dwhale+%26+co"
    assert shares[1].where == "/limits/each%3Asend/keys"
    assert shares_of([*jobs(50), *(job for n in range(50) for job in jobs(1, str(n)))], "mail") == []
    assert shares_of(jobs(5, "whale"), "mail") == [], "that is no flood"

"""What is shown of one queue: its bands, and when it is predicted to be empty."""

import pytest
from msgspec.structs import replace

from tarry.client.queue_records import QueueDetail, queue_detail, queue_records, seconds_to_drain
from tarry.model import lifecycle
from tarry.model.duration import HOUR, MINUTE, SECOND
from tarry.model.flow.own_queues import own_queue
from tarry.model.job import Job
from tarry.model.lifecycle import DEFAULT
from tarry.model.outcome import Returned
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Want

NOW = 1_800_000_000 * SECOND


@pytest.mark.parametrize(
    ("ready", "came", "left", "seconds"),
    [(0, 9, 0, 0.0), (10, 0, 5, 600.0), (10, 5, 10, 600.0), (10, 5, 5, None), (10, 6, 5, None), (10, 0, 0, None)],
)
def test_a_queue_is_empty_once_more_has_left_than_came(ready: int, came: int, left: int, seconds: float | None) -> None:
    assert seconds_to_drain(ready, came, left, 300) == seconds


def detail(store: MemoryStore, now: int) -> QueueDetail:
    (record,) = queue_records(store.counts(), {}, {}, lambda name: True, ["mail"])
    return queue_detail(record, store, now)


def test_queues_of_single_hosts_are_no_queues_of_the_list() -> None:
    store = MemoryStore()
    own = own_queue("web-1|1.1:9:1:0")
    store.insert([Job(store.new_id("send"), "send", b"[]", queue) for queue in ("mail", "@mail", own)])
    listed = queue_records(store.counts(), store.queues(), {}, lambda name: True)
    assert [record.queue for record in listed] == ["@mail", "mail"]
    asked = queue_records(store.counts(), store.queues(), {}, lambda name: True, [own])
    assert [record.ready for record in asked if record.queue == own] == [1], "by its name it is shown"


def test_whole_minutes_count() -> None:
    store = MemoryStore()
    job = Job(b"", "send", b"[]", queue="mail", due=NOW, state_since=NOW)
    store.insert([replace(job, id=store.new_id("send")) for _ in range(12)])
    jobs = store.claim([Want("mail", 0, 8)], 8, "ann", HOUR, NOW + SECOND)
    store.apply([lifecycle.after(one, Returned(), DEFAULT, NOW + 6 * MINUTE) for one in jobs], NOW)
    store.history.sum_up(NOW + HOUR)
    assert (detail(store, NOW + MINUTE).came, detail(store, NOW + MINUTE).left) == (12, 0)
    assert detail(store, NOW + MINUTE).drains_in is None
    # The minute in which they end is not over yet; a minute later that in which they came is too long ago.
    before, after = detail(store, NOW + 7 * MINUTE - 1), detail(store, NOW + 7 * MINUTE)
    assert (before.left, after.came, after.left) == (0, 0, 8)
    assert after.drains_in == pytest.approx(4 * 300 / 8)
    assert after.bands.normal.count == 4

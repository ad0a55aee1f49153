"""Bounded queues: several producers, a store that is away, answers that are lost, transactions."""

import logging
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tarry import App, QueueFull, StoreUnavailable
from tarry.client import bounds
from tarry.client.bounds import bounds_in_use, declare_bounds, read_bounds, set_bound_by_hand
from tarry.client.tasks.task import SyncTask
from tarry.model import lifecycle
from tarry.model.bound import BOUNDS, Bound
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Query, Store
from tests.store.switched import Switched, memories
from tests.worker.bench import until


def _send(number: int) -> None: ...


class Mail:
    """An app with a task on a queue; it reads the bounds before each enqueue."""

    def __init__(self, store: Store, **options: object) -> None:
        self.store, self.app = store, App(store, closures=True, **options)  # type: ignore[arg-type]
        self.send: SyncTask[[int], None] = self.app.task(queue="mail", name="send")(_send)

    def waiting(self) -> list[bytes]:
        return [job.body for job in self.store.find(Query(queue="mail", limit=10_000))]


@pytest.fixture(autouse=True)
def read_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "READ_EVERY", -1.0)


@pytest.fixture
def mail() -> Iterator[Mail]:
    mail = Mail(Switched(MemoryStore()))
    yield mail
    mail.app.close()


def test_a_bound_holds_for_producers_with_other_settings(mail: Mail) -> None:
    other = Mail(mail.store)
    mail.send.enqueue(1)
    declare_bounds(mail.store, {"mail": Bound(2)})
    other.send.enqueue(2)
    with pytest.raises(QueueFull):
        mail.send.enqueue(3)
    declare_bounds(mail.store, {"mail": Bound(3), "other": Bound(1)})
    mail.send.enqueue(4)
    assert read_bounds(mail.store.kv_get(BOUNDS)) == {"mail": Bound(3), "other": Bound(1)}
    assert bounds_in_use(mail.store).bounds == {"mail": Bound(3), "other": Bound(1)}


def test_the_bounds_are_read_now_and_then(mail: Mail, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "READ_EVERY", 1000.0)
    mail.send.enqueue(0)
    assert isinstance(mail.store, Switched)
    before = mail.store.calls
    for number in range(100):
        mail.send.enqueue(number)
    assert mail.store.calls == before + 100, "one call for each enqueue, and no other"


def test_what_is_stored_already_is_not_refused(mail: Mail) -> None:
    """The answer to an enqueue was lost; sent again the queue is full, with that very job."""
    declare_bounds(mail.store, {"mail": Bound(2)})
    mail.send.enqueue(1)
    assert isinstance(mail.store, Switched)
    mail.store.down(after=True, only="insert_bounded")
    with pytest.raises(StoreUnavailable) as caught:
        mail.send.enqueue(2)
    mail.store.up()
    assert caught.value.send_again().id == caught.value.job.id
    assert mail.waiting() == [b"[1]", b"[2]"]
    with pytest.raises(QueueFull):
        mail.send.enqueue(3)


def test_a_bound_set_by_hand_holds_until_it_is_reset(mail: Mail) -> None:
    declare_bounds(mail.store, {"mail": Bound(5)})
    set_bound_by_hand(mail.store, "mail", Bound(1))
    # A worker that starts, with its settings.
    declare_bounds(mail.store, {"mail": Bound(5), "slow": Bound(7)})
    mail.send.enqueue(1)
    with pytest.raises(QueueFull):
        mail.send.enqueue(2)
    set_bound_by_hand(mail.store, "mail", None, Bound(5))
    assert bounds_in_use(mail.store).bounds == {"mail": Bound(5), "slow": Bound(7)}
    set_bound_by_hand(mail.store, "mail", Bound(0))
    assert bounds_in_use(mail.store).bounds == {"slow": Bound(7)}
    set_bound_by_hand(mail.store, "mail", None)
    declare_bounds(mail.store, {"mail": Bound(5)})
    assert bounds_in_use(mail.store).bounds["mail"] == Bound(5)


def test_what_could_not_be_counted_as_dropped_is_counted_later(mail: Mail, monkeypatch: pytest.MonkeyPatch) -> None:
    declare_bounds(mail.store, {"mail": Bound(1, "drop_oldest")})
    mail.send.enqueue(0)
    with monkeypatch.context() as patch:
        patch.setattr(type(mail.store), "kv_cas", lambda *_: False)
        mail.send.enqueue(1)
    assert bounds_in_use(mail.store).dropped == {}
    mail.send.enqueue(2)
    assert bounds_in_use(mail.store).dropped == {"mail": 2}


def test_while_the_bounds_cannot_be_read_the_last_ones_hold(mail: Mail) -> None:
    declare_bounds(mail.store, {"mail": Bound(1)})
    mail.send.enqueue(1)
    assert isinstance(mail.store, Switched)
    mail.store.down(only="kv_get")
    with pytest.raises(QueueFull):
        mail.send.enqueue(2)


def test_the_outbox_keeps_what_its_store_has_no_room_for(tmp_path: Path) -> None:
    """What was accepted while the store was away is stored, also in a full queue; the next enqueue is refused."""
    store = Switched(MemoryStore())
    mail = Mail(store, outbox=tmp_path / "outbox.db")
    declare_bounds(store, {"mail": Bound(2)})
    mail.send.enqueue(0)
    store.down()
    for number in range(1, 5):
        mail.send.enqueue(number)
    store.up()
    until(lambda: len(mail.waiting()) == 5)
    until(lambda: not mail.app.outbox or not mail.app.outbox.content().jobs)
    store.inner._time = lambda: 4 * 10**15  # type: ignore[attr-defined]
    mail.app.client.clock.measure()
    with pytest.raises(QueueFull):
        mail.send.enqueue(9)
    mail.app.close()


def test_a_shard_that_is_away_does_not_hide_a_full_one(monkeypatch: pytest.MonkeyPatch) -> None:
    sharded, parts = memories("ab")
    declare_bounds(sharded, {"mail": Bound(4)})
    app = App(sharded, closures=True)
    send = app.task(queue="mail", name="send")(_send)
    with pytest.raises(QueueFull):
        send.enqueue_many([(number,) for number in range(100)])
    assert [len(part.find(Query())) for part in parts] == [2, 2]
    app.close()


def test_warnings_are_few(mail: Mail, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    declare_bounds(mail.store, {"mail": Bound(1, "drop_oldest")})
    with caplog.at_level(logging.WARNING, "tarry.client"):
        for number in range(20):
            mail.send.enqueue(number)
        assert caplog.messages == ["queue mail is full: dropped the oldest 1 job that waited"]
        monkeypatch.setattr(bounds, "WARN_EVERY", -1.0)
        mail.send.enqueue(20)
    assert caplog.messages[1:] == ["queue mail is full: dropped the oldest 19 jobs that waited"]
    assert mail.waiting() == [b"[20]"]
    assert bounds_in_use(mail.store).dropped == {"mail": 20}


def test_a_key_that_is_held_answers_its_job(mail: Mail) -> None:
    declare_bounds(mail.store, {"mail": Bound(3)})
    first = mail.send.using(key="a").enqueue(1)
    again = mail.send.using(key="a").enqueue(1)
    assert (again.id, again.is_new) == (first.id, False)


def test_within_a_transaction_nothing_is_dropped(tmp_path: Path) -> None:
    """A transactional enqueue has room taken for all of its jobs, or is refused; a rollback gives the room back."""
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)
    send = app.task(queue="mail", name="send")(_send)
    declare_bounds(app.client.store, {"mail": Bound(3, "drop_oldest")})
    theirs = apsw.Connection(str(tmp_path / "jobs.db"))
    theirs.execute("BEGIN")
    with pytest.raises(QueueFull, match="queue mail is full"):
        send.using(connection=theirs).enqueue_many([(number,) for number in range(4)])
    theirs.execute("ROLLBACK")
    theirs.execute("BEGIN")
    send.using(connection=theirs).enqueue_many([(number,) for number in range(3)])
    theirs.execute("ROLLBACK")
    assert app.client.store.find(Query()) == []
    theirs.execute("BEGIN")
    send.using(connection=theirs).enqueue(1)
    theirs.execute("COMMIT")
    theirs.close()
    assert send.enqueue_many([(1,), (2,)])[1].is_new
    app.close()


def test_a_full_queue_refuses_no_flow_but_its_ready_nodes_count(mail: Mail) -> None:
    declare_bounds(mail.store, {"mail": Bound(2)})
    with mail.app.flow("order") as f:
        first = f.add_all(mail.send.call(n) for n in range(3))
        f.add(mail.send.call(3), after=[first])
    assert [str(node.state) for node in f.handle.nodes()] == ["ready", "ready", "ready", "blocked"]
    with pytest.raises(QueueFull, match="of its jobs wait"):
        mail.send.enqueue(4)


def test_dropping_the_oldest_may_stop_a_flow(mail: Mail) -> None:
    declare_bounds(mail.store, {"mail": Bound(2, "drop_oldest")})
    with mail.app.flow("order") as f:
        f.add(mail.send.call(2), after=[f.add_all(mail.send.call(n) for n in range(2))])
    mail.send.enqueue(3)
    assert [str(node.state) for node in f.handle.nodes()] == ["cancelled", "ready", "blocked"]
    (ready,) = (node.record() for node in f.handle.nodes() if node.state == "ready")
    assert mail.store.apply([lifecycle.cancel(ready, lifecycle.DEFAULT, mail.store.time())], mail.store.time()) == [
        True
    ]
    assert (f.handle.state, f.handle.retry()) == ("dead", True)
    assert [str(node.state) for node in f.handle.nodes()] == ["ready", "ready", "blocked"]

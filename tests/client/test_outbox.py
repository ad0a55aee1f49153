"""Jobs that are enqueued while the store is away."""

import asyncio
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from tarry import App, State
from tarry.errors import (
    BodyTooLarge,
    ResultTimeout,
    StoreError,
    StoreFull,
    StoreUnavailable,
)
from tarry.model.duration import SECOND
from tarry.model.job import Job
from tarry.store.memory.store import MemoryStore
from tarry.store.outbox import Outbox
from tarry.store.rules.base import NORMAL, Query, Store, Want
from tarry.store.rules.entry import Entry
from tarry.store.shards.shard import Shard
from tarry.store.shards.sharded import ShardedStore
from tarry.tasks.arguments.options import NO_OPTIONS
from tests.store.switched import Switched, quick
from tests.worker.bench import LIMIT, Bench, until


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    monkeypatch.setattr("tarry.client.forwarder.CHECK_EVERY", 0.01)


@pytest.fixture
def inner() -> Switched:
    return Switched(MemoryStore())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "outbox.db"


@pytest.fixture
def app(inner: Switched, path: Path) -> Iterator[App]:
    app = App(inner, outbox=path, closures=True)
    yield app
    app.close()


def kept(store: Store) -> list[bytes]:
    """In the order of their ids, which is that in which they were enqueued."""
    return [job.body for job in store.find(Query(limit=10**6))]


def test_what_is_enqueued_meanwhile_arrives_in_order_and_once(app: App, inner: Switched, path: Path) -> None:
    @app.task
    def pay(number: int) -> None: ...

    pay.enqueue(0)
    inner.down()
    jobs = [pay.enqueue(number) for number in range(1, 20)]
    jobs += pay.enqueue_many([(number,) for number in range(20, 40)])
    assert {job.is_new for job in jobs} == {None}
    assert {job.state for job in jobs} == {State.READY}
    assert Outbox(path).content().jobs == 39
    inner.up()
    until(lambda: all(job.is_new for job in jobs))
    assert kept(inner.inner) == [b"[%d]" % number for number in range(40)]
    until(lambda: not Outbox(path).content().jobs)


def test_the_order_of_arrival_is_that_of_the_outbox(app: App, inner: Switched, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def pay(number: int) -> None: ...

    arrived: list[bytes] = []
    insert = inner.inner.insert

    def watched(jobs: Sequence[Job]) -> list[bytes]:
        arrived.extend(job.body for job in jobs)
        return insert(jobs)

    monkeypatch.setattr("tarry.client.forwarder.PAGE", 7)
    monkeypatch.setattr(inner.inner, "insert", watched)
    inner.down()
    for number in range(30):
        pay.enqueue(number)
    inner.up()
    until(lambda: len(arrived) >= 30)
    assert arrived == [b"[%d]" % number for number in range(30)]


def test_coroutines_do_it_as_well(app: App, inner: Switched) -> None:
    @app.task
    async def pay(number: int) -> None: ...

    async def enqueue() -> list[bool | None]:
        jobs = await asyncio.gather(*(pay.aenqueue(number) for number in range(50)))
        jobs += await pay.aenqueue_many([(50,), (51,)])
        return [job.is_new for job in jobs]

    inner.down()
    assert asyncio.run(enqueue()) == [None] * 52
    inner.up()
    until(lambda: len(kept(inner.inner)) == 52)


def test_an_answer_that_was_lost_makes_no_second_job(app: App, inner: Switched) -> None:
    @app.task
    def pay(number: int) -> None: ...

    inner.down(after=True)
    job = pay.enqueue(1)
    assert job.is_new is None
    assert len(kept(inner.inner)) == 1
    inner.up()
    until(lambda: job.is_new)
    assert len(kept(inner.inner)) == 1


def test_keys_are_honoured_on_arrival(app: App, inner: Switched) -> None:
    @app.task
    def pay(number: int) -> None: ...

    first = pay.using(key="a", delay=60, on_duplicate="replace", max_delay="1m").enqueue(1)
    latest = first.record().state_since + 60 * SECOND
    inner.down()
    second = pay.using(key="a").enqueue(2)
    third = pay.using(key="a", delay=60, on_duplicate="replace").enqueue(3)
    inner.up()
    until(lambda: third.is_new is not None)
    assert (second.id, second.is_new, third.id, third.is_new) == (first.id, False, first.id, False)
    assert kept(inner.inner) == [b"[3]"]
    assert first.record().due <= latest


def test_a_newer_job_cancels_on_its_arrival(app: App, inner: Switched) -> None:
    @app.task
    def page(number: int) -> None: ...

    newest = page.using(key="a", running="cancel")
    first = newest.enqueue(1)
    assert len(inner.inner.claim([Want("default", NORMAL, 1)], 1, "ann", 60 * SECOND, inner.time())) == 1
    inner.down()
    second, third = newest.enqueue(2), newest.enqueue(3)
    inner.up()
    until(lambda: third.is_new is not None)
    assert (second.is_new, third.is_new, third.id, first.state) == (True, False, second.id, State.CANCELLED)
    assert second.record().body == b"[3]"


def test_a_burst_that_was_kept_has_its_first_and_its_last(app: App, inner: Switched) -> None:
    @app.task
    def page(number: int) -> None: ...

    leading = page.using(key="a", delay=60, on_duplicate="replace", leading=True)
    inner.down()
    first, second, third = (leading.enqueue(number) for number in range(3))
    inner.up()
    until(lambda: third.is_new is not None)
    assert (first.is_new, second.is_new, third.is_new, third.id) == (True, True, False, second.id)
    assert (first.state, second.state, second.record().body) == (State.READY, State.SCHEDULED, b"[2]")


def test_a_request_that_was_used_for_others_is_told_in_the_log(
    app: App, inner: Switched, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(name="pay")
    def pay(number: int) -> None: ...

    first = pay.using(idempotency="r").enqueue(1)
    inner.down()
    second = pay.using(idempotency="r").enqueue(2)
    inner.up()
    until(lambda: second.is_new is not None)
    assert second.id == first.id
    assert "was kept while the store was away: pay: idempotency='r' was used for other arguments" in caplog.text


def test_its_result_can_be_waited_for(app: App, inner: Switched) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    bench = Bench(app, lambda: inner)
    inner.down()
    job = double.enqueue(4)
    with pytest.raises(ResultTimeout):
        job.result(0.05)
    try:
        bench.work(store=inner)
        inner.up()
        assert job.result(LIMIT) == 8
    finally:
        bench.close()


def test_who_waits_under_an_id_that_was_a_duplicate_gets_the_others_result(app: App, inner: Switched) -> None:
    @app.task
    def double(number: int) -> int:
        return 2 * number

    bench = Bench(app, lambda: inner)
    double.using(key="a").enqueue(1)
    inner.down()
    job = double.using(key="a").enqueue(4)
    by_its_id = app.get(job.id)
    inner.up()
    # Before the first one runs: once it has ended, the key is free.
    until(lambda: app.outbox is not None and not app.outbox.content().jobs)
    try:
        bench.work(store=inner)
        assert by_its_id.result(LIMIT) == 2
    finally:
        bench.close()


def test_what_still_lies_there_cannot_be_changed(app: App, inner: Switched, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    def pay(number: int) -> None: ...

    client = app.client
    assert client.forwarder is not None
    monkeypatch.setattr(client.forwarder, "start", lambda: None)
    inner.down()
    job = pay.enqueue(1)
    inner.up()
    with pytest.raises(StoreUnavailable, match=f"job {job.id} still lies in .*outbox.db"):
        job.cancel()
    assert job.state == State.READY
    assert client.forwarder.step()
    assert job.cancel()


def test_what_a_process_left_is_forwarded_by_the_next(tmp_path: Path, path: Path) -> None:
    """Killed, it had no time to do so. And the store was not there from the start."""
    code = f"""
import os
from tarry import App
app = App("sqlite:///{tmp_path}/later/tarry.db", outbox="{path}", closures=True)
@app.task(name="pay")
def pay(number): ...
for number in range(10):
    assert pay.enqueue(number).is_new is None
pid = os.fork()
if not pid:
    pay.enqueue(10)
    os._exit(0)
os.waitpid(pid, 0)
pay.enqueue(11)
os.kill(os.getpid(), 9)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, timeout=250, check=False, capture_output=True, text=True
    )
    assert ended.returncode == -9, ended.stderr
    assert Outbox(path).content().jobs == 12
    (tmp_path / "later").mkdir()
    app = App(f"sqlite:///{tmp_path}/later/tarry.db", outbox=path, closures=True)
    store = app.client.store
    until(lambda: len(kept(store)) == 12)
    until(lambda: not Outbox(path).content().jobs)
    assert kept(store) == [b"[%d]" % number for number in range(12)]
    app.close()


def test_several_processes_forward_each_job_once(tmp_path: Path, path: Path) -> None:
    url = f"sqlite:///{tmp_path}/later/tarry.db"
    code = f"""
import sys, time
from tarry import App
app = App("{url}", outbox="{path}", closures=True)
@app.task(name="pay")
def pay(number): ...
for number in range(50):
    pay.enqueue(number)
print("kept", flush=True)
sys.stdin.readline()
app.close()
"""
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "kept\n"
        (tmp_path / "later").mkdir()
        until(lambda: not Outbox(path).content().jobs)
        app = App(url)
        assert Counter(kept(app.client.store)) == {b"[%d]" % number: 3 for number in range(50)}
        app.close()
    finally:
        for process in running:
            process.communicate("\n", timeout=250)


def test_the_keeper_of_a_host_forwards_what_others_left(app: App, inner: Switched, path: Path) -> None:
    @app.task
    def pay(number: int) -> None: ...

    app.client.forwarder.start = lambda: None  # type: ignore[union-attr, method-assign]
    inner.down()
    pay.enqueue(1)
    inner.up()
    keeper = app.keeper(inner)
    keeper.tick()
    keeper.close()
    assert (len(kept(inner.inner)), Outbox(path).content().jobs) == (1, 0)


@pytest.mark.parametrize("error", [StoreFull("the disk is full"), StoreError("no")])
def test_only_a_store_that_is_away_is_a_reason(app: App, inner: Switched, path: Path, error: StoreError) -> None:
    @app.task
    def pay(text: str) -> None: ...

    inner.error = error
    with pytest.raises(StoreError, match=str(error)):
        pay.enqueue("1")
    with pytest.raises(StoreError, match=str(error)):
        pay.enqueue_many([("1",), ("2",)])
    with pytest.raises(BodyTooLarge):
        pay.enqueue("x" * 2**21)
    assert not path.exists()


def test_one_that_the_store_refuses_keeps_nobody_back(
    app: App, inner: Switched, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    def pay(number: int) -> None: ...

    insert = inner.inner.insert

    def picky(jobs: Sequence[Job]) -> list[bytes]:
        if any(job.body == b"[1]" for job in jobs):
            raise StoreError("not this one")
        return insert(jobs)

    monkeypatch.setattr(inner.inner, "insert", picky)
    inner.down()
    for number in range(3):
        pay.enqueue(number)
    inner.up()
    until(lambda: kept(inner.inner) == [b"[0]", b"[2]"])
    assert app.outbox is not None
    until(lambda: app.outbox.content().jobs == 1)  # type: ignore[union-attr]


def test_when_it_is_full_the_enqueue_fails(inner: Switched, tmp_path: Path) -> None:
    (tmp_path / "tarry.toml").write_text('[client]\noutbox = "out.db"\noutbox_bytes = 500\n')
    app = App(inner, closures=True)

    @app.task
    def pay(text: str) -> None: ...

    inner.down()
    pay.enqueue("x")
    with pytest.raises(StoreFull, match=r"out\.db: 2 jobs would take"):
        pay.enqueue("x" * 500)
    app.close()


def _one(app: App) -> None:
    app.tasks["pay"].enqueue("x")


def _one_awaited(app: App) -> None:
    asyncio.run(app.tasks["pay"].aenqueue("x"))


def _several(app: App) -> None:
    app.tasks["pay"].enqueue_many([("x",), ("y",)])


def _each(app: App) -> None:
    client = app.client
    (found,) = client.insert_each([client.make_job("pay", b'["x"]')], [NO_OPTIONS])
    assert isinstance(found, Exception)
    raise found


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("enqueue", [_one, _one_awaited, _several, _each])
def test_jobs_that_neither_takes_are_sent_again(
    enqueue: Callable[[App], None], after: bool, inner: Switched, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the store has them is not known, although the outbox surely has not."""
    app = App(inner, outbox=path, closures=True)
    app.task(name="pay")(lambda text: None)
    refusal = StoreFull(f"{path}: the disk is full")

    def keep(outbox: Outbox, entries: Sequence[Entry]) -> list[bool]:
        raise refusal

    with monkeypatch.context() as patch:
        patch.setattr(Outbox, "keep", keep)
        inner.down(after=after)
        with pytest.raises(StoreFull, match=str(path)) as caught:
            enqueue(app)
    inner.up()
    error = caught.value
    assert error.stored is None
    assert error.job_ids
    error.send_again()
    assert [job.id.hex() for job in inner.inner.find(Query())] == [id.replace("-", "") for id in error.job_ids]
    assert refusal.again is None, "others may have the same error"
    app.close()


def test_it_is_told_once_that_jobs_wait_there(app: App, inner: Switched, caplog: pytest.LogCaptureFixture) -> None:
    @app.task
    def pay(number: int) -> None: ...

    inner.down()
    with caplog.at_level(logging.INFO, "tarry.client"):
        pay.enqueue(1)
        until(lambda: inner.calls > 20)
        inner.up()
        until(lambda: "forwarded 1 job from" in caplog.text)
    assert caplog.text.count("jobs wait in") == 1


def test_of_shards_only_what_one_away_must_have_waits(path: Path) -> None:
    parts = [Switched(MemoryStore(name=name)) for name in "ab"]
    store = ShardedStore([Shard.from_store(part) for part in parts])
    app = App(store, outbox=path, closures=True)

    @app.task(name="pay")
    def pay(number: int) -> None: ...

    keys = [f"k{n}" for n in range(40)]
    away = sum(store.home("pay", key) == 1 for key in keys)
    parts[1].down()
    with pytest.raises(StoreError):
        store.next_due()
    jobs = [pay.using(key=key).enqueue(n) for n, key in enumerate(keys)]
    plain = [pay.enqueue(n) for n in range(40)]
    assert [job.is_new for job in jobs].count(None) == away
    assert {job.is_new for job in plain} == {True}
    parts[1].up()
    until(lambda: all(job.is_new for job in jobs))
    assert len(kept(store)) == 80
    app.close()


def test_after_a_fork_the_child_has_its_own(app: App, inner: Switched, path: Path) -> None:
    app.configure(app.config)
    outbox = app.outbox
    assert outbox is not None
    outbox.keep([])
    pid = os.fork()
    if not pid:
        os._exit(0 if app.outbox is not outbox else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert app.outbox is outbox


def test_without_one_an_enqueue_fails_at_once(inner: Switched) -> None:
    app = App(inner, closures=True)

    @app.task
    def pay(number: int) -> None: ...

    inner.down()
    with pytest.raises(StoreUnavailable):
        pay.enqueue(1)
    with pytest.raises(StoreUnavailable):
        pay.enqueue_many([(1,)])
    app.close()

"""`app.jobs(...)`: jobs as a collection, on every store."""

import asyncio
import os
from datetime import timedelta

import pytest

from tarry import App
from tarry.client.operations import collection, operation_cells, runner
from tarry.client.tasks.task import Task
from tarry.errors import ResultTimeout
from tarry.model.job import State

LIMIT = 30.0
JOBS = 12


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.client.bulk.PAGE", 5)
    monkeypatch.setattr(runner, "PAGE", 5)


@pytest.fixture
def send(app: App) -> Task[[int], None]:
    """JOBS of it wait in the queue mail, and two in default; a job of another task, too."""

    @app.task(name="send", queue="mail", retry=None)
    def send(number: int) -> None:
        if number < 0:
            raise ValueError("below zero")

    @app.task(name="other", queue="mail")
    def other() -> None: ...

    send.enqueue_many([(number,) for number in range(JOBS)])
    send.using(queue="default", key="ann", delay=3600).enqueue(1)
    send.using(queue="default", delay=3600).enqueue(2)
    other.enqueue()
    return send


def test_they_are_iterated_over_and_counted_by_each_filter(app: App, send: Task[[int], None]) -> None:
    everything = [job.id for job in app.jobs()]
    assert len(everything) == app.jobs().count() == JOBS + 3
    assert everything == sorted(everything), "in the order of their enqueues"
    for filters, expected in (
        ({"queue": "mail"}, JOBS + 1),
        ({"queue": "mail", "task": send}, JOBS),
        ({"task": "other"}, 1),
        ({"state": "scheduled"}, 2),
        ({"state": ("ready", State.SCHEDULED), "task": send}, JOBS + 2),
        ({"task": send, "key": "ann"}, 1),
        ({"since": "1h"}, JOBS + 3),
        ({"since": timedelta(hours=1), "queue": "mail"}, JOBS + 1),
        ({"older": "1h"}, 0),
        ({"state": "dead"}, 0),
    ):
        found = app.jobs(**filters)
        assert (len(list(found)), found.count()) == (expected, expected), filters


def test_the_first_is_the_oldest(app: App, send: Task[[int], None]) -> None:
    first = app.jobs(queue="mail").first()
    assert first is not None
    assert first.id == next(iter(app.jobs())).id
    assert app.jobs(state="dead").first() is None


def test_each_is_awaited_too(app: App, send: Task[[int], None]) -> None:
    async def use() -> None:
        assert [job.id async for job in app.jobs(queue="mail")] == [job.id for job in app.jobs(queue="mail")]
        assert await app.jobs(queue="mail").acount() == JOBS + 1
        first = await app.jobs(queue="default").afirst()
        assert first is not None
        assert (await app.jobs(queue="default").acancel("paid")).changed == 2
        assert (await app.jobs(queue="default").aretry()).changed == 2
        assert (await app.jobs(queue="default").adelete()).changed == 2
        holder = await send.aby_key("ann")
        assert holder is None

    asyncio.run(use())


def test_a_change_of_few_is_made_at_once(app: App, send: Task[[int], None]) -> None:
    change = app.jobs(task=send, queue="default").cancel("paid")
    assert (change.is_ended, change.matched, change.changed, change.id) == (True, 2, 2, "")
    assert change.wait(timeout=0).state == "done"
    cancelled = app.jobs(state="cancelled").first()
    assert cancelled is not None
    assert b"paid" in cancelled.record().note
    assert operation_cells.read_all(app.client.store) == []


def test_dead_ones_are_retried(app: App, send: Task[[int], None]) -> None:
    send.enqueue_many([(-1,), (-2,)])
    app.drain(timeout=LIMIT)
    dead = app.jobs(state="dead", task=send)
    assert dead.count() == 2
    assert dead.retry().changed == 2
    assert app.jobs(state="ready", task=send).count() == 2


def test_a_change_of_many_runs_in_the_background(
    app: App, send: Task[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collection, "MOST_IN_PLACE", 4)
    change = app.jobs(queue="mail", task=send).cancel("paid")
    assert operation_cells.read(app.client.store, change.id)[0].act == "cancel", "every door sees it"
    record = change.wait(timeout=LIMIT)
    assert (record.state, record.matched, record.changed) == ("done", JOBS, JOBS)
    assert app.jobs(queue="mail", state="ready").count() == 1, "that of the other task"
    again = app.jobs(queue="mail").delete()
    assert asyncio.run(again.await_ended(LIMIT)).changed == JOBS + 1
    assert app.jobs(queue="mail").count() == 0


def test_after_a_close_a_change_runs_again(app: App, send: Task[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    if app.store_url == "memory:":
        pytest.skip("a store in memory ends with its client")
    monkeypatch.setattr(collection, "MOST_IN_PLACE", 4)
    app.jobs(queue="mail").cancel().wait(LIMIT)
    app.close()
    assert app.jobs(queue="mail").retry().wait(LIMIT).changed == JOBS + 1


@pytest.mark.parametrize("act", ["cancel", "retry", "delete"])
def test_all_jobs_are_not_changed_by_mistake(app: App, send: Task[[int], None], act: str) -> None:
    with pytest.raises(ValueError, match="which jobs"):
        getattr(app.jobs(), act)()
    assert app.jobs(state=("ready", "scheduled")).count() == JOBS + 3


def test_the_job_that_holds_a_key(app: App, send: Task[[int], None]) -> None:
    holder = send.by_key("ann")
    assert holder is not None
    assert holder.state == "scheduled"
    assert send.by_key("bob") is None
    assert holder.cancel("paid")
    assert send.by_key("ann") is None, "it has ended"


def test_a_wrong_filter_is_refused_by_name(app: App) -> None:
    with pytest.raises(ValueError, match="'deed' is not a valid State: one of scheduled, ready"):
        app.jobs(state="deed")
    with pytest.raises(ValueError, match="older"):
        app.jobs(older="soon")
    with pytest.raises(ValueError, match="soon"):
        app.jobs(since="soon")


def test_a_forked_child_runs_changes_of_its_own(tmp_path: os.PathLike[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MOST_IN_PLACE", 1)
    app = App(f"sqlite:///{tmp_path}/jobs.db", closures=True)

    @app.task(name="send")
    def send() -> None: ...

    send.enqueue_many([(), (), ()])
    app.jobs(task=send).cancel().wait(LIMIT)
    pid = os.fork()
    if not pid:
        changed = app.jobs(task=send).retry().wait(LIMIT).changed
        os._exit(changed)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    app.close()


def test_a_wait_has_an_end(app: App, send: Task[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection, "MOST_IN_PLACE", 4)
    monkeypatch.setattr(runner.OperationRunner, "start", lambda self: None)
    change = app.jobs(queue="mail").cancel()
    with pytest.raises(ResultTimeout, match=f"operation {change.id} has not ended after 0 s"):
        change.wait(timeout=0)
    change.stop()
    assert change.wait(timeout=0).state == "stopped"
    assert repr(change) == "<JobsChange cancel stopped: 0 changed>"

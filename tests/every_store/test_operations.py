"""Operations: changes of many jobs in the background, on every store."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest
from msgspec.structs import replace

from tarry import App
from tarry.client.client import Client
from tarry.client.operations import operation_cells, runner
from tarry.client.operations.operation import JobFilter, MoveTarget, Operation
from tarry.client.operations.runner import OperationRunner
from tarry.errors import OperationNotFound, StoreError, StoreFull, TooManyOperations, UsageError
from tarry.model.duration import HOUR, MINUTE
from tarry.model.job import Job, State
from tarry.store.rules import ids as store_ids
from tarry.store.rules.base import Query, Store
from tarry.store.shared import backoff

LIMIT = 20.0
JOBS = 25


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PAGE", 4)


@pytest.fixture
def filled(app: App) -> App:
    """JOBS in the queue mail, and one in default."""

    @app.task(name="send", queue="mail")
    def send(number: int) -> None: ...

    send.enqueue_many([(number,) for number in range(JOBS)])
    send.using(queue="default").enqueue(0)
    return app


@pytest.fixture
def start(app: App) -> Iterator[Callable[[str], OperationRunner]]:
    started: list[OperationRunner] = []

    def start(name: str) -> OperationRunner:
        started.append(OperationRunner(lambda: app.client, name, poll=0.02))
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        one.close()


def until(app: App, id: str, happened: Callable[[Operation], bool]) -> Operation:
    """The operation once that is so."""
    end = time.monotonic() + LIMIT
    while not happened(found := operation_cells.read(app.client.store, id)[0]):
        assert time.monotonic() < end, found
        time.sleep(0.005)
    return found


def jobs(app: App, **query: object) -> int:
    return len(app.client.store.find(Query(**query)))  # type: ignore[arg-type]


def mail(act: str, **more: object) -> Operation:
    return Operation("", act, JobFilter(queue="mail"), **more)  # type: ignore[arg-type]


def test_each_job_that_matches_is_changed_and_no_other(filled: App, start: Callable[[str], OperationRunner]) -> None:
    one = start("one")
    ended = until(filled, one.submit(mail("cancel", caller="ops")).id, lambda found: found.is_ended)
    assert (ended.state, ended.total, ended.matched, ended.changed) == ("done", JOBS, JOBS, JOBS)
    assert (ended.caller, ended.owner, ended.ended >= ended.created) == ("ops", "", True)
    assert jobs(filled, states=(State.CANCELLED,), queue="mail") == JOBS
    assert jobs(filled, states=(State.READY,)) == 1
    retried = until(filled, one.submit(mail("retry")).id, lambda found: found.is_ended)
    assert (retried.changed, jobs(filled, states=(State.READY,))) == (JOBS, JOBS + 1)
    moved = until(filled, one.submit(mail("move", target=MoveTarget("slow", 3))).id, lambda found: found.is_ended)
    assert (moved.changed, {job.priority for job in filled.client.store.find(Query(queue="slow"))}) == (JOBS, {3})
    gone = Operation("", "delete", JobFilter(queue="slow", states=(State.READY,)))
    assert until(filled, one.submit(gone).id, lambda found: found.is_ended).changed == JOBS
    assert jobs(filled) == 1


def test_a_dry_run_counts_and_changes_nothing(filled: App, start: Callable[[str], OperationRunner]) -> None:
    ended = until(filled, start("one").submit(mail("delete", dry_run=True)).id, lambda found: found.is_ended)
    assert (ended.matched, ended.changed, jobs(filled)) == (JOBS, 0, JOBS + 1)


def test_those_of_another_time_stay_as_they_are(filled: App, start: Callable[[str], OperationRunner]) -> None:
    one, now = start("one"), time.time()
    for filter, matched in (
        (JobFilter("mail", older="1h"), 0),
        (JobFilter("mail", older=0), JOBS),
        (JobFilter("mail", since=now + 3600), 0),
        (JobFilter("mail", since=now - 3600), JOBS),
    ):
        ended = until(filled, one.submit(Operation("", "cancel", filter, dry_run=True)).id, lambda one: one.is_ended)
        assert ended.matched == matched, filter


def test_jobs_of_a_producer_whose_clock_is_ahead_are_changed(
    app: App, start: Callable[[str], OperationRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_jobs(app, 9, ahead=HOUR, monkeypatch=monkeypatch)
    ended = until(app, start("one").submit(mail("cancel")).id, lambda found: found.is_ended)
    assert (ended.matched, ended.changed) == (9, 9)


def test_jobs_that_came_after_it_are_left_alone(
    app: App, start: Callable[[str], OperationRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, now = app.client.store, app.client.clock.now()
    put_jobs(app, 5, ahead=-HOUR, monkeypatch=monkeypatch)
    old = operation_cells.add(store, mail("cancel"), now)
    operation, cell = operation_cells.read(store, old.id)
    assert operation_cells.write(store, replace(operation, created=now - runner.CLOCK_SLACK - MINUTE), cell)
    put_jobs(app, 30, ahead=0, monkeypatch=monkeypatch)
    start("one")
    ended = until(app, old.id, lambda found: found.is_ended)
    assert (ended.state, ended.changed) == ("done", 5)
    # It ended at the first page of new jobs.
    assert ended.after < max(job.id for job in store.find(Query(queue="mail", limit=100)))


def put_jobs(app: App, count: int, ahead: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inserts jobs into the queue mail whose ids were made so many microseconds ahead of the true time."""
    now = app.client.clock.now()
    with monkeypatch.context() as patch:
        patch.setattr(store_ids, "_last_ms", 0)
        patch.setattr(time, "time_ns", lambda: (now + ahead) * 1000)
        jobs = [Job(app.client.store.new_id("send"), "send", b"[]", "mail", state_since=now) for _ in range(count)]
    app.client.store.insert(jobs)


def test_one_runs_in_the_calling_thread(filled: App) -> None:
    one = OperationRunner(lambda: filled.client, "one")
    *_, last, ended = one.run(mail("delete"))
    assert (last.state, last.matched) == ("running", 24)
    assert (ended.state, ended.matched, ended.changed, jobs(filled)) == ("done", JOBS, JOBS, 1)
    assert operation_cells.read(filled.client.store, ended.id)[0] == ended
    assert not one._thread.is_alive()


def test_who_turns_away_from_one_in_its_thread_stops_it(filled: App) -> None:
    pages = OperationRunner(lambda: filled.client, "one").run(mail("delete"))
    first = next(pages)
    pages.close()
    stopped, _ = operation_cells.read(filled.client.store, first.id)
    assert (stopped.state, stopped.changed, stopped.owner) == ("stopped", 4, "")


def test_one_in_its_thread_is_followed_while_another_process_runs_it(
    filled: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, pages = filled.client.store, OperationRunner(lambda: filled.client, "one").run(mail("delete"))
    operation, cell = operation_cells.read(store, next(pages).id)
    taken = replace(operation, owner="two", lease=filled.client.clock.now() + HOUR)
    cell = operation_cells.write(store, taken, cell) or b""
    assert next(pages) == taken
    monkeypatch.setattr(runner, "_LOOK", 0.0)
    assert next(pages) == taken
    assert operation_cells.write(store, replace(taken, lease=1), cell), "it died"
    assert list(pages)[-1].state == "done"
    assert jobs(filled) == 1


@pytest.mark.parametrize("written", range(4))
def test_jobs_are_deleted_also_while_the_store_is_full(
    filled: App, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    """Its record is written some times, and then has no room any more."""
    store, room = filled.client.store, iter([True] * written)
    kv_cas = store.kv_cas

    def fill(key: str, value: bytes | None, expected: bytes | None) -> bool:
        if not next(room, False):
            raise StoreFull("the disk is full")
        return kv_cas(key, value, expected)

    monkeypatch.setattr(store, "kv_cas", fill)
    one = OperationRunner(lambda: filled.client, "one")
    *_, ended = one.run(mail("delete"))
    assert (ended.state, ended.matched, ended.changed, jobs(filled)) == ("done", JOBS, JOBS, 1)
    monkeypatch.setattr(store, "kv_cas", kv_cas)
    filled.tasks["send"].enqueue(1)
    room = iter([True] * min(written, 2))
    monkeypatch.setattr(store, "kv_cas", fill)
    with pytest.raises(StoreFull):
        list(one.run(mail("cancel")))


def test_a_thread_that_runs_one_deletes_also_while_the_store_is_full(
    filled: App, start: Callable[[str], OperationRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled.client.store
    submitted, full = operation_cells.add(store, mail("delete"), filled.client.clock.now()), threading.Event()
    kv_cas = store.kv_cas

    def fill(*given: object) -> bool:
        if jobs(filled) > 1:
            full.set()
            raise StoreFull("the disk is full")
        return kv_cas(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(store, "kv_cas", fill)
    start("one")
    assert until(filled, submitted.id, lambda found: found.is_ended).state == "done"
    assert full.is_set()
    assert jobs(filled) == 1


def test_one_is_stopped_amid_its_work(
    filled: App, start: Callable[[str], OperationRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, pages = filled.client.store, list[str]()
    find = store.find

    def find_and_stop(query: Query) -> object:
        pages.append(query.queue or "")
        if len(pages) == 2:
            operation_cells.stop(store, submitted.id, 1)
        return find(query)

    one = OperationRunner(lambda: filled.client, "one")
    submitted = one.submit(mail("delete"))
    monkeypatch.setattr(store, "find", find_and_stop)
    start("two")
    ended = until(filled, submitted.id, lambda found: found.is_ended)
    monkeypatch.undo()
    assert (ended.state, ended.matched, ended.changed, len(pages)) == ("stopped", 8, 8, 2)
    assert jobs(filled) == JOBS + 1 - 8
    assert operation_cells.stop(store, submitted.id, 2) == ended


def test_another_process_goes_on_with_what_a_dead_one_left(
    filled: App, start: Callable[[str], OperationRunner]
) -> None:
    store, now = filled.client.store, filled.client.clock.now()
    waiting = operation_cells.add(store, mail("delete"), now)
    operation, cell = operation_cells.read(store, waiting.id)
    first = store.find(Query(queue="mail", limit=4))
    left = replace(operation, state="running", owner="dead", lease=now + 60_000_000, after=first[-1].id, matched=4)
    cell = operation_cells.write(store, left, cell) or b""
    assert cell
    two = start("two")
    behind = two.submit(Operation("", "delete", JobFilter(task="nothing")))
    until(filled, behind.id, lambda found: found.is_ended)
    assert operation_cells.read(store, left.id)[0] == left  # its lease has not run out
    assert operation_cells.write(store, replace(left, lease=now - 1), cell)
    ended = until(filled, left.id, lambda found: found.is_ended)
    assert (ended.matched, ended.changed, jobs(filled)) == (JOBS, JOBS - 4, 1 + 4)


def test_what_is_refused(app: App) -> None:
    one, store = OperationRunner(lambda: app.client, "one"), app.client.store
    with pytest.raises(UsageError, match="delete which jobs"):
        one.submit(Operation("", "delete", JobFilter()))
    with pytest.raises(UsageError, match="move to where"):
        one.submit(mail("move"))
    with pytest.raises(UsageError, match="filter: older='soon' is no duration"):
        one.submit(Operation("", "delete", JobFilter(older="soon")))
    with pytest.raises(OperationNotFound, match="no operation nine"):
        operation_cells.stop(store, "nine", 1)
    ids = [one.submit(mail("retry")).id for _ in range(operation_cells.MOST_OPEN)]
    with pytest.raises(TooManyOperations, match="20 operations are under way"):
        one.submit(mail("retry"))
    assert operation_cells.stop(store, ids[0], 1).state == "stopped"
    # What ended more than a week ago goes when the next one comes.
    one.submit(mail("retry"))
    assert len(operation_cells.read_all(store)) == operation_cells.MOST_OPEN


def test_one_that_cannot_go_on_has_failed(
    filled: App, start: Callable[[str], OperationRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> None:
        raise RuntimeError("broken rule")

    monkeypatch.setattr(runner, "change_jobs", fail)
    ended = until(filled, start("one").submit(mail("delete")).id, lambda found: found.is_ended)
    assert (ended.state, ended.trouble) == ("failed", "RuntimeError: broken rule")


def test_one_that_the_store_refuses_keeps_no_other_waiting(
    filled: App, start: Callable[[str], OperationRunner], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backoff, "LONGEST_PAUSE", 0.05)
    store, now = filled.client.store, filled.client.clock.now()
    bad, broken = (
        operation_cells.add(store, Operation("", "delete", JobFilter(task=name)), now) for name in ("bad", "two")
    )
    changed = replace(broken, filter=JobFilter(older="nonsense"))
    assert operation_cells.write(store, changed, operation_cells.read(store, broken.id)[1])
    find = store.find

    def refuse(query: Query) -> object:
        if query.task == "bad":
            raise StoreError("no such thing")
        return find(query)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(store, "find", refuse)
        good = start("one").submit(mail("delete"))
        assert until(filled, good.id, lambda found: found.is_ended).changed == JOBS
        assert until(filled, broken.id, lambda found: found.is_ended).state == "failed"
        assert not operation_cells.read(store, bad.id)[0].is_ended
    assert until(filled, bad.id, lambda found: found.is_ended).state == "done"


def test_who_is_closed_while_its_store_hangs_opens_it_no_more(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would close that one: the app, which was closed meanwhile, opens its store anew at the next use."""
    hangs, goes_on, opened = threading.Event(), threading.Event(), list[int]()
    read_all = operation_cells.read_all

    def client() -> Client:
        opened.append(1)
        return app.client

    def slowly(store: Store) -> list[tuple[Operation, bytes]]:
        hangs.set()
        assert goes_on.wait(LIMIT)
        return read_all(store)

    monkeypatch.setattr(operation_cells, "read_all", slowly)
    monkeypatch.setattr(runner, "_CLOSE_WITHIN", 0.01)
    one = OperationRunner(client, "one")
    one.start()
    assert hangs.wait(LIMIT)
    one.close()
    goes_on.set()
    one._thread.join(LIMIT)
    assert not one._thread.is_alive()
    assert len(opened) == 1

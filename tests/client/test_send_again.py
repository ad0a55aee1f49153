"""`error.send_again()` gives what the enqueue would have given, however often it fails first."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tarry import App, Job
from tarry.errors import StoreAway, StoreError, StoreUnavailable
from tarry.store.memory.store import MemoryStore
from tarry.store.rules.base import Query
from tarry.tasks.arguments.options import Options

DURABLE = {"durable": "replica"}


class Troubled(MemoryStore):
    """Fails so many times before it takes jobs, before it takes a flow, and before it confirms."""

    can_confirm = True

    def __init__(self, error: StoreError) -> None:
        super().__init__()
        self.error, self.left, self.unconfirmed = error, 3, 0

    def _insert_all(self, jobs: Any) -> list[bytes]:
        self.left -= len(jobs) > 0
        if jobs and self.left >= 0:
            raise self.error
        return super()._insert_all(jobs)

    def confirm(self, jobs: Sequence[Any]) -> None:
        self.unconfirmed -= 1
        if self.unconfirmed >= 0:
            raise StoreUnavailable("no replica")


def flow(app: App) -> Any:
    with app.flow("two") as f:
        f.add(app.tasks["job"].call(1))
    return f.handle


def each(app: App) -> Any:
    job = app.client.factory.make_by_name("job", b"[1]", Options())
    (found,) = app.client.insert_each([job], [Options()])
    if isinstance(found, Exception):
        raise found
    return found


def each_durable(app: App) -> Any:
    job, options = app.client.factory.make_by_name("job", b"[1]", Options()), Options(durable="replica")
    (found,) = app.client.insert_each([job], [options])
    if isinstance(found, Exception):
        raise found
    return found


ROUTES: dict[str, Callable[[App], Any]] = {
    "enqueue": lambda app: app.tasks["job"].enqueue(1),
    "aenqueue": lambda app: asyncio.run(app.tasks["job"].aenqueue(1)),
    "durable": lambda app: app.tasks["job"].using(durable="replica").enqueue(1),
    "adurable": lambda app: asyncio.run(app.tasks["job"].using(durable="replica").aenqueue(1)),
    "each": each,
    "each durable": each_durable,
    "flow": flow,
}


def app_on(store: Troubled) -> App:
    app = App(store, closures=True)
    app.task(name="job")(lambda number: None)
    return app


def insist(send: Callable[[], Any]) -> tuple[Any, list[StoreError]]:
    """What it gives in the end, and the errors before."""
    errors: list[StoreError] = []
    while True:
        try:
            return send(), errors
        except StoreError as error:
            assert len(errors) < 10
            errors.append(error)
            send = error.send_again


@pytest.mark.parametrize("trouble", [StoreAway("away"), StoreUnavailable("no answer")])
@pytest.mark.parametrize("route", ROUTES)
def test_one_job(route: str, trouble: StoreError) -> None:
    app = app_on(store := Troubled(trouble))
    handle, errors = insist(lambda: ROUTES[route](app))
    assert len(errors) == 3
    assert {error.job_id for error in errors} == {handle.id}
    assert [error.job.id for error in errors if error.job] == [handle.id] * 3
    assert [error.stored for error in errors] == [trouble.stored] * 3
    assert all(sum("send_again" in note for note in error.__notes__) == 1 for error in errors)
    assert len([job for job in store.find(Query()) if job.task == "job"]) == 1
    app.close()


@pytest.mark.parametrize("route", ["durable", "adurable", "each durable"])
def test_one_job_that_no_replica_confirms_at_first(route: str) -> None:
    app = app_on(store := Troubled(StoreAway("away")))
    store.left, store.unconfirmed = 0, 3
    handle, errors = insist(lambda: ROUTES[route](app))
    assert isinstance(handle, Job)
    assert [error.job_id for error in errors] == [handle.id] * 3
    assert [error.stored for error in errors] == [None] * 3
    assert len(store.find(Query())) == 1
    app.close()


@pytest.mark.parametrize("confirms", [True, False])
def test_many_jobs(confirms: bool) -> None:
    app = app_on(store := Troubled(StoreUnavailable("no answer")))
    store.left, store.unconfirmed = (3, 0) if confirms else (0, 3)
    task = app.tasks["job"].using(durable="replica")
    handles, errors = insist(lambda: task.enqueue_many([(number,) for number in range(3)]))
    assert [list(error.job_ids) for error in errors] == [[handle.id for handle in handles]] * 3
    assert len(store.find(Query())) == 3
    app.close()

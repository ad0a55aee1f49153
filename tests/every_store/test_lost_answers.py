"""An enqueue whose answer is lost: the error says that the jobs may be stored, has their ids, and sends the same again,
which are stored once. Each reply of the call is lost in turn, on each kind of server."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tarry import App
from tarry.errors import StoreError, StoreUnavailable
from tarry.store.rules import ids
from tests.away.proxy import Proxy, behind_proxy
from tests.every_store.test_away_calls import SERVERS
from tests.servers.fixtures import empty_server
from tests.servers.redis import until

MOST_REPLIES = 30


def flow(app: App) -> Any:
    with app.flow("both") as f:
        f.add(app.tasks["add"].call(1))
        f.add(app.tasks["add"].call(2))
    return f.handle


ACTS: dict[str, Callable[[App], Any]] = {
    "enqueue": lambda app: app.tasks["add"].enqueue(1),
    "many": lambda app: app.tasks["add"].enqueue_many([(1,), (2,), (3,)]),
    "flow": flow,
}


@pytest.fixture(params=SERVERS)
def line(request: pytest.FixtureRequest) -> Iterator[tuple[App, Proxy]]:
    url, proxy = behind_proxy(empty_server(request, request.param))
    app = App(url + SERVERS[request.param], closures=True)
    app.task(name="add")(lambda number: None)
    yield app, proxy
    app.close()
    proxy.close()


def stored(app: App, error: StoreError) -> list[bool]:
    def found() -> list[bool] | None:
        try:
            return [job is not None for job in app.client.store.get([ids.parse(id) for id in error.job_ids])]
        except StoreUnavailable:
            return None

    until(lambda: found() is not None, "the store to answer")
    return found() or []


@pytest.mark.parametrize("act", ACTS)
def test_each_lost_answer_is_told_and_the_same_jobs_are_sent_again(line: tuple[App, Proxy], act: str) -> None:
    app, proxy = line
    for number in range(1, MOST_REPLIES + 1):
        ACTS[act](app)
        proxy.lose(number)
        try:
            ACTS[act](app)
            error = None
        except StoreError as raised:
            error = raised
        was_lost = proxy.lost
        proxy.passes()
        if not was_lost:
            return
        if error is None:
            continue  # the store tried again, or the answer was of no importance
        there = stored(app, error)
        assert len(there) == len(error.job_ids) == (3 if act == "many" else 1)
        assert error.job_id == (None if act == "many" else error.job_ids[0])
        if any(there) or error.stored is None:
            assert error.stored is None
            assert "what was sent may be stored all the same" in str(error)
        again = error.send_again()
        handles = again if isinstance(again, list) else [again]
        assert [one.id for one in handles] == list(error.job_ids)
        assert all(stored(app, error))
    raise AssertionError("it has more replies than are looked at")

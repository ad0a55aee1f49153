"""What the doors of a process share, while the store is slow."""

import threading

import pytest

from tarry import App
from tarry.client.audit.log import Act, ActFilter, ActLog
from tarry.server.service import DoorService
from tarry.store.rules.base import Store
from tarry.tasks.lazy_asyncio import asyncio
from tests.server.http.calling import run


def test_the_event_loop_does_not_wait_for_a_store_that_opens_slowly(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    service, gate, opening = DoorService(app), threading.Event(), threading.Event()
    connect = app.connection

    def connection() -> tuple[Store, bool]:
        opening.set()
        assert gate.wait(20)
        return connect()

    monkeypatch.setattr(app, "connection", connection)

    async def story() -> str:
        starting = asyncio.ensure_future(service.start())
        await asyncio.to_thread(opening.wait, 20)
        # In its own thread: if the lock were held, the loop would stand here until the store is open.
        found = await asyncio.wait_for(service.run(lambda: "answered"), 10)
        assert not gate.is_set()
        gate.set()
        await starting
        return found

    late = threading.Timer(15, gate.set)
    late.start()
    try:
        assert run(story) == "answered"
    finally:
        late.cancel()
        service.close()


def test_an_act_that_is_under_way_at_the_end_is_in_the_log_of_acts(app: App) -> None:
    service, began, gate = DoorService(app), threading.Event(), threading.Event()

    def act() -> None:
        began.set()
        assert gate.wait(20)
        service.record_act(Act(0, "ann", "cancel_job", "done"))

    async def story() -> None:
        acting = asyncio.ensure_future(service.run(act))
        await asyncio.to_thread(began.wait, 20)
        ending = asyncio.ensure_future(asyncio.to_thread(service.close))
        while not service.is_closed:
            await asyncio.sleep(0)
        gate.set()
        await acting
        await ending

    run(story)
    store = app.client.store
    assert [one.act for one in ActLog(store).read(ActFilter(), 10, "", store.time()).acts] == ["cancel_job"]

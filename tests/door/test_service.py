"""What the doors of a process share, while the store is slow."""

import threading

import pytest

from tarry import App
from tarry.door.service import DoorService
from tarry.store.base import Store
from tarry.tasks.lazy_asyncio import asyncio
from tests.door.http.calling import run


@pytest.mark.timeout(30)
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

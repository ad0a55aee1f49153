"""A real server of the HTTP API: uvicorn, on a real socket, in a thread."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import uvicorn

from tarry import App
from tarry.server.identity.access import DoorAccess
from tarry.server.service import DoorService
from tarry.server.serving.application import create_application

LIMIT = 60.0


class RunningServer:
    """A server, and a client of it."""

    def __init__(self, service: DoorService, client: httpx.Client) -> None:
        self.service, self.client = service, client


@contextlib.contextmanager
def served(app: App, access: DoorAccess | None = None) -> Iterator[RunningServer]:
    """Serves the app until the end of the block."""
    service = DoorService(app, access=access)
    config = uvicorn.Config(create_application(service), http="httptools", log_config=None, timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        try:
            until(lambda: server.started)
            port = listener.getsockname()[1]
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=LIMIT) as client:
                yield RunningServer(service, client)
        finally:
            server.should_exit = True
            thread.join(LIMIT)
            service.close()


def until(happened: object) -> None:
    """Waits until that is so."""
    end = time.monotonic() + LIMIT
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.005)

"""The beanstalk door in a thread of the test."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import uvloop

from tarry import App
from tarry.server.beanstalk.beanstalk_connection import BeanstalkListener, start_beanstalk
from tarry.server.service import DoorService
from tests.server.beanstalk.talking import Client

LIMIT = 60.0


class ServedDoor:
    """The door of an app on a port of its own, or a socket file."""

    def __init__(self, app: App, listening: socket.socket, **options: Any) -> None:
        self.service, self._options = DoorService(app), options
        self._socket, self.address = listening, listening.getsockname()
        self.loop = uvloop.new_event_loop()
        self._clients: list[Client] = []
        self.listener: BeanstalkListener | None = None
        self._thread = threading.Thread(target=self._run, name="beanstalk-door")

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.address[1])

    def start(self) -> None:
        """Returns once it serves."""
        self._thread.start()
        self.call(self._start())

    def connect(self) -> socket.socket:
        """A new connection."""
        connected = socket.socket(self._socket.family)
        connected.connect(self.address)
        return connected

    def client(self, connected: socket.socket | None = None) -> Client:
        """A client, on a new connection unless one is given; closed with the door."""
        client = Client(connected or self.connect())
        self._clients.append(client)
        return client

    def call(self, coroutine: Any) -> Any:
        """Runs it on the event loop of the door."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(LIMIT)

    def stop(self) -> None:
        """Ends the door, and what belongs to it."""
        if self.listener is not None:
            self.call(self.listener.close())
            self.call(asyncio.to_thread(self.service.close))
        for client in self._clients:
            client.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(LIMIT)
        self.loop.close()

    async def _start(self) -> None:
        self.listener = await start_beanstalk(self.service, [self._socket], **self._options)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


@contextlib.contextmanager
def serving(app: App, listening: socket.socket | None = None, **options: Any) -> Iterator[ServedDoor]:
    """The door of this app, for a while; options: of `start_beanstalk`."""
    door = ServedDoor(app, listening or socket.create_server(("127.0.0.1", 0)), **options)
    try:
        door.start()
        yield door
    finally:
        door.stop()

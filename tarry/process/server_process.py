"""What a server process does: it serves the doors on an event loop in a thread of its own, until the master ends it."""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tarry.app import App
from tarry.config.server_settings import ServerConfig
from tarry.errors import ConfigError, TarryError
from tarry.platform import resident_bytes
from tarry.process.connection_sockets import ConnectionSocket, HostConnections, remove_stale_sockets
from tarry.process.metrics import HostReader
from tarry.process.parent_board import ParentBoard
from tarry.runtime.role import ChildContext
from tarry.tasks.lazy_asyncio import asyncio

if TYPE_CHECKING:
    from tarry.server.service import DoorService

log = logging.getLogger("tarry.server")

BEAT_EVERY = 0.5
"""Seconds between two signs of life, and two updates of the load."""
# The threads of the store have their own limits; this is for what none of them covers.
_CLOSE_WITHIN = 10.0


def check_server(app: App, config: ServerConfig) -> None:
    """ConfigError or TarryError if no server could serve with these settings. Opens no store."""
    with _needing_the_extra():
        from tarry.server.serving.server import DoorServer, make_service  # noqa: PLC0415 - only who has a server has the extra

        service = make_service(app, config)
        DoorServer(service, config)
        service.close()


def run_server(child: ChildContext, app: App, config: ServerConfig) -> int:
    """Serves until the master asks for the end, or is gone. Returns the exit status."""
    try:
        with _needing_the_extra():
            from tarry.server.serving.server import make_service  # noqa: PLC0415

            service = make_service(app, config, HostReader(app.config).read)
            thread = ServerThread(service, config, ParentBoard(app.config).count_servers)
    except TarryError as error:
        return child.report_failure(error)
    thread.start(child)
    while not child.should_exit() and thread.is_alive():
        child.receive()
        child.slot.beat(resident_bytes())
        thread.show(child)
        child.sleep(BEAT_EVERY)
    thread.end()
    service.close()
    return thread.status


class ServerThread:
    """The event loop with the doors, in a thread: signals and the master's pipe stay with the main thread."""

    def __init__(self, service: "DoorService", config: ServerConfig, count_ready: Callable[[], int]) -> None:
        from tarry.server.serving.server import DoorServer  # noqa: PLC0415

        self._server, self._service, self._config = DoorServer(service, config, count_ready), service, config
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ends: asyncio.Event | None = None
        self._is_ending = False
        self._busy = 0.0
        self._measured_at, self._used = time.monotonic(), time.process_time()
        self.status = 0
        """The exit status of the process."""

    def start(self, child: ChildContext) -> None:
        """Starts to serve; reports to the master that it does, or why it does not."""
        self._thread = threading.Thread(target=self._run, args=(child,), name="tarry-server", daemon=True)
        self._thread.start()

    def is_alive(self) -> bool:
        """False: it could not serve, or has failed."""
        return self._thread is not None and self._thread.is_alive()

    def show(self, child: ChildContext) -> None:
        """Writes the figures to the scoreboard: requests answered, refused, and how full the process is."""
        load = self._server.load()
        child.slot.count(load.requests, load.refused)
        self._busy = (self._busy + self._busy_now()) / 2
        # Connections stay, so that no average is needed; more processes must come before clients have waited for long.
        child.slot.load(min(1.0, max(self._busy, load.part)), load.connections)

    def _busy_now(self) -> float:
        """The part of a processor that the process has used since the last call; it uses one at most."""
        now, used = time.monotonic(), time.process_time()
        busy = (used - self._used) / max(now - self._measured_at, 1e-6)
        self._measured_at, self._used = now, used
        return min(1.0, busy)

    def end(self) -> None:
        """Ends the doors gracefully, and waits for it."""
        # First, since the thread looks at it once it has set the other two.
        self._is_ending = True
        loop, ends = self._loop, self._ends
        if loop is not None and ends is not None:
            # RuntimeError: the loop has ended by itself.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ends.set)
        if self._thread is not None:
            self._thread.join(self._config.drain + _CLOSE_WITHIN)

    def _run(self, child: ChildContext) -> None:
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(self._serve(child))
        except TarryError as error:
            self.status = child.report_failure(error)
        except BaseException:
            log.exception("the server failed")
            self.status = 1

    async def _serve(self, child: ChildContext) -> None:
        self._loop, self._ends = asyncio.get_running_loop(), asyncio.Event()
        if self._is_ending:
            return
        await self._service.start()
        if "beanstalk" in child.sockets:
            # Should this process die, the keeper gives back at once what it held for its clients.
            child.slot.set_owner(self._service.claims.owner)
        await self._server.start(child.sockets)
        asked = await self._listen_to_others()
        child.report_ready()
        await self._ends.wait()
        await self._server.drain(self._config.drain)
        await asked.close()

    async def _listen_to_others(self) -> ConnectionSocket:
        pid_file = self._service.app.config.master.pid_file
        remove_stale_sockets(pid_file)
        self._service.connections.others = HostConnections(pid_file, but=os.getpid())
        asked = ConnectionSocket(pid_file, self._service)
        await asked.start()
        return asked


def _loop_factory() -> Callable[[], Any]:
    try:
        import uvloop  # noqa: PLC0415 - of the extra
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop


@contextlib.contextmanager
def _needing_the_extra() -> Any:
    try:
        yield
    except ImportError as error:
        if (error.name or "").startswith("tarry."):
            # A newer tarry was installed, and its files do not fit what this master has loaded.
            raise ConfigError(f"another tarry is installed than the one that runs: tarry upgrade ({error})") from None
        raise ConfigError(f"[server] needs its extra: pip install 'tarry[server]' ({error})") from None

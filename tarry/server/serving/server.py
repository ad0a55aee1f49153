"""The doors of a server process: HTTP and beanstalk, on sockets that listen already, on one event loop."""

import logging
import resource
from collections.abc import Callable, Mapping, Sequence
from socket import AF_UNIX, socket
from typing import Any

from msgspec import Struct

from tarry.config.server_settings import ServerConfig
from tarry.errors import ConfigError
from tarry.metrics.host_families import HostFigures
from tarry.server.beanstalk.beanstalk_connection import BeanstalkListener, start_beanstalk
from tarry.server.connection_limits import Connections
from tarry.server.identity.proxy_access import configured_access
from tarry.server.service import DoorService, DoorSettings
from tarry.server.serving.certificates import ServerCertificate
from tarry.server.socket_listener import SocketListener, leave_to_others
from tarry.tasks.lazy_asyncio import asyncio

log = logging.getLogger("tarry.server")

CERTIFICATE_EVERY = 10.0
"""Seconds between two looks whether the certificate has changed."""
_HANDSHAKES_END = 2.0
"""Seconds that handshakes may still take when the server ends."""
_SPARE_FILES = 256
"""Descriptors besides those of connections: the store's, logs, pipes."""


class ServerLoad(Struct, frozen=True):
    """What a server process does at one moment."""

    connections: int
    requests: int
    """Answered since the process began."""
    refused: int
    """Connections and requests that were too many."""
    in_flight: int
    part: float
    """Of the connections that its fullest door may have, 0 to 1."""


def make_service(app: Any, config: ServerConfig, host: Callable[[], HostFigures | None] = lambda: None) -> DoorService:
    """What the doors share; ConfigError if a file that the settings name is missing or wrong, or the extra is not
    installed. host: tells of the master."""
    access = configured_access(config)
    settings = DoorSettings(
        max_request=config.max_request,
        ring=config.ring,
        rate_per_address=config.rate_per_address,
        console=config.console,
        path=config.path,
        looks_ahead=config.console != "off",
        needs_local_host=not config.knows_callers,
        host_names=config.host_names,
    )
    return DoorService(app, settings=settings, access=access, host=host)


class DoorServer:
    """Serves until `drain`. All methods are for the thread of the event loop."""

    def __init__(self, service: DoorService, config: ServerConfig, count_ready: Callable[[], int] = lambda: 1) -> None:
        """count_ready: how many server processes accept at these sockets. ConfigError, as of `make_service`."""
        self._left_to_others = leave_to_others(config.bounds.max, count_ready)
        self._service, self._config = service, config
        self.connections = {
            door: Connections(config.connections_per_process, config.max_connections_per_address)
            for door in config.addresses
        }
        self._certificate = _certificate(config)
        self._handshakes = Connections(config.connections_per_process, config.max_connections_per_address)
        for door, each in self.connections.items():
            _add_figures(service, door, each)
        if self._certificate is not None:
            _add_figures(service, "tls_handshake", self._handshakes)
        self._http = self._make_http() if config.http else None
        self._beanstalk: BeanstalkListener | None = None
        self._listeners: list[SocketListener] = []
        self._certificate_watch: asyncio.Task[None] | None = None

    async def start(self, sockets: Mapping[str, Sequence[socket]]) -> None:
        """Accepts at these sockets, by the name of their door."""
        _allow_files(sum(each.most for each in self.connections.values()))
        if self._http is not None:
            self._http.start()
            for listener in sockets.get("http", ()):
                self._listen(listener)
        if "beanstalk" in sockets:
            self._beanstalk = await start_beanstalk(
                self._service,
                sockets["beanstalk"],
                connections=self.connections["beanstalk"],
                max_job_size=self._config.max_job_size,
                backlog=self._config.backlog,
                left_to_others=self._left_to_others,
                access=self._service.access if self._config.beanstalk_auth else None,
            )
            self._service.connections.add_door("beanstalk", self._beanstalk.listed)
        if self._certificate is not None:
            self._certificate_watch = asyncio.create_task(self._watch_certificate(self._certificate))

    async def drain(self, seconds: float) -> None:
        """Accepts no more, and ends once all open requests are answered, or after so long."""
        # Other processes have the sockets as well: those who connect from now on are theirs.
        for listener in self._listeners:
            listener.close()
        if self._certificate_watch is not None:
            self._certificate_watch.cancel()
        self._service.drain()
        await asyncio.gather(self._drain_http(seconds), self._drain_beanstalk(seconds))

    async def _drain_http(self, seconds: float) -> None:
        if self._http is not None:
            self._http.drain()
            # Their clients are about to send a request.
            await asyncio.gather(*(one.finish(min(seconds, _HANDSHAKES_END)) for one in self._listeners))
            if cut := await self._http.wait_until_gone(seconds):
                log.warning("%d requests were not answered within %g s", cut, seconds)

    async def _drain_beanstalk(self, seconds: float) -> None:
        if self._beanstalk is not None:
            await self._beanstalk.drain(seconds)

    def load(self) -> ServerLoad:
        """What it does at this moment."""
        http = self._http
        return ServerLoad(
            sum(each.open for each in self.connections.values()),
            0 if http is None else http.requests,
            sum(each.refused for each in self.connections.values())
            + self._handshakes.refused
            + self._service.ring.all_refused
            + (0 if http is None else http.shed),
            0 if http is None else http.in_flight,
            max((each.open / each.most for each in self.connections.values()), default=0.0),
        )

    def _make_http(self) -> Any:
        from tarry.server.http.protocol import HttpConnections, HttpLimits  # noqa: PLC0415
        from tarry.server.serving.application import create_application  # noqa: PLC0415 - only who serves HTTP has the extra

        limits = HttpLimits(self._config.read_timeout, self._config.keep_alive)
        application = create_application(self._service)
        found = HttpConnections(application, self.connections["http"], limits, self._config.ring)
        self._service.connections.add_door("http", found.listed)
        return found

    def _listen(self, listener: socket) -> None:
        assert self._http is not None
        accepting = SocketListener(listener, self._http.make_connection, self.connections["http"], self._left_to_others)
        # A unix socket does not leave this host.
        if self._certificate is not None and listener.family != AF_UNIX:
            accepting.use_tls(self._certificate.context, self._handshakes, self._config.read_timeout)
        accepting.start(self._config.backlog)
        self._listeners.append(accepting)

    async def _watch_certificate(self, certificate: ServerCertificate) -> None:
        while True:
            await asyncio.sleep(CERTIFICATE_EVERY)
            try:
                certificate.reload_if_changed()
            except Exception:
                # Without this task it would run out.
                log.exception("the certificate stays as it was")


def _add_figures(service: DoorService, door: str, connections: Connections) -> None:
    """Shows the door's connections under /metrics."""
    figures = service.figures
    figures.show("tarry_connections", lambda: connections.open, door)
    figures.show("tarry_connections_accepted_total", lambda: connections.accepted, door)
    figures.show("tarry_connections_refused_total", lambda: connections.refused, door)


def _certificate(config: ServerConfig) -> ServerCertificate | None:
    if config.certificate is None:
        return None
    return ServerCertificate(config.certificate, config.key, config.client_ca)


def _allow_files(connections: int) -> None:
    """Lets the process have as many descriptors as its connections need; ConfigError if that is not allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Twice, since refused ones are kept for a second.
    wanted = 2 * connections + _SPARE_FILES
    if soft >= wanted:
        return
    if hard != resource.RLIM_INFINITY and hard < connections + _SPARE_FILES:
        raise ConfigError(
            f"{connections} connections need {connections + _SPARE_FILES} open files, and only {hard} are allowed:"
            " lower [server] max_connections, or raise the limit (ulimit -n, LimitNOFILE=)"
        )
    limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))

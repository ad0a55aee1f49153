"""A pool of HTTP clients for TLS. Each is pinned to one origin at one address, whatever DNS says later."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Self

from msgspec import Struct
from pyreqwest.client import Client, ClientBuilder

from tarry.push.http.daemon_thread import run_in_thread
from tarry.push.http.failure import FailureKind, RequestFailed

# An HTTPS client takes 0.1 MB, and 7 ms to build, because of the certificates that it trusts.
MOST_IDLE = 512
"""Idle clients that are kept; beyond these the least recently used are closed."""
IDLE = 300.0
"""Seconds after which an idle client is closed."""
CONNECTION_IDLE = 30.0
"""Seconds for which an idle connection is kept."""
MOST_CONNECTIONS_IDLE = 128
"""Idle connections of one client."""
_CLOSING = 5.0  # Seconds.
_PING, _PONG = 15.0, 10.0  # HTTP/2: seconds between two pings, and the timeout of a ping.

Build = Callable[["ClientKey"], Client]


class ClientKey(Struct, frozen=True):
    """What identifies a client."""

    host: str
    address: str
    port: int
    connect: float
    """Seconds for TCP and TLS together."""


def client_builder(trust: bytes = b"", agent: str = "tarry") -> Build:
    """A function that builds clients. They trust the system's certificates and those of `trust` (PEM).

    Redirects, compression and proxies from the environment are off.
    """

    def build(key: ClientKey) -> Client:
        # A redirect or a proxy would lead to addresses that the guard has not checked. The sender follows redirects.
        made = ClientBuilder().user_agent(agent).no_proxy().follow_redirects(False).referer(False)
        made = made.gzip(False).brotli(False).zstd(False).deflate(False)
        made = made.https_only(True).http2(True).http2_keep_alive_interval(timedelta(seconds=_PING))
        made = made.http2_keep_alive_timeout(timedelta(seconds=_PONG)).min_tls_version("TLSv1.2")
        made = made.pool_idle_timeout(timedelta(seconds=CONNECTION_IDLE)).pool_max_idle_per_host(MOST_CONNECTIONS_IDLE)
        made = made.connect_timeout(timedelta(seconds=key.connect)).resolve(key.host, key.address, key.port)
        return (made.add_root_certificate_pem(trust) if trust else made).build()

    return build


class PooledClient:
    """A client with its request count. Each request holds it in a `with` block, and it is not closed before the end."""

    def __init__(self, owner: "ClientPool", key: ClientKey, making: "asyncio.Task[Client]") -> None:
        self._owner, self.key, self.building = owner, key, making
        self.client: Client | None = None
        self.users, self.last_used = 0, 0.0
        self.is_outdated = False
        """The origin has another address now."""

    def __enter__(self) -> Self:
        self._owner.add_user(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._owner.remove_user(self)


class ClientPool:
    """The clients of one event loop."""

    def __init__(self, build: Build, most_idle: int = MOST_IDLE, idle: float = IDLE) -> None:
        self._build, self._most_idle, self._idle = build, most_idle, idle
        self._all: OrderedDict[ClientKey, PooledClient] = OrderedDict()
        self._busy = 0
        """Clients that have a request."""
        self._closing: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._all)

    def get(self, key: ClientKey) -> PooledClient:
        """The client for this key. Hold it in a `with` block, and await `wait_ready` before use."""
        pooled = self._all.get(key)
        if pooled is None:
            return self._create(key)
        self._all.move_to_end(key)
        return pooled

    def add_user(self, pooled: PooledClient) -> None:
        """Counts one more request."""
        self._busy += not pooled.users
        pooled.users += 1

    def remove_user(self, pooled: PooledClient) -> None:
        """Counts one request less."""
        pooled.users -= 1
        self._busy -= not pooled.users
        pooled.last_used = asyncio.get_running_loop().time()
        # A new client may have taken its place in the table.
        if pooled.is_outdated and not pooled.users and self._all.get(pooled.key) is pooled:
            self._drop(pooled.key)
        self._drop_idle()

    async def wait_ready(self, pooled: PooledClient, limit: float) -> Client:
        """Waits until the client is built. limit: seconds. RequestFailed if it cannot be built in time."""
        # `wait` leaves the building alone if this request is cancelled: other requests may wait for it.
        await asyncio.wait([pooled.building], timeout=limit)
        if not pooled.building.done() or pooled.building.cancelled():
            raise RequestFailed(FailureKind.LOCAL, "no client was made in time, or the sender is closed")
        if error := pooled.building.exception():
            raise RequestFailed(FailureKind.LOCAL, f"no client can be made: {str(error)[:200]}")
        pooled.client = pooled.building.result()
        return pooled.client

    async def close(self) -> None:
        """Closes all clients. Open requests fail."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for key in list(self._all):
            self._drop(key)
        if self._closing:
            await asyncio.wait(self._closing, timeout=_CLOSING)

    def _create(self, key: ClientKey) -> PooledClient:
        if self._closed:
            raise RequestFailed(FailureKind.LOCAL, "the sender is closed")
        loop = asyncio.get_running_loop()
        # In a thread, since the event loop cannot stand still for so long.
        pooled = PooledClient(self, key, loop.create_task(run_in_thread(lambda: self._build(key))))
        pooled.building.add_done_callback(lambda making: self._on_built(key, making))
        self._outdate(key)
        self._all[key] = pooled
        if self._timer is None:
            self._timer = loop.call_later(self._idle, self._tick)
        return pooled

    def _on_built(self, key: ClientKey, making: "asyncio.Task[Client]") -> None:
        pooled = self._all.get(key)
        # A client that failed is not kept: the next request builds another.
        if (making.cancelled() or making.exception()) and pooled is not None and pooled.building is making:
            del self._all[key]

    def _outdate(self, new: ClientKey) -> None:
        for key, pooled in list(self._all.items()):
            if (key.host, key.port) == (new.host, new.port) and key != new:
                # A client of the same address differs only in its timeout, and stays.
                pooled.is_outdated = pooled.is_outdated or key.address != new.address
                if pooled.is_outdated and not pooled.users:
                    self._drop(key)

    def _drop_idle(self) -> None:
        while len(self._all) - self._busy > self._most_idle:
            self._drop(next(key for key, pooled in self._all.items() if not pooled.users))

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        before = loop.time() - self._idle
        for key in [key for key, pooled in self._all.items() if not pooled.users and pooled.last_used < before]:
            self._drop(key)
        self._timer = loop.call_later(self._idle / 4, self._tick) if self._all else None

    def _drop(self, key: ClientKey) -> None:
        pooled = self._all.pop(key, None)
        if pooled is None:
            return
        if pooled.client is None:
            pooled.building.cancel()
        else:
            task = asyncio.get_running_loop().create_task(pooled.client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

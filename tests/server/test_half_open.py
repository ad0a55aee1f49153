"""Peers whose host is gone without a word: the kernel is told to find out, with TLS and without."""

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
import uvloop

from tarry import platform
from tarry.platform import portable
from tarry.server.connection_limits import IDLE_PROBE, USER_TIMEOUT, watch_peer
from tests.push.certificates import Authority
from tests.worker.bench import LIMIT

IS_PORTABLE = platform.watch_peer is portable.watch_peer
WANTED = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE_PROBE),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, IDLE_PROBE // 3),
    # The portable twin has no limit for what is not taken: macOS has none.
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0 if IS_PORTABLE else USER_TIMEOUT * 1000),
]


class Watched(asyncio.Protocol):
    """Reads back what the kernel was told."""

    def __init__(self, found: "asyncio.Future[list[int]]") -> None:
        self._found = found

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        watch_peer(transport)
        connected = transport.get_extra_info("socket")
        self._found.set_result([connected.getsockopt(level, name) for level, name, _ in WANTED])


async def options(server: ssl.SSLContext | None, client: ssl.SSLContext | None) -> list[int]:
    loop = asyncio.get_running_loop()
    found: asyncio.Future[list[int]] = loop.create_future()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        opening = asyncio.create_task(
            asyncio.open_connection(*listener.getsockname(), ssl=client, server_hostname=client and "localhost")
        )
        connected, _ = await loop.sock_accept(listener)
        await loop.connect_accepted_socket(lambda: Watched(found), connected, ssl=server)
        _, writer = await opening
        writer.close()
    return await asyncio.wait_for(found, LIMIT)


@pytest.mark.parametrize("is_safe", [False, True])
def test_the_kernel_watches_the_peer(tmp_path: Path, is_safe: bool) -> None:
    server = client = None
    if is_safe:
        authority = Authority(tmp_path)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(str(authority.sign(["localhost"])))
        client = ssl.create_default_context(cadata=authority.pem.decode())
    assert uvloop.run(options(server, client)) == [value for _, _, value in WANTED]

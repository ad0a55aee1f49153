"""What is written in one turn of the event loop goes out together, and nothing is lost at the end."""

import asyncio
import functools
import socket
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from tarry.server.http.joined_writes import JOINED, JoinedWrites


class _Sends(asyncio.Transport):
    """Notes what is sent, in the order of the calls."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[bytes | str] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.seen.append(bytes(data))

    def write_eof(self) -> None:
        self.seen.append("eof")

    def close(self) -> None:
        self.seen.append("close")

    def abort(self) -> None:
        self.seen.append("abort")

    def is_closing(self) -> bool:
        return "close" in self.seen or "abort" in self.seen


def _on_loop(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    @functools.wraps(story)
    def run() -> None:
        uvloop.run(asyncio.wait_for(story(), 20))

    return run


async def _turn() -> None:
    await asyncio.sleep(0)


@_on_loop
async def test_writes_of_one_turn_are_one() -> None:
    sends = _Sends()
    joined = JoinedWrites(sends, asyncio.get_running_loop())
    joined.write(b"head ")
    joined.write(b"body")
    await _turn()
    joined.write(b"next")
    await _turn()
    assert sends.seen == [b"head body", b"next"]


@_on_loop
async def test_an_end_comes_after_what_was_written() -> None:
    for name in ("close", "write_eof"):
        sends = _Sends()
        joined = JoinedWrites(sends, asyncio.get_running_loop())
        joined.write(b"last")
        getattr(joined, name)()
        await _turn()
        assert sends.seen == [b"last", name.removeprefix("write_")]


@_on_loop
async def test_an_abort_drops_what_was_written() -> None:
    sends = _Sends()
    joined = JoinedWrites(sends, asyncio.get_running_loop())
    joined.write(b"lost")
    joined.abort()
    await _turn()
    assert sends.seen == ["abort"]


@_on_loop
async def test_much_does_not_wait() -> None:
    sends = _Sends()
    joined = JoinedWrites(sends, asyncio.get_running_loop())
    joined.write(b"x" * JOINED)
    assert sends.seen == [b"x" * JOINED]
    await _turn()
    assert len(sends.seen) == 1


@_on_loop
async def test_the_socket_gets_it_in_one_piece() -> None:
    loop = asyncio.get_running_loop()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setblocking(False)
    theirs.setblocking(False)
    with theirs:
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=ours)
        joined = JoinedWrites(transport, loop)
        joined.write(b"head ")
        joined.write(b"body")
        joined.close()
        assert await loop.sock_recv(theirs, 100) == b"head body"
        assert await loop.sock_recv(theirs, 100) == b""

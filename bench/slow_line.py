"""A line to a server on which each answer comes later: a process of its own, so that its CPU counts as nobody's."""

import asyncio
import contextlib
import multiprocessing
import socket
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit


@contextlib.contextmanager
def slowed(urls: Sequence[str], seconds: float) -> Iterator[Sequence[str]]:
    """URLs of the same servers, whose answers take so much longer; the same URLs if that is nothing."""
    if not seconds:
        yield urls
        return
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_line(url, seconds)) for url in urls]


@contextlib.contextmanager
def _line(url: str, seconds: float) -> Iterator[str]:
    parts = urlsplit(url)
    assert parts.port
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        process = multiprocessing.get_context("fork").Process(
            target=lambda: asyncio.run(_serve(listener, parts.port or 0, seconds)), daemon=True
        )
        process.start()
        try:
            yield parts._replace(netloc=f"127.0.0.1:{port}").geturl()
        finally:
            process.kill()
            process.join()


async def _serve(listener: socket.socket, port: int, seconds: float) -> None:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(_copy(reader, back, 0.0), _copy(there, writer, seconds))

    server = await asyncio.start_server(connected, sock=listener)
    await server.serve_forever()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    while some := await reader.read(2**20):
        # Later, and in order: what follows is not kept from being read.
        loop.call_later(seconds, writer.write, some) if seconds else writer.write(some)
    writer.close()

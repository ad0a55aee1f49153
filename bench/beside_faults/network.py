"""A network between workers and Redis that fails as a job ends."""

import asyncio
import threading

HOLD = 0.3
"""Seconds for which the network drops what is sent, before its connections end."""
_CHUNK = 65536


class CuttableNetwork:
    """Forwards to a port of this host. Who writes `q` to the port `cutter` has all dropped from then on, who writes `a`
    has requests go through and their answers dropped; after HOLD all connections end, and new ones are as before."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._dropped = ""
        self._holds = 0
        self._lines: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self.port, self.cutter = self._loop.run_until_complete(self._open())
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for server in self._servers:
            server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0.1))
        self._loop.close()

    async def _open(self) -> tuple[int, int]:
        self._servers = [await asyncio.start_server(met, "127.0.0.1", 0) for met in (self._forward, self._obey)]
        network, cutter = (server.sockets[0].getsockname()[1] for server in self._servers)
        return network, cutter

    async def _obey(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._dropped = (await reader.read(1)).decode()
        self._holds += 1
        self._loop.call_later(HOLD, self._end)
        writer.write(b"k")
        writer.close()

    def _end(self) -> None:
        self._holds -= 1
        if not self._holds:
            self._dropped = ""
        for line in self._lines:
            line.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._to)
        except OSError:
            writer.close()
            return
        self._lines |= {writer, back}
        try:
            await asyncio.gather(self._pump(reader, back, "q"), self._pump(there, writer, "qa"))
        except (OSError, asyncio.CancelledError):
            pass  # cut, or the end
        finally:
            self._lines -= {writer, back}
            writer.close()
            back.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost_when: str) -> None:
        while data := await reader.read(_CHUNK):
            if not self._dropped or self._dropped not in lost_when:
                writer.write(data)
        writer.close()

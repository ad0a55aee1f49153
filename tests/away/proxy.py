"""A proxy before a server that can go away in every manner that a network knows."""

import contextlib
import re
import select
import socket
import threading
from collections.abc import Iterator

from tarry.errors import StoreError
from tarry.store.opening import open_store
from tarry.store.rules.base import Store
from tests.servers.redis import until

CHUNK = 65536
_IDLE = 0.2
"""Seconds between two looks of a thread whether it is over."""


class Proxy:
    """Forwards to one port of this host until it is told otherwise. Every method may be called from any thread."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._mode = "pass"
        self._replies_left = 0
        """Until the one that is lost; 0: none is."""
        self._requests_left = -1
        """Until all is refused; -1: nothing is."""
        self._delay = 0.0
        """Seconds that each reply takes longer."""
        self.lost = False
        """A reply was, or a request was refused."""
        self._pairs: set[tuple[socket.socket, socket.socket | None]] = set()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def passes(self) -> None:
        """As if it were not there."""
        with self._lock:
            self._mode, self._replies_left, self._requests_left, self.lost = "pass", 0, -1, False

    def refuses(self) -> None:
        """Connections end as soon as they are made, also those that were there."""
        self._mode = "refuse"
        self._cut()

    def is_silent(self) -> None:
        """Connections are accepted and nothing is ever answered; those that were there are cut."""
        self._mode = "silent"
        self._cut()

    def is_slow(self, seconds: float) -> None:
        """Each reply takes so much longer."""
        self._delay = seconds

    def lose(self, number: int) -> None:
        """The `number`th reply from now on, from 1, is lost, and after it all is refused."""
        self._replies_left = number

    def end_after(self, number: int) -> None:
        """So many requests from now on are answered, and all that comes after them is refused."""
        self._requests_left = number

    def close(self) -> None:
        """Ends it and every connection."""
        self._closed.set()
        self._cut()
        self._thread.join(5)
        self._listener.close()

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), backlog=64)
        listener.settimeout(_IDLE)
        return listener

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._listener.accept()
            except TimeoutError:
                continue
            if self._mode == "refuse":
                client.close()
                continue
            server = None
            if self._mode == "pass":
                try:
                    server = socket.create_connection(("127.0.0.1", self._to), 5)
                except OSError:
                    client.close()
                    continue
            pair = (client, server)
            with self._lock:
                # What went away meanwhile has not cut it.
                is_late = server is not None and self._mode != "pass"
                if not is_late:
                    self._pairs.add(pair)
            if server is None:
                continue
            if is_late:
                self._end((client, server))
            else:
                threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        try:
            while not self._closed.is_set():
                ready, _, _ = select.select([client, server], [], [], _IDLE)
                for one in ready:
                    got = one.recv(CHUNK)
                    if not got:
                        return
                    if self._loses() if one is server else self._refuses():
                        return
                    if one is server and self._closed.wait(self._delay):
                        return
                    (server if one is client else client).sendall(got)
        except (OSError, ValueError):
            return
        finally:
            self._end((client, server))

    def _loses(self) -> bool:
        """Whether a reply that has come is the one to lose. The server has answered, so it has done what was asked."""
        with self._lock:
            if self._replies_left == 0:
                return False
            self._replies_left -= 1
            if self._replies_left:
                return False
            self._note_loss()
        self._cut()
        return True

    def _refuses(self) -> bool:
        """Whether a request that has come is refused: it never reaches the server."""
        with self._lock:
            if self._requests_left < 0:
                return False
            if self._requests_left:
                self._requests_left -= 1
                return False
            self._note_loss()
        self._cut()
        return True

    def _note_loss(self) -> None:
        """All is refused from now on; `_lock` must be held."""
        # Both at once: whoever sees the loss lets all pass again, and that must not be undone.
        self.lost, self._mode = True, "refuse"

    def _cut(self) -> None:
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for one in pair:
                if one is not None:
                    with contextlib.suppress(OSError):
                        one.shutdown(socket.SHUT_RDWR)
                    if pair[1] is None:
                        one.close()

    def _end(self, pair: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            self._pairs.discard(pair)
        for one in pair:
            one.close()


class Lossy:
    """A second way to a store, on which replies can be lost; see `conformance.losing.Line`."""

    def __init__(self, store: Store, proxy: Proxy) -> None:
        self.store, self._proxy = store, proxy

    def lose(self, number: int) -> None:
        self._connect()
        self._proxy.lose(number)

    def end_after(self, number: int) -> None:
        """As `lose`: requests are counted on connections that are there."""
        self._connect()
        self._proxy.end_after(number)

    def _connect(self) -> None:
        """Connects; who is let in first needs replies, too."""
        with contextlib.suppress(StoreError):
            self.store.get([b"\0" * 16])

    def restore(self) -> bool:
        """Returns once the store answers."""
        lost = self._proxy.lost
        self._proxy.passes()
        until(lambda: _answers(self.store), "the store to answer")
        return lost


def behind_proxy(url: str) -> tuple[str, Proxy]:
    """The URL of the same server through a proxy, and the proxy, which the caller closes."""
    found = re.search(r":(\d+)/", url)
    assert found is not None, url
    proxy = Proxy(int(found[1]))
    return url.replace(f":{found[1]}/", f":{proxy.port}/"), proxy


def lossy(store: Store, options: str = "") -> Iterator[Lossy]:
    """Yields a second way to a server's store, through a proxy."""
    url, proxy = behind_proxy(store.url)
    through = open_store(url + options)
    try:
        yield Lossy(through, proxy)
    finally:
        through.close()
        proxy.close()


def _answers(store: Store) -> bool:
    try:
        store.get([b"\0" * 16])
    except StoreError:
        return False
    return True

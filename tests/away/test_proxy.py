"""The proxy of these tests: what it is told last counts, whatever its threads are doing."""

import socket
import socketserver
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.away.proxy import Proxy
from tests.worker.bench import until, wait_for


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while got := self.request.recv(100):
            self.request.sendall(got)


class _LateProxy(Proxy):
    """Its threads do not cut before they may."""

    def __init__(self, port: int) -> None:
        self.may_cut = threading.Event()
        super().__init__(port)

    def refuses(self) -> None:
        wait_for(self.may_cut)
        super().refuses()

    def _cut(self) -> None:
        wait_for(self.may_cut)
        super()._cut()


@pytest.fixture
def proxy() -> Iterator[_LateProxy]:
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Echo)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    proxy = _LateProxy(server.server_address[1])
    yield proxy
    proxy.close()
    server.shutdown()
    server.server_close()


def echoes(proxy: Proxy) -> bool:
    with socket.create_connection(("127.0.0.1", proxy.port), 5) as line:
        try:
            line.sendall(b"x")
            return bool(line.recv(1))
        except OSError:
            return False


@pytest.mark.parametrize("lose", [lambda proxy: proxy.lose(1), lambda proxy: proxy.end_after(0)])
def test_whoever_has_seen_a_loss_may_let_all_pass_again(proxy: _LateProxy, lose: Callable[[Proxy], None]) -> None:
    lose(proxy)
    asking = threading.Thread(target=echoes, args=(proxy,))
    asking.start()
    until(lambda: proxy.lost)
    proxy.passes()
    proxy.may_cut.set()
    asking.join()
    assert echoes(proxy)

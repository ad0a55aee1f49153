"""The shop's own server, which tarry calls. What it does is safe to do twice, since a request may come twice."""

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any, NamedTuple

from examples.shop.signed import genuine

HELD = "/orders/7/payment"
"""The first request here is not answered before its worker is dead."""
MOST_HELD = 15.0


class Arrival(NamedTuple):
    """A request whose signature was right."""

    job: str
    attempt: int
    at: float
    """Seconds since the epoch."""
    path: str
    answer: str


def answered(path: str, attempt: int) -> tuple[int, Any]:
    """What the shop says at the so-manieth attempt: an object is sent as JSON, a text as it stands."""
    match path.strip("/").split("/"):
        case ["members", member, "reminder"]:
            return 200, {"reminded": member}
        case ["orders", order, "payment"]:
            return 200, {"order": int(order), "paid": order != "8" or attempt > 1}
        case ["refunds", _]:
            return 200, {"status": "done" if attempt > 4 else "pending"}
        case ["partners", _, "orders"]:
            return (200, "success") if attempt > 4 else (503, "come back later")
    return 404, "nothing here"


class Server(ThreadingHTTPServer):
    """Serves while the block lasts, in threads. What arrives is also put into a queue."""

    daemon_threads = True

    def __init__(self, secret: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.secret = secret
        self.arrivals: SimpleQueue[Arrival] = SimpleQueue()
        self.refused = 0
        """Requests whose signature was wrong."""
        self.holding = ""
        """The job whose answer is held back, once `held` is set, until `go_on` is."""
        self.held, self.go_on = threading.Event(), threading.Event()

    def __enter__(self) -> "Server":
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    """One request after another of a connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def handle(self) -> None:
        """To the end of the connection, which may come when its worker is killed."""
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_POST(self) -> None:
        """All of them: first who it is, then what there is to say."""
        at = time.time()
        body = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        if not genuine(self.server.secret, headers, body):
            self.server.refused += 1
            self._say(401, "the signature is wrong")
            return
        attempt = int(headers["tarry-attempt"])
        status, answer = answered(self.path, attempt)
        text = answer if isinstance(answer, str) else json.dumps(answer)
        self.server.arrivals.put(Arrival(headers["webhook-id"], attempt, at, self.path, text))
        if self.path == HELD and not self.server.held.is_set():
            self.server.holding = headers["webhook-id"]
            self.server.held.set()
            self.server.go_on.wait(MOST_HELD)
        self._say(status, text)

    do_GET = do_POST  # noqa: N815 - their names

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the story is told elsewhere."""

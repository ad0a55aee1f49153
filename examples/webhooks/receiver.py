"""What your customers write: check the signature, and take each event once. Only the standard library."""

import base64
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

MAX_AGE = 300
"""Seconds after which a request is taken for an old one that somebody sends again."""
MAX_BODY = 1 << 20


def is_genuine(secret: str, headers: Mapping[str, str], body: bytes) -> bool:
    """By Standard Webhooks; any of its libraries does the same. headers: names in lower case."""
    id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not timestamp.isdecimal() or abs(time.time() - int(timestamp)) > MAX_AGE:
        return False
    key = base64.b64decode(secret.removeprefix("whsec_"))
    mac = hmac.digest(key, f"{id}.{timestamp}.".encode() + body, hashlib.sha256)
    expected = b"v1," + base64.b64encode(mac)
    return any(hmac.compare_digest(expected, one) for one in headers.get("webhook-signature", "").encode().split())


class Receiver:
    """The endpoint of one customer. failures: how many requests it answers with 503 at first."""

    def __init__(self, secret: str, failures: int = 0) -> None:
        self._secret, self._failures = secret, failures
        self._seen: set[str] = set()
        self._lock = threading.Lock()
        self.events: list[str] = []
        self.refused = 0

    def take(self, headers: Mapping[str, str], body: bytes) -> int:
        """The status of the answer."""
        with self._lock:
            if not is_genuine(self._secret, headers, body):
                self.refused += 1
                return 401
            if self._failures:
                self._failures -= 1
                return 503
            # It is sent at least once: what came before is answered, and not done again.
            if headers["webhook-id"] not in self._seen:
                self._seen.add(headers["webhook-id"])
                self.events.append(json.loads(body)["type"])
            return 204


@contextmanager
def served(receiver: Receiver) -> Iterator[str]:
    """The URL at which it takes requests."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(min(int(self.headers.get("content-length", "0")), MAX_BODY))
            self.send_response(receiver.take({name.lower(): text for name, text in self.headers.items()}, body))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/hooks"
        server.shutdown()

"""Sends single requests for tests, with a lookup that knows the tests' hosts."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tarry.push.http.address_guard import AddressGuard
from tarry.push.http.failure import Failure
from tarry.push.http.http_sender import HttpRequest, Sender, SendLimits
from tarry.push.http.response import HttpResponse

HEAD = b"HTTP/1.1 200 OK\r\n"
HERE = ["127.0.0.1"]
PATIENT = SendLimits(10, 5)


def lookup(host: str) -> list[str]:
    return {"hooks.example": HERE, "other.example": HERE, "metadata.example": ["169.254.169.254"]}[host]


def sender(trust: bytes = b"", allow: tuple[str, ...] = ("127.0.0.1",)) -> Sender:
    return Sender(AddressGuard(allow), trust, lookup=lookup)


def run(work: Callable[[Sender], Coroutine[Any, Any, Any]], trust: bytes = b"") -> Any:
    async def whole() -> Any:
        sending = sender(trust)
        try:
            return await work(sending)
        finally:
            await sending.close()

    return asyncio.run(whole())


def send(url: str, limits: SendLimits = PATIENT, trust: bytes = b"", **request: Any) -> HttpResponse | Failure:
    """The result of one request."""
    whole = HttpRequest(**{"method": "POST", "url": url, "body": b"{}"} | request)
    got = run(lambda sending: sending.send(whole, limits), trust)
    assert isinstance(got, HttpResponse | Failure)
    return got


def expect_answer(url: str, limits: SendLimits = PATIENT, trust: bytes = b"", **request: Any) -> HttpResponse:
    got = send(url, limits, trust, **request)
    assert isinstance(got, HttpResponse), got
    return got


def expect_failure(url: str, limits: SendLimits = PATIENT, trust: bytes = b"", **request: Any) -> Failure:
    got = send(url, limits, trust, **request)
    assert isinstance(got, Failure), got
    assert "\n" not in got.reason
    return got


async def until(condition: Callable[[], bool], limit: float = 60.0) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        await asyncio.sleep(0.005)


def open_connections(port: int) -> int:
    """How many connections to that port are open on the client's side."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    ends = [line.split()[2:4] for line in lines]
    return sum(int(remote.partition(":")[2], 16) == port and state in ("01", "08") for remote, state in ends)

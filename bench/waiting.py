"""Waiting for what other processes do."""

import socket
import time
from collections.abc import Callable


def until(done: Callable[[], bool], limit: float, step: float = 0.01) -> bool:
    """Waits for it, looking every `step` seconds for at most `limit`; answers whether it came."""
    end = time.monotonic() + limit
    while not done():
        if time.monotonic() >= end:
            return False
        time.sleep(step)
    return True


def free_port() -> int:
    """A port of this host at which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port


def answers(port: int) -> bool:
    """Whether somebody accepts connections at that port of this host."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True

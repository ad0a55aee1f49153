"""Waiting for what other processes do."""

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

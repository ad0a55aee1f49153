"""Facts of `tarry check` that all stores tell alike."""

import time
from collections.abc import Callable

from tarry.store.rules.base import Diagnostic

FAR = 0.5
"""Seconds between the clocks of this host and the server, from which on there is advice."""


def distance(now: Callable[[], int], slow: float = 0.02) -> list[Diagnostic]:
    """How far apart the hosts and their clocks are. now: asks the store for its time. slow: seconds of a round trip,
    from which on there is advice."""
    trips = []
    for _ in range(5):
        start = time.monotonic()
        there = now()
        trip = time.monotonic() - start
        # The server looked at its clock about half a round trip ago.
        trips.append((trip, there / 1e6 + trip / 2 - time.time()))
    # The fastest bounds the error of the offset best: the others may have waited for something else.
    trip, offset = min(trips)
    apart = "run NTP on this host and the server" if abs(offset) > FAR else ""
    far = f"over {slow * 1000:g} ms, which each call takes at least: run workers nearer to the server"
    return [
        Diagnostic("round trip", f"{trip * 1000:.2f} ms", far if trip > slow else ""),
        Diagnostic("clock offset", f"{offset * 1000:+.1f} ms", apart),
    ]


def size(count: int) -> Diagnostic:
    """How many bytes the jobs and all else take."""
    return Diagnostic("size", f"{count / 1e6:.1f} MB")

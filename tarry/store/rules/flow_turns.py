"""Flows take turns: whose nodes are released next, and how many."""

from collections.abc import Callable

from tarry.store.rules import flows


class Turns:
    """Of one process. Flows are in the order of their ids."""

    def __init__(self) -> None:
        self._served = b""
        """The flow that was served last."""

    def take(self, release_next: Callable[[bytes, int], tuple[bytes | None, int]], limit: int) -> bool:
        """Releases up to `limit` nodes; whether there were any. release_next: releases up to so many nodes of the first
        flow behind an id that has some, and returns the flow and how many; None: there is none."""
        left, found = limit, False
        for _ in range(flows.FLOWS_AT_ONCE):
            flow, released = release_next(self._served, left)
            if flow is None and self._served:
                flow, released = release_next(b"", left)
            if flow is None:
                self._served = b""
                break
            self._served, found, left = flow, True, left - released
            if left <= 0:
                break
        return found

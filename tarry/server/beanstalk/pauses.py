"""Tubes that are paused for a time: a cell says until when, so any process of the door resumes them."""

from msgspec import Struct, json

from tarry.model.checks.decoders import decode_json
from tarry.model.checks.unreadable import UNREADABLE
from tarry.model.duration import SECOND
from tarry.store.rules.base import Store
from tarry.store.rules.cell import change_cell
from tarry.store.rules.partial_result import reachable_part

CELLS = "beanstalk/pause/"
"""The prefix of the cells; the rest of the name is the tube."""


class Pause(Struct, frozen=True):
    """Of one tube."""

    until: int
    """The store's time, in microseconds."""
    seconds: int
    """As the client asked."""

    def left(self, now: int) -> int:
        """Whole seconds until it ends."""
        return max(0, (self.until - now) // SECOND)


class TubePauses:
    """Pauses and resumes tubes. All of it blocks, and raises StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def pause(self, tube: str, seconds: int, now: int) -> None:
        """Pauses a tube; with 0 seconds, resumes it."""
        if not seconds:
            self._set(tube, None)
            self._store.pause(tube, False)
            return
        # The cell first: a tube that is paused and has no cell would stay so.
        self._set(tube, json.encode(Pause(now + seconds * SECOND, seconds)))
        self._store.pause(tube, True)

    def resume_due(self, now: int) -> None:
        """Resumes the tubes whose time is over."""
        # Of several stores, one that is away keeps no tube of the others paused.
        for name, value in reachable_part(lambda: self._store.kv_list(CELLS)).items():
            pause = _decode(value)
            if pause is None or pause.until <= now:
                self._resume(name.removeprefix(CELLS), value, now)

    def _resume(self, tube: str, value: bytes, now: int) -> None:
        self._store.pause(tube, False)
        # After the queue: if this process dies in between, another one resumes it once more.
        if not self._store.kv_cas(CELLS + tube, None, value) and self.get(tube, now) is not None:
            # A client paused it anew meanwhile.
            self._store.pause(tube, True)

    def get(self, tube: str, now: int) -> Pause | None:
        """How long the tube is paused; None: it is not, or not through this door."""
        value = self._store.kv_get(CELLS + tube)
        pause = None if value is None else _decode(value)
        return None if pause is None or pause.until <= now else pause

    def _set(self, tube: str, value: bytes | None) -> None:
        # Two clients may pause it at once: the last one wins, as in beanstalkd.
        change_cell(self._store, CELLS + tube, lambda _: value)


def _decode(value: bytes) -> Pause | None:
    """The pause in a cell; None if nobody can read it."""
    try:
        return decode_json(value, Pause)
    except UNREADABLE:
        return None

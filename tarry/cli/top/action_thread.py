"""Does in the store what was wished for at the keyboard, one thing after the other, in a thread of its own."""

import contextlib
import queue
import threading
from collections.abc import Callable

from tarry.cli.top.sources import Door, Way
from tarry.cli.top.view_state import Wish
from tarry.client.client import Client
from tarry.errors import PartlyUnavailable, TarryError
from tarry.store import ids

_MOST = 16
"""Wishes that wait; who presses on while the store is away is told so."""
_DONE = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}


class Hands:
    """told: called from that thread with one line on how a wish went."""

    def __init__(self, way: Way, told: Callable[[str], None]) -> None:
        self._way, self._told = way, told
        self._door = Door(way.open)
        self._wishes: queue.Queue[Wish | None] = queue.Queue(_MOST)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begins to work."""
        self._thread.start()

    def do(self, wish: Wish) -> None:
        """Takes it on, or says that it does not."""
        try:
            self._wishes.put_nowait(wish)
        except queue.Full:
            self._told(f"{wish.shown} not {_DONE[wish.verb]}: the store has not done yet what was asked before")

    def close(self, limit: float) -> None:
        """What is begun may end within so many seconds; what waits is not done any more."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._wishes.get_nowait()
        self._wishes.put(None)
        if self._thread.ident is not None:
            self._thread.join(limit)

    def _run(self) -> None:
        while (wish := self._wishes.get()) is not None:
            self._told(f"{wish.verb} {wish.shown} ...")
            try:
                self._told(self._done(wish))
            except Exception as error:  # whatever it is, it is said, and the next wish is done
                self._told(f"{wish.shown} not {_DONE[wish.verb]}: {error}")
        with contextlib.suppress(TarryError):
            self._door.close()

    def _done(self, wish: Wish) -> str:
        store = self._door.store
        if wish.verb != "cancel":
            try:
                store.pause(wish.what, wish.verb == "pause")
            except PartlyUnavailable as error:
                return f"queue {wish.shown} {_DONE[wish.verb]} only in part: {error}"
            return f"queue {wish.shown} {_DONE[wish.verb]}"
        if Client(store, {}, rules=self._way.rules).cancel(ids.parsed(wish.what), "by tarry top"):
            return f"{wish.shown} cancelled"
        return f"{wish.shown} left as it is: it had finished already"

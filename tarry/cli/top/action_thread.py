"""Performs the actions of the user in the store, one at a time, in a separate thread."""

import contextlib
import queue
import threading
from collections.abc import Callable

from tarry.cli.top.sources import LazyStore, StoreAccess
from tarry.cli.top.view_state import Action
from tarry.client.client import Client
from tarry.errors import PartlyUnavailable, TarryError
from tarry.store import ids

_MOST = 16  # The most actions that wait; further ones are refused with a message.
_PAST_TENSE = {"pause": "paused", "resume": "resumed", "cancel": "cancelled"}


class ActionThread:
    """report: called from that thread with one line about the progress of an action."""

    def __init__(self, store_access: StoreAccess, report: Callable[[str], None]) -> None:
        self._store_access, self._report = store_access, report
        self._lazy_store = LazyStore(store_access.open)
        self._actions: queue.Queue[Action | None] = queue.Queue(_MOST)
        # daemon: a store that hangs must not delay the end of the process.
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def submit(self, action: Action) -> None:
        """Queues the action, or reports that it is refused."""
        try:
            self._actions.put_nowait(action)
        except queue.Full:
            self._report(
                f"{action.shown} not {_PAST_TENSE[action.verb]}: the store has not done yet what was asked before"
            )

    def close(self, limit: float) -> None:
        """Drops the waiting actions and waits at most `limit` seconds for the current one."""
        with contextlib.suppress(queue.Empty):
            while True:
                self._actions.get_nowait()
        # This does not wait: the queue is empty, and only this thread adds to it.
        self._actions.put(None)
        if self._thread.ident is not None:
            self._thread.join(limit)

    def _run(self) -> None:
        while (action := self._actions.get()) is not None:
            self._report(f"{action.verb} {action.shown} ...")
            try:
                self._report(self._perform(action))
            except Exception as error:  # report any error and go on with the next action
                self._report(f"{action.shown} not {_PAST_TENSE[action.verb]}: {error}")
        with contextlib.suppress(TarryError):
            self._lazy_store.close()

    def _perform(self, action: Action) -> str:
        store = self._lazy_store.store
        if action.verb != "cancel":
            try:
                store.pause(action.what, action.verb == "pause")
            except PartlyUnavailable as error:
                return f"queue {action.shown} {_PAST_TENSE[action.verb]} only in part: {error}"
            return f"queue {action.shown} {_PAST_TENSE[action.verb]}"
        # Without tasks: a cancel needs only the rules.
        if Client(store, {}, rules=self._store_access.rules).cancel(ids.parse(action.what), "by tarry top"):
            return f"{action.shown} cancelled"
        return f"{action.shown} left as it is: it had finished already"

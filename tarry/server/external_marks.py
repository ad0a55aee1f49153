"""Marks the queues that programs outside use, so that workers that serve "*" leave them out.

A program may ask for any name. So one that no job came from is marked for a short time, and one process marks a bounded
number of such names an hour: neither the store nor those who read all marks are filled by a client that tries names.
"""

import logging
from collections.abc import Callable, Collection, Sequence

from tarry.client.clock import elapsed
from tarry.model.duration import HOUR
from tarry.store.rules.base import Store
from tarry.worker.external_queues import MARKED_FOR, RENEWED_EVERY, TRIED_FOR, mark_external

log = logging.getLogger("tarry.server")

NEW_MOST = 1000
"""Queues that had no job for the programs of this process, and that it marks within an hour."""
_USED_MOST = 10_000


class ExternalMarks:
    """Of one process. Its methods may be called in several threads.

    app_queues: those of the app's own tasks, which stay unmarked: programs and Python workers then serve them side by
    side.
    """

    def __init__(self, app_queues: Callable[[], Collection[str]]) -> None:
        self._app_queues = app_queues
        self._due: dict[str, int] = {}
        """When each mark has to be renewed, by `elapsed`."""
        self._used: set[str] = set()
        self._new, self._new_until = 0, 0

    def due(self, queues: Sequence[str]) -> list[str]:
        """Those that `mark` would mark now."""
        now = elapsed()
        if now >= self._new_until:
            self._new, self._new_until = 0, now + HOUR
            self._due = {queue: due for queue, due in list(self._due.items()) if due > now}
        return [queue for queue in queues if self._due.get(queue, 0) <= now and self._may_mark(queue)]

    def mark(self, store: Store, queues: Sequence[str], moment: int) -> None:
        """Marks these queues, if that was not done lately. StoreError."""
        due = self.due(queues)
        own = self._app_queues() if due else ()
        for queue in due:
            is_used = queue in self._used
            # There may be more of them in one claim than are left.
            if not self._may_mark(queue):
                break
            if queue not in own:
                mark_external(store, queue, moment, MARKED_FOR if is_used else TRIED_FOR)
            self._new += not is_used
            self._due[queue] = elapsed() + RENEWED_EVERY

    def note_used(self, queues: Collection[str]) -> None:
        """There are jobs in these queues for programs outside: they are marked for long from the next `mark` on."""
        if self._used.issuperset(queues):
            return
        if len(self._used) >= _USED_MOST:
            self._used.clear()
        for queue in set(queues) - self._used:
            self._used.add(queue)
            self._due.pop(queue, None)

    def _may_mark(self, queue: str) -> bool:
        if queue in self._used or self._new < NEW_MOST:
            return True
        if self._new == NEW_MOST:
            # Once an hour.
            self._new += 1
            log.warning(
                "programs ask for more than %d queues in an hour that have no jobs: any more are served by workers of"
                ' "*", too, until a program has taken a job there',
                NEW_MOST,
            )
        return False

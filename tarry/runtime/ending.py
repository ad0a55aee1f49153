"""The end of a master: first its workers and servers, then the keeper, once it has brought back jobs of the dead."""

from collections.abc import Iterator

from tarry.runtime.board.layout import QUITTING
from tarry.runtime.process_end import QUIT
from tarry.runtime.processes import DeathReports, Processes
from tarry.runtime.role import KEEPER

_KEEPER_LIMIT = 5.0  # Seconds for the keeper to confirm all dead processes, and, in a forced stop, to end.
_AWAY_LIMIT = 1.0  # The same while the store is away.


class ShutdownOrder:
    """Times are of the monotonic clock."""

    def __init__(self, processes: Processes, deaths: DeathReports) -> None:
        self._processes, self._deaths = processes, deaths
        self._workers_gone_at = 0.0
        self.away = ""
        """Why the keeper cannot reach the store; empty: it can."""
        self.is_failure = False
        """True: the start has failed, so the keeper has nothing to do."""

    def advance(self, state: str, now: float) -> None:
        """Asks the processes that are to end now to do so, or kills them."""
        for group in self._processes.worker_groups():
            group.wanted = 0
        for child in self._processes.workers():
            if state == QUITTING:
                child.kill(QUIT)
            else:
                child.request_stop(now)
        self._workers_gone_at = self._workers_gone_at or (0.0 if self._processes.workers() else now)
        if not self.is_keeper_needed(now):
            self._stop_keepers(state, now)

    def is_keeper_needed(self, now: float) -> bool:
        """True while workers live, and until the keeper has confirmed all deaths or its time is over."""
        if self.is_failure:
            return False
        return bool(self._processes.workers()) or (
            bool(self._deaths.owners()) and now < self._workers_gone_at + self._keeper_limit
        )

    def wake_times(self) -> Iterator[float]:
        """When `advance` may have something to do."""
        yield self._workers_gone_at + self._keeper_limit
        yield from (child.stopping_since + self._keeper_limit for child in self._processes.all())

    def _stop_keepers(self, state: str, now: float) -> None:
        for group in self._processes.groups.values():
            if group.role.name == KEEPER:
                group.wanted = 0
        for child in self._processes.all():
            late = 0 < child.stopping_since <= now - self._keeper_limit
            if child.pid and child.is_keeper and late and (state == QUITTING or self.away):
                child.kill(QUIT)

    @property
    def _keeper_limit(self) -> float:
        return _AWAY_LIMIT if self.away else _KEEPER_LIMIT
